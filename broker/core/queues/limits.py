"""The limits of a queue: the time to live of its messages, its length, and its own expiry when unused.

[RabbitMQ queue length limit; x-message-ttl, expiration, x-expires, x-max-length, x-max-length-bytes,
x-overflow]
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import (
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_ROUTING_KEY,
    EXPIRES,
    EXPIRES_IF_EMPTY,
    MAX_LENGTH,
    MAX_LENGTH_BYTES,
    MESSAGE_TTL,
    OVERFLOW,
    dead_letter_reasons,
    is_dead_lettered_at_least_once,
    number_argument,
    text_argument,
)
from broker.core.entries.entry import AVAILABLE, HELD, RANK_SHIFT, QueueEntry, Timer
from broker.core.message import Message
from broker.core.queues.death import Death, DeathHost, death_of
from broker.core.queues.hooks import (
    DROP_HEAD,
    EXPIRED,
    MAXLEN,
    NO_LIMIT,
    OVERFLOWS,
    QUEUE_EXPIRED,
    REASONS,
    REJECT_PUBLISH_DLX,
    LimitsHook,
    RoomWaiter,
)
from broker.core.queues.immediate import deliver_next, deliver_or_expire
from broker.core.queues.queue import Queue, dead_letter, take_out

ADMITTED_FOR: Final[i64] = 1000  # entries dropped for a new one at once; a later step drops further ones
_STALE_MIN: Final = 64


def admit_one_more(limits: Limits, entry: QueueEntry) -> None:
    """Apply the length limits to `entry`, which is new.

    If the queue is over its limits, waiting consumers get what they can, and the other messages are dropped.
    """
    if limits.victims is not None:
        limits.victims.offer(entry)
    if limits.overflow != DROP_HEAD:
        return
    while limits.is_over_limits() and deliver_next(limits.queue):
        pass
    make_room(limits, ADMITTED_FOR)


def make_room(limits: Limits, most: i64) -> None:
    """Drop excess entries: the lowest priority first, then the oldest first; at most `most` now."""
    queue = limits.queue
    while limits.is_over_limits():
        if most <= 0:
            limits.trimming = True
            limits.arm()
            return
        most -= 1
        victim = _oldest(queue) if limits.victims is None else limits.victims.first()
        assert victim is not None, "a queue that counts ready entries has them"
        dead_letter(queue, victim, MAXLEN)
    limits.trimming = False


def _oldest(queue: Queue) -> QueueEntry | None:
    context = queue.context
    entry = context.get_next_available_entry()
    while entry is None and context.more:
        entry = context.get_next_available_entry()
    return entry


@final
class Victims:
    """The finder of the oldest AVAILABLE entry of the last rank.

    Queues with ranks or a personal discipline need it. An entry behind the cursor that consumers share is
    AVAILABLE only if it was requeued, came late or was parked. A heap for each rank has these entries.
    After the cursor there may be acquired entries, because their owners have filters; the cursor passes them
    here. O(log n), plus O(ranks whose entries are all acquired).
    """

    def __init__(self, queue: Queue) -> None:
        self._context = queue.context
        self._entries = queue.entries
        self._queue = queue
        self._behind: dict[int, list[QueueEntry]] = {}
        self._count: i64 = 0

    @staticmethod
    def of(queue: Queue) -> Victims | None:
        """Return the victims of a queue; None if the cursor that consumers share finds the oldest."""
        discipline = queue.discipline
        passes_by = discipline is not None and discipline.personal
        if queue.entries.ranks == 1 and not passes_by:
            return None
        victims = Victims(queue)
        for entry in queue.context.all_behind():
            victims.offer(entry)
        if discipline is not None:
            for entry in discipline.parked_in(queue.context):
                victims.offer(entry)
        return victims

    def offer(self, entry: QueueEntry) -> None:
        """Note that `entry` has just become AVAILABLE."""
        if self._context.last.precedes(entry) or entry.state != AVAILABLE:
            return
        heappush(self._behind.setdefault(entry.order >> RANK_SHIFT, []), entry)
        self._count += 1
        if self._count > 2 * self._queue.depth + _STALE_MIN:
            self._sweep()

    def first(self) -> QueueEntry | None:
        """Return the entry to drop first."""
        last = self._context.last
        cursor_rank = last.order >> RANK_SHIFT
        rank = self._entries.rank_before(self._entries.ranks)
        while rank >= 0:
            entry = self._first_behind(rank)
            if entry is not None:
                return entry
            if rank > cursor_rank:
                entry = self._entries.first_of(rank)
            elif rank == cursor_rank:
                entry = self._after_cursor()
            while entry is not None and entry.state != AVAILABLE and entry.order >> RANK_SHIFT == rank:
                entry = entry.next
            if entry is not None and entry.state == AVAILABLE and entry.order >> RANK_SHIFT == rank:
                return entry
            rank = self._entries.rank_before(rank)
        return None

    def _after_cursor(self) -> QueueEntry | None:
        """Return the first AVAILABLE entry after the cursor in its rank, or the entry after the rank."""
        context = self._context
        rank = context.last.order >> RANK_SHIFT
        entry = self._entries.next(context.last)
        while entry is not None and entry.state != AVAILABLE and entry.order >> RANK_SHIFT == rank:
            context.last = entry  # a requeue offers it to the context
            entry = self._entries.next(entry)
        return entry

    def _first_behind(self, rank: i64) -> QueueEntry | None:
        heap = self._behind.get(rank)
        if heap is None:
            return None
        while heap:
            if heap[0].state == AVAILABLE:
                return heap[0]
            heappop(heap)
            self._count -= 1
        del self._behind[rank]
        return None

    def _sweep(self) -> None:
        """Drop entries that are not AVAILABLE any more."""
        self._count = 0
        for heap in self._behind.values():
            heap[:] = dict.fromkeys([entry for entry in heap if entry.state == AVAILABLE])
            heapify(heap)
            self._count += len(heap)


NOT_LEAVING: Final[i64] = -1
LOOKS: Final[i64] = 8  # checks of a spared queue during its expiry time
SLICE: Final[i64] = 100  # entries that leave in one step: dead-lettering takes up to 50 us each

_NAMES: Final = (
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_ROUTING_KEY,
    EXPIRES,
    MAX_LENGTH,
    MAX_LENGTH_BYTES,
    MESSAGE_TTL,
)


@final
class Limits(LimitsHook):
    """The effective limits of one queue, and the state that they need.

    A queue gets them with such an argument, or with a message that expires. For all other queues
    `Queue.limits` is None, and the test for that is their only cost.

    Every entry with a limited time has a timer. Each delivery looks at the timer, so that no expired entry is
    delivered, however late the task is. A timer runs while its entry is AVAILABLE or HELD: a delivered
    message does not expire.

    `ttl`, `expires`: milliseconds, -1: for ever. `max_length`, `max_bytes`: limits of the ready entries and
    their bodies. Where publishes are refused, messages that wait to be dead-lettered count too. `limited`:
    one of these two is set.
    `used`: when the queue was last used, on the schedule's clock.
    `sure`: the queue dead-letters at least once. `room_waiters`: lanes of dead letters that wait for room;
    publishes are refused while there are some, or they would take that room. `leaving`: why the queue
    is about to be deleted, once its messages have been dead-lettered, NOT_LEAVING: it stays.
    """

    def __init__(self, queue: Queue, host: DeathHost) -> None:
        super().__init__(host.schedule, SLICE)
        self.queue = queue
        self.host = host
        self.used: i64 = 0
        self.trimming = False  # the queue is over its limits, and the next steps drop more entries
        self.victims: Victims | None = None
        self.spares_messages = False  # the queue does not expire while it has messages
        self.leaving: i64 = NOT_LEAVING

    # ---- the values of the arguments

    def apply(self, effective: dict[str, object]) -> None:
        """Apply the arguments from now on. Existing entries keep their expiry."""
        was_careful = self.careful
        self.ttl = number_argument(effective, MESSAGE_TTL, -1)
        self.max_length = number_argument(effective, MAX_LENGTH, NO_LIMIT)
        self.max_bytes = number_argument(effective, MAX_LENGTH_BYTES, NO_LIMIT)
        self.limited = self.max_length != NO_LIMIT or self.max_bytes != NO_LIMIT
        self.overflow = OVERFLOWS[text_argument(effective, OVERFLOW) or "drop-head"]
        exchange = text_argument(effective, DEAD_LETTER_EXCHANGE)
        self.dead_letter_reasons = 0
        if exchange is not None:
            for name in dead_letter_reasons(effective):
                self.dead_letter_reasons |= 1 << REASONS.index(name)
        self.dead_letter_exchange = exchange or ""
        self.dead_letter_key = text_argument(effective, DEAD_LETTER_ROUTING_KEY)
        self.dead_letter_route = None
        self.sure = exchange is not None and is_dead_lettered_at_least_once(effective, self.queue.arguments)
        self.spares_messages = effective.get(EXPIRES_IF_EMPTY) is True
        expires = number_argument(effective, EXPIRES, -1)
        if expires != self.expires:
            self.expires = expires
            self.used = self.schedule.now()
        if self.careful != was_careful:
            self.host.on_routes_changed()  # resolved routes depend on this
        self.victims = None
        if self.limited and self.overflow == DROP_HEAD:
            self.victims = Victims.of(self.queue)
            self.trimming = self.is_over_limits()
        self.arm()
        self.on_room_made()
        if self.queue.backlog is not None:
            self.queue.backlog.try_soon()

    @property
    def queue_name(self) -> str:
        """The name of the queue."""
        return self.queue.name

    @property
    def careful(self) -> bool:
        """Whether a publish to the queue needs more than an append and an enqueue."""
        return self.ttl >= 0 or (self.limited and self.overflow != DROP_HEAD)

    def is_over_limits(self) -> bool:
        """Whether the queue is over its limits."""
        queue = self.queue
        return queue.ready > self.max_length or queue.ready_bytes > self.max_bytes

    def refuses(self, message: Message) -> bool:
        """Whether a message is refused because the queue is full; a message that replaces another is not.

        Dead letters that wait for room come first.
        """
        if not self.limited or self.overflow == DROP_HEAD:
            return False
        return bool(self.room_waiters) or self.lacks_room(message)

    def lacks_room(self, message: Message) -> bool:
        """Whether the queue, which refuses publishes when it is full, has no room for a message now."""
        if not self.limited or self.overflow == DROP_HEAD:
            return False
        queue = self.queue
        count: i64 = 1
        size = message.size
        latest = queue.entries.latest
        old = None if latest is None else latest.displaceable(message)
        if old is not None:
            count = 0
            size -= old.message.size
        if queue.member is not None:  # HELD messages, which wait for other members, take room
            count += queue.held
            size += queue.held_bytes
        return (
            queue.ready + queue.dead + self.reserved + count > self.max_length
            or queue.ready_bytes + queue.dead_bytes + self.reserved_bytes + size > self.max_bytes
        )

    def _ever_has_room(self, message: Message) -> bool:
        """Whether the queue, if it were empty, would accept the message."""
        return self.max_length > 0 and message.size <= self.max_bytes

    def on_room_made(self) -> None:
        """Try the next waiting dead letters soon, because the queue has more room."""
        for lane in self.room_waiters:
            if not lane.is_woken:
                lane.wake()
                return

    @property
    def passes_on(self) -> bool:
        """Whether a refused message is dead-lettered."""
        return self.overflow == REJECT_PUBLISH_DLX and self.moves(MAXLEN)

    def reserve(self, count: i64, size: i64) -> None:
        """Reserve room for messages of a transaction, or release it if negative."""
        self.reserved += count
        self.reserved_bytes += size
        if count < 0 and self.room_waiters:
            self.on_room_made()

    # ---- entries

    def admit(self, entry: QueueEntry) -> bool:
        """Apply the limits to `entry`, new and not announced; false if it is not AVAILABLE any more."""
        wait = self._wait(entry)
        if wait == 0:
            if self._is_postponed(entry):
                return False
            deliver_or_expire(self.queue, entry)
            entry.timer = Timer(self.schedule.now())  # for a requeue
            return False
        if wait > 0:
            timer = Timer(self.schedule.now() + wait)
            entry.timer = timer
            self.timers.start(timer, entry, wait == self.ttl)
            self.arm()
        if self.limited:
            admit_one_more(self, entry)
            return entry.state == AVAILABLE
        return True

    def _is_postponed(self, entry: QueueEntry) -> bool:
        """Whether `entry`, whose time to live is 0, waits for others of its key in a partitioned queue.

        A time to live of 0 asks for a consumer that takes the message when one may have it: at its release.
        """
        member = self.queue.member
        return member is not None and member.postpone_expiry(entry)

    def note_early_delivery(self, entry: QueueEntry) -> None:
        """Set the expiry of `entry`, new but already delivered, for a later requeue."""
        wait = self._wait(entry)
        if wait >= 0:
            entry.timer = Timer(self.schedule.now() + wait)

    def restore_expiry(self, entry: QueueEntry) -> None:
        """Continue the expiry of `entry`, which is from before a restart."""
        message = entry.message
        wait = self._wait(entry)
        if wait > 0 or (wait == 0 and not self._is_postponed(entry)):
            if message.date > 0:
                passed: i64 = max(self.schedule.date() - message.date, 0)
                wait = max(wait - passed, 0)
            timer = Timer(self.schedule.now() + wait)
            entry.timer = timer
            self.timers.start(timer, entry, message.expiration < 0)
        if self.limited and self.overflow == DROP_HEAD and self.is_over_limits():
            self.trimming = True
        self.arm()

    def note_returns(self, entries: list[QueueEntry]) -> None:
        """Apply the limits to `entries`, AVAILABLE or HELD again and not announced; some may leave."""
        if self.victims is not None:
            for entry in entries:
                self.victims.offer(entry)
        self.timers.start_again(entries)
        now = self.schedule.now()
        first = self.timers.first()
        if first is not None and first.due <= now:
            self._end_late(entries, now)
        if self.limited and self.overflow == DROP_HEAD:
            make_room(self, len(entries) + self.budget)
        self.arm()

    def _end_late(self, entries: list[QueueEntry], now: i64) -> None:
        """Expire the requeued `entries` that are late; many of them wait for the task."""
        late = [entry for entry in entries if entry.timer is not None and entry.timer.due <= now]
        for entry in late[: self.budget]:
            if entry.state == AVAILABLE or entry.state == HELD:
                dead_letter(self.queue, entry, EXPIRED)

    def _wait(self, entry: QueueEntry) -> i64:
        """Return how long `entry`, which is new, may wait, -1: for ever.

        Note whether the message sets this.
        """
        expiration = entry.message.expiration
        if expiration >= 0 and (self.ttl < 0 or expiration < self.ttl):
            entry.own_time = True
            return expiration
        return self.ttl

    def note_parked(self, entry: QueueEntry) -> None:
        """Note `entry` as a victim for the length limits."""
        if self.victims is not None:
            self.victims.offer(entry)

    # ---- time

    def keep_queue(self) -> None:
        """Keep the queue: it has been declared again."""
        self.leaving = NOT_LEAVING
        self.touch()

    def touch(self) -> None:
        """Note that the queue is used: by a declaration, a basic.get or a consumer that is detached.

        [RabbitMQ x-expires]
        """
        if self.leaving == QUEUE_EXPIRED:
            self.leaving = NOT_LEAVING
        if self.expires >= 0 and not self.queue.deleted:
            self.used = self.schedule.now()
            self.arm()

    def arm(self) -> None:
        """Set the task for the next due work. The task may be too early."""
        timer = self.timers.first()
        due: i64 = 0 if timer is None else timer.due
        if self.expires >= 0 and not self._is_used():
            end = self.schedule.now() + self._look_ms() if self._is_spared() else self.used + self.expires
            if due == 0 or end < due:
                due = end
        if self.trimming or (self.leaving != NOT_LEAVING and self.queue.depth + self._delayed() > 0):
            due = self.schedule.now()
        if due != 0 and (self.due == 0 or due < self.due):
            self.schedule.set(self, due)

    def _is_used(self) -> bool:
        """Whether the queue has consumers, or may have: consumers of a remote queue are at its inlet."""
        manager = self.queue.manager
        return bool(manager.all) or bool(manager.gets) or self.queue.remote is not None

    def _is_spared(self) -> bool:
        """Whether the queue, which is unused, stays for its messages, delayed ones included."""
        queue = self.queue
        return queue.dead > 0 or (self.spares_messages and queue.depth + self._delayed() > 0)

    def _delayed(self) -> i64:
        """The count of messages that the queue holds until their date."""
        return 0 if self.timetable is None else len(self.timetable)

    def _look_ms(self) -> i64:
        """The interval, in ms, of checks whether a spared queue has become empty."""
        return self.expires // LOOKS + 1

    def step(self, budget: i64) -> bool:
        """Do a slice of the due work: up to `budget` entries leave for each of the reasons."""
        queue = self.queue
        now = self.schedule.now()
        if self.leaving == QUEUE_EXPIRED and self._is_used():
            self.leaving = NOT_LEAVING
        if self.leaving != NOT_LEAVING:
            self._dead_letter_slice(budget)
            if queue.messages + self._delayed() == 0:
                self.host.delete_unused_queue(queue)
                return False
        elif self.expires >= 0 and not self._is_used():
            if self._is_spared():
                self.used = (
                    now + self._look_ms()
                )  # never too early: the queue may become empty long before the next check
            elif now - self.used >= self.expires:
                if not self.starts_dead_lettering(QUEUE_EXPIRED):
                    self.host.delete_unused_queue(queue)
                return False
        for _ in range(budget):
            timer = self.timers.first()
            if timer is None or timer.due > now:
                break
            entry = timer.entry
            assert entry is not None, "a running timer has an entry"
            dead_letter(queue, entry, EXPIRED)
        if self.trimming:
            make_room(self, budget)
        self.arm()
        return False

    def dead_letter(self, entry: QueueEntry, reason: i64) -> None:
        """Dead-letter `entry`: AVAILABLE, ACQUIRED or HELD → DEQUEUED."""
        death = death_of(self.queue, self, entry, reason)
        take_out(self.queue, entry)
        self.host.dead_letter(death)

    def wait_for_room(self, seeker: RoomWaiter, message: Message) -> bool:
        """Let `seeker` wait for room for `message` behind others."""
        if not self._ever_has_room(message) or seeker in self.room_waiters:
            return False
        self.room_waiters[seeker] = None
        queue = self.queue
        queue.waiters.setdefault(queue.entries.head, [])  # so that every entry that leaves wakes them
        return True

    def stop_waiting_for_room(self, seeker: RoomWaiter) -> None:
        """End the wait of `seeker` for room."""
        self.room_waiters.pop(seeker, None)
        queue = self.queue
        if not self.room_waiters and not queue.waiters.get(queue.entries.head):
            queue.waiters.pop(queue.entries.head, None)

    def starts_dead_lettering(self, reason: i64) -> bool:
        """Dead-letter the messages of the queue, which is about to be deleted, if its limits say so.

        True if the queue stays until the last message has left, in later turns. Then it is deleted, unless it
        is declared again, or, if it was to expire, used again.
        """
        if not self.moves(reason):
            return False
        self.leaving = reason
        self._dead_letter_slice(self.budget)
        if self.queue.messages + self._delayed() == 0:
            self.leaving = NOT_LEAVING
            return False
        self.arm()
        return True

    def _dead_letter_slice(self, room: i64) -> None:
        """Dead-letter up to `room` entries, acquired ones too, and delayed messages."""
        queue = self.queue
        entries = queue.entries
        entry = entries.next(entries.head)
        while entry is not None and room > 0:
            room -= 1
            owner = entry.owner
            dead_letter(queue, entry, self.leaving)
            if owner is not None:
                owner.on_acquisition_removed(entry)
            entry = entries.next(entries.head)
        if room > 0 and self.timetable is not None:
            for message in self.timetable.take(room):
                held = message if queue.logged and message.sequence != 0 else None
                death = Death(queue, self, message, self.leaving, held, queue)
                death.sure = self.sure
                self.host.dead_letter(death)

    def note_empty_backlog(self) -> None:
        """Delete the queue if it is due, because no message waits to be dead-lettered any more."""
        if self.leaving != NOT_LEAVING:
            self.schedule.set(self, self.schedule.now())

    def stop(self) -> None:
        """Stop all timers: the queue is deleted, and `DeletedContents` releases the rest."""
        self.schedule.cancel(self)
        if self.timetable is not None:
            self.schedule.cancel(self.timetable)


def apply(queue: Queue, host: DeathHost) -> None:
    """Apply the queue's effective arguments for limits and dead letters from now on."""
    effective = queue.effective
    queue.host = host
    if queue.limits is None:
        if not effective or not any(name in effective for name in _NAMES):
            return
        queue.limits = Limits(queue, host)
    queue.limits.apply(effective)


def touch(queue: Queue) -> None:
    """Keep the queue, which has been declared again. [RabbitMQ x-expires]"""
    if queue.limits is not None:
        queue.limits.keep_queue()
