"""The rule of one argument, its allowed values, and the refusal of all other values."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, final
from urllib.parse import unquote, unquote_plus

from broker.core.errors import PreconditionFailed
from broker.core.names import is_short
from broker.core.values import show, type_name

Arguments = dict[str, object]

ANY_SIZE: Final = 2**63 - 1
SHOWN_MAX: Final = 80  # characters of a list or table in a refusal, of which clients see 255
MILLISECONDS_MAX: Final = 315_360_000_000  # ten years
_AGE_SECONDS: Final = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3600, "m": 60, "s": 1}
_AGE_UNITS: Final = "".join(_AGE_SECONDS)
_AGE_CHARACTERS: Final = 256
_NO_STRINGS: Final = frozenset({"int", "number", "bool", "names", "age", "members", "pins"})
"""The kinds of values that are no strings."""


@final
class ArgumentRule:
    """The values that one argument may have.

    `choices`: the allowed strings; () allows any string. `low` and `high` bound numbers. A value of the kind
    "set" names some of the `choices`, with commas between them. A value of the kind "headers" names up to
    `high` headers, with commas between them.
    `description`: the argument's effect, in words for the reference.
    """

    def __init__(
        self,
        kind: str,
        low: int = 0,
        high: int = 0,
        choices: tuple[str, ...] = (),
        description: str = "",
    ) -> None:
        self.kind = kind
        self.low = low
        self.high = high
        self.choices = choices
        self.description = description

    def allowed(self) -> str:
        """Return the allowed values in words."""
        if self.kind == "int":
            if self.high == ANY_SIZE:
                return f"an integer, at least {self.low}"
            return f"an integer from {self.low} to {self.high}"
        if self.kind == "number":
            return f"a number from {self.low} to {self.high}"
        if self.kind == "bool":
            return "a boolean"
        if self.kind == "names":
            return f"a list of at most {self.high} names"
        if self.kind == "members":
            return f"a list of {self.low} to {self.high} names or tables"
        if self.kind == "pins":
            return f"a table of at most {self.high} values with names"
        if self.kind == "age":
            return f"a string of digits and a unit out of {_AGE_UNITS}"
        if self.kind == "short":
            return "a string of at most 255 bytes"
        if self.kind == "header":
            return "a string of 1 to 255 bytes"
        if self.kind == "headers":
            return f"1 to {self.high} different names of headers with commas between them"
        if self.kind == "name":
            return "a string of at least one octet"
        if self.kind == "set":
            return "some of " + ", ".join(self.choices)
        return "one of " + ", ".join(self.choices) if self.choices else "a string"

    def objection(self, value: object) -> str:
        """Return the allowed values in words, or "" when `value` is one of them."""
        if self._allows(value):
            return ""
        return self.allowed() if self.kind in _NO_STRINGS or isinstance(value, str) else "a string"

    def _allows(self, value: object) -> bool:
        if self.kind == "int":
            return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high
        if self.kind == "number":
            number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
            return number and self._bounds(value)
        if self.kind == "bool":
            return isinstance(value, bool)
        if self.kind == "names":
            return _are_names(value, self.high)
        if self.kind == "members":
            return _are_members(value, self.low, self.high)
        if self.kind == "pins":
            return _are_pins(value, self.high)
        if self.kind == "age":
            return is_age(value)
        return isinstance(value, str) and self._allows_text(value)

    def _allows_text(self, text: str) -> bool:
        if self.kind == "short":
            return is_short(text)
        if self.kind == "header":
            return text != "" and is_short(text)
        if self.kind == "headers":
            named = {name.strip() for name in text.split(",")}
            return len(named) == text.count(",") + 1 <= self.high and all(
                name and is_short(name) for name in named
            )
        if self.kind == "name":
            return text != ""
        if self.kind == "set":
            return {name.strip() for name in text.split(",")} <= set(self.choices)
        return not self.choices or text in self.choices

    def _bounds(self, value: object) -> bool:
        """Whether a number is within the bounds; NaN is not."""
        assert isinstance(value, int | float | Decimal), "its type was looked at"
        return self.low <= value <= self.high


def _are_names(value: object, most: int) -> bool:
    if not isinstance(value, list) or len(value) > most:
        return False
    return all(isinstance(name, str) and name for name in value)


def _are_members(value: object, least: int, most: int) -> bool:
    if not isinstance(value, list) or not least <= len(value) <= most:
        return False
    return all(isinstance(each, dict) or (isinstance(each, str) and each) for each in value)


def _are_pins(value: object, most: int) -> bool:
    if not isinstance(value, dict) or len(value) > most:
        return False
    return all(isinstance(name, str) and name for name in value.values())


def is_age(value: object) -> bool:
    """Whether `value` is an age such as `12h`: up to 255 digits, and one of the units Y, M, D, h, m, s."""
    if not isinstance(value, str) or not 2 <= len(value) <= _AGE_CHARACTERS:
        return False
    digits = value[:-1]
    return digits.isascii() and digits.isdigit() and value[-1] in _AGE_UNITS


def age_milliseconds(age: str) -> int:
    """Return a checked age in milliseconds; a year has 365 days, a month 30. [RabbitMQ x-max-age]"""
    return min(int(age[:-1]) * _AGE_SECONDS[age[-1]] * 1000, ANY_SIZE)


REMOTE: Final = "x-remote"
"""The argument with the address of another broker, and perhaps a password."""

NOT_A_URI: Final = "(not a URI)"
_AUTHORITY_END: Final = re.compile("[/?]")


def show_address(value: object) -> str:
    """Return the value of `x-remote` without user, password and query, for errors, logs and the API."""
    if not isinstance(value, str):
        return NOT_A_URI
    scheme, found, rest = value.partition("://")
    authority, *behind = _AUTHORITY_END.split(rest, maxsplit=1)
    if not found or not scheme.isalnum() or any("@" in each for each in behind):
        return NOT_A_URI
    place = authority.rpartition("@")[2]
    path = rest[len(authority) :].partition("?")[0]
    return f"{scheme}://{place}{path}"


ADDRESSED: Final = ("x-partition-members", "x-partition-pins")
"""The arguments whose strings may be addresses of queues in other brokers."""

_ADDRESSES: Final = ("amqp:", "amqps:")


def is_address(text: object) -> bool:
    """Whether a name in ADDRESSED is the address of a queue in another broker."""
    return isinstance(text, str) and text.strip().lower().startswith(_ADDRESSES)


def queue_in_address(address: str) -> tuple[str, str, str, str]:
    """Return the scheme, the host with its port, the virtual host and the queue of an address, "" if absent.

    The address need not be a URI.
    """
    scheme, _, rest = address.strip().partition("://")
    scheme = scheme.lower()
    authority = _AUTHORITY_END.split(rest, maxsplit=1)[0]
    path, _, query = rest[len(authority) :].partition("?")
    place = authority.rpartition("@")[2].lower()
    if not place.rpartition(":")[2].isdigit():
        place += ":5671" if scheme == "amqps" else ":5672"
    vhost, _, queue = path.removeprefix("/").partition("/")
    named = [unquote_plus(pair[6:]) for pair in query.split("&") if pair.startswith("queue=")]
    return scheme, place, unquote(vhost), named[0] if named else unquote(queue)


def show_member(address: str) -> str:
    """Return the address of a member without user, password and query, except for the queue in the query."""
    shown = show_address(address)
    query = address.partition("?")[2]
    named = [pair for pair in query.split("&") if pair.startswith("queue=")]
    return f"{shown}?{named[0]}" if named and shown != NOT_A_URI else shown


def shown_argument(name: str, value: object) -> object:
    """Return the value of an argument as users may see it: an address without its log-in.

    A number, a truth value and an empty value are shown: they contain no log-in.
    """
    if name in ADDRESSED:
        return _without_logins(value)
    return show_address(value) if name == REMOTE and value and not isinstance(value, int | float) else value


def _without_logins(value: object) -> object:
    """Return a value of a field table with each address in it as users may see it."""
    if isinstance(value, (bytes, bytearray)):
        return show_address("") if is_address(value.decode("latin-1")) else value
    if isinstance(value, str):
        return show_member(value) if is_address(value) else value
    if isinstance(value, (list, tuple)):
        return [_without_logins(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_logins(each) for name, each in value.items()}
    return value


def invalid(name: str, owner: str, value: object, why: str) -> PreconditionFailed:
    """Return the refusal of an argument of `owner`, `queue 'q' in vhost '/'`, that cannot have this value."""
    shown = show(shown_argument(name, value))
    if len(shown) > SHOWN_MAX and not isinstance(value, str):
        shown = shown[:SHOWN_MAX] + "..."
    return PreconditionFailed(
        f"invalid arg '{name}' for {owner}: '{shown}' of type '{type_name(value)}' {why}"
    )
