"""Byte formats of the wire, without I/O: bytes in, calls and bytes out; no socket, no clock."""

OWNER = "amqpd"
