"""The backlog of a queue: messages that wait to be dead-lettered. [RabbitMQ at-least-once dead lettering]

A message that dies in a queue with at-least-once dead-lettering waits in the backlog while its exchange does
not exist, while its route has no queue, and while a queue of its route is full. The message has left the
order of the queue, so that no consumer gets it. The message still counts among the queue's messages and
towards its limits. The log records that the message waits, so that it waits after a restart too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.entry import QueueEntry
from broker.core.message import Message
from broker.core.queues.death import (
    Death,
    DeathHost,
    Past,
    marked_count,
    marked_reason,
    plain_count,
    was_held,
)
from broker.core.queues.hooks import EXPIRED, REJECTED, BacklogHook, LimitsHook, RoomWaiter
from broker.core.queues.limits import Limits
from broker.core.queues.queue import Queue, take_out
from broker.core.queues.state import count_dead, uncount_dead

RETRY_MS: Final = 1000  # every lane is tried again after this time
SOON_MS: Final = 20  # the least time between two rounds, however often routes change
UNREADABLE_MS: Final = 60_000  # an unreadable message is tried again after this time
TRIES: Final[i64] = 100  # in one turn: a dead letter takes up to 50 us
PAUSE_MS: Final = 100  # after a turn in which no dead letter arrived
STALE_MIN: Final = 64  # fewer numbers of messages that have left are not worth a sweep


@final
class Lane(RoomWaiter):
    """Deaths whose letters take the same route, in the order in which they died. The first is tried first.

    `sought`: the limits of the full queues in which the first death waits for room. `is_woken`: one of these
    has room, and the lane is about to be tried. `not_before`: the earliest time of the next try.
    """

    def __init__(self, backlog: DeadLetterBacklog, key: object) -> None:
        super().__init__()
        self.backlog = backlog
        self.key = key
        self.deaths: OrderedDict[Death, None] = OrderedDict()
        self.sought: list[LimitsHook] = []
        self.not_before: i64 = 0

    @property
    def first(self) -> Death:
        """The death that is tried first. The lane is not empty."""
        return next(iter(self.deaths))

    def seek(self, full: list[LimitsHook]) -> None:
        """Wait for room in the queues of `full`, behind others that wait for it."""
        message = self.first.message
        for limits in full:
            if limits.wait_for_room(self, message):
                self.sought.append(limits)

    def stop_waiting(self) -> list[LimitsHook]:
        """Stop waiting for room. Return the limits of the queues for which the lane has waited."""
        sought = self.sought
        for limits in sought:
            limits.stop_waiting_for_room(self)
        self.sought = []
        self.is_woken = False
        return sought

    def wake(self) -> None:
        """Schedule a try: a queue in which the lane waits has room."""
        self.is_woken = True
        self.backlog.woken(self)


@final
class DeadLetterBacklog(BacklogHook):
    """The messages of `queue` that wait to be dead-lettered.

    The messages are in lanes by exchange and routing key. A message whose own content decides its route has
    its own lane. A lane is tried each second, when routes change, and when the full queue for which it waits
    has room. A try starts with the first message of the lane, so the cost grows with the lanes, not with the
    messages in them.

    Operators see the messages in the order in which they died, or by their ids, and can take single ones
    away. An operation seizes a message, which is not tried any more, and removes the message when the
    operation is on disk.
    """

    def __init__(self, queue: Queue, host: DeathHost) -> None:
        super().__init__(host.schedule, TRIES)
        self.queue = queue
        self.host = host
        self.numbers: i64 = 0  # the number of the latest death
        self._lanes: dict[object, Lane] = {}
        self._due: deque[Lane] = deque()  # lanes to be tried in this round
        self._began: i64 = 0  # when the latest round began
        self._next: i64 = 0  # when the next round begins
        self._waiting: dict[int, Death] = {}  # by their numbers
        self._numbers: list[int] = []  # ascending; some have left
        self._by_id: dict[int, Death] = {}  # `_identity`

    def __len__(self) -> int:
        return int(self.queue.dead)

    def deaths(self) -> list[Death]:
        """Return all waiting deaths, in the order in which they died; too slow for the hot path."""
        return list(self._waiting.values())

    def after(self, number: i64, most: i64) -> list[Death]:
        """Return up to `most` deaths after the one with this number; 0: the first ones."""
        numbers = self._numbers
        waiting = self._waiting
        deaths: list[Death] = []
        at: i64 = bisect_right(numbers, number)
        while at < len(numbers) and len(deaths) < most:
            death = waiting.get(numbers[at])
            if death is not None:
                deaths.append(death)
            at += 1
        return deaths

    def find(self, sequence: i64, arrival: i64) -> Death | None:
        """Return the death of the message with this sequence in the log, or, if that is 0, this arrival."""
        return self._by_id.get(sequence if sequence > 0 else -arrival)

    def must_wait(self, death: Death) -> bool:
        """Whether other messages wait for the same route, so that `death` must wait behind them."""
        return _route_key(death) in self._lanes

    def add(self, death: Death, full: list[LimitsHook], is_logged: bool = False) -> None:
        """Add `death`; `full`: the limits of queues that have no room for its letter.

        `is_logged`: the log has the record already.
        """
        queue = self.queue
        self.host.watch_backlog(self)
        count_dead(queue, death.message.size)
        self.numbers += 1
        death.number = self.numbers
        death.passage = None  # frees the letter's content
        if not is_logged:
            append_wait(death)
        key: object = death if death.apart else _route_key(death)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._begin(key)
            lane.deaths[death] = None
            lane.seek(full)
        else:
            lane.deaths[death] = None
        death.lane = lane
        self._waiting[death.number] = death
        self._numbers.append(death.number)
        self._by_id[_identity(death)] = death
        self._arm()

    def add_unreadable(self, death: Death) -> None:
        """Add `death`, whose message the disk cannot read now."""
        death.apart = True
        self.add(death, [])
        self._lanes[death].not_before = self.schedule.now() + UNREADABLE_MS

    def restore(self, entry: QueueEntry, count: i64, annotations: bytes) -> None:
        """Restore a waiting message after a restart; `count` has the reason of its death."""
        queue = self.queue
        limits = queue.limits
        if limits is None:
            limits = queue.limits = Limits(queue, self.host)
        message = entry.message
        reason = marked_reason(count)
        arrival = queue.entries.arrival(entry)
        take_out(queue, entry)
        death = Death(queue, limits, message, reason, message, queue)
        death.order = entry.order
        death.arrival = arrival
        death.sure = True
        death.count = plain_count(count)
        death.deliveries = death.count
        past = Past()
        if queue.counts:
            past.deliveries = death.count
            past.returns = death.count - 1 if reason == REJECTED else death.count
        if reason == EXPIRED:
            own = message.expiration >= 0 and (limits.ttl < 0 or message.expiration < limits.ttl)
            past.expired_by = "message" if own else "queue"
            past.expired_while = "held" if was_held(count) else "ready"
        past.annotations = annotations
        death.past = past if past.deliveries > 0 or past.expired_by or annotations else None
        self.add(death, [], is_logged=True)

    def drop(self, most: i64, newest: i64, by: object | None) -> i64:
        """Drop up to `most` messages that began to wait no later than number `newest`. Return how many.

        `by`: the actor of the request, for the journal.
        """
        dropped: i64 = 0
        queue = self.queue
        number: i64 = 0
        while dropped < most:
            deaths = [death for death in self.after(number, most) if death.number <= newest]
            for death in deaths:
                number = death.number
                if death.is_seized or dropped == most:
                    continue
                if queue.journal is not None:
                    queue.journal.purged(death.order, death.order, 1, by)
                self._drop(death)
                dropped += 1
            if not deaths:
                break
        self._note_departures()
        return dropped

    def seize(self, death: Death) -> None:
        """Reserve `death` for an operation: it is not tried any more, and its room is free."""
        death.is_seized = True
        if self.queue.limits is not None:
            self.queue.limits.reserved -= 1
            self.queue.limits.reserved_bytes -= death.message.size
            self.queue.limits.on_room_made()

    def release(self, deaths: list[Death]) -> None:
        """Return seized `deaths` to their places, unchanged."""
        for death in deaths:
            self._end_seizure(death)
            lane = _lane_of(death)
            if lane is not None and lane.first is death and not lane.is_woken:
                lane.wake()

    def remove(self, deaths: list[Death], way: i64) -> None:
        """Remove seized `deaths`, whose transaction is on disk. `way`: for the journal (`source`)."""
        queue = self.queue
        for death in deaths:
            self._end_seizure(death)
            if death.lane is None:
                continue
            if queue.journal is not None:
                queue.journal.removed(death.message, death.order, death.deliveries, way)
            self._drop(death)
        self._note_departures()

    def _end_seizure(self, death: Death) -> None:
        death.is_seized = False
        if self.queue.limits is not None:
            self.queue.limits.reserved += 1
            self.queue.limits.reserved_bytes += death.message.size

    def _drop(self, death: Death) -> None:
        """Remove `death` from its lane and from the log."""
        queue = self.queue
        lane = _lane_of(death)
        assert lane is not None, "a death that has left its lane is not dropped"
        del lane.deaths[death]
        self._forget(death)
        self._unlist(death)
        message = death.message
        if queue.logged and message.sequence != 0:
            queue.store.append_settle(message, queue)
        if not lane.deaths:
            self._end(lane)
        elif not lane.is_woken:
            lane.wake()  # the new first death may need less room, and was not tried

    def take(self, most: i64) -> list[Message]:
        """Return up to `most` messages, which wait no longer, and report nothing: the queue is deleted."""
        taken: list[Message] = []
        for lane in list(self._lanes.values()):
            while lane.deaths and len(taken) < most:
                taken.append(lane.deaths.popitem(last=False)[0].message)
            if not lane.deaths:
                del self._lanes[lane.key]
        return taken

    def is_empty(self) -> bool:
        """Whether no message waits."""
        return not self._lanes

    def stop(self) -> None:
        """Stop all tries: the queue is deleted."""
        self.host.forget_backlog(self)
        left = [limits for lane in self._lanes.values() for limits in lane.stop_waiting()]
        for limits in left:  # not before all lanes have stopped, or one of them would be woken
            limits.on_room_made()
        self._due.clear()
        self.schedule.cancel(self)
        self._waiting.clear()
        self._numbers.clear()
        self._by_id.clear()

    # ---- when to try

    def woken(self, lane: Lane) -> None:
        """Schedule a try of a lane, whose letter may have room now."""
        self._due.appendleft(lane)
        self.schedule.set(self, self.schedule.now())

    def try_soon(self) -> None:
        """Begin a round in a later turn, because routes or limits have changed."""
        if not self._lanes:
            return
        now = self.schedule.now()
        begin = max(now, self._began + SOON_MS)
        if begin < self._next:
            self._next = begin
            self._arm()

    def _arm(self) -> None:
        if self._next == 0:
            self._next = self.schedule.now() + RETRY_MS
        if self.due == 0 or self._next < self.due:
            self.schedule.set(self, self._next)

    def step(self, budget: i64) -> bool:
        """Try a slice of the due lanes: up to `budget` messages, whether they arrive or not."""
        schedule = self.schedule
        now = schedule.now()
        if not self._due and now >= self._next:
            self._began = now
            self._next = now + RETRY_MS
            self._due.extend([lane for lane in self._lanes.values() if lane.not_before <= now])
        left = budget
        arrived: i64 = 0
        while self._due and left > 0:
            lane = self._due.popleft()
            went = self._try_lane(lane, left, now)
            arrived += went
            left -= went + 1
        self._note_departures()
        if self._due:
            schedule.set(self, now if arrived > 0 else now + PAUSE_MS)
        elif self._lanes:
            schedule.set(self, self._next)
        return False

    def _try_lane(self, lane: Lane, most: i64, now: i64) -> i64:
        """Dead-letter up to `most` messages of a lane. Return how many have arrived."""
        arrived: i64 = 0
        waited_for = lane.stop_waiting()
        while lane.deaths and arrived < most:
            death = lane.first
            if death.is_seized:
                break  # the operation wakes the lane
            if not self._try(death):
                self._keep(lane, death, now)
                break
            del lane.deaths[death]
            self._unlist(death)
            arrived += 1
        if not lane.deaths:
            self._end(lane)
        elif arrived >= most:
            self._due.appendleft(lane)
        for limits in waited_for:
            if limits not in lane.sought:
                limits.on_room_made()  # for other lanes that wait there
        return arrived

    def _try(self, death: Death) -> bool:
        """Dead-letter a message; false if it still waits."""
        queue = self.queue
        size = death.message.size
        uncount_dead(queue, size)  # first: the letter may be routed to this very queue
        has_arrived = False
        try:
            has_arrived = self.host.try_again(death)
        finally:
            if not has_arrived:
                count_dead(queue, size)
                death.passage = None
        return has_arrived

    def _keep(self, lane: Lane, death: Death, now: i64) -> None:
        """Keep the first death of a lane waiting, in a lane of its own if its content decides its route."""
        if death.apart and lane.key is not death:
            del lane.deaths[death]
            if lane.deaths:
                self._due.append(lane)
            lane = self._begin(death)
            lane.deaths[death] = None
            death.lane = lane
        lane.seek(death.full)
        lane.not_before = now + UNREADABLE_MS if death.is_unreadable else 0

    def _begin(self, key: object) -> Lane:
        lane = Lane(self, key)
        self._lanes[key] = lane
        return lane

    def _end(self, lane: Lane) -> None:
        """Remove an empty lane."""
        for limits in lane.stop_waiting():
            limits.on_room_made()
        if self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def _forget(self, death: Death) -> None:
        uncount_dead(self.queue, death.message.size)

    def _unlist(self, death: Death) -> None:
        """Forget the numbers of `death`, which has left its lane."""
        death.lane = None
        self._waiting.pop(death.number, None)
        self._by_id.pop(_identity(death), None)
        if len(self._numbers) > 2 * len(self._waiting) + STALE_MIN:
            self._numbers = list(self._waiting)

    def _note_departures(self) -> None:
        """Update queue and schedule: messages may have left, so the backlog may be empty."""
        queue = self.queue
        if queue.limits is not None and queue.limits.room_waiters:
            queue.limits.on_room_made()
        if not self._lanes:
            self._next = 0
            self.schedule.cancel(self)
            self.host.forget_backlog(self)
            if queue.entries.lifespan is not None:
                queue.entries.lifespan.look()
            if queue.limits is not None:
                queue.limits.note_empty_backlog()


def _lane_of(death: Death) -> Lane | None:
    lane = death.lane
    assert lane is None or isinstance(lane, Lane), "deaths wait in lanes"
    return lane


def first_of_lane(death: Death) -> Death:
    """Return the death that is tried before `death` arrives, or `death` itself."""
    lane = _lane_of(death)
    return death if lane is None else lane.first


def existing_backlog(queue: Queue) -> DeadLetterBacklog | None:
    """Return the backlog of `queue`; None: no message has waited."""
    backlog = queue.backlog
    assert backlog is None or isinstance(backlog, DeadLetterBacklog), "this module makes all backlogs"
    return backlog


def backlog_of(queue: Queue, host: DeathHost) -> DeadLetterBacklog:
    """Return the backlog of `queue`, made when it is needed."""
    backlog = existing_backlog(queue)
    if backlog is None:
        backlog = DeadLetterBacklog(queue, host)
        queue.backlog = backlog
    return backlog


def append_wait(death: Death) -> None:
    """Append that the message of `death` waits to be dead-lettered; a restart restores it so."""
    queue = death.queue
    message = death.message
    if queue.logged and message.sequence != 0:
        past = death.past
        added = b"" if past is None else past.annotations
        queue.store.append_count(message, queue, marked_count(death), added)


def _route_key(death: Death) -> tuple[str, str]:
    limits = death.limits
    key = limits.dead_letter_key
    return limits.dead_letter_exchange, death.message.address.routing_key if key is None else key


def _identity(death: Death) -> i64:
    """Return a number that no other message of the queue has: its sequence, or its arrival, negated."""
    sequence = death.message.sequence
    return sequence if sequence > 0 else -death.arrival
