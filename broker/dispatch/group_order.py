"""The order of message groups within one dispatcher: the messages of a group are called one after the other.

A queue gives each group to a single consumer. A dispatcher with several calls at once is such a consumer, so
it keeps the order within its groups itself: a message waits, parked with the dispatcher, until the call with
its predecessor has ended. A message that returns to the queue for a retry is awaited: the later messages of
its group wait until it comes again, or has left the queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from broker.core.entries.entry import ACQUIRED, AVAILABLE, DEQUEUED, EntryGroup, Holder, QueueEntry


class Line:
    """The messages of one group that the dispatcher has.

    `batch`: the batch of the present call with messages of the group; None: no call has any. `parked`: the
    acquired messages that wait, a heap by place. `awaited`: the returned messages that must come first.
    """

    def __init__(self, group: EntryGroup) -> None:
        self.group = group
        self.batch: object | None = None
        self.parked: list[QueueEntry] = []
        self.awaited: list[QueueEntry] = []

    def may_go(self, entry: QueueEntry) -> bool:
        """Whether no returned message must come before `entry`."""
        return not any(returned.precedes(entry) for returned in self.awaited)


class GroupOrder:
    """The lines of a dispatcher, by group. `holder`: the dispatcher's consumer. `parked`: parked messages."""

    def __init__(self, holder: Holder) -> None:
        self.parked = 0
        self._holder = holder
        self._lines: dict[EntryGroup, Line] = {}
        self._awaiting: dict[Line, None] = {}
        self._free: dict[Line, None] = {}  # lines whose first parked message may be called

    def claim(self, entry: QueueEntry, batch: object) -> bool:
        """Whether the acquired `entry`, which has a group, may be called with `batch`; else it is parked."""
        group = entry.group
        assert group is not None, "the caller passes entries with a group"
        line = self._lines.get(group)
        if line is None:
            line = self._lines[group] = Line(group)
        if entry in line.awaited:
            line.awaited.remove(entry)
        self._drop_left(line)
        if line.batch in (None, batch) and not line.parked and line.may_go(entry):
            line.batch = batch
            return True
        heappush(line.parked, entry)
        self.parked += 1
        self._update(line)
        return False

    def take_free(self, batch: object, most: int, size_max: int) -> list[QueueEntry]:
        """Return up to `most` parked messages of one group, in order, which are called with `batch`.

        `size_max`: the bytes that their bodies may have together; the first message is returned in any case.
        """
        while self._free:
            line = next(iter(self._free))
            del self._free[line]
            taken: list[QueueEntry] = []
            room = size_max
            while line.parked and len(taken) < most and line.may_go(line.parked[0]):
                room -= int(line.parked[0].message.size)
                if room < 0 and taken:
                    break
                entry = heappop(line.parked)
                self.parked -= 1
                if entry.state == ACQUIRED and entry.owner is self._holder:  # else the queue has taken it
                    taken.append(entry)
            if taken:
                line.batch = batch
                return taken
            self._update(line)
        return []

    def has_free(self) -> bool:
        """Whether a parked message may be called."""
        return bool(self._free)

    def end(self, batch: object, groups: Iterable[EntryGroup], returned: list[QueueEntry]) -> None:
        """Note the end of the call with `batch`, in which these groups had messages.

        `returned`: the messages of the call that are in the queue again.
        """
        for group in groups:
            line = self._lines.get(group)
            if line is None or line.batch is not batch:
                continue
            line.batch = None
            line.awaited += [entry for entry in returned if entry.group is group and _is_back(entry)]
            self._update(line)

    def sweep(self) -> None:
        """Continue the groups whose awaited messages have left the queue or have another owner."""
        for line in list(self._awaiting):
            self._drop_left(line)
            self._update(line)

    def awaits_some(self) -> bool:
        """Whether a group waits for a message that is in the queue."""
        return bool(self._awaiting)

    def awaits_ready(self) -> bool:
        """Whether a message that a group waits for is ready in the queue."""
        return any(entry.state == AVAILABLE for line in self._awaiting for entry in line.awaited)

    def clear(self) -> list[QueueEntry]:
        """Forget all groups; return the parked messages, in order of their groups."""
        parked = [entry for line in self._lines.values() for entry in sorted(line.parked)]
        self._lines.clear()
        self._awaiting.clear()
        self._free.clear()
        self.parked = 0
        return parked

    def _drop_left(self, line: Line) -> None:
        """Forget the awaited messages that the dispatcher cannot get any more."""
        if line.awaited:
            line.awaited = [entry for entry in line.awaited if _is_back(entry)]

    def _update(self, line: Line) -> None:
        """Keep the line in the sets that describe it; drop a line that is of no use."""
        if line.awaited:
            self._awaiting[line] = None
        else:
            self._awaiting.pop(line, None)
        if line.batch is None and line.parked and line.may_go(line.parked[0]):
            self._free[line] = None
        else:
            self._free.pop(line, None)
        if line.batch is None and not line.parked and not line.awaited:
            self._lines.pop(line.group, None)


def _is_back(entry: QueueEntry) -> bool:
    """Whether a returned message is in its queue, and no client has it."""
    return entry.state not in (ACQUIRED, DEQUEUED)
