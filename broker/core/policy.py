"""One policy: a pattern of names, and what holds for the queues or exchanges that have such a name."""

from __future__ import annotations

from typing import Final, final

from broker.core.errors import PreconditionFailed
from broker.core.field_values import show
from broker.core.name_pattern import NamePattern
from broker.core.names import check_length
from broker.core.policy_keys import objection

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
