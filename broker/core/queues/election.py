"""The election of the one consumer that a queue serves at a time. [ActiveMQ exclusive consumer]

A consumer that is not served stands by: it is NOT_INTERESTED, and is never notified. So a message costs no
more than with a single consumer.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import (
    ALL_CONSUMERS_EXCLUSIVE,
    DRAIN,
    EXCLUSIVE_TAKEOVER,
    has_single_active_consumer,
)
from broker.core.errors import InUse, ResourceLocked
from broker.core.policies.policy import queue_type_of
from broker.core.queues.consumer import (
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
from broker.core.queues.consumers import clear_blocker, set_blocker, suspend
from broker.core.queues.hooks import ElectionHook
from broker.core.queues.queue import Queue, queue_of
from broker.core.schedule import TimedTask

EXCLUSIVE_DRAIN: Final[i64] = 30_000  # milliseconds, unless configured otherwise
STALE_MIN: Final = 64  # fewer detached candidates are not worth a sweep
PREEMPTS_EQUALS: Final = 127  # the highest priority of ActiveMQ: the last one attached with it is served


@final
class Election(ElectionHook):
    """The election of the one acquiring consumer of `queue` that is served; browsers are not affected.

    `everyone`: all consumers are candidates, and the election lasts as long as the queue. Otherwise only
    those that ask for it are candidates (`QueueConsumer.candidate`). Then the election begins with the first
    candidate, even if other consumers are attached. The election ends with the last candidate, and all
    consumers are served again.

    `active` is the elected consumer. A newcomer takes over from an active one of lower priority. When the
    active one is detached, the one of the highest priority follows; of equals, the one that was attached
    first.

    `prefer` names the consumer that is served instead, because consumers of a partitioned queue share its
    members.

    A takeover may drain (`draining`): no consumer is served until deliveries of others are settled or
    returned. So no message is processed before its predecessors. The drain waits for some deliveries.

    - Single active consumer, and `x-exclusive-takeover` = `drain`: all deliveries of all other consumers.
    - Without this argument: the deliveries of consumers that were cancelled while they were served.
    - `immediate`: no deliveries.

    After a cancel, an exclusive consumer waits for `QueueHost.exclusive_drain` milliseconds at most.
    Otherwise a client may keep deliveries without limit, unless a lease ends that.
    """

    def __init__(self, queue: Queue, single_active: bool = True, everyone: bool = True) -> None:
        self.queue = queue
        self.everyone = everyone
        self.active: QueueConsumer | None = None
        self.draining: bool = False
        self._single_active = single_active
        self._preferred: QueueConsumer | None = None
        self._hands_over = False  # the drain awaits all deliveries of others
        self._leavers: list[QueueConsumer] = []  # cancelled, with deliveries that the drain awaits
        self._limit: DrainLimit | None = None  # while the limit runs
        self._turns: i64 = 0
        # the next one first: negative priority, turn of attaching; some are detached
        self._candidates: list[tuple[int, int, QueueConsumer]] = []

    def check_attach(self, consumer: QueueConsumer) -> None:
        """Refuse an exclusive consumer on a queue that elects all of its consumers in turn. Raises InUse."""
        if consumer.exclusive and self.everyone:
            queue = self.queue
            raise InUse(f"queue '{queue.name}' in vhost '{queue.vhost}' in exclusive use")

    def check_get(self) -> None:
        """Refuse a basic.get, which would take a message past the active consumer. Raises ResourceLocked."""
        queue = self.queue
        locked = f"cannot obtain access to locked queue '{queue.name}' in vhost '{queue.vhost}'. basic.get "
        if self._single_active:
            raise ResourceLocked(
                f"{locked}operations are not supported by {queue_type_of(queue.arguments)} queues "
                "with single active consumer"
            )
        if self.has_begun:
            raise ResourceLocked(f"{locked}is refused while an exclusive consumer is served")

    @property
    def has_begun(self) -> bool:
        """Whether other consumers stand by for an active one, or for the end of its drain."""
        return self.active is not None or self.draining

    def stands_by(self, newcomer: QueueConsumer) -> bool:
        """Whether `newcomer`, which acquires and is about to be attached, is not served for now."""
        return self.is_candidate(newcomer) or self.has_begun

    def is_candidate(self, consumer: QueueConsumer) -> bool:
        """Whether `consumer`, which acquires, may be elected."""
        return consumer.candidate or (self.everyone and not consumer.getting)

    def note_attached(self, newcomer: QueueConsumer) -> None:
        """Note that `newcomer`, which acquires, is attached and stands by."""
        if not self.is_candidate(newcomer):
            return
        self._turns += 1
        heappush(self._candidates, (-newcomer.priority, self._turns, newcomer))
        if len(self._candidates) > 2 * len(self.queue.manager.all) + STALE_MIN:
            self._candidates = [each for each in self._candidates if each[2].state != REMOVED]
            heapify(self._candidates)
        active = self.active
        if active is None or self._takes_over(newcomer, active):
            self._elect(newcomer)

    def prefer(self, consumer: QueueConsumer) -> None:
        """Serve `consumer`, an attached candidate, instead of the active one when no delivery is unsettled.

        A candidate of higher priority is served before `consumer`.
        """
        self._preferred = consumer
        active = self.active
        if active is None or active is consumer or active.state == REMOVED:
            return
        if active.priority <= consumer.priority:
            self._hands_over = True
            self._elect(consumer)
            if self.draining and not self._single_active:
                self._limit_drain()

    def note_detached(self) -> None:
        """Elect the next consumer if the active one was detached: O(log n) amortised."""
        left = self.active
        if left is None or left.state != REMOVED:
            return
        candidates = self._candidates
        while candidates and candidates[0][2].state == REMOVED:
            heappop(candidates)
        if left.inflight > 0 and EXCLUSIVE_TAKEOVER not in self.queue.effective:
            self._leavers.append(left)
        preferred = self._preferred
        if preferred is not None and preferred.state == REMOVED:
            preferred = self._preferred = None
        successor = candidates[0][2] if candidates else None
        if preferred is not None and (successor is None or successor.priority <= preferred.priority):
            successor = preferred
        self._elect(successor)
        if self.draining and not self._single_active:
            self._limit_drain()

    def note_delivery_end(self) -> None:
        """Note that a delivery has been settled or returned. The queue's state is consistent."""
        if self.draining and not self._waits():
            self._start()

    def end_drain(self) -> None:
        """Serve the next consumer although others still have deliveries: the time limit is over."""
        queue = self.queue
        self._limit = None
        if self.draining and queue.election is self and queue.host is not None:
            limit = int(queue.host.exclusive_drain)
            queue.host.warn(
                f"queue '{queue.name}' in vhost '{queue.vhost}' serves its next exclusive consumer although "
                f"{int(queue.unacked)} deliveries are out: the limit of {limit} ms after the cancel is over "
                "(exclusive_drain_ms). They may be processed again, out of order"
            )
            self._start()

    def activity_of(self, consumer: QueueConsumer) -> str:
        """Return the activity of `consumer`, which acquires.

        The activity is SINGLE_ACTIVE, WAITING or DRAINING, and UP before the election begins.
        """
        if consumer is self.active and not self.draining:
            return SINGLE_ACTIVE
        if not self.has_begun:
            return UP
        return DRAINING if self.draining and consumer is not self.active and consumer.inflight else WAITING

    def _takes_over(self, newcomer: QueueConsumer, active: QueueConsumer) -> bool:
        if newcomer.priority == active.priority:
            return newcomer.priority == PREEMPTS_EQUALS and not self._single_active
        return newcomer.priority > active.priority

    def _elect(self, successor: QueueConsumer | None) -> None:
        """Make `successor` the active consumer; None ends the election. Its service may wait for a drain."""
        old = self.active
        had_begun = self.has_begun
        self.active = successor
        if old is not None and not self.draining:
            self._stop_serving(old)
        if not had_begun:
            self._stop_all()
        if successor is not None and self.queue.discipline is not None:
            self.queue.discipline.free_other_groups(successor)
        self.draining = self._waits()
        if not self.draining:
            self._start()

    def _waits(self) -> bool:
        """Whether deliveries are unsettled that precede the active consumer's deliveries."""
        drains = self._single_active or self._hands_over
        if drains or self.queue.effective.get(EXCLUSIVE_TAKEOVER) == DRAIN:
            return self._has_other_deliveries()
        return any(left.inflight > 0 for left in self._leavers)

    def _has_other_deliveries(self) -> bool:
        """Whether a consumer other than the active one has deliveries."""
        active = self.active
        own: i64 = 0 if active is None else active.inflight
        return self.queue.unacked != own

    def _start(self) -> None:
        self.draining = False
        self._hands_over = False
        self._leavers.clear()
        self._end_limit()
        active = self.active
        if active is not None:
            set_blocker(self.queue, active, BLOCKED_BY_STANDBY, False)
            active.target.on_activity_changed(active, True, ELECTED)
            return
        if not self.everyone:
            self.queue.election = None
        bystanders = self._bystanders()
        clear_blocker(self.queue, bystanders, BLOCKED_BY_STANDBY)
        for consumer in bystanders:
            consumer.target.on_activity_changed(consumer, True, ELECTION_OVER)

    def _limit_drain(self) -> None:
        """Limit the time of the drain, unless there is no limit."""
        host = self.queue.host
        if host is not None and host.exclusive_drain > 0:
            if self._limit is None:
                self._limit = DrainLimit(self)
            host.schedule.set(self._limit, host.schedule.now() + host.exclusive_drain)

    def _end_limit(self) -> None:
        limit, self._limit = self._limit, None
        if limit is not None and limit.due != 0 and self.queue.host is not None:
            self.queue.host.schedule.cancel(limit)

    def _stop_serving(self, consumer: QueueConsumer) -> None:
        if consumer.state != REMOVED:
            set_blocker(self.queue, consumer, BLOCKED_BY_STANDBY, True)
            consumer.target.on_activity_changed(consumer, False, OUTRANKED)

    def _stop_all(self) -> None:
        """Suspend all consumers that are no candidates, at once, so that none takes over from another."""
        stopped = [each for each in self._bystanders() if each.blockers & BLOCKED_BY_STANDBY == 0]
        for consumer in stopped:
            suspend(self.queue, consumer, BLOCKED_BY_STANDBY)
        for consumer in stopped:
            consumer.target.on_activity_changed(consumer, False, OUTRANKED)

    def _bystanders(self) -> list[QueueConsumer]:
        return [each for each in self.queue.manager.acquiring_consumers() if not self.is_candidate(each)]


