"""Policies: their keys, and the merge of several policies with the arguments of an object.

The keys are RabbitMQ's, and keys for the arguments that are amqpd's own. Except for `alternate-exchange`,
which is for exchanges, `auto-create` and the keys of federation, each key is a queue argument without its
`x-`, with the same allowed values.
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
"""Whether attaching to an absent queue over AMQP 1.0 creates it; so the key is for queues to come."""

FEDERATION_UPSTREAM: Final = "federation-upstream"
FEDERATION_UPSTREAM_SET: Final = "federation-upstream-set"
FEDERATION_UPSTREAM_PATTERN: Final = "federation-upstream-pattern"
FEDERATION_KEYS: Final = (FEDERATION_UPSTREAM, FEDERATION_UPSTREAM_SET, FEDERATION_UPSTREAM_PATTERN)
"""The keys that federate exchanges and queues. An object has the key of its highest policy with such a key.

[RabbitMQ federation]"""

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
"""Keys for queues that have no effect here: they are checked, kept and shown.

amqpd has no replicas and no memory limit per queue, and its stream filters have no false positives."""

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
"""The keys of policies for queues."""

_OF_STREAMS: Final = frozenset({"max-age", "stream-max-segment-size-bytes"})
_OF_STREAMS_TOO: Final = frozenset({"max-length-bytes"})


def keys_without_effect(arguments: dict[str, object]) -> frozenset[str]:
    """Return the keys that have no effect on a queue with these arguments, in a policy or as an argument."""
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
"""The keys of operator policies. [RabbitMQ operator policies]"""

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
"""Keys for mirrored queues of RabbitMQ before 4.0: they are accepted unchecked, without effect."""

LOWEST_WINS: Final = frozenset(
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

POLICY_WINS: Final = frozenset(
    {
        "delayed-retry-type",
        "initial-cluster-size",
        "journal",
        "max-age",
        "stream-filter-size-bytes",
        "stream-max-segment-size-bytes",
    }
)
"""Keys for which a policy wins over the argument. [RabbitMQ policy_precedence, policy_has_precedence]"""


OTHER_KEYS: Final = frozenset((ALTERNATE_EXCHANGE, AUTO_CREATE)).union(FEDERATION_KEYS, MIRRORING_KEYS)
"""The keys of policies that are no arguments of queues."""


def is_known_key(key: str, operator: bool) -> bool:
    """Whether policies, or operator policies, have this key."""
    if operator:
        return key in OPERATOR_KEYS
    return key in QUEUE_KEYS or key in OTHER_KEYS


def objection(key: str, value: object, operator: bool) -> str:
    """Return what is wrong with `key` or its value in a policy, or "" if nothing is."""
    if operator:
        if key not in OPERATOR_KEYS:
            return "is not a key of operator policies; they have " + ", ".join(sorted(OPERATOR_KEYS))
    elif key == ALTERNATE_EXCHANGE:
        return "" if isinstance(value, str) else "is not a string"
    elif key == AUTO_CREATE:
        return "" if isinstance(value, bool) else "is not a boolean"
    elif key in MIRRORING_KEYS:
        return ""
    elif key in FEDERATION_KEYS:
        if not isinstance(value, str) or not value:
            return "is not a string with at least one character"
        return NamePattern(value).objection if key == FEDERATION_UPSTREAM_PATTERN else ""
    elif key not in QUEUE_KEYS:
        keys = QUEUE_KEYS | {ALTERNATE_EXCHANGE, AUTO_CREATE, *FEDERATION_KEYS}
        return "is not a key of policies; they have " + ", ".join(sorted(keys))
    allowed = queue_argument_objection(ARGUMENT_PREFIX + key, value)
    return f"is not {allowed}" if allowed else ""


def cap_value(key: str, value: object, cap: object) -> object:
    """Return a policy's value under the value of an operator policy. [RabbitMQ operator policies]"""
    if key == DELIVERY_LIMIT or key in LOWEST_WINS:
        return _least(key, value, cap)
    return cap


