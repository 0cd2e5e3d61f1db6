"""amqpd bench: a load generator that checks every message."""
