"""The arguments of queues, exchanges, consumers: which values are allowed, when a redeclaration is the same.

Refusals begin with RabbitMQ's words and name the argument and the value. RabbitMQ's arguments that have no
effect here (README.md has the list) are checked, kept and shown all the same; arguments that RabbitMQ does
not know are kept as they are. A stream is refused: who asks for one must not get a queue that forgets.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.errors import PreconditionFailed
from broker.core.field_values import show, type_name
from broker.core.names import is_short

Arguments = dict[str, object]

MAX_PRIORITY: Final = "x-max-priority"
ALTERNATE_EXCHANGE: Final = "alternate-exchange"
EXPIRES: Final = "x-expires"
MESSAGE_TTL: Final = "x-message-ttl"
MAX_LENGTH: Final = "x-max-length"
MAX_LENGTH_BYTES: Final = "x-max-length-bytes"
OVERFLOW: Final = "x-overflow"
DELAYED_TYPE: Final = "x-delayed-type"
DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
DEAD_LETTER_ROUTING_KEY: Final = "x-dead-letter-routing-key"
QUEUE_TYPE: Final = "x-queue-type"
DEFAULT_QUEUE_TYPE: Final = "classic"
QUORUM: Final = "quorum"
DELIVERY_LIMIT: Final = "x-delivery-limit"
SINGLE_ACTIVE_CONSUMER: Final = "x-single-active-consumer"
CONSUMER_TIMEOUT: Final = "x-consumer-timeout"
PRIORITY: Final = "x-priority"
BROWSE: Final = "x-browse"

_ANY_SIZE: Final = 2**63 - 1
_MILLISECONDS_MAX: Final = 315_360_000_000  # ten years
_AGE_UNITS: Final = "YMDhms"
_LEADER_LOCATORS: Final[tuple[str, ...]] = (
    "client-local",
    "balanced",
    "random",
    "least-leaders",
    "min-masters",
)


@final
class _Rule:
    """What one argument may be. `choices` () allows any string; `low` and `high` bound integers."""

    def __init__(self, kind: str, low: int = 0, high: int = 0, choices: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.low = low
        self.high = high
        self.choices = choices

    def objection(self, value: object) -> str:
        """What is allowed instead of `value`, or "" when it is allowed."""
        if self.kind == "int":
            if isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high:
                return ""
            if self.high == _ANY_SIZE:
                return f"an integer, at least {self.low}"
            return f"an integer from {self.low} to {self.high}"
        if self.kind == "bool":
            return "" if isinstance(value, bool) else "a boolean"
        if self.kind == "age":
            return "" if _is_age(value) else f"a string of digits and a unit out of {_AGE_UNITS}"
        if not isinstance(value, str):
            return "a string"
        if self.kind == "short" and not is_short(value):
            return "a string of at most 255 bytes"
        if self.kind == "name" and not value:
            return "a string of at least one octet"
        if self.choices and value not in self.choices:
            return "one of " + ", ".join(self.choices)
        return ""


def _is_age(value: object) -> bool:
    if not isinstance(value, str) or len(value) < 2:
        return False
    digits = value[:-1]
    return digits.isascii() and digits.isdigit() and value[-1] in _AGE_UNITS


def _queue_rules() -> dict[str, _Rule]:
    """The arguments of queues in the order in which they are checked and compared."""
    return {
        EXPIRES: _Rule("int", 1, _MILLISECONDS_MAX),
        MESSAGE_TTL: _Rule("int", 0, _MILLISECONDS_MAX),
        DEAD_LETTER_EXCHANGE: _Rule("short"),
        DEAD_LETTER_ROUTING_KEY: _Rule("short"),
        "x-dead-letter-strategy": _Rule("str", choices=("at-most-once", "at-least-once")),
        MAX_LENGTH: _Rule("int", 0, _ANY_SIZE),
        MAX_LENGTH_BYTES: _Rule("int", 0, _ANY_SIZE),
        "x-max-in-memory-length": _Rule("int", 0, _ANY_SIZE),
        "x-max-in-memory-bytes": _Rule("int", 0, _ANY_SIZE),
        OVERFLOW: _Rule("str", choices=("drop-head", "reject-publish", "reject-publish-dlx")),
        MAX_PRIORITY: _Rule("int", 1, 255),
        SINGLE_ACTIVE_CONSUMER: _Rule("bool"),
        QUEUE_TYPE: _Rule("str", choices=(DEFAULT_QUEUE_TYPE, QUORUM)),
        "x-queue-mode": _Rule("str", choices=("default", "lazy")),
        "x-queue-version": _Rule("int", 1, 2),
        "x-queue-master-locator": _Rule("str"),
        "x-queue-leader-locator": _Rule("str", choices=_LEADER_LOCATORS),
        "x-quorum-initial-group-size": _Rule("int", 1, _ANY_SIZE),
        CONSUMER_TIMEOUT: _Rule("int", 1, _MILLISECONDS_MAX),
        DELIVERY_LIMIT: _Rule("int", -1, _ANY_SIZE),
        "x-delayed-retry-type": _Rule("str", choices=("disabled", "all", "failed", "returned")),
        "x-delayed-retry-min": _Rule("int", 0, _MILLISECONDS_MAX),
        "x-delayed-retry-max": _Rule("int", 0, _MILLISECONDS_MAX),
        "x-member-placement-tag": _Rule("name"),
        "x-max-age": _Rule("age"),
        "x-stream-max-segment-size-bytes": _Rule("int", 1, _ANY_SIZE),
        "x-stream-filter-size-bytes": _Rule("int", 16, 255),
        "x-initial-cluster-size": _Rule("int", 1, _ANY_SIZE),
    }


_QUEUE_RULES: Final = _queue_rules()
_CONSUMER_RULES: Final = {
    PRIORITY: _Rule("int", -(2**31), 2**31 - 1),
    BROWSE: _Rule("bool"),
    CONSUMER_TIMEOUT: _Rule("int", 0, _MILLISECONDS_MAX),
}


def queue_argument_objection(name: str, value: object) -> str:
    """What is allowed instead of `value` for an argument of queues, or "" when it is allowed."""
    return _QUEUE_RULES[name].objection(value)


def check_queue_arguments(arguments: Arguments, queue: str) -> None:
    """Check the arguments of a queue; `queue` is its description for the refusal, `queue 'q' in vhost '/'`.

    Raises:
        PreconditionFailed: an argument has a value that it cannot have.
    """
    for name, rule in _QUEUE_RULES.items():
        if name in arguments:
            allowed = rule.objection(arguments[name])
            if allowed:
                raise _invalid(name, queue, arguments[name], f"is not {allowed}")
    if DEAD_LETTER_ROUTING_KEY in arguments and DEAD_LETTER_EXCHANGE not in arguments:
        value = arguments[DEAD_LETTER_ROUTING_KEY]
        raise _invalid(DEAD_LETTER_ROUTING_KEY, queue, value, f"needs {DEAD_LETTER_EXCHANGE}")


def _invalid(name: str, owner: str, value: object, why: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"invalid arg '{name}' for {owner}: '{show(value)}' of type '{type_name(value)}' {why}"
    )


def check_exchange_arguments(arguments: Arguments, exchange: str) -> None:
    """Check the arguments of an exchange; `exchange` is its description, `exchange 'x' in vhost '/'`.

    Raises:
        PreconditionFailed: the alternate exchange is not named by a string.
    """
    if ALTERNATE_EXCHANGE in arguments:
        value = arguments[ALTERNATE_EXCHANGE]
        if not isinstance(value, str):
            raise PreconditionFailed(
                f"invalid type '{type_name(value)}' for arg '{ALTERNATE_EXCHANGE}' in {exchange}: "
                f"'{show(value)}'"
            )


def number_argument(arguments: Arguments, name: str, default: i64) -> i64:
    """An integer argument of a queue, which has been checked."""
    value = arguments.get(name)
    if value is None:
        return default
    assert isinstance(value, int), "arguments are checked before a queue is made"
    return value


def text_argument(arguments: Arguments, name: str) -> str | None:
    """A string argument of a queue, which has been checked; None if the queue has it not."""
    value = arguments.get(name)
    assert value is None or isinstance(value, str), "arguments are checked before a queue is made"
    return value


def priority_levels(arguments: Arguments) -> int:
    """How many priorities a queue tells apart: 1, or `x-max-priority` and 0."""
    highest = arguments.get(MAX_PRIORITY, 0)
    assert isinstance(highest, int), "arguments are checked before a queue is made"
    return highest + 1


def check_consumer_arguments(arguments: Arguments, queue: str) -> None:
    """Check the arguments of a consumer; `queue` describes what it consumes, `queue 'q' in vhost '/'`.

    Raises:
        PreconditionFailed: an argument has a value that it cannot have.
    """
    for name, rule in _CONSUMER_RULES.items():
        if name in arguments:
            allowed = rule.objection(arguments[name])
            if allowed:
                raise _invalid(name, queue, arguments[name], f"is not {allowed}")


def is_quorum(arguments: Arguments) -> bool:
    """Whether a queue is to behave as RabbitMQ's quorum queues do."""
    return arguments.get(QUEUE_TYPE) == QUORUM


