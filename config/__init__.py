"""The settings: their definitions, the places that set them, and their allowed values."""

OWNER = "amqpd"
