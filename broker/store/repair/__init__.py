"""What `amqpd check` does: find damage, report it, and repair what can be repaired."""
