"""The node `/management`: declarations by HTTP over AMQP 1.0, as RabbitMQ's clients use it."""
