"""Stages: messages of a queue, set apart for one reader under dense offsets, so that it can read them again.

The messages stay in their queue, acquired by a consumer that is never attached. So no other consumer gets
them, and released messages are at their places. A step of the stage is one record of the log. Messages that
the step acknowledges, and that are not retained, leave when the record is durable. If they had not left
before a restart, they leave after it. [amqpd]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import RELEASED
from broker.core.entries.cursor import Cursor
from broker.core.entries.entry import AVAILABLE, QueueEntry
from broker.core.errors import LimitReached, NotFound
from broker.core.names import check_length
from broker.core.operators.operation import mark, unmark
from broker.core.queues.consumer import make_holder
from broker.core.queues.queue import Queue, next_in_time, refuse_stream
from broker.core.queues.returns import finish_returns, settle_all
from broker.core.queues.state import owns
from broker.core.queues.stops import check_dequeue
from broker.core.remotes.remote import refuse_remote
from broker.core.vhosts.changes import Change, number_of, text_of
from broker.core.vhosts.registry import Registry

STAGE: Final = "stage"
STEP: Final = 200  # entries settled or requeued in one slice


def check_take(queue: Queue) -> None:
    """Refuse to take from a queue from which basic.get would get nothing.

    Raises QueueStopped, ResourceLocked.
    """
    if queue.stops is not None:
        check_dequeue(queue, queue.stops)
    if queue.election is not None:
        queue.election.check_get()


def _extend(runs: list[int], entry: QueueEntry | None) -> None:
    """Append a message's number to runs of numbers."""
    number = 0 if entry is None else max(0, int(entry.message.sequence))
    if runs and number == (runs[-2] + runs[-1] if runs[-2] else 0):
        runs[-1] += 1
    else:
        runs += (number, 1)


