"""The names of one protocol's properties among the annotations or headers of the other protocol."""

from typing import Final

ENCODED_BODY: Final = b"amqp-1.0"  # the type of a message whose body is sections of AMQP 1.0

EXCHANGE: Final = b"x-exchange"
ROUTING_KEY: Final = b"x-routing-key"
BASIC: Final = b"x-basic-"
BASIC_TYPE: Final = b"x-basic-type"
BASIC_FORMAT: Final = b"x-basic-format"  # the message-format of a payload in a format other than 0
MESSAGE_ID: Final = b"x-message-id"  # a message-id that is no short string
CORRELATION_ID: Final = b"x-correlation-id"
CC: Final = b"CC"  # further routing keys: as a header,
X_CC: Final = b"x-cc"  # and as an annotation


def is_internal(name: bytes) -> bool:
    """Whether an annotation or header is not converted as such: the other protocol has a field for it."""
    return name.startswith(BASIC) or name in (EXCHANGE, ROUTING_KEY, MESSAGE_ID, CORRELATION_ID, b"x-death")
