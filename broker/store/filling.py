"""The batch that is being filled, and the segment that it will be in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.core.message import Message
from broker.core.ports import StoredStream
from broker.store.batch import Batch
from broker.store.definition_text import DefinitionText, Describe
from broker.store.disk import Disk
from broker.store.files import Files
from broker.store.group_commit import GroupCommit
from broker.store.segment import Segment, SegmentTable
from broker.store.streams import Streams
from broker.store.syncer import Syncer

if TYPE_CHECKING:
    from broker.core.queues.queue import Queue


def do_nothing() -> None:
    """The wants_commit of a log that is committed by hand."""


def ignore(change: dict[str, object]) -> None:
    """The `defined` of a log whose definitions nobody watches."""


class Filling(GroupCommit):
    """Appends to the batch being filled what is no message: settles, definitions, rows of streams.

    A segment that has reached its limit is left; the next batch begins another one, with a checkpoint.
    """

    def __init__(
        self,
        disk: Disk,
        syncer: Syncer,
        clock: Callable[[], float],
        describe: Describe,
        files: Files,
    ) -> None:
        super().__init__(clock)
        self.disk = disk
        self.syncer = syncer
        self.definitions = DefinitionText(describe)
        self.wants_commit: Callable[[], None] = do_nothing
        self.defined: Callable[[dict[str, object]], None] = ignore  # is told of each that is appended
        self.files = files
        self.segments = SegmentTable()
        self.damaged_segments: i64 = 0  # met since the start, when their space was to come back
        self.identity: int = 0
        self.next_sequence: i64 = 1
        self.filling = Batch(0, Segment(0, 0), 0, BytesWriter())
        self.sealed: Batch | None = None
        self.unwritten = False  # the sealed one waits for descriptors for what streams have in it
        self.last_needed: i64 = 0  # the segment most recently added to the filling one's `needs`
        self.streams = Streams(self)
        self.closing = False

    def on_segment_begun(self) -> None:
        """There is one segment more, and its checkpoint is the first record of the batch being filled."""
        raise NotImplementedError

    @property
    def unsynced_bytes(self) -> i64:
        """Bytes appended that are not on disk yet."""
        flying = self.sealed
        filling = self.filling
        unsynced = len(filling.writer) + filling.stream_bytes
        return unsynced if flying is None else unsynced + flying.end - flying.offset + flying.stream_bytes

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all segments as far as they are written."""
        return sum(segment.end for segment in self.segments.all())

    @property
    def segment_count(self) -> int:
        """How many segment files there are."""
        return self.segments.count

    def append_void(self, message: Message, number: i64) -> None:
        """Append that the queue with this number no longer holds the message, and do nothing else."""
        batch = self.filling
        if batch.count == 0:
            self.wants_commit()
        batch.add_settle(message.sequence, number)
        if message.segment != batch.segment.number:
            batch.segment.settles += 1
            if message.segment != self.last_needed:
                self.last_needed = message.segment
                batch.segment.needs.add(message.segment)

    def append_delivered(self, message: Message, queue: Queue) -> None:
        """Append that a consumer of `queue` has seen the message: all that were seen, before `close`."""
        if message.sequence > 0 and not self.stopped:
            self._touch()
            self.filling.add_delivered(message.sequence, queue.number)

    def append_definition(self, change: dict[str, object]) -> None:
        """Append a change of the durable topology. Raises TypeError if it cannot be JSON."""
        if not self.stopped:
            text = self.definitions.add(change)
            self._touch()
            self.filling.add_definition(text)
            self.files.checkpoint_bytes += len(text)
            self.defined(change)

    def open_stream(self, number: i64, segment_bytes: i64, partition: i64) -> StoredStream:
        """The stream with this number, in files of about this size; 0: of the usual one."""
        return self.streams.open(int(number), segment_bytes, partition)

    def _touch(self) -> None:
        """Something that is not a message is about to be appended."""
        if self.filling.count == 0:
            self.wants_commit()

    def is_empty(self) -> bool:
        """Whether nothing has been appended to the batch being filled."""
        return self.filling.is_empty()

    def renumber(self) -> None:
        """The batch being filled, which is empty, is now number `batch`."""
        self.filling.number = self.batch

    def fill(self, segment: Segment, writer: BytesWriter) -> None:
        """Fill batch number `batch`; it lies at the end of `segment`."""
        self.filling = Batch(self.batch, segment, self.next_sequence, writer)
        self.last_needed = 0
        if segment.end == 0:
            self._begin_segment(segment)

    def _begin_segment(self, segment: Segment) -> None:
        definitions = self.definitions.text()
        older = [[other.number, other.end] for other in self.segments.all() if not other.removal]
        self.segments.add(segment)
        self.filling.add_checkpoint(older, definitions)
        self.on_segment_begun()
        self.streams.note(self.filling)
        length: i64 = len(self.filling.writer)
        self.files.checkpoint_bytes = length
        segment.limit += length  # however large the topology, there is room for messages