@final
class Stage:
    """Messages of `queue` that are set apart for `reader`.

    `incarnation`: no other stage of this queue and reader has this number. `epoch`: starts there and grows
    with each attachment; only the newest epoch may advance. Offsets: `kept` <= `oldest` <= `first` <=
    `behind` <= `next`. Messages before `first` are acknowledged. The reader can read messages from `oldest`
    on. Messages before `behind` are on disk. Messages from `kept` to `oldest` are about to leave. `retain`:
    so many acknowledgements keep their messages readable. `before`: the value of `next` before the last
    advance.
    """

    def __init__(self, queue: Queue, reader: str, incarnation: i64) -> None:
        self.queue = queue
        self.reader = reader
        self.incarnation = incarnation
        self.holder = make_holder(queue, reader)
        self.epoch: i64 = 0
        self.retain: i64 = 0
        self.kept: i64 = 0
        self.oldest: i64 = 0
        self.first: i64 = 0
        self.behind: i64 = 0
        self.next: i64 = 0
        self.before: i64 = -1
        self.gate: object | None = None  # a lock for changes of the stage; the core does not read it
        self.lost: list[int] = []  # offsets of messages that did not outlive a restart
        self.times: list[tuple[int, int]] = []  # for each advance: the offset behind it, and its time
        self._marks: list[int] = []  # the values of `first` before each of the last acknowledgements
        self._was: tuple[int, int, list[int]] = (0, 0, [])  # `oldest`, `first` and marks before the last step
        self._entries: list[QueueEntry | None] = []
        self._head: i64 = 0  # the index of the entry of `kept` in `_entries`
        self._coming: list[QueueEntry] = []  # marked, and not in the log yet
        # Runs of numbers of messages in the log: first number and count; number 0: not in the log.
        self._coming_runs: list[int] = []
        self._runs: list[tuple[int, list[int]]] = []  # for each advance: the offset behind it, and its runs

    @property
    def rows(self) -> i64:
        """The number of unacknowledged messages, which can be read now or when they are on disk."""
        return self.next - self.first

    @property
    def coming_runs(self) -> i64:
        """The number of runs of numbers in the record of the next step."""
        return len(self._coming_runs) // 2

    @property
    def logged(self) -> bool:
        """Whether the stage outlives a restart, as its queue does."""
        return self.queue.number > 0

    def entry(self, offset: i64) -> QueueEntry | None:
        """Return the entry with an offset from `kept` up to `next`; None: the entry has left the queue."""
        entry = self._entries[self._head + offset - self.kept]
        return entry if entry is not None and owns(self.holder, entry, self.queue) else None

    def use_cursor(self, cursor: Cursor) -> None:
        """Take messages in the view of `cursor`, which belongs to an attached consumer of the queue."""
        self.holder.context = cursor

    def take_one(self) -> i64:
        """Mark the message that basic.get would get. Return its size, -1 without a message.

        Raises QueueStopped, ResourceLocked.
        """
        queue = self.queue
        check_take(queue)
        if queue.limits is not None:
            queue.limits.touch()
        if queue.manager.returns:
            finish_returns(queue)
        if queue.ready == 0:
            return -1
        entry = next_in_time(queue, self.holder)
        if entry is None:
            return -1
        self._mark(entry)
        context = self.holder.context
        if context.behind or context.late is not None:
            context.move_past(entry)
        else:
            context.last = entry
        self._coming.append(entry)
        _extend(self._coming_runs, entry)
        return entry.message.size

    def release_marked(self) -> None:
        """Release the marked messages at their places."""
        coming, self._coming = self._coming, []
        self._coming_runs = []
        self._unmark(coming)

    def step(self, first: i64, now: i64) -> Change:
        """Stage the marked messages, acknowledge those before `first`, and return the record for the log.

        When the record is on disk, call `note_durable`, then `settle_some` until it returns false. If the log
        fails, call `undo`.
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
        """Acknowledge all before `first`; move `oldest` past messages that are retained no longer."""
        if first > self.first:
            self._marks.append(int(self.first))
            self.first = first
        if len(self._marks) > self.retain:
            del self._marks[: len(self._marks) - self.retain]
        self.oldest = max(self.oldest, self._marks[0] if self._marks else self.first)

    def note_durable(self) -> None:
        """Note that the last step is on disk."""
        self.behind = self.next
        self.times = [each for each in self.times if each[0] > self.first]

    def undo(self) -> None:
        """Undo the last step, which is not on disk: its messages are released at their places."""
        failed = [entry for entry in self._entries[self._head + self.before - self.kept :] if entry]
        del self._entries[self._head + self.before - self.kept :]
        self.next = self.before
        self.before = -1
        self.oldest, self.first, self._marks = self._was
        self.times = [each for each in self.times if each[0] <= self.next]
        self._runs = [each for each in self._runs if each[0] <= self.next]
        self._unmark(failed)

    def settle_some(self) -> bool:
        """Settle some acknowledged messages that are not retained; false: none are left."""
        count = min(self.oldest - self.kept, STEP)
        if count > 0:
            settle_all(self._pop(count), self.holder)
        return self.kept < self.oldest

    def requeue_some(self) -> bool:
        """Requeue some messages, redelivered, because the reader was deleted; false: none are left."""
        back = self._pop(min(self.next - self.kept, STEP))
        for entry in back:
            entry.redelivered = True
        self._unmark(back)
        self.oldest = max(self.oldest, self.kept)
        self.first = max(self.first, self.kept)
        return self.kept < self.next

    def _mark(self, entry: QueueEntry) -> None:
        mark(self.queue, entry, self.holder)
        journal = self.queue.journal
        if journal is not None:
            journal.staged(entry, self.holder)

    def _unmark(self, entries: list[QueueEntry]) -> None:
        journal = self.queue.journal
        if journal is not None:
            for entry in entries:
                if owns(self.holder, entry, self.queue):
                    journal.returned(entry, self.holder, RELEASED)
        unmark(self.queue, entries, self.holder)

    def _pop(self, count: i64) -> list[QueueEntry]:
        end = self._head + count
        popped = [entry for entry in self._entries[self._head : end] if entry is not None]
        self._entries[self._head : end] = [None] * count  # freeing them all at once would take long
        self._head = end
        self.kept += count
        while self._runs and self._runs[0][0] <= self.kept:
            del self._runs[0]
        if self._head * 2 > len(self._entries):
            del self._entries[: self._head]
            self._head = 0
        return popped

    def describe(self) -> Change:
        """Describe the whole stage, for the log."""
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
        """Return the runs of all messages from `kept` on."""
        all_runs: list[int] = []
        for _, runs in self._runs:
            all_runs += runs
        extra = sum(all_runs[1::2]) - int(self.next - self.kept)  # have left
        at = 0
        while extra > 0:
            gone = min(extra, all_runs[at + 1])
            all_runs[at] += gone if all_runs[at] else 0
            all_runs[at + 1] -= gone
            extra -= gone
            at += 0 if all_runs[at + 1] else 2
        return all_runs[at:]

    def recover(
        self,
        entries: list[QueueEntry | None],
        kept: i64,
        first: i64,
        retain: i64,
        marks: list[int],
        now: i64,
    ) -> None:
        """Restore the stage's `entries`, which begin with the offset `kept`; None: the message is lost."""
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
        while self.settle_some():
            pass


