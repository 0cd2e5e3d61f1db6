"""Appending and committing: the batch being filled, its segments, and the messages that queues hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog
from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.core.errors import StoreFailed
from broker.core.message import Body, Message
from broker.core.ports import LoggedQueue, StoredStream
from broker.store.batch import Batch
from broker.store.counts import Counts
from broker.store.definition_text import DefinitionText, Describe
from broker.store.disk import NO_DESCRIPTORS, Disk
from broker.store.segment import Files, Segment, SegmentTable
from broker.store.state import LogState
from broker.store.streams.stream import Streams
from broker.store.sync import Syncer


def ignore(change: dict[str, object]) -> None:
    """Ignore a change: the `defined` of a log without a watcher of definitions."""


class Filling(LogState):
    """Appends records other than messages to the batch being filled: settles, definitions, rows of streams.

    A segment that has reached its limit is full; the next batch begins another one, with a checkpoint.
    """

    def __init__(
        self,
        disk: Disk,
        syncer: Syncer,
        clock: Callable[[], float],
        describe: Describe,
        files: Files,
    ) -> None:
        super().__init__(disk, syncer, clock, files)
        self.definitions = DefinitionText(describe)
        self.defined: Callable[[dict[str, object]], None] = ignore  # called with each appended change
        self.segments = SegmentTable()
        self.damaged_segments: i64 = 0  # found since the start, when their space was to be reclaimed
        self.next_sequence: i64 = 1
        self.sealed: Batch | None = None
        self.unwritten = False  # the sealed batch waits for descriptors for its chunks of streams
        self.last_needed: i64 = 0  # the segment most recently added to the filling one's `needs`
        self.streams = Streams(self)
        self.closing = False

    def on_segment_begun(self) -> None:
        """Note that a segment has begun; its checkpoint is the first record of the batch being filled."""
        raise NotImplementedError

    @property
    def unsynced_bytes(self) -> i64:
        """The appended bytes that are not on disk yet."""
        flying = self.sealed
        filling = self.filling
        unsynced = len(filling.writer) + filling.stream_bytes
        return unsynced if flying is None else unsynced + flying.end - flying.offset + flying.stream_bytes

    @property
    def bytes_on_disk(self) -> int:
        """The written bytes of all segments."""
        return sum(segment.end for segment in self.segments.all())

    @property
    def segment_count(self) -> int:
        """The number of segment files."""
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

    def append_delivered(self, message: Message, queue: LoggedQueue) -> None:
        """Append that a consumer of `queue` has seen the message.

        Done for all such messages before `close`.
        """
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
        """Return the stream with this number, in files of about `segment_bytes`; 0: the default size."""
        return self.streams.open(int(number), segment_bytes, partition)

    def _touch(self) -> None:
        """Request a commit, if the record about to be appended is the first of its batch."""
        if self.filling.count == 0:
            self.wants_commit()

    def is_empty(self) -> bool:
        """Whether nothing has been appended to the batch being filled."""
        return self.filling.is_empty()

    def renumber(self) -> None:
        """Give the batch being filled, which is empty, the number `batch`."""
        self.filling.number = self.batch

    def fill(self, segment: Segment, writer: BytesWriter) -> None:
        """Begin to fill batch number `batch`, at the end of `segment`."""
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
        segment.limit += length  # so that even a large topology leaves room for messages


INLINE_WRITE_MAX: Final = 1024 * 1024  # a larger write would block the loop for too long
WRITER_KEPT_MAX: Final = 4 * 1024 * 1024  # a buffer that one huge batch made larger is not kept

_log = structlog.get_logger("amqpd.store")


class SegmentedCommit(Filling):
    """Seals the batch being filled, writes it at the end of the current segment, and starts its sync."""

    def make_file(self, segment: Segment) -> None:
        """Give a new segment its file. Raises OSError."""
        raise NotImplementedError

    def on_write_failed(self, batch: Batch, error: BaseException) -> None:
        """Note that the sealed batch could not be written, or only in part."""
        raise NotImplementedError

    def on_start_failed(self, segment: Segment, error: OSError) -> None:
        """Note that the first batch could not be written; raise the error unless another try makes sense."""
        raise NotImplementedError

    def let_go(self) -> None:
        """Close every file and the syncer, and release the folder's lock."""
        raise NotImplementedError

    def commit(self) -> None:
        """Seal the batch being filled and send it to the disk, unless another batch is in flight."""
        if self.in_flight or self.stopped or self.closing:
            return
        if self.filling.is_empty():
            if self.waiters:
                self.skip()
            return
        try:
            self._send()
        except Exception as error:
            self.broken(error)

    def _send(self) -> None:
        segment = self.filling.segment
        problem: OSError | None = None
        if segment.fd < 0:
            try:
                self.make_file(segment)
            except OSError as error:
                if error.errno in NO_DESCRIPTORS:  # nothing has been written: `Log.tick` tries again
                    _log.error("the log waits for a file descriptor", reason=error.strerror)
                    return
                problem = error
        batch = self._seal()
        if problem is None:
            self._write(batch)
        else:
            self.written(problem)

    def _write(self, batch: Batch) -> None:
        fd = batch.segment.fd
        self.unwritten = False
        try:
            self.streams.write(batch)
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:  # nothing has been written: `Log.tick` tries again
                _log.error("the log waits for a file descriptor", reason=error.strerror)
                self.unwritten = True
            else:
                self.written(error)
            return
        if len(batch.payload) > INLINE_WRITE_MAX:
            try:
                self.syncer.write(fd, batch.parts(), batch.offset)
                return
            except OSError as error:  # no descriptor for another thread: the loop has to wait for this one
                _log.warning("a large batch is written on the loop", reason=error.strerror)
        try:
            self.disk.write(fd, batch.parts(), batch.offset)
        except OSError as error:
            self.written(error)
            return
        self.written(None)

    def write_again(self) -> None:
        """Write the sealed batch, if it waited for descriptors."""
        batch = self.sealed
        if not self.unwritten or batch is None or self.stopped:
            return
        try:
            self._write(batch)
        except Exception as error:
            self.broken(error)

    def written(self, error: BaseException | None) -> None:
        """Start the sync of the batch in flight, which is in the file now."""
        batch = self.sealed
        if self.stopped or batch is None:
            return
        try:
            if error is not None:
                self.on_write_failed(batch, error)
                return
            segment = batch.segment
            segment.good = batch.end
            self.sync_started = self.clock()
            is_new = not segment.entry_synced or batch.has_new_files()
            self.syncer.start_sync(segment.fd, is_new, batch.chunk_files())
            self._describe()  # while the disk is busy
        except Exception as problem:
            self.broken(problem)

    def _describe(self) -> None:
        """Describe some more definitions, if that is due; the reserve has room for the result."""
        self.definitions.step()
        self.files.checkpoint_bytes = max(self.files.checkpoint_bytes, self.definitions.length)

    def _seal(self) -> Batch:
        batch = self.filling
        segment = batch.segment
        self.streams.seal(batch)
        batch.seal(self.identity)
        segment.end = batch.end
        self.sealed = batch
        self.begin()
        writer = batch.writer
        if len(writer) > WRITER_KEPT_MAX:
            writer = BytesWriter()
        else:
            writer.truncate(0)
        if segment.end >= segment.limit:
            segment = self.files.new_segment(segment.number + 1)
        self.fill(segment, writer)
        return batch

    def start(self, number: i64) -> None:
        """Begin the first segment of this run; in the reserve if the disk is full. Raises OSError."""
        segment = self.files.new_segment(number)
        self.fill(segment, BytesWriter())
        try:
            self.commit_now()
        except OSError as error:
            self.on_start_failed(segment, error)
            self.commit_now()

    def commit_now(self) -> None:
        """Write and sync the batch being filled here and now, for the start and the stop. Raises OSError."""
        batch = self.filling
        segment = batch.segment
        self.streams.seal(batch)
        batch.seal(self.identity)
        segment.end = batch.end
        if segment.fd < 0:
            self.make_file(segment)
        self.streams.write(batch)
        for fd in batch.chunk_files():
            self.disk.sync(fd)
        self.disk.write(segment.fd, batch.parts(), batch.offset)
        segment.good = batch.end
        self.begin()
        self.sync_started = self.clock()
        self.disk.sync(segment.fd)
        self.disk.sync_directory(self.files.directory)
        self.sealed = batch
        batch.writer.truncate(0)
        self.fill(segment, batch.writer)
        self.completed("")

    def on_stopped(self) -> None:
        """Note that no batch is in flight any more."""
        self.sealed = None

    def close(self) -> None:
        """Write and sync the rest, mark a clean stop, and release everything. Blocks.

        Raises StoreFailed if the last batch did not reach the disk: then the log is as after a crash.
        """
        try:
            self.write_again()
            while self.in_flight and not self.stopped and not self.unwritten:
                self.syncer.finish()
            if self.unwritten:
                self.stop("there is no file descriptor for what streams have in the last batch")
            if not self.stopped:
                self.closing = True
                segment = self.filling.segment
                self.streams.seal(self.filling)
                self.filling.add_last_words()
                self.filling.add_closed()
                self.commit_now()
                self.disk.truncate(segment.fd, segment.good)
        except Exception as error:
            self.stop(f"the log could not be closed: {error}")
        failure = self.failure if self.stopped else ""
        self.let_go()
        if failure:
            raise StoreFailed(failure)


