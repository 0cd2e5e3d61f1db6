"""The order of message groups within one dispatcher: the messages of a group are called one after the other.

A queue gives each group to a single consumer. A dispatcher with several calls at once is such a consumer, so
it keeps the order within its groups itself: a message waits, parked with the dispatcher, until the call with
its predecessor has ended. A message that returns to the queue for a retry is awaited: the later messages of
its group wait until it comes again, or has left the queue.

The order outlives a pause and a change of the definition. The calls of the earlier definition and the awaited
messages hold their groups for the next definition.
"""

from __future__ import annotations

from collections import OrderedDict
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
        self.awaited: dict[QueueEntry, None] = {}
        self._first: list[QueueEntry] = []  # a heap of the awaited messages and of earlier ones

    def add_awaited(self, entry: QueueEntry) -> None:
        """Let the later messages wait for a returned one."""
        if entry not in self.awaited:
            self.awaited[entry] = None
            heappush(self._first, entry)

    def first_awaited(self) -> QueueEntry | None:
        """Return the first awaited message; None: the line waits for none."""
        first = self._first
        while first and first[0] not in self.awaited:
            heappop(first)
        return first[0] if first else None

    def may_go(self, entry: QueueEntry) -> bool:
        """Whether no returned message must come before `entry`."""
        awaited = self.first_awaited()
        return awaited is None or not awaited.precedes(entry)


class GroupOrder:
    """The lines of a dispatcher, by group. `parked`: the number of parked messages."""

    def __init__(self) -> None:
        self.parked = 0
        self._holders: list[Holder] = []  # the dispatcher's consumers, the present one last
        self._lines: dict[EntryGroup, Line] = {}
        self._awaiting: dict[Line, None] = {}
        self._free: OrderedDict[Line, None] = OrderedDict()  # lines whose first parked message may be called
        self._ready: OrderedDict[QueueEntry, None] = OrderedDict()  # awaited messages that were ready

    def begin(self, holder: Holder) -> None:
        """Begin to keep the order for the messages that `holder`, the dispatcher's next consumer, acquires.

        Call this before the consumer is attached.
        """
        self._holders = [*(each for each in self._holders if each.inflight > 0), holder]
        self.note_ready([entry for line in self._awaiting for entry in line.awaited])
        self.sweep()

    def claim(self, entry: QueueEntry, batch: object) -> bool:
        """Whether the acquired `entry`, which has a group, may be called with `batch`; else it is parked."""
        group = entry.group
        assert group is not None, "the caller passes entries with a group"
        line = self._lines.get(group)
        if line is None:
            line = self._lines[group] = Line(group)
        line.awaited.pop(entry, None)
        self._ready.pop(entry, None)
        self._drop_left(line)
        if line.batch in (None, batch) and not line.parked and line.may_go(entry):
            line.batch = batch
            if not line.awaited:
                self._awaiting.pop(line, None)
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
            line, _ = self._free.popitem(last=False)
            taken: list[QueueEntry] = []
            room = size_max
            while line.parked and len(taken) < most and line.may_go(line.parked[0]):
                room -= int(line.parked[0].message.size)
                if room < 0 and taken:
                    break
                entry = heappop(line.parked)
                self.parked -= 1
                if entry.owner is self._holders[-1]:  # else the queue has taken the message back
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

        `returned`: the messages of the call that return to the queue, at once or in later turns.
        """
        ended: dict[EntryGroup, Line] = {}
        for group in groups:
            line = self._lines.get(group)
            if line is not None and line.batch is batch:
                ended[group] = line
        for entry in returned:
            line = None if entry.group is None else ended.get(entry.group)
            if line is not None:
                self._await(line, entry)
        for line in ended.values():
            line.batch = None
            self._update(line)

    def note_ready(self, back: list[QueueEntry]) -> None:
        """Note that messages, awaited ones or others, have become ready in the queue again."""
        for entry in back:
            line = None if entry.group is None else self._lines.get(entry.group)
            if line is not None and entry in line.awaited:
                self._ready[entry] = None

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
        while self._ready:
            if next(iter(self._ready)).state == AVAILABLE:
                return True
            self._ready.popitem(last=False)
        return False

    def unpark(self) -> list[QueueEntry]:
        """Return the parked messages, in order of their groups, for their return to the queue.

        The groups wait for these messages, for those that are awaited already, and for the calls in progress.
        """
        released: list[QueueEntry] = []
        for line in [line for line in self._lines.values() if line.parked]:
            parked, line.parked = sorted(line.parked), []
            for entry in parked:
                self._await(line, entry)
            released += parked
            self._update(line)
        self.parked = 0
        return released

    def _await(self, line: Line, entry: QueueEntry) -> None:
        """Let a line wait for a message that returns, unless the message is not the dispatcher's any more."""
        if self._is_back(entry):
            line.add_awaited(entry)
            if entry.state == AVAILABLE:
                self._ready[entry] = None

    def _drop_left(self, line: Line) -> None:
        """Forget the first awaited messages as far as the dispatcher cannot get them any more."""
        while (entry := line.first_awaited()) is not None and not self._is_back(entry):
            del line.awaited[entry]
            self._ready.pop(entry, None)

    def _is_back(self, entry: QueueEntry) -> bool:
        """Whether a returned message is in its queue, or about to be, and no other consumer has it.

        A large number of messages returns in later turns; until then each has its former owner.
        """
        return entry.state != DEQUEUED and (entry.state != ACQUIRED or entry.owner in self._holders)

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
