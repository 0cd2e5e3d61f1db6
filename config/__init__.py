"""Settings: what can be set, where it was set, and what is allowed."""

OWNER = "amqpd"
