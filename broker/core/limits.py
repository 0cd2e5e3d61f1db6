"""The limit of ready entries in a queue, and what becomes of what is too much.

[RabbitMQ queue length limit]
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.dead_letter import MAXLEN, dead_letter
from broker.core.entry import AVAILABLE, RANK_SHIFT, QueueEntry
from broker.core.immediate import hand_over
from broker.core.overflow import DROP_HEAD

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.rules import Rules

ADMITTED_FOR: Final[i64] = 1000  # entries that leave for one that comes: more of them go when the alarm rings
_STALE_MIN: Final = 64


def admit_one_more(rules: Rules, entry: QueueEntry) -> None:
    """`entry` is new. If it is one too many, consumers that wait get what they can, and the rest goes."""
    if rules.victims is not None:
        rules.victims.offer(entry)
    if rules.overflow != DROP_HEAD:
        return
    while rules.over() and hand_over(rules.queue):
        pass
    make_room(rules, ADMITTED_FOR)


def make_room(rules: Rules, most: i64) -> None:
    """Drop what is too much: of the lowest priority first, of that the oldest first; at most `most` now."""
    queue = rules.queue
    while rules.over():
        if most <= 0:
            rules.trimming = True
            rules.arm()
            return
        most -= 1
        victim = _oldest(queue) if rules.victims is None else rules.victims.first()
        assert victim is not None, "a queue that counts ready entries has them"
        dead_letter(queue, victim, MAXLEN)
    rules.trimming = False


def _oldest(queue: Queue) -> QueueEntry | None:
    context = queue.context
    entry = context.get_next_available_entry()
    while entry is None and context.more:
        entry = context.get_next_available_entry()
    return entry


@final
class Victims:
    """Finds the oldest AVAILABLE entry of the last rank, where entries have ranks.

    Behind the cursor that consumers share, entries are AVAILABLE only if they were given back, came late or
    were passed by; those are in a heap for each rank. What is not AVAILABLE after the cursor, because those
    who have it see not everything, the cursor passes here. O(log n), and O(ranks whose entries are all with
    consumers).
    """

    def __init__(self, queue: Queue) -> None:
        self._context = queue.context
        self._entries = queue.entries
        self._queue = queue
        self._behind: dict[int, list[QueueEntry]] = {}
        self._count: i64 = 0

    @staticmethod
    def of(queue: Queue) -> Victims | None:
        """The victims of a queue; None if the cursor that consumers share finds the oldest."""
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
        """`entry` has just become AVAILABLE."""
        if self._context.last.precedes(entry) or entry.state != AVAILABLE:
            return
        heappush(self._behind.setdefault(entry.order >> RANK_SHIFT, []), entry)
        self._count += 1
        if self._count > 2 * self._queue.depth + _STALE_MIN:
            self._sweep()

    def first(self) -> QueueEntry | None:
        """The entry that is to go first."""
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
        """The first AVAILABLE entry of the cursor's rank after it, or what follows that rank."""
        context = self._context
        rank = context.last.order >> RANK_SHIFT
        entry = self._entries.next(context.last)
        while entry is not None and entry.state != AVAILABLE and entry.order >> RANK_SHIFT == rank:
            context.last = entry  # it is offered to the context if it comes back
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
        """Let go of what is not AVAILABLE any more."""
        self._count = 0
        for heap in self._behind.values():
            heap[:] = dict.fromkeys([entry for entry in heap if entry.state == AVAILABLE])
            heapify(heap)
            self._count += len(heap)
