"""AMQP 0-9-1: framing, methods, content, connection and channel states."""
