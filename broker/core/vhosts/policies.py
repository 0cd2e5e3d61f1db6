"""The policies of a virtual host, and their application to its queues and exchanges."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import is_stream
from broker.core.errors import NotFound
from broker.core.names import DEFAULT_EXCHANGE
from broker.core.policies.policy import (
    AUTO_CREATE,
    NO_POLICIES,
    OPERATOR_POLICY,
    POLICY,
    EffectiveValue,
    MergedPolicies,
    Policy,
    queue_type_of,
)
from broker.core.queues import duplicates, gate, limits, retry
from broker.core.queues.death import DeathHost
from broker.core.queues.queue import Queue
from broker.core.routing.graph import Exchange
from broker.core.routing.topology import Topology
from broker.core.schedule import Chore

SLICE: Final[i64] = 4000  # patterns tried in one turn, which is two or three milliseconds
SLICE_MS: Final = 3  # the longest turn, even if patterns take long
APPLIED: Final[tuple[Callable[[Queue, DeathHost], None], ...]] = (
    retry.apply,
    limits.apply,
    duplicates.apply,
    gate.apply,
)
"""Apply a queue's effective arguments to its features, in this order."""

FEW: Final = 8  # with more changed policies than this, all objects count as matched


@final
class Policies:
    """Every policy of one virtual host, by name, and every operator policy.

    Matching policies are found when an object is declared and when policies change, never per message: a
    queue has its effective arguments in `effective`. A change is applied to existing objects in slices, so
    that it does not hold up messages however many queues there are. `call_when_applied` reports the end.
    """

    def __init__(self, topology: Topology) -> None:
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}
        self._topology = topology
        self._host = topology.host
        self._ranked: list[Policy] = []
        self._operators_ranked: list[Policy] = []
        self._effects: dict[tuple[Policy, ...], MergedPolicies] = {}
        self._walk = PolicyWalk(self, topology)

    def set(self, policy: Policy) -> None:
        """Set a policy, and replace the one of the same name if there is one.

        Raises:
            StoreFailed: the log has stopped.
        """
        self._host.store.require()
        if not self._has(policy):
            self._host.store.append_definition(policy.change(self._host.name))
            self.put(policy)

    def delete(self, name: str, operator: bool = False) -> None:
        """Delete a policy.

        Raises:
            NotFound: no policy has this name.
            StoreFailed: the log has stopped.
        """
        kind = OPERATOR_POLICY if operator else POLICY
        if name not in self.named(operator):
            raise NotFound(f"no {kind.replace('_', ' ')} '{name}' in vhost '{self._host.name}'")
        self._host.store.require()
        vhost = self._host.name
        self._host.store.append_definition({"kind": kind + ".delete", "vhost": vhost, "name": name})
        self.remove(name, operator)

    def named(self, operator: bool) -> dict[str, Policy]:
        """Return the policies, or the operator policies, by name."""
        return self.operator_policies if operator else self.policies

    def has_pattern(self, name: str, operator: bool, pattern: object) -> bool:
        """Whether the policy of this name has this pattern: an unusable pattern may stay as it is."""
        policy = self.named(operator).get(name)
        return policy is not None and policy.pattern == pattern

    def put(self, policy: Policy) -> None:
        """Set a policy without the log; nothing happens if it is set already."""
        if not self._has(policy):
            named = self.named(policy.operator)
            old = named.get(policy.name, policy)
            named[policy.name] = policy
            self._changed(old, policy)

    def remove(self, name: str, operator: bool) -> None:
        """Delete a policy without the log; an absent one counts as deleted."""
        policy = self.named(operator).pop(name, None)
        if policy is not None:
            self._changed(policy, policy)

    def changes(self) -> list[dict[str, object]]:
        """Return the changes that recreate these policies."""
        return [policy.change(self._host.name) for policy in self.all()]

    def all(self) -> list[Policy]:
        """Return the policies and the operator policies."""
        return list(self.policies.values()) + list(self.operator_policies.values())

    def cover_queue(self, queue: Queue) -> None:
        """Apply the matching policies to a queue that is new, or that other policies matched before."""
        effect = NO_POLICIES
        if self._ranked or self._operators_ranked:
            queue_type = queue_type_of(queue.arguments)
            effect = self._effect(
                [policy for policy in self._ranked if policy.applies_to_queue(queue.name, queue_type)],
                [
                    policy
                    for policy in self._operators_ranked
                    if policy.applies_to_queue(queue.name, queue_type)
                ],
            )
        queue.effect = effect
        queue.effective = (
            queue.arguments if effect is NO_POLICIES else effect.queue_arguments_of(queue.arguments)
        )
        if is_stream(queue.arguments):  # only retention and the journal apply to streams
            queue.host = self._host
            if queue.stream is not None:
                queue.stream.apply(queue.effective)
            queue.journal = self._host.journal.journal_of(queue)
            return
        queue.entries.apply(queue.effective)
        for apply in APPLIED:
            apply(queue, self._host)
        if queue.partitions is not None:
            queue.partitions.apply()
        queue.journal = self._host.journal.journal_of(queue)
        self._host.on_node_changed(queue)

    def allow_creation(self, name: str, queue_type: str) -> bool | None:
        """Return whether clients may create a queue by naming it; None: no policy decides."""
        for policy in self._ranked:
            allowed = policy.definition.get(AUTO_CREATE)
            if isinstance(allowed, bool) and policy.applies_to_queue(name, queue_type):
                return allowed
        return None

    def cover_exchange(self, exchange: Exchange) -> None:
        """Apply the matching policies to an exchange that is new, or that other policies matched before.

        Resolved routes are made stale if they may have changed.
        """
        if exchange.name == DEFAULT_EXCHANGE:
            return  # no policy applies to it: a message that matches no queue is unroutable
        effect = NO_POLICIES
        if self._ranked:
            matching = [policy for policy in self._ranked if policy.applies_to_exchange(exchange.name)]
            effect = self._effect(matching, [])
        exchange.effect = effect
        alternate = effect.alternate_exchange_of(exchange.arguments)
        held = alternate if isinstance(alternate, str) else None
        if held != exchange.alternate:
            exchange.alternate = held
            self._host.on_routes_changed()
        self._host.on_node_changed(exchange)

    def explain_queue(self, queue: Queue) -> dict[str, EffectiveValue]:
        """Return the value, the source and the overridden claims of each effective key of a queue."""
        return queue.effect.explain(queue.arguments, exchange=False)

    def explain_exchange(self, exchange: Exchange) -> dict[str, EffectiveValue]:
        """Return the value, the source and the overridden claims of each effective key of an exchange."""
        return exchange.effect.explain(exchange.arguments, exchange=True)

    def call_when_applied(self, callback: Callable[[], None]) -> None:
        """Call back when all changes have been applied everywhere, at once if they have."""
        self._walk.when_done(callback)

    def apply_all(self) -> None:
        """Apply all changes everywhere in this very turn: before the broker serves anybody, or in tests."""
        self._walk.finish()

    def stop(self) -> None:
        """Stop applying changes: the virtual host is deleted."""
        self._walk.stop()

    def _effect(self, policies: list[Policy], operator_policies: list[Policy]) -> MergedPolicies:
        both = (*policies, *operator_policies)
        if not both:
            return NO_POLICIES
        effect = self._effects.get(both)
        if effect is None:
            effect = MergedPolicies(policies, operator_policies)
            self._effects[both] = effect
        return effect

    def _has(self, policy: Policy) -> bool:
        old = self.named(policy.operator).get(policy.name)
        return old is not None and old.change("") == policy.change("")

    def _changed(self, old: Policy, new: Policy) -> None:
        self._ranked = _sort_policies(self.policies)
        self._operators_ranked = _sort_policies(self.operator_policies)
        self._effects.clear()
        self._walk.start([old] if old is new else [old, new])


