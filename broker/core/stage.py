"""The stage of one reader of a queue: messages set apart for it, with dense offsets, to be read again.

They stay where they are in their queue, with a consumer that is never attached: so nobody else gets them, and
given back they are at their places. A step of the stage is one record of the log. What is acknowledged by it,
and not retained, leaves when the record is durable, and after a restart if it had not left by then. [amqpd]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.entry import QueueEntry
from broker.core.expiry import next_in_time
from broker.core.operation import mark, unmark
from broker.core.outcome import RELEASED
from broker.core.returning import finish_returns
from broker.core.settling import settle_all
from broker.core.stopping import check_dequeue
from broker.core.taker import taker_of

if TYPE_CHECKING:
    from broker.core.definitions import Change
    from broker.core.queue import Queue

STAGE: Final = "stage"
STEP: Final = 200  # entries that leave or come back in one slice


def check_take(queue: Queue) -> None:
    """Refuse to take from a queue what basic.get would not get. Raises QueueStopped, ResourceLocked."""
    if queue.stops is not None:
        check_dequeue(queue, queue.stops)
    if queue.election is not None:
        queue.election.check_get()


def _extend(runs: list[int], entry: QueueEntry | None) -> None:
    """Add a message to runs of numbers."""
    number = 0 if entry is None else max(0, int(entry.message.sequence))
    if runs and number == (runs[-2] + runs[-1] if runs[-2] else 0):
        runs[-1] += 1
    else:
        runs += (number, 1)


@final
class Stage:
    """Messages of `queue` that are set apart for `reader`.

    `incarnation`: no other stage of this queue and reader has this number. `epoch`: grows from there with
    each attachment; only the newest one may advance. Offsets: `kept` <= `oldest` <= `first` <= `behind` <=
    `next`. Before `first` messages are acknowledged. From `oldest` on they can be read, before `behind` they
    are on disk; those from `kept` to `oldest` are about to leave. `retain`: how many acknowledgements what
    they are of outlives. `before`: what `next` was before the last advance.
    """

    def __init__(self, queue: Queue, reader: str, incarnation: i64) -> None:
        self.queue = queue
        self.reader = reader
        self.incarnation = incarnation
        self.taker = taker_of(queue, reader)
        self.epoch: i64 = 0
        self.retain: i64 = 0
        self.kept: i64 = 0
        self.oldest: i64 = 0
        self.first: i64 = 0
        self.behind: i64 = 0
        self.next: i64 = 0
        self.before: i64 = -1
        self.gate: object | None = None  # of whoever changes it; the core does not read it
        self.lost: list[int] = []  # offsets of messages that did not outlive a restart
        self.times: list[tuple[int, int]] = []  # of each advance: the offset behind it, and when it was
        self._marks: list[int] = []  # what `first` was before each of the last acknowledgements
        self._was: tuple[int, int, list[int]] = (0, 0, [])  # `oldest`, `first` and marks before the last step
        self._entries: list[QueueEntry | None] = []
        self._head: i64 = 0  # where the entry of `kept` is in there
        self._coming: list[QueueEntry] = []  # marked, and not in the log yet
        # Runs of numbers of messages in the log: first number and how many, 0: it does not know them.
        self._coming_runs: list[int] = []
        self._runs: list[tuple[int, list[int]]] = []  # of each advance, and the offset behind it

    @property
    def rows(self) -> i64:
        """The number of messages that are not acknowledged, and can be read now or when they are on disk."""
        return self.next - self.first

    @property
    def coming_runs(self) -> i64:
        """The number of runs of numbers that the next step has to name."""
        return len(self._coming_runs) // 2

    @property
    def logged(self) -> bool:
        """Whether it outlives a restart: its queue does."""
        return self.queue.number > 0

    def entry(self, offset: i64) -> QueueEntry | None:
        """The entry with an offset from `kept` up to `next`; None: it is gone."""
        entry = self._entries[self._head + offset - self.kept]
        return entry if entry is not None and entry.is_with(self.taker) else None

    def take_one(self) -> i64:
        """Mark the message that basic.get would get; returns its size, -1: there is none.

        Raises QueueStopped, ResourceLocked.
        """
        queue = self.queue
        check_take(queue)
        if queue.rules is not None:
            queue.rules.touch()
        if queue.manager.returns:
            finish_returns(queue)
        if queue.ready == 0:
            return -1
        entry = next_in_time(queue, self.taker)
        if entry is None:
            return -1
        self._mark(entry)
        context = self.taker.context
        if context.behind or context.late is not None:
            context.passed(entry)
        else:
            context.last = entry
        self._coming.append(entry)
        _extend(self._coming_runs, entry)
        return entry.message.size

    def put_back(self) -> None:
        """Unmark what is marked: it is where it was."""
        coming, self._coming = self._coming, []
        self._coming_runs = []
        self._unmark(coming)

    def step(self, first: i64, now: i64) -> Change:
        """Stage what is marked, acknowledge what is before `first`, and return what the log is to say.

        When that is on disk call `durable`, then `leave` while it says so; if it fails, `undo`.
        """
        coming, self._coming = self._coming, []
        runs, self._coming_runs = self._coming_runs, []
        self._was = (int(self.oldest), int(self.first), list(self._marks))
        self._acknowledge(first)
        change = self._change("stage.step")
        change["from"] = int(self.next)
        self._entries += coming
        self.before = self.next
        self.next += len(coming)
        if coming:
            self.times.append((int(self.next), int(now)))
            self._runs.append((int(self.next), runs))
        change["next"] = int(self.next)
        change["runs"] = runs
        return change

    def _acknowledge(self, first: i64) -> None:
        """Leave what is before `first`, and what is of earlier acknowledgements than are retained."""
        if first > self.first:
            self._marks.append(int(self.first))
            self.first = first
        if len(self._marks) > self.retain:
            del self._marks[: len(self._marks) - self.retain]
        self.oldest = max(self.oldest, self._marks[0] if self._marks else self.first)

    def durable(self) -> None:
        """The last step is on disk."""
        self.behind = self.next
        self.times = [each for each in self.times if each[0] > self.first]

    def undo(self) -> None:
        """The last step is not on disk: it acknowledged nothing, and what it staged is where it was."""
        failed = [entry for entry in self._entries[self._head + self.before - self.kept :] if entry]
        del self._entries[self._head + self.before - self.kept :]
        self.next = self.before
        self.before = -1
        self.oldest, self.first, self._marks = self._was
        self.times = [each for each in self.times if each[0] <= self.next]
        self._runs = [each for each in self._runs if each[0] <= self.next]
        self._unmark(failed)

    def leave(self) -> bool:
        """Have some leave that are acknowledged and not retained; false: there are none left."""
        count = min(self.oldest - self.kept, STEP)
        if count > 0:
            settle_all(self._pop(count), self.taker)
        return self.kept < self.oldest

    def give_back(self) -> bool:
        """Have some be in their queue again, redelivered; false: there are none left. The reader is gone."""
        back = self._pop(min(self.next - self.kept, STEP))
        for entry in back:
            entry.redelivered = True
        self._unmark(back)
        self.oldest = max(self.oldest, self.kept)
        self.first = max(self.first, self.kept)
        return self.kept < self.next

    def _mark(self, entry: QueueEntry) -> None:
        mark(self.queue, entry, self.taker)
        journal = self.queue.journal
        if journal is not None:
            journal.staged(entry, self.taker)

    def _unmark(self, entries: list[QueueEntry]) -> None:
        journal = self.queue.journal
        if journal is not None:
            for entry in entries:
                if entry.is_with(self.taker):
                    journal.returned(entry, self.taker, RELEASED)
        unmark(self.queue, entries, self.taker)

    def _pop(self, count: i64) -> list[QueueEntry]:
        end = self._head + count
        popped = [entry for entry in self._entries[self._head : end] if entry is not None]
        self._entries[self._head : end] = [None] * count  # to free them all at once takes long
        self._head = end
        self.kept += count
        while self._runs and self._runs[0][0] <= self.kept:
            del self._runs[0]
        if self._head * 2 > len(self._entries):
            del self._entries[: self._head]
            self._head = 0
        return popped

    def describe(self) -> Change:
        """The whole stage, for the log."""
        change = self._change(STAGE)
        change["next"] = int(self.next)
        change["runs"] = self._all_runs()
        change["incarnation"] = int(self.incarnation)
        return change

    def _change(self, kind: str) -> Change:
        change: Change = {
            "kind": kind,
            "queue": int(self.queue.number),
            "reader": self.reader,
            "epoch": int(self.epoch),
            "kept": int(self.kept),
            "first": int(self.first),
        }
        if self.retain > 0 or self.oldest < self.first:
            change["retain"] = int(self.retain)
            change["marks"] = list(self._marks)
        return change

    def _all_runs(self) -> list[int]:
        """The runs of all messages from `kept` on."""
        found: list[int] = []
        for _, runs in self._runs:
            found += runs
        extra = sum(found[1::2]) - int(self.next - self.kept)  # have left
        at = 0
        while extra > 0:
            gone = min(extra, found[at + 1])
            found[at] += gone if found[at] else 0
            found[at + 1] -= gone
            extra -= gone
            at += 0 if found[at + 1] else 2
        return found[at:]

    def recover(
        self,
        entries: list[QueueEntry | None],
        kept: i64,
        first: i64,
        retain: i64,
        marks: list[int],
        now: i64,
    ) -> None:
        """Have what a stage had before a restart, which begins with the offset `kept`; None: it is lost."""
        self.kept = kept
        self.first = first
        self.retain = retain
        self._marks = marks
        self.oldest = max(kept, marks[0] if marks else first)
        self._entries = entries
        self.next = self.behind = kept + len(entries)
        for number, entry in enumerate(entries):
            if entry is not None:
                self._mark(entry)
            elif kept + number >= self.oldest:
                self.lost.append(int(kept) + number)
        if self.rows > 0:
            self.times = [(int(self.next), int(now))]
        runs: list[int] = []
        for entry in entries:
            _extend(runs, entry)
        self._runs = [(int(self.next), runs)]
        while self.leave():
            pass
