"""Serving one consumer of a queue at a time. [RabbitMQ single active consumer]

Whoever is not served stands by: it is NOT_INTERESTED, so it is never notified and never asked, and a message
costs no more than with a single consumer.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.consumer import (
    BLOCKED_BY_STANDBY,
    DRAINING,
    REMOVED,
    SINGLE_ACTIVE,
    WAITING,
    QueueConsumer,
)
from broker.core.errors import AccessRefused, ResourceLocked
from broker.core.policy_keys import type_of
from broker.core.waiting import set_blocker

if TYPE_CHECKING:
    from broker.core.queue import Queue

STALE_MIN: Final = 64  # so many detached candidates are not worth sweeping


@final
class Election:
    """Which of the acquiring consumers of `queue` is served; browsers are not concerned.

    `active` is the one of the highest priority, among equals the one that was attached first. So a newcomer
    takes over only from a lower priority, and when the active one goes the next one is known.

    Taking over drains: as long as the one that was active before has deliveries that are neither settled nor
    returned, it is `draining` and nobody is served. So nothing is processed before what precedes it, whether
    the old one was cancelled or outranked. It may hold its deliveries for ever; a lease ends that.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.active: QueueConsumer | None = None
        self.draining: QueueConsumer | None = None
        self._turns: i64 = 0
        # the next one first: negative priority, turn of attaching; some are detached
        self._candidates: list[tuple[int, int, QueueConsumer]] = []

    def check_attach(self, consumer: QueueConsumer) -> None:
        """Refuse a consumer that wants to be alone: every one is, in its turn. AccessRefused."""
        if consumer.exclusive:
            queue = self.queue
            raise AccessRefused(f"queue '{queue.name}' in vhost '{queue.vhost}' in exclusive use")

    def check_get(self) -> None:
        """Refuse a basic.get, which would take a message past the active consumer. ResourceLocked."""
        queue = self.queue
        raise ResourceLocked(
            f"cannot obtain access to locked queue '{queue.name}' in vhost '{queue.vhost}'. basic.get "
            f"operations are not supported by {type_of(queue.arguments)} queues with single active consumer"
        )

    def attached(self, newcomer: QueueConsumer) -> None:
        """`newcomer` acquires, is attached and stands by."""
        self._turns += 1
        heappush(self._candidates, (-newcomer.priority, self._turns, newcomer))
        if len(self._candidates) > 2 * len(self.queue.manager.all) + STALE_MIN:
            self._candidates = [each for each in self._candidates if each[2].state != REMOVED]
            heapify(self._candidates)
        self._elect()

    def detached(self) -> None:
        """A consumer is detached, and what it was to give back is back."""
        self._elect()

    def delivery_ended(self, owner: QueueConsumer) -> None:
        """Deliveries of `owner` have been settled or returned; all state is true again."""
        if owner is self.draining and owner.inflight == 0:
            self.draining = None
            self._start()

    def activity_of(self, consumer: QueueConsumer) -> str:
        """What `consumer` does: SINGLE_ACTIVE, WAITING or DRAINING."""
        if consumer is self.draining:
            return DRAINING
        if consumer is self.active and self.draining is None:
            return SINGLE_ACTIVE
        return WAITING

    def _elect(self) -> None:
        """Find out who is active now, however they fared before; O(log n) amortised."""
        candidates = self._candidates
        while candidates and candidates[0][2].state == REMOVED:
            heappop(candidates)
        elected = candidates[0][2] if candidates else None
        if elected is not self.active:
            self._hand_over(elected)

    def _hand_over(self, successor: QueueConsumer | None) -> None:
        old = self.active
        self.active = successor
        if old is not None:
            set_blocker(self.queue, old, BLOCKED_BY_STANDBY, True)
            if old.inflight != 0:
                self.draining = old
        if self.draining is successor:
            self.draining = None  # it was outranked by somebody who has gone again: it just goes on
        if self.draining is None:
            self._start()

    def _start(self) -> None:
        if self.active is not None:
            set_blocker(self.queue, self.active, BLOCKED_BY_STANDBY, False)
