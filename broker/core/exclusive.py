"""Serving one consumer of a queue at a time. [RabbitMQ single active consumer, ActiveMQ exclusive consumer]

Whoever is not served stands by: it is NOT_INTERESTED, so it is never notified and never asked, and a message
costs no more than with a single consumer.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.arguments import (
    ALL_CONSUMERS_EXCLUSIVE,
    DRAIN,
    EXCLUSIVE_TAKEOVER,
    has_single_active_consumer,
)
from broker.core.consumer import (
    BLOCKED_BY_STANDBY,
    DRAINING,
    ELECTED,
    ELECTION_OVER,
    OUTRANKED,
    REMOVED,
    SINGLE_ACTIVE,
    UP,
    WAITING,
    QueueConsumer,
)
from broker.core.errors import InUse, ResourceLocked
from broker.core.policy_keys import type_of
from broker.core.waiting import clear_blocker, set_blocker, suspend

if TYPE_CHECKING:
    from broker.core.queue import Queue

STALE_MIN: Final = 64  # so many detached candidates are not worth sweeping
PREEMPTS_EQUALS: Final = 127  # the highest priority of ActiveMQ: whoever comes last with it is served


@final
class Election:
    """Which of the acquiring consumers of `queue` is served; browsers are not concerned.

    `everyone`: all of them are candidates, and the election lasts as long as the queue. Otherwise those are
    that ask for it (`QueueConsumer.candidate`): it begins with the first of them, whoever is there already,
    and ends with the last, and then everybody is served again.

    `active` is the first one. A newcomer takes over from a lower priority; when the active one goes, the one
    of the highest priority follows, of equals the one that was attached first.

    Taking over may drain (`draining`): nobody is served until nobody but the active one has deliveries that
    are neither settled nor returned. So nothing is processed before what precedes it, whether the old one was
    cancelled or outranked. It may hold its deliveries for ever; a lease ends that. A single active consumer
    always drains, an exclusive one where the queue says so; else it starts at once.
    """

    def __init__(self, queue: Queue, single_active: bool = True, everyone: bool = True) -> None:
        self.queue = queue
        self.everyone = everyone
        self.active: QueueConsumer | None = None
        self.draining: bool = False
        self._single_active = single_active
        self._turns: i64 = 0
        # the next one first: negative priority, turn of attaching; some are detached
        self._candidates: list[tuple[int, int, QueueConsumer]] = []

    def check_attach(self, consumer: QueueConsumer) -> None:
        """Refuse a consumer that wants to be alone where every one is, in its turn. InUse."""
        if consumer.exclusive and self.everyone:
            queue = self.queue
            raise InUse(f"queue '{queue.name}' in vhost '{queue.vhost}' in exclusive use")

    def check_get(self) -> None:
        """Refuse a basic.get, which would take a message past the active consumer. ResourceLocked."""
        queue = self.queue
        locked = f"cannot obtain access to locked queue '{queue.name}' in vhost '{queue.vhost}'. basic.get "
        if self._single_active:
            raise ResourceLocked(
                f"{locked}operations are not supported by {type_of(queue.arguments)} queues with single "
                "active consumer"
            )
        if self.has_begun:
            raise ResourceLocked(f"{locked}is refused while an exclusive consumer is served")

    @property
    def has_begun(self) -> bool:
        """Whether there is one that everybody else stands by for, or has been until it is drained."""
        return self.active is not None or self.draining

    def stands_by(self, newcomer: QueueConsumer) -> bool:
        """Whether `newcomer`, which acquires and is about to be attached, is not served for now."""
        return self.is_candidate(newcomer) or self.has_begun

    def is_candidate(self, consumer: QueueConsumer) -> bool:
        """Whether `consumer`, which acquires, may be elected."""
        return consumer.candidate or (self.everyone and not consumer.getting)

    def attached(self, newcomer: QueueConsumer) -> None:
        """`newcomer` acquires, is attached and stands by."""
        if not self.is_candidate(newcomer):
            return
        self._turns += 1
        heappush(self._candidates, (-newcomer.priority, self._turns, newcomer))
        if len(self._candidates) > 2 * len(self.queue.manager.all) + STALE_MIN:
            self._candidates = [each for each in self._candidates if each[2].state != REMOVED]
            heapify(self._candidates)
        active = self.active
        if active is None or self._takes_over(newcomer, active):
            self._hand_over(newcomer)

    def detached(self) -> None:
        """A consumer is detached, and what it was to give back is back: O(log n) amortised."""
        if self.active is None or self.active.state != REMOVED:
            return
        candidates = self._candidates
        while candidates and candidates[0][2].state == REMOVED:
            heappop(candidates)
        self._hand_over(candidates[0][2] if candidates else None)

    def delivery_ended(self) -> None:
        """A delivery has been settled or returned; all state is true again."""
        if self.draining and not self._others_hold():
            self.draining = False
            self._start()

    def activity_of(self, consumer: QueueConsumer) -> str:
        """What `consumer`, which acquires, does: SINGLE_ACTIVE, WAITING or DRAINING; UP before it begins."""
        if consumer is self.active and not self.draining:
            return SINGLE_ACTIVE
        if not self.has_begun:
            return UP
        return DRAINING if self.draining and consumer is not self.active and consumer.inflight else WAITING

    def _takes_over(self, newcomer: QueueConsumer, active: QueueConsumer) -> bool:
        if newcomer.priority == active.priority:
            return newcomer.priority == PREEMPTS_EQUALS and not self._single_active
        return newcomer.priority > active.priority

    def _hand_over(self, successor: QueueConsumer | None) -> None:
        old = self.active
        had_begun = self.has_begun
        self.active = successor
        if old is not None and not self.draining:
            self._stop_serving(old)
        if not had_begun:
            self._stop_all()
        if successor is not None and self.queue.discipline is not None:
            self.queue.discipline.served_alone(successor)
        self.draining = self._drains() and self._others_hold()
        if not self.draining:
            self._start()

    def _drains(self) -> bool:
        return self._single_active or self.queue.effective.get(EXCLUSIVE_TAKEOVER) == DRAIN

    def _others_hold(self) -> bool:
        """Whether anybody but the active consumer has deliveries."""
        active = self.active
        own: i64 = 0 if active is None else active.inflight
        return self.queue.unacked != own

    def _start(self) -> None:
        active = self.active
        if active is not None:
            set_blocker(self.queue, active, BLOCKED_BY_STANDBY, False)
            active.target.activity_changed(active, True, ELECTED)
            return
        if not self.everyone:
            self.queue.election = None
        bystanders = self._bystanders()
        clear_blocker(self.queue, bystanders, BLOCKED_BY_STANDBY)
        for consumer in bystanders:
            consumer.target.activity_changed(consumer, True, ELECTION_OVER)

    def _stop_serving(self, consumer: QueueConsumer) -> None:
        if consumer.state != REMOVED:
            set_blocker(self.queue, consumer, BLOCKED_BY_STANDBY, True)
            consumer.target.activity_changed(consumer, False, OUTRANKED)

    def _stop_all(self) -> None:
        """All who are no candidates stand by, at once: none of them is to take over from another."""
        stopped = [each for each in self._bystanders() if each.blockers & BLOCKED_BY_STANDBY == 0]
        for consumer in stopped:
            suspend(self.queue, consumer, BLOCKED_BY_STANDBY)
        for consumer in stopped:
            consumer.target.activity_changed(consumer, False, OUTRANKED)

    def _bystanders(self) -> list[QueueConsumer]:
        return [each for each in self.queue.manager.takers() if not self.is_candidate(each)]


def declared_election(queue: Queue) -> Election | None:
    """The election that the arguments of a new queue ask for."""
    if has_single_active_consumer(queue.arguments):
        return Election(queue)
    if queue.arguments.get(ALL_CONSUMERS_EXCLUSIVE) is True:
        return Election(queue, single_active=False)
    return None
