"""What `amqpd check` tells an operator."""

from dataclasses import dataclass, field

from broker.store.salvage import Damage, Loss
from broker.store.stream_salvage import StreamSalvage


@dataclass
class CheckReport:
    """What a log holds, and what of it does not read back."""

    segments: int = 0
    batches: int = 0
    messages: int = 0
    by_queue: dict[int, int] = field(default_factory=dict)
    queue_names: dict[int, str] = field(default_factory=dict)
    definitions: int = 0
    changes: list[dict[str, object]] = field(default_factory=list)  # the definitions themselves, in order
    torn: str = ""  # "" or where an unsynced end is, which the next start cuts off
    damages: list[Damage] = field(default_factory=list)
    loss: Loss = field(default_factory=Loss)
    streams: dict[int, StreamSalvage] = field(default_factory=dict)  # by the queue's number
    unowned: list[str] = field(default_factory=list)  # files of streams, of which the queue is not known
    strangers: list[str] = field(default_factory=list)  # files that look like segments, and are none
    repaired: bool = False

    @property
    def healthy(self) -> bool:
        """Whether the daemon starts with this log."""
        return not self.damages and not any(stream.damages for stream in self.streams.values())

    def lines(self) -> list[str]:
        """The report for an operator."""
        lines = [
            f"{self.segments} segments, {self.batches} batches, {self.definitions} definitions, "
            f"{self.messages} messages"
        ]
        lines += [f"  {self._queue(number)}: {count}" for number, count in sorted(self.by_queue.items())]
        lines += self._stream_lines()
        if self.torn:
            lines.append(f"torn end, never confirmed, cut off by the next start: {self.torn}")
        lines += [damage.line() for damage in self.damages]
        for number, stream in sorted(self.streams.items()):
            lines += [damage.line(self._queue(number)) for damage in stream.damages]
        lines += [f"no file of this log, left alone: {path}" for path in self.strangers]
        if self.healthy:
            lines.append("nothing is damaged")
        else:
            lines += self._loss_lines() if self.damages else []
            lines += self._lost_row_lines()
        return lines

    def _stream_lines(self) -> list[str]:
        """How much streams have."""
        if not self.streams:
            return []
        rows = sum(stream.rows for stream in self.streams.values())
        size = sum(stream.bytes for stream in self.streams.values())
        lines = [f"{len(self.streams)} streams, {rows} rows, {size} bytes"]
        for number, stream in sorted(self.streams.items()):
            lost = f", {stream.lost} lost before" if stream.lost else ""
            where = f"offsets {stream.first} to {stream.next - 1}: " if stream.next > stream.first else ""
            lines.append(f"  {self._queue(number)}: {where}{stream.rows} rows{lost}, {stream.bytes} bytes")
        return lines

    def _verb(self) -> str:
        return "lost" if self.repaired else "a repair would lose"

    def _lost_row_lines(self) -> list[str]:
        lines = [
            f"{self._verb()}: {stream.damaged_rows} rows of {self._queue(number)}; others keep their offsets"
            for number, stream in sorted(self.streams.items())
            if stream.damages
        ]
        if self.unowned:
            lines.append(f"kept aside: {len(self.unowned)} files of streams whose queues are not known")
        return lines

    def _loss_lines(self) -> list[str]:
        loss = self.loss
        verb = self._verb()
        uncounted = ", and what only missing files held" if self._misses_files() else ""
        lines = [f"{verb}: {loss.messages} messages, {loss.definitions} definitions{uncounted}"]
        lines += [f"  {self._queue(number)}: {count}" for number, count in sorted(loss.by_queue.items())]
        if loss.unknown:
            lines.append(f"  of an unknown queue: {loss.unknown}")
        if loss.settles:
            lines.append(f"messages that were already settled and may come back: at least {loss.settles}")
        if loss.counts:
            lines.append(
                f"messages with too low a delivery count, or without what was added: at least {loss.counts}"
            )
        if loss.memories:
            lines.append(f"messages whose duplicates queues may take for new: at most {loss.memories}")
        return lines

    def _misses_files(self) -> bool:
        """Whether something is gone of which nobody can count the messages."""
        return any(damage.length == 0 for damage in self.damages)

    def _queue(self, number: int) -> str:
        name = self.queue_names.get(number)
        return f"queue {name}" if name is not None else f"queue number {number} (deleted or unknown)"