READERS_MAX: Final = 64  # for each queue
STAGE_RELEASED: Final = "stage.delete"


@final
class _StagedState:
    """The state of a stage as recovery reads it from the log.

    `numbers`: the numbers in the log of the messages from `kept` on; 0: a message without a number.
    """

    def __init__(self) -> None:
        self.incarnation = 0
        self.epoch = 0
        self.kept = 0
        self.first = 0
        self.retain = 0
        self.marks: list[int] = []
        self.numbers: list[int] = []

    def apply(self, change: Change) -> None:
        """Apply a description of the whole stage, or a step. Raises ValueError."""
        kept = number_of(change, "kept")
        whole = change["kind"] == STAGE
        start = kept if whole else number_of(change, "from")
        if whole:
            self.incarnation = number_of(change, "incarnation")
            self.numbers = []
        else:
            del self.numbers[: max(0, kept - self.kept)]
            del self.numbers[max(0, start - kept) :]
            self.numbers += [0] * (start - kept - len(self.numbers))
        self.kept = kept
        self.epoch = number_of(change, "epoch")
        self.first = number_of(change, "first")
        self.retain = number_of(change, "retain") if "retain" in change else 0
        marks = change.get("marks", [])
        if not isinstance(marks, list) or not all(isinstance(each, int) for each in marks):
            raise ValueError(f"a stage has no such marks: {marks!r}")
        self.marks = marks
        runs = change.get("runs")
        if not isinstance(runs, list) or len(runs) % 2:
            raise ValueError(f"a stage has no such runs: {runs!r}")
        for number, count in zip(runs[::2], runs[1::2], strict=True):
            self.numbers += range(number, number + count) if number else [0] * count
        if kept + len(self.numbers) != number_of(change, "next"):
            raise ValueError(f"a stage has {len(self.numbers)} messages from {kept} on: {change}")

    def describe(self, queue: int, reader: str) -> Change:
        """Describe the whole stage, for the log."""
        runs: list[int] = []
        for number in self.numbers:
            if runs and number == (runs[-2] + runs[-1] if runs[-2] else 0):
                runs[-1] += 1
            else:
                runs += (number, 1)
        return {
            "kind": STAGE,
            "queue": queue,
            "reader": reader,
            "epoch": self.epoch,
            "kept": self.kept,
            "first": self.first,
            "retain": self.retain,
            "marks": self.marks,
            "next": self.kept + len(self.numbers),
            "runs": runs,
            "incarnation": self.incarnation,
        }


