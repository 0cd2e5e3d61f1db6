"""Policies: their keys, and what several policies and the arguments come to together.

The keys are RabbitMQ's, and those for arguments that are amqpd's own. But for `alternate-exchange`, which is
for exchanges, each is an argument of queues without its `x-`, and may have the same values.
"""

from __future__ import annotations

from typing import Final, final

from broker.core.arguments.queue import (
    ALTERNATE_EXCHANGE,
    DEFAULT_QUEUE_TYPE,
    QUEUE_TYPE,
    QUORUM,
    STREAM,
    is_stream,
    queue_argument_objection,
)
from broker.core.errors import PreconditionFailed
from broker.core.names import check_length
from broker.core.policies.pattern import NamePattern
from broker.core.values import show

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


ALL: Final = "all"
EXCHANGES: Final = "exchanges"
QUEUES: Final = "queues"
APPLY_TO: Final = {
    ALL: ("classic", "quorum", "stream"),
    QUEUES: ("classic", "quorum", "stream"),
    "classic_queues": ("classic",),
    "quorum_queues": ("quorum",),
    "streams": ("stream",),
    EXCHANGES: (),
}
"""What policies may be for, and the types of queues that this means."""

POLICY: Final = "policy"
OPERATOR_POLICY: Final = "operator_policy"

_PRIORITY_MAX: Final = 2**31 - 1


@final
class Policy:
    """Immutable. `operator`: it limits what the other policies may say.

    One whose pattern cannot be used holds for nothing, and `objection` says why ("" otherwise).
    """

    def __init__(
        self,
        name: str,
        pattern: str,
        definition: dict[str, object],
        priority: int = 0,
        apply_to: str = ALL,
        operator: bool = False,
    ) -> None:
        self.name = name
        self.pattern = pattern
        self.definition = definition
        self.priority = priority
        self.apply_to = apply_to
        self.operator = operator
        self.kind = OPERATOR_POLICY if operator else POLICY
        self._names = NamePattern(pattern)
        self.objection = self._names.objection
        self._queue_types = APPLY_TO[apply_to]
        self._exchanges = apply_to in (ALL, EXCHANGES)

    def names(self, name: str) -> bool:
        """Whether the pattern matches a name, anywhere in it unless it is anchored."""
        return self._names.matches(name)

    def for_queue(self, name: str, queue_type: str) -> bool:
        """Whether it holds for a queue of this name and type."""
        return queue_type in self._queue_types and self._names.matches(name)

    def for_exchange(self, name: str) -> bool:
        """Whether it holds for an exchange of this name."""
        return self._exchanges and self._names.matches(name)

    def change(self, vhost: str) -> dict[str, object]:
        """The policy as the log keeps it."""
        return {
            "kind": self.kind,
            "vhost": vhost,
            "name": self.name,
            "pattern": self.pattern,
            "definition": self.definition,
            "priority": self.priority,
            "apply_to": self.apply_to,
        }


def checked_policy(
    vhost: str,
    name: str,
    pattern: object,
    definition: object,
    priority: object,
    apply_to: object,
    operator: bool,
    kept: bool = False,
) -> Policy:
    """Make a policy of its description.

    `kept`: the policy is what the log has kept, or has the pattern of the policy that it takes the place of.
    Then the pattern may be one that cannot be used (`Policy.objection`).

    Raises:
        PreconditionFailed: what is wrong with it, in words that name the policy, the key and the value.
    """
    where = _described(vhost, name, operator)
    if not name:
        raise PreconditionFailed(f"a policy in vhost '{vhost}' needs a name")
    check_length("policy name", name)
    if not isinstance(pattern, str):
        raise PreconditionFailed(f"the pattern of {where} is not a string: {show(pattern)}")
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > _PRIORITY_MAX:
        raise PreconditionFailed(f"the priority '{show(priority)}' of {where} is not an integer")
    if not isinstance(apply_to, str) or apply_to not in APPLY_TO:
        raise PreconditionFailed(
            f"apply-to '{show(apply_to)}' of {where} is not one of {', '.join(APPLY_TO)}"
        )
    if not isinstance(definition, dict) or not definition:
        raise PreconditionFailed(f"the definition of {where} is not an object with at least one key")
    for key, value in definition.items():
        wrong = objection(key, value, operator)
        if wrong:
            raise PreconditionFailed(f"'{key}' = '{show(value)}' in {where} {wrong}")
    policy = Policy(name, pattern, dict(definition), priority, apply_to, operator)
    if policy.objection and not kept:
        raise PreconditionFailed(f"the pattern '{pattern}' of {where} {policy.objection}")
    return policy