def resolve_value(key: str, value: object, argument: object, queue_type: str) -> object:
    """Return the effective value of a queue with `value` by its policies and `argument` by its declaration.

    [RabbitMQ args_policy_lookup]: limits take the least value. Other arguments win over policies, except
    those of streams, and `overflow` on quorum queues.
    """
    if queue_type == STREAM and key == "max-length-bytes":
        return value
    if key == DELIVERY_LIMIT or key in LOWEST_WINS:
        return _least(key, value, argument)
    if key in POLICY_WINS or (key == OVERFLOW and queue_type == QUORUM):
        return value
    return argument


def queue_type_of(arguments: dict[str, object]) -> str:
    """Return the type of a queue with these arguments: classic, quorum or stream."""
    return str(arguments.get(QUEUE_TYPE, DEFAULT_QUEUE_TYPE))


def with_queue_type(
    arguments: dict[str, object], default: str, current: dict[str, object] | None
) -> dict[str, object]:
    """Return the arguments with a queue type, if they have none. [RabbitMQ default_queue_type]

    `default` is the virtual host's default type. `current` are the arguments of an existing queue, whose type
    wins.
    """
    if QUEUE_TYPE in arguments:
        return arguments
    meant = default if current is None else current.get(QUEUE_TYPE, DEFAULT_QUEUE_TYPE)
    return arguments | {QUEUE_TYPE: meant}


def _least(key: str, one: object, other: object) -> object:
    assert isinstance(one, int), "values are checked before a policy or a queue is made"
    assert isinstance(other, int), "values are checked before a policy or a queue is made"
    if key == DELIVERY_LIMIT and (one < 0 or other < 0):
        return max(one, other)  # a negative value is no limit at all
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
"""The values of `apply-to`, and the types of queues that each one means."""

POLICY: Final = "policy"
OPERATOR_POLICY: Final = "operator_policy"

_PRIORITY_MAX: Final = 2**31 - 1


@final
class Policy:
    """An immutable policy. An `operator` policy limits the values of the other policies.

    A policy whose pattern cannot be used applies to nothing, and `objection` says why ("" otherwise).
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

    def applies_to_queue(self, name: str, queue_type: str) -> bool:
        """Whether the policy applies to a queue of this name and type."""
        return queue_type in self._queue_types and self._names.matches(name)

    def applies_to_exchange(self, name: str) -> bool:
        """Whether the policy applies to an exchange of this name."""
        return self._exchanges and self._names.matches(name)

    def change(self, vhost: str) -> dict[str, object]:
        """Return the policy in the form of the log."""
        return {
            "kind": self.kind,
            "vhost": vhost,
            "name": self.name,
            "pattern": self.pattern,
            "definition": self.definition,
            "priority": self.priority,
            "apply_to": self.apply_to,
        }


def parse_policy(
    vhost: str,
    name: str,
    pattern: object,
    definition: object,
    priority: object,
    apply_to: object,
    operator: bool,
    kept: bool = False,
) -> Policy:
    """Make a policy from its description.

    `kept`: the policy comes from the log, or has the same pattern as the policy that it replaces. Then its
    pattern may be unusable (`Policy.objection`).

    Raises:
        PreconditionFailed: the refusal names the policy, the key and the value.
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
    federating = [key for key in FEDERATION_KEYS if key in definition]
    if len(federating) > 1:
        raise PreconditionFailed(f"{where} has {' and '.join(federating)}, only one of them is allowed")
    policy = Policy(name, pattern, dict(definition), priority, apply_to, operator)
    if policy.objection and not kept:
        raise PreconditionFailed(f"the pattern '{pattern}' of {where} {policy.objection}")
    return policy


def _described(vhost: str, name: str, operator: bool) -> str:
    return f"{'operator policy' if operator else 'policy'} '{name}' in vhost '{vhost}'"


ARGUMENT: Final = "argument"


@final
class SourcedValue:
    """A value for a key.

    `kind`: argument, policy or operator_policy; `name`: that of the argument or policy.
    """

    def __init__(self, kind: str, name: str, value: object) -> None:
        self.kind = kind
        self.name = name
        self.value = value


@final
class EffectiveValue:
    """The effective value of a key, the claim that sets it, and the claims that it overrides."""

    def __init__(self, value: object, source: SourcedValue, others: list[SourcedValue]) -> None:
        self.value = value
        self.source = source
        self.others = others


