"""What a binding of a headers exchange asks of a message's headers."""

from typing import Final, final

from broker.core.errors import PreconditionFailed
from broker.core.field_values import show, type_name
from broker.core.selector.argument import SELECTOR

X_MATCH: Final = "x-match"
_STRINGS: Final = (str, bytes, bytearray)
_MODES: Final = ("all", "any", "all-with-x", "any-with-x")


@final
class HeaderPattern:
    """The fields of a binding: all of them, or any, must be among the headers with the same value.

    A field without a value (void) asks only that the header is there. Fields that begin with `x-` count only
    in the modes `all-with-x` and `any-with-x`; `x-match` itself, and a selector, never do [RabbitMQ].
    """

    def __init__(self, arguments: dict[str, object]) -> None:
        mode = arguments.get(X_MATCH, "all")
        self.any = mode == "any" or mode == "any-with-x"
        with_x = mode == "all-with-x" or mode == "any-with-x"
        self.fields: list[tuple[str, object]] = [
            (name, value)
            for name, value in arguments.items()
            if name not in (X_MATCH, SELECTOR) and (with_x or not name.startswith("x-"))
        ]

    def matches(self, headers: dict[str, object]) -> bool:
        """Whether a message with these headers is taken. No fields: `all` takes every message, `any` none."""
        for name, value in self.fields:
            same = name in headers and (value is None or same_value(value, headers[name]))
            if same == self.any:
                return self.any
        return not self.any


def check_headers_binding(arguments: dict[str, object]) -> None:
    """Refuse an `x-match` that is none of RabbitMQ's four.

    Raises:
        PreconditionFailed: it has another value or is no string.
    """
    if X_MATCH not in arguments:
        return
    mode = arguments[X_MATCH]
    if not isinstance(mode, str):
        raise PreconditionFailed(
            f"Invalid x-match field type {type_name(mode)} (value {show(mode)}); expected longstr"
        )
    if mode not in _MODES:
        raise PreconditionFailed(
            f'Invalid x-match field value <<"{mode}">>; expected all, any, all-with-x, or any-with-x'
        )


def same_value(left: object, right: object) -> bool:
    """Equality of field values, within one type only. [RabbitMQ since 3.13]

    Integers are one type whatever their width, so are floats, and so are strings and binaries; an integer is
    not a float and true is not 1.
    """
    if type(left) is type(right) and not isinstance(left, (list, dict)):
        return left == right
    if isinstance(left, _STRINGS) and isinstance(right, _STRINGS):
        return _octets(left) == _octets(right)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(same_value(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_value(left[name], right[name]) for name in left)
    return False


def _octets(value: object) -> object:
    """A string that is not UTF-8 arrives as bytes and is still a string."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
