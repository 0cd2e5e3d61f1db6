"""The names of exchanges, queues and virtual hosts: which are reserved, and how long they may be."""

from typing import Final

from broker.core.errors import AccessRefused, PreconditionFailed
from broker.core.message import SHORT_STRING_BYTES_MAX

DEFAULT_EXCHANGE: Final = ""
RESERVED_PREFIX: Final = "amq."


def refuse_default(exchange: str) -> None:
    """Refuse the exchange without a name, which cannot be changed.

    Raises:
        AccessRefused: it is that one.
    """
    if exchange == DEFAULT_EXCHANGE:
        raise AccessRefused("operation not permitted on the default exchange")


def one_line(name: str) -> str:
    """Take CR and LF out of the name that a client gives to an exchange or queue. [RabbitMQ]"""
    return name.replace("\r", "").replace("\n", "")


def check_name(kind: str, name: str) -> None:
    """Refuse a name that a client may not give to a new object.

    Raises:
        AccessRefused: it begins with `amq.`.
        PreconditionFailed: it is longer than 255 bytes, or no Unicode text, or has a line break. Clients of
            AMQP 0-9-1 could not name the object, and would reach another one.
    """
    if name.startswith(RESERVED_PREFIX):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
    if one_line(name) != name:
        raise PreconditionFailed(f"{kind} name {name!a} has a line break")
    check_length(f"{kind} name", name)


def check_length(what: str, text: str) -> None:
    """Hold a text to what a short string can carry.

    Raises:
        PreconditionFailed: it has more bytes than that, or half a character, which UTF-8 cannot spell.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise PreconditionFailed(f"{what} {text!a} has half a character") from error
    if size > SHORT_STRING_BYTES_MAX:
        raise PreconditionFailed(f"{what} is {size} bytes long, at most {SHORT_STRING_BYTES_MAX} are allowed")


def is_short(text: str) -> bool:
    """Whether a short string can carry a text."""
    try:
        check_length("", text)
    except PreconditionFailed:
        return False
    return True


def is_predeclared(exchange: str) -> bool:
    """Whether an exchange of this name is there from the start: nobody else may use the prefix."""
    return exchange.startswith(RESERVED_PREFIX)