def check_quorum(arguments: Arguments, durable: bool, exclusive: bool, auto_delete: bool, queue: str) -> None:
    """Refuse a quorum queue that would not outlive its connection, its consumers or the broker.

    Raises:
        PreconditionFailed: the property that it cannot have.
    """
    if is_quorum(arguments):
        for wrong, name in (
            (auto_delete, "auto-delete"),
            (exclusive, "exclusive-owner"),
            (not durable, "non-durable"),
        ):
            if wrong:
                raise PreconditionFailed(f"invalid property '{name}' for {queue}")


def has_single_active_consumer(arguments: Arguments) -> bool:
    """Whether a queue serves one consumer at a time."""
    return arguments.get(SINGLE_ACTIVE_CONSUMER) is True


def assert_same_field(name: str, current: object, received: object, owner: str) -> None:
    """Hold a redeclaration to a property of the object as it is.

    Raises:
        PreconditionFailed: it is another.
    """
    if current != received:
        raise _inequivalent(name, owner, f"'{show(received)}'", f"'{show(current)}'")


def assert_same_queue_arguments(current: Arguments, received: Arguments, queue: str) -> None:
    """Hold a redeclaration to the arguments of the queue as it is. Arguments that nobody knows do not count.

    Raises:
        PreconditionFailed: the argument that differs, and both values.
    """
    for name in _QUEUE_RULES:
        _assert_same_argument(name, current, received, queue)