@final
class MergedPolicies:
    """The merged policies of an object, highest first. Objects with the same policies share an instance.

    RabbitMQ applies a single policy. amqpd applies all that match: for each key, the policy of the highest
    priority that has the key; of two with the same priority, the one whose name comes first. Operator
    policies are merged in the same way, and their values cap the policies' values.

    `federation`: the key of federation and its value; two empty strings without one.
    """

    def __init__(self, policies: list[Policy], operator_policies: list[Policy]) -> None:
        self.policies = policies
        self.operator_policies = operator_policies
        self.values: dict[str, object] = {}
        self.federation = "", ""
        for policy in policies:
            for key, value in policy.definition.items():
                if key in FEDERATION_KEYS:
                    if self.federation[0]:
                        continue  # a higher policy federates the object
                    self.federation = key, str(value)
                self.values.setdefault(key, value)
        caps: dict[str, object] = {}
        for policy in operator_policies:
            for key, value in policy.definition.items():
                caps.setdefault(key, value)
        for key, cap in caps.items():
            self.values[key] = cap_value(key, self.values[key], cap) if key in self.values else cap
        self._for_queues = {
            ARGUMENT_PREFIX + key: value for key, value in self.values.items() if key in QUEUE_KEYS
        }

    def queue_arguments_of(self, arguments: dict[str, object]) -> dict[str, object]:
        """Return the effective arguments of a queue declared with `arguments`.

        The caller must not change them.
        """
        if not arguments:
            return self._for_queues
        queue_type = queue_type_of(arguments)
        held = dict(arguments)
        for name, value in self._for_queues.items():
            if name in arguments:
                value = resolve_value(name.removeprefix(ARGUMENT_PREFIX), value, arguments[name], queue_type)
            held[name] = value
        return held

    def explain(self, arguments: dict[str, object], exchange: bool) -> dict[str, EffectiveValue]:
        """Return the effective value, and its source, of each key that a policy or an argument sets."""
        claims: dict[str, list[SourcedValue]] = {}
        for policy in self.operator_policies + self.policies:
            for key, value in policy.definition.items():
                if key in FEDERATION_KEYS:
                    shown = key in self.values
                else:
                    shown = (key == ALTERNATE_EXCHANGE) if exchange else (key in QUEUE_KEYS)
                if shown:
                    claims.setdefault(key, []).append(SourcedValue(policy.kind, policy.name, value))
        held = (
            {ALTERNATE_EXCHANGE: self.alternate_exchange_of(arguments)}
            if exchange
            else self.queue_arguments_of(arguments)
        )
        for name, value in arguments.items():
            key = name if exchange else name.removeprefix(ARGUMENT_PREFIX)
            if (key == ALTERNATE_EXCHANGE) if exchange else (name != key and key in QUEUE_KEYS):
                claims.setdefault(key, []).append(SourcedValue(ARGUMENT, name, value))
        values: dict[str, EffectiveValue] = {}
        for key in sorted(claims):
            if key in FEDERATION_KEYS:
                value = self.values[key]
            else:
                value = held[key if exchange else ARGUMENT_PREFIX + key]
            values[key] = _explained(value, claims[key])
        return values

    def alternate_exchange_of(self, arguments: dict[str, object]) -> object:
        """Return the effective alternate exchange of an exchange declared with `arguments`, or None."""
        return arguments.get(ALTERNATE_EXCHANGE, self.values.get(ALTERNATE_EXCHANGE))


NO_POLICIES: Final = MergedPolicies([], [])
"""The policies of an object that no policy matches."""


def _explained(value: object, claims: list[SourcedValue]) -> EffectiveValue:
    """Find the claim that sets the value: the argument's, or the highest policy's of either kind."""
    for kind in (ARGUMENT, POLICY, OPERATOR_POLICY):
        highest = next((claim for claim in claims if claim.kind == kind), None)
        if highest is not None and highest.value == value:
            return EffectiveValue(value, highest, [claim for claim in claims if claim is not highest])
    raise AssertionError(f"nobody claims {value!r}")
