"""The byte formats of the wire: bytes in, calls and bytes out, without sockets and clocks."""

OWNER = "amqpd"
