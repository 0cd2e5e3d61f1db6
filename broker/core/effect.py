"""What the policies that match an object come to together, and what that makes of the object's arguments."""

from __future__ import annotations

from typing import Final, final

from broker.core.arguments import ALTERNATE_EXCHANGE
from broker.core.policy import OPERATOR_POLICY, POLICY, Policy
from broker.core.policy_keys import ARGUMENT_PREFIX, QUEUE_KEYS, capped, resolved, type_of

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
