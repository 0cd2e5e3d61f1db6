"""The node `/management`: the topology over HTTP over AMQP 1.0, as RabbitMQ's clients use it."""
