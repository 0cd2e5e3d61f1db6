"""amqpd, a message broker: the engine room. Nothing runs on import."""

__version__ = "0.1.0"

OWNER = "amqpd"
"""Checked at start: another distribution may have installed a package of the same name over this one."""