def assert_same_exchange_arguments(current: Arguments, received: Arguments, exchange: str) -> None:
    """Hold a redeclaration to the alternate exchange and to `x-delayed-type` of the exchange as it is.

    [RabbitMQ: only to the former]

    Raises:
        PreconditionFailed: the argument and both values.
    """
    for name in (ALTERNATE_EXCHANGE, DELAYED_TYPE):
        _assert_same_argument(name, current, received, exchange)


def _assert_same_argument(name: str, current: Arguments, received: Arguments, owner: str) -> None:
    if name in current and name in received:
        old = current[name]
        new = received[name]
        if _type_class(old) != _type_class(new) or old != new:
            raise _inequivalent(name, owner, f"'{show(new)}'", f"'{show(old)}'")
    elif name in current or name in received:
        only = current[name] if name in current else received[name]
        if name == QUEUE_TYPE and only == DEFAULT_QUEUE_TYPE:
            return
        raise _inequivalent(name, owner, _typed(name, received), _typed(name, current))


def _type_class(value: object) -> str:
    name = type_name(value)
    return "int" if name in ("signedint", "long") else name


def _typed(name: str, arguments: Arguments) -> str:
    if name not in arguments:
        return "none"
    value = arguments[name]
    return f"the value '{show(value)}' of type '{type_name(value)}'"


def _inequivalent(name: str, owner: str, received: str, current: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"inequivalent arg '{name}' for {owner}: received {received} but current is {current}"
    )