@final
class Stages:
    """All stages of a broker. The stages of deleted queues are dropped with them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._stages: dict[Queue, dict[str, Stage]] = {}
        self._staged: dict[tuple[int, str], _StagedState] = {}  # until recovery is over

    def find_stage(self, queue: Queue, reader: str) -> Stage | None:
        """Return the stage of a reader; None: it has none."""
        return self._stages.get(queue, {}).get(reader)

    def all(self) -> list[Stage]:
        """Return all stages of queues that exist."""
        return [
            stage for queue, stages in self._stages.items() if not queue.deleted for stage in stages.values()
        ]

    def readers_of(self, queue: Queue) -> list[str]:
        """Return the readers for which messages of `queue` are staged, for people."""
        return [f"reader '{reader}'" for reader in self._stages.get(queue, ())]

    def existing(self, queue: Queue, reader: str) -> Stage:
        """Return the stage of a reader. Raises NotFound."""
        stage = self.find_stage(queue, reader)
        if stage is None or queue.deleted:
            raise NotFound(f"queue '{queue.name}' in vhost '{queue.vhost}' has no reader '{reader}'")
        return stage

    def attach(
        self, queue: Queue, reader: str, incarnation: i64, retain: i64 = 0, for_link: bool = False
    ) -> Stage:
        """Return the stage of a reader, a new one if it has none; earlier epochs may not advance it any more.

        `incarnation`: the number of a new stage, which no earlier stage had; its epochs begin there.
        `retain`: so many acknowledgements keep their messages readable. Messages of earlier acknowledgements
        are about to leave. `for_link`: the reader is the link of a remote queue.

        Raises:
            Unsupported: the queue is a stream.
            PreconditionFailed: the queue is remote.
            ResourceLocked, QueueStopped: basic.get is refused for the queue.
            LimitReached: the queue has too many readers.
            PreconditionFailed: the name is longer than 255 bytes or not valid UTF-8.
            StoreFailed: the log has stopped.
        """
        refuse_stream(queue, "staged: read it as a stream")
        if not for_link:
            refuse_remote(queue, "staged")
        check_length("reader name", reader)
        check_take(queue)
        if queue.number > 0:
            self._registry.store.require()
        for gone in [queue for queue in self._stages if queue.deleted]:
            del self._stages[gone]
        stages = self._stages.setdefault(queue, {})
        stage = stages.get(reader)
        if stage is None:
            if len(stages) >= READERS_MAX:
                raise LimitReached(
                    f"queue '{queue.name}' in vhost '{queue.vhost}' has {READERS_MAX} readers already"
                )
            stage = Stage(queue, reader, incarnation)
            stages[reader] = stage
            stage.epoch = incarnation  # no earlier stage had this epoch
            stage.retain = retain
            self.append(stage, stage.describe())
        else:
            before = stage.before
            stage.use_cursor(queue.context)  # the cursor of an earlier owner may have been left
            stage.epoch += 1
            stage.retain = retain
            self.append(stage, stage.step(stage.first, 0))
            stage.before = before
        return stage

    def append(self, stage: Stage, change: Change) -> None:
        """Append a change of a stage to the log, if the log knows its queue."""
        if stage.logged and not stage.queue.deleted:
            self._registry.store.append_definition(change)

    def undo(self, stage: Stage) -> None:
        """Undo the last step of a stage, which has failed.

        The log will write the step all the same when it has room again, so the state before it is appended
        too.
        """
        stage.undo()
        self.append(stage, stage.describe())

    def release(self, stage: Stage) -> None:
        """Delete a reader; `Stage.requeue_some` requeues its messages. Raises StoreFailed."""
        if stage.logged:
            self._registry.store.require()
        del self._stages[stage.queue][stage.reader]
        self.append(stage, {"kind": STAGE_RELEASED, "queue": int(stage.queue.number), "reader": stage.reader})

    def describe(self) -> Iterator[list[Change]]:
        """Describe each stage, for the log, whose first segment begins before recovery ends."""
        for (number, reader), staged in list(self._staged.items()):
            if self._registry.queue_numbered(number) is not None:
                yield [staged.describe(number, reader)]
        for queue, stages in list(self._stages.items()):
            for stage in list(stages.values()):
                if stage.logged and not queue.deleted and stages.get(stage.reader) is stage:
                    yield [stage.describe()]

    def apply(self, change: Change) -> None:
        """Apply a change from the log; its queue may come later. Raises ValueError."""
        key = number_of(change, "queue"), text_of(change, "reader")
        if change["kind"] == STAGE_RELEASED:
            self._staged.pop(key, None)
        else:
            self._staged.setdefault(key, _StagedState()).apply(change)

    def recover(self) -> None:
        """Restore all stages after recovery, before the broker serves clients."""
        staged, self._staged = self._staged, {}
        by_queue: dict[int, dict[int, QueueEntry]] = {}
        for (number, reader), each in staged.items():
            queue = self._registry.queue_numbered(number)
            if queue is None:
                continue
            if number not in by_queue:
                by_queue[number] = {int(entry.message.sequence): entry for entry in queue.entries}
            stage = Stage(queue, reader, each.incarnation)
            stage.epoch = each.epoch
            here = by_queue[number]
            entries = [here.get(sequence) if sequence else None for sequence in each.numbers]
            if queue.member is not None:
                for entry in entries:
                    if entry is not None:
                        queue.member.take_back(entry)
            available = [entry if entry and entry.state == AVAILABLE else None for entry in entries]
            stage.recover(
                available, each.kept, each.first, each.retain, each.marks, self._registry.schedule.now()
            )
            self._stages.setdefault(queue, {})[reader] = stage
