"""The names of exchanges, queues and virtual hosts: reserved names, and the longest allowed ones."""

from typing import Final

from broker.core.errors import AccessRefused, PreconditionFailed
from broker.core.message import SHORT_STRING_BYTES_MAX

DEFAULT_EXCHANGE: Final = ""
RESERVED_PREFIX: Final = "amq."


def refuse_default_exchange(exchange: str) -> None:
    """Refuse a change of the default exchange.

    Raises:
        AccessRefused: `exchange` is the default exchange.
    """
    if exchange == DEFAULT_EXCHANGE:
        raise AccessRefused("operation not permitted on the default exchange")


def one_line(name: str) -> str:
    """Remove CR and LF from the name that a client gives to an exchange or queue. [RabbitMQ]"""
    return name.replace("\r", "").replace("\n", "")


def check_name(kind: str, name: str) -> None:
    """Refuse a name that a client may not give to a new object.

    Raises:
        AccessRefused: the name begins with `amq.`.
        PreconditionFailed: the name is longer than 255 bytes, not valid UTF-8, or has a line break. Clients
            of AMQP 0-9-1 could not name the object, and would reach another one.
    """
    if name.startswith(RESERVED_PREFIX):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
    if one_line(name) != name:
        raise PreconditionFailed(f"{kind} name {name!a} has a line break")
    check_length(f"{kind} name", name)


def check_length(what: str, text: str) -> None:
    """Refuse a text that does not fit into a short string.

    Raises:
        PreconditionFailed: the text has too many bytes, or is not valid UTF-8.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise PreconditionFailed(f"{what} {text!a} is not valid UTF-8") from error
    if size > SHORT_STRING_BYTES_MAX:
        raise PreconditionFailed(f"{what} is {size} bytes long, at most {SHORT_STRING_BYTES_MAX} are allowed")


def is_short(text: str) -> bool:
    """Whether a text fits into a short string."""
    try:
        check_length("", text)
    except PreconditionFailed:
        return False
    return True


def is_predeclared(exchange: str) -> bool:
    """Whether an exchange of this name exists from the start: clients may not use the prefix."""
    return exchange.startswith(RESERVED_PREFIX)