def activity_of(consumer: QueueConsumer) -> str:
    """Return whether `consumer` is served: UP, SINGLE_ACTIVE, WAITING or DRAINING.

    A consumer of a partitioned queue is served if one of its parts is.

    [RabbitMQ activity_status]
    """
    if consumer.parts:
        activities = {activity_of(part) for part in consumer.parts}
        return next(each for each in (UP, SINGLE_ACTIVE, DRAINING, WAITING) if each in activities)
    election = queue_of(consumer).election
    return UP if election is None or not consumer.acquires else election.activity_of(consumer)


def is_served(consumer: QueueConsumer) -> bool:
    """Whether `consumer` is served, as far as other consumers are concerned."""
    return activity_of(consumer) in (UP, SINGLE_ACTIVE)


@final
class DrainLimit(TimedTask):
    """The time limit after which an exclusive consumer no longer waits for a cancelled one's deliveries."""

    def __init__(self, election: Election) -> None:
        super().__init__()
        self._election = election

    def do_due_work(self) -> None:
        """End the drain."""
        self._election.end_drain()


def declared_election(queue: Queue) -> Election | None:
    """Return the election that the arguments of a new queue ask for."""
    if has_single_active_consumer(queue.arguments):
        return Election(queue)
    if queue.arguments.get(ALL_CONSUMERS_EXCLUSIVE) is True:
        return Election(queue, single_active=False)
    return None
