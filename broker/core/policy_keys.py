"""What policies may set, and which value holds where a policy, an operator policy and an argument disagree.

The keys are RabbitMQ's, and those for arguments that are amqpd's own. But for `alternate-exchange`, which is
for exchanges, each is an argument of queues without its `x-`, and may have the same values.
"""

from __future__ import annotations

from typing import Final

from broker.core.arguments import (
    ALTERNATE_EXCHANGE,
    DEFAULT_QUEUE_TYPE,
    QUORUM,
    queue_argument_objection,
)
from broker.core.queue_kinds import QUEUE_TYPE, STREAM, is_stream

ARGUMENT_PREFIX: Final = "x-"
DELIVERY_LIMIT: Final = "delivery-limit"
OVERFLOW: Final = "overflow"

AUTO_CREATE: Final = "auto-create"
"""Whether a client of AMQP 1.0 makes a queue by naming it; so it is for queues that are not there yet."""

WITHOUT_EFFECT: Final = frozenset(
    {
        "initial-cluster-size",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "queue-leader-locator",
        "queue-master-locator",
        "queue-mode",
        "queue-version",
        "stream-filter-size-bytes",
    }
)
"""What a policy can set on queues to no effect: it is checked, kept and shown.

Replicas and memory are not a queue's own matter here, and filters of streams do not err."""

QUEUE_KEYS: Final = WITHOUT_EFFECT | {
    "consumer-timeout",
    "consumers-before-dispatch",
    "dead-letter-exchange",
    "dead-letter-reasons",
    "dead-letter-routing-key",
    "dead-letter-strategy",
    "delay-before-dispatch",
    "delayed-retry-max",
    "delayed-retry-min",
    "delayed-retry-type",
    "delivery-count-on",
    "dedup-limit",
    "dedup-producers",
    "dedup-window",
    DELIVERY_LIMIT,
    "dispatch",
    "exclusive-takeover",
    "expires",
    "expires-if-empty",
    "get-wait",
    "journal",
    "max-age",
    "max-length",
    "max-length-bytes",
    "message-ttl",
    OVERFLOW,
    "priority-mapping",
    "retry-jitter",
    "retry-max",
    "retry-min",
    "retry-multiplier",
    "stream-max-segment-size-bytes",
}
"""What a policy can set on queues."""

_OF_STREAMS: Final = frozenset({"max-age", "stream-max-segment-size-bytes"})
_OF_STREAMS_TOO: Final = frozenset({"max-length-bytes"})


def without_effect(arguments: dict[str, object]) -> frozenset[str]:
    """What changes nothing of a queue with these arguments, whoever sets it."""
    if is_stream(arguments):
        return QUEUE_KEYS - _OF_STREAMS - _OF_STREAMS_TOO
    return WITHOUT_EFFECT | _OF_STREAMS


OPERATOR_KEYS: Final = frozenset(
    {
        DELIVERY_LIMIT,
        "expires",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
        OVERFLOW,
        "queue-version",
    }
)
"""What an operator policy can set. [RabbitMQ operator policies]"""

MIRRORING_KEYS: Final = frozenset(
    {
        "ha-mode",
        "ha-params",
        "ha-promote-on-failure",
        "ha-promote-on-shutdown",
        "ha-sync-batch-size",
        "ha-sync-mode",
    }
)
"""Mirrored queues of RabbitMQ before 4.0: policies of such a broker are taken as they are, to no effect."""

LEAST_HOLDS: Final = frozenset(
    {
        "consumer-timeout",
        "delayed-retry-max",
        "delayed-retry-min",
        "expires",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
    }
)
"""Limits: the least of all values holds. [RabbitMQ rabbit_policies merge_policy_value, args_policy_lookup]"""

POLICY_HOLDS: Final = frozenset(
    {
        "delayed-retry-type",
        "initial-cluster-size",
        "journal",
        "max-age",
        "stream-filter-size-bytes",
        "stream-max-segment-size-bytes",
    }
)
"""Where a policy wins over the argument. [RabbitMQ policy_precedence, policy_has_precedence]"""


def objection(key: str, value: object, operator: bool) -> str:
    """What is wrong with `key` or its value in a policy, or "" when nothing is."""
    if operator:
        if key not in OPERATOR_KEYS:
            return "is not a key of operator policies; they have " + ", ".join(sorted(OPERATOR_KEYS))
    elif key == ALTERNATE_EXCHANGE:
        return "" if isinstance(value, str) else "is not a string"
    elif key == AUTO_CREATE:
        return "" if isinstance(value, bool) else "is not a boolean"
    elif key in MIRRORING_KEYS:
        return ""
    elif key not in QUEUE_KEYS:
        keys = QUEUE_KEYS | {ALTERNATE_EXCHANGE, AUTO_CREATE}
        return "is not a key of policies; they have " + ", ".join(sorted(keys))
    allowed = queue_argument_objection(ARGUMENT_PREFIX + key, value)
    return f"is not {allowed}" if allowed else ""


def capped(key: str, value: object, cap: object) -> object:
    """What a policy's value comes to under an operator policy. [RabbitMQ operator policies]"""
    if key == DELIVERY_LIMIT or key in LEAST_HOLDS:
        return _least(key, value, cap)
    return cap


def resolved(key: str, value: object, argument: object, queue_type: str) -> object:
    """What holds for a queue whose policies say `value` and whose argument says `argument`.

    [RabbitMQ args_policy_lookup]: limits take the least, other arguments win over policies, but for those
    of streams, and `overflow` on quorum queues.
    """
    if queue_type == STREAM and key == "max-length-bytes":
        return value
    if key == DELIVERY_LIMIT or key in LEAST_HOLDS:
        return _least(key, value, argument)
    if key in POLICY_HOLDS or (key == OVERFLOW and queue_type == QUORUM):
        return value
    return argument


def type_of(arguments: dict[str, object]) -> str:
    """The type of a queue with these arguments: classic, quorum or stream."""
    return str(arguments.get(QUEUE_TYPE, DEFAULT_QUEUE_TYPE))


def typed(arguments: dict[str, object], default: str, current: dict[str, object] | None) -> dict[str, object]:
    """The arguments with the type that is meant where none is asked for. [RabbitMQ default_queue_type]

    `default` is the virtual host's, `current` are the arguments of the queue that is there already.
    """
    if QUEUE_TYPE in arguments:
        return arguments
    meant = default if current is None else current.get(QUEUE_TYPE, DEFAULT_QUEUE_TYPE)
    return arguments | {QUEUE_TYPE: meant}


def _least(key: str, one: object, other: object) -> object:
    assert isinstance(one, int), "values are checked before a policy or a queue is made"
    assert isinstance(other, int), "values are checked before a policy or a queue is made"
    if key == DELIVERY_LIMIT and (one < 0 or other < 0):
        return max(one, other)  # a negative one is no limit at all
    return min(one, other)
