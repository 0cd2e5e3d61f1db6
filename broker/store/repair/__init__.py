"""The work of `amqpd check`: find damage, report it, and repair what can be repaired."""
