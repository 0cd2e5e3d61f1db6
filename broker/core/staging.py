"""The stages of all queues, and what the log says of them. [amqpd]"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.definitions import Change, number_of, text_of
from broker.core.entry import AVAILABLE, QueueEntry
from broker.core.errors import LimitReached, NotFound
from broker.core.names import check_length
from broker.core.stage import STAGE, Stage, check_take
from broker.core.stream_list import refuse_stream

if TYPE_CHECKING:
    from broker.core.broker import Broker
    from broker.core.queue import Queue

READERS_MAX: Final = 64  # of one queue
RELEASED: Final = "stage.delete"


@final
class _Told:
    """What the log says of a stage. `numbers`: of its messages in the log from `kept` on, 0: it had none."""

    def __init__(self) -> None:
        self.incarnation = 0
        self.epoch = 0
        self.kept = 0
        self.first = 0
        self.retain = 0
        self.marks: list[int] = []
        self.numbers: list[int] = []

    def apply(self, change: Change) -> None:
        """A description of all of it, or a step. Raises ValueError."""
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
        """All of it, for the log."""
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
class Staging:
    """All stages of a broker. Those of queues that have been deleted are gone with them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._stages: dict[Queue, dict[str, Stage]] = {}
        self._told: dict[tuple[int, str], _Told] = {}  # until recovery is over

    def found(self, queue: Queue, reader: str) -> Stage | None:
        """The stage of a reader, None: it has none."""
        return self._stages.get(queue, {}).get(reader)

    def existing(self, queue: Queue, reader: str) -> Stage:
        """The stage of a reader. Raises NotFound."""
        stage = self.found(queue, reader)
        if stage is None or queue.deleted:
            raise NotFound(f"queue '{queue.name}' in vhost '{queue.vhost}' has no reader '{reader}'")
        return stage

    def attach(self, queue: Queue, reader: str, incarnation: i64, retain: i64 = 0) -> Stage:
        """A stage for a reader, or the one that it has; no earlier epoch may advance it any more.

        `incarnation`: of a new one, and no earlier one had it; its epochs begin there. `retain`: how many
        acknowledgements what they are of outlives; what is beyond that is about to leave.

        Raises:
            Unsupported: the queue is a stream.
            ResourceLocked, QueueStopped: it gives nothing to basic.get either.
            LimitReached: it has too many readers.
            PreconditionFailed: the name is longer than 255 bytes or no Unicode text.
            StoreFailed: the log has stopped.
        """
        refuse_stream(queue, "staged: read it as a stream")
        check_length("reader name", reader)
        check_take(queue)
        if queue.number > 0:
            self._broker.store.require()
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
            stage.epoch = incarnation  # of an earlier one nobody has it
            stage.retain = retain
            self.append(stage, stage.describe())
        else:
            before = stage.before
            stage.epoch += 1
            stage.retain = retain
            self.append(stage, stage.step(stage.first, 0))
            stage.before = before
        return stage

    def append(self, stage: Stage, change: Change) -> None:
        """Have the log know a change of a stage, if it knows its queue."""
        if stage.logged and not stage.queue.deleted:
            self._broker.store.append_definition(change)

    def undo(self, stage: Stage) -> None:
        """The last step of a stage has failed: it is as it was before.

        The log says the step all the same when it has room again, and so has to be told otherwise.
        """
        stage.undo()
        self.append(stage, stage.describe())

    def release(self, stage: Stage) -> None:
        """Forget a reader; what it has staged is given back with `Stage.give_back`. Raises StoreFailed."""
        if stage.logged:
            self._broker.store.require()
        del self._stages[stage.queue][stage.reader]
        self.append(stage, {"kind": RELEASED, "queue": int(stage.queue.number), "reader": stage.reader})

    def describe(self) -> Iterator[list[Change]]:
        """Each stage, for the log; which begins its first segment before recovery is over."""
        for (number, reader), told in list(self._told.items()):
            if self._broker.queue_numbered(number) is not None:
                yield [told.describe(number, reader)]
        for queue, stages in list(self._stages.items()):
            for stage in list(stages.values()):
                if stage.logged and not queue.deleted and stages.get(stage.reader) is stage:
                    yield [stage.describe()]

    def apply(self, change: Change) -> None:
        """Apply a change that the log brought back; its queue may come later. Raises ValueError."""
        key = number_of(change, "queue"), text_of(change, "reader")
        if change["kind"] == RELEASED:
            self._told.pop(key, None)
        else:
            self._told.setdefault(key, _Told()).apply(change)

    def recover(self) -> None:
        """Recovery is over, and nobody is served yet: stages have their messages again."""
        told, self._told = self._told, {}
        found: dict[int, dict[int, QueueEntry]] = {}
        for (number, reader), each in told.items():
            queue = self._broker.queue_numbered(number)
            if queue is None:
                continue
            if number not in found:
                found[number] = {int(entry.message.sequence): entry for entry in queue.entries}
            stage = Stage(queue, reader, each.incarnation)
            stage.epoch = each.epoch
            here = found[number]
            entries = [here.get(sequence) if sequence else None for sequence in each.numbers]
            available = [entry if entry and entry.state == AVAILABLE else None for entry in entries]
            stage.recover(
                available, each.kept, each.first, each.retain, each.marks, self._broker.schedule.now()
            )
            self._stages.setdefault(queue, {})[reader] = stage