class HeldMessages(SegmentedCommit):
    """Counts the queues that hold each message, and notes queues that settle a message before others."""

    def __init__(
        self,
        disk: Disk,
        syncer: Syncer,
        clock: Callable[[], float],
        describe: Describe,
        files: Files,
    ) -> None:
        super().__init__(disk, syncer, clock, describe, files)
        self.full = False  # the disk is full: publishes are refused, settles and copies go on in the reserve
        self.content_bytes: i64 = 0  # content of live messages that is in memory
        self.settled: dict[int, list[int]] = {}  # queues that have settled a message others still hold
        self.counts = Counts(self.segments)
        self.orphans: list[Message] = []  # pieces of unreferenced bodies

    def on_segment_dead(self) -> None:
        """Note that a segment has no live message any more."""
        raise NotImplementedError

    def new_body(self) -> Body:
        """Return a large body without pieces."""
        return Body(self.orphans)

    def release(self, message: Message, number: i64) -> None:
        """Note that the queue with this number no longer holds the message."""
        references = message.references - 1
        message.references = references
        if references > 0:
            self.settled.setdefault(message.sequence, []).append(number)
            if self.counts.first:
                self.counts.settle(message.sequence, number)
        else:
            self.drop(message)

    def drop(self, message: Message) -> None:
        """Drop a message that its last queue has released."""
        segment = self.filling.segment
        if segment.number != message.segment:
            segment = self.segments.holding(message)
        segment.unlink(message)
        if segment.live == 0:
            self.on_segment_dead()
        if message.content is not None:
            self.content_bytes -= message.length
        if self.settled:
            self.settled.pop(message.sequence, None)
        if self.counts.first:
            self.counts.drop(message.sequence)

    def drop_orphans(self) -> None:
        """Drop the pieces of unreferenced bodies."""
        orphans = self.orphans
        while orphans:
            piece = orphans.pop()
            if piece.sequence > 0:
                piece.references = 0
                self.drop(piece)