@final
class PolicyWalk(Chore):
    """The walk that applies changed policies to the objects that they match or have matched."""

    def __init__(self, policies: Policies, topology: Topology) -> None:
        super().__init__(topology.host.schedule, SLICE)
        self._policies = policies
        self._topology = topology
        self._host = topology.host
        self._changed: list[Policy] = []
        self._queues: list[Queue] = []
        self._exchanges: list[Exchange] = []
        self._callbacks: deque[Callable[[], None]] = deque()

    def start(self, changed: list[Policy]) -> None:
        """Walk over all objects, also if a walk for other changes is running."""
        self._changed += changed
        self._queues = list(self._topology.queues.values())
        self._exchanges = list(self._topology.exchanges.values())
        self.continue_soon()

    def stop(self) -> None:
        """End the walk without further objects."""
        self._queues.clear()
        self._exchanges.clear()
        self.finish()

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back when the walk is over."""
        if self._changed:
            self._callbacks.append(callback)
        else:
            callback()

    def step(self, budget: i64) -> bool:
        """Try up to `budget` patterns, for SLICE_MS at most, and apply the policies that match."""
        schedule = self.schedule
        end = schedule.now() + SLICE_MS
        tries: i64 = min(len(self._changed), FEW)
        policies: i64 = len(self._policies.policies) + len(self._policies.operator_policies)
        while budget > 0 and self._exchanges and schedule.now() < end:
            exchange = self._exchanges.pop()
            budget -= tries
            if self._concerns(exchange.name) and self._topology.exchanges.get(exchange.name) is exchange:
                self._policies.cover_exchange(exchange)
                budget -= policies
        while budget > 0 and self._queues and schedule.now() < end:
            queue = self._queues.pop()
            budget -= tries
            if not queue.deleted and self._concerns(queue.name):
                self._policies.cover_queue(queue)
                budget -= policies
        if self._exchanges or self._queues:
            return True
        self._changed.clear()
        for _ in range(len(self._callbacks)):
            self._callbacks.popleft()()
        return bool(self._changed)

    def _concerns(self, name: str) -> bool:
        if len(self._changed) > FEW:
            return True
        return any(policy.names(name) for policy in self._changed)


def _sort_policies(policies: dict[str, Policy]) -> list[Policy]:
    """Return the policies, highest first."""
    return sorted(policies.values(), key=_rank)


def _rank(policy: Policy) -> tuple[int, str]:
    return -policy.priority, policy.name