def _described(vhost: str, name: str, operator: bool) -> str:
    return f"{'operator policy' if operator else 'policy'} '{name}' in vhost '{vhost}'"


ARGUMENT: Final = "argument"


@final
class Claim:
    """A value that somebody claims for a key. `kind`: argument, policy or operator_policy; `name`: whose."""

    def __init__(self, kind: str, name: str, value: object) -> None:
        self.kind = kind
        self.name = name
        self.value = value


@final
class Effective:
    """The value that holds for a key, the claim that it comes from, and the claims that it won over."""

    def __init__(self, value: object, source: Claim, others: list[Claim]) -> None:
        self.value = value
        self.source = source
        self.others = others


@final
class Effect:
    """The policies of an object, highest first, and what they come to. Objects with the same ones share it.

    Unlike with RabbitMQ, where one policy applies, all of them do: for each key the policy of the highest
    priority that has it, and of two with the same priority the one whose name comes first. Operator policies
    add up in the same way, and what they come to caps what the policies come to.
    """

    def __init__(self, policies: list[Policy], operator_policies: list[Policy]) -> None:
        self.policies = policies
        self.operator_policies = operator_policies
        self.values: dict[str, object] = {}
        for policy in policies:
            for key, value in policy.definition.items():
                self.values.setdefault(key, value)
        caps: dict[str, object] = {}
        for policy in operator_policies:
            for key, value in policy.definition.items():
                caps.setdefault(key, value)
        for key, cap in caps.items():
            self.values[key] = capped(key, self.values[key], cap) if key in self.values else cap
        self._for_queues = {
            ARGUMENT_PREFIX + key: value for key, value in self.values.items() if key in QUEUE_KEYS
        }

    def on_queue(self, arguments: dict[str, object]) -> dict[str, object]:
        """The arguments as they hold for a queue that was declared with `arguments`; not to be changed."""
        if not arguments:
            return self._for_queues
        queue_type = type_of(arguments)
        held = dict(arguments)
        for name, value in self._for_queues.items():
            if name in arguments:
                value = resolved(name.removeprefix(ARGUMENT_PREFIX), value, arguments[name], queue_type)
            held[name] = value
        return held

    def explain(self, arguments: dict[str, object], exchange: bool) -> dict[str, Effective]:
        """For each key that a policy or an argument sets: what holds, and why."""
        claims: dict[str, list[Claim]] = {}
        for policy in self.operator_policies + self.policies:
            for key, value in policy.definition.items():
                if (key == ALTERNATE_EXCHANGE) if exchange else (key in QUEUE_KEYS):
                    claims.setdefault(key, []).append(Claim(policy.kind, policy.name, value))
        held = {ALTERNATE_EXCHANGE: self.on_exchange(arguments)} if exchange else self.on_queue(arguments)
        for name, value in arguments.items():
            key = name if exchange else name.removeprefix(ARGUMENT_PREFIX)
            if (key == ALTERNATE_EXCHANGE) if exchange else (name != key and key in QUEUE_KEYS):
                claims.setdefault(key, []).append(Claim(ARGUMENT, name, value))
        found: dict[str, Effective] = {}
        for key in sorted(claims):
            value = held[key if exchange else ARGUMENT_PREFIX + key]
            found[key] = _explained(value, claims[key])
        return found

    def on_exchange(self, arguments: dict[str, object]) -> object:
        """The alternate exchange that holds for an exchange that was declared with `arguments`, or None."""
        return arguments.get(ALTERNATE_EXCHANGE, self.values.get(ALTERNATE_EXCHANGE))


NO_EFFECT: Final = Effect([], [])
"""That of an object which no policy matches."""


def _explained(value: object, claims: list[Claim]) -> Effective:
    """Name the claim that a value comes from: the argument's, or the highest policy's of either kind."""
    for kind in (ARGUMENT, POLICY, OPERATOR_POLICY):
        highest = next((claim for claim in claims if claim.kind == kind), None)
        if highest is not None and highest.value == value:
            return Effective(value, highest, [claim for claim in claims if claim is not highest])
    raise AssertionError(f"nobody claims {value!r}")
