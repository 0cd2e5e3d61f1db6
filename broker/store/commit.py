"""The commit as a port: a sealed batch goes in, its outcome comes out, and recovery reads the batches back.

The log decides which records a batch has, and which segments are still needed. A storage makes batches
durable: in files (`broker.store.file_commit`), or in any other way that keeps the contract of this module.

**Order.** The log submits one batch at a time, in the order of their numbers: the next one after the outcome
of the batch before it. A segment gets all of its batches before the next segment gets its first one. Batches
of a segment follow each other without a gap: each has its future offset before it is submitted.

**Durable.** A batch, the chunks of streams in it, and everything before it survive any crash from then on.
Recovery reads all of them back, in the same order. Recovery reads a batch without an outcome back completely,
or not at all.

**Failed.** If the batch was *undone*, nothing of it is stored, and nothing of it will be: the storage has no
room for publishes. The log may submit another batch with the settles of the undone one, in a new segment for
which the storage has a reserve. Otherwise nobody knows whether the batch is stored. Then the log stops, and
submits nothing any more. The next recovery finds the batch, or does not.

**Deposed.** Another process is the owner of the batches now. The log stops. The new owner decides whether the
batch in flight counts. The publishers in that batch must not get a confirm, and may publish again.
"""

from __future__ import annotations

from collections.abc import Container

from mypy_extensions import i64, mypyc_attr

from broker.core.durations import Latency
from broker.core.message import Message
from broker.core.ports import StreamExtent
from broker.store.batch import Batch
from broker.store.recovery.replay import StoredLog
from broker.store.scan import BatchScanner
from broker.store.segment import Segment
from protocol.streams.chunk import Chunk


@mypyc_attr(allow_interpreted_subclasses=True)
class CommitListener:
    """The receiver of outcomes. A storage calls it on the event loop only, also from inside `submit`."""

    def on_batch_durable(self) -> None:
        """Note that the batch in flight is durable."""
        raise NotImplementedError

    def on_batch_failed(self, reason: str, undone: bool = False) -> None:
        """Note that the batch in flight has failed, or the storage itself, without a batch in flight.

        `undone`: nothing of the batch is stored, and the reserve has room for a batch without publishes.
        """
        raise NotImplementedError

    def on_deposed(self, reason: str) -> None:
        """Note that another process owns the batches now."""
        raise NotImplementedError

    def on_room(self) -> None:
        """Note that the storage has room for publishes again, and a new reserve, after an undone batch."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamStorage:
    """The stored chunks of the stream with this number.

    `first`: the oldest offset that is kept. `next`: the offset behind the last row, whose batch may be in
    flight. `bytes`: the size of all chunks. `incarnation` distinguishes the stream from earlier streams of
    its number. All methods raise OSError or LogDamaged if the storage cannot read the chunks.
    """

    def __init__(self, number: int, incarnation: int) -> None:
        self.number = number
        self.incarnation = incarnation
        self.first: i64 = 0
        self.next: i64 = 0
        self.bytes: i64 = 0

    def chunk_with(self, offset: i64) -> Chunk | None:
        """Return the chunk with an offset, or the next readable one; None: not stored yet."""
        raise NotImplementedError

    def extent_from(self, offset: i64, behind: i64) -> StreamExtent | None:
        """Return whole chunks from the one with an offset on, up to the one with the row before `behind`.

        None: no row before `behind` is kept from there on.
        """
        raise NotImplementedError

    def reach(self, offset: i64, size: i64) -> i64:
        """Return the offset up to which the rows from `offset` on take `size` bytes, but at least one row."""
        raise NotImplementedError

    def at_time(self, time: i64) -> i64:
        """Return the first offset from a time on, in microseconds since 1970; `next`: none yet."""
        raise NotImplementedError

    def apply_retention(self, bytes_max: i64, oldest: i64) -> list[str]:
        """Advance `first` while `bytes_max` bytes remain, or rows are older than `oldest`; 0: no limit.

        Return the names of the parts that have no row any more. The log passes them to
        `BatchStorage.remove_stream_parts` when the new `first` is durable: until then they must exist.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class BatchStorage:
    """A storage of the batches of one log, and of their streams' chunks. `sync_latency` is in seconds.

    `segment_bytes`: the usual length of a segment. `message_reads`: the count of messages whose content was
    read. `reserve_length`: bytes of the segment that an undone batch leaves to settles and copies.
    """

    def __init__(self, segment_bytes: i64) -> None:
        self.segment_bytes = segment_bytes
        self.sync_latency = Latency()
        self.message_reads: i64 = 0
        self.reserve_length: i64 = 0

    # ---- the start

    def open(self, listener: CommitListener) -> None:
        """Become the owner of the batches. Raises LogLocked while another process is, OSError."""
        raise NotImplementedError

    def replay(self) -> StoredLog:
        """Return everything that is durable, replayed batch by batch, in order; change nothing.

        Raises LogDamaged, LogVersionUnknown, OSError.
        """
        raise NotImplementedError

    def begin(self, stored: StoredLog) -> None:
        """Make everything that `replay` has found durable, and nothing else. Raises OSError.

        The first `store` follows. A batch that was read back may have had no outcome before the crash. The
        batch must survive the next crash.
        """
        raise NotImplementedError

    def new_identity(self) -> int:
        """Return a random number of 63 bits, not 0, for a new log."""
        raise NotImplementedError

    def on_recovery_end(self) -> None:
        """Note that recovery is over: the space of removed segments may be used again from now on."""

    # ---- batches

    def new_segment(self, number: i64) -> Segment:
        """Return the segment with this number, which has no batch yet."""
        raise NotImplementedError

    def prepare(self, segment: Segment) -> bool:
        """Prepare for a segment's next batch, which can still grow; false: only a later attempt may work."""
        return True

    def submit(self, batch: Batch) -> None:
        """Make a sealed batch durable, chunks included, and call the listener with the outcome.

        `segment.written` becomes `batch.end` when the batch can be read. `segment.end` goes back to
        `segment.written` if the batch is undone.
        """
        raise NotImplementedError

    def store(self, batch: Batch) -> None:
        """Make a sealed batch durable before returning, for the start and the stop; the listener is not used.

        Raises OSError: then nobody knows whether the batch is stored.
        """
        raise NotImplementedError

    def use_reserve(self, segment: Segment, error: OSError) -> bool:
        """Undo a `store` of the run's first batch that had no room; true: the reserve has room for it."""
        return False

    def retry(self) -> None:
        """Repeat an attempt that has failed for a passing reason; called about once per second."""

    def finish(self) -> None:
        """Block until the outcome of the batch in flight, if there is one, has been reported."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Report no outcome any more: the log has stopped."""
        raise NotImplementedError

    def close(self, segments: list[Segment]) -> None:
        """Release everything, the log's segments too; nothing is reported any more."""
        raise NotImplementedError

    # ---- space

    def expect_checkpoint(self, length: i64) -> None:
        """Note how long the checkpoint is that begins the next segment: the reserve must have room for it."""

    def make_ready(self, segment: bool) -> None:
        """Make the reserve ready, and the next segment too if `segment` is set, in the background."""

    def retire(self, segment: Segment) -> None:
        """Note that a segment gets no batch any more."""

    def cut(self, segment: Segment) -> None:
        """Cut off the bytes behind a segment's last batch, for a clean stop. Raises OSError."""

    def remove(self, segment: Segment) -> None:
        """Remove a segment, whose removal is durable."""
        raise NotImplementedError

    def discard(self, segment: Segment) -> None:
        """Forget a segment whose first batch was undone: the reserve takes its place and number."""

    # ---- reading

    def load(self, message: Message, segment: Segment) -> bytes:
        """Return the content of a message in a segment. Raises OSError, LogDamaged."""
        raise NotImplementedError

    def scan(self, segment: Segment, identity: int) -> BatchScanner:
        """Return a scanner over the stored batches of a segment. Raises OSError."""
        raise NotImplementedError

    def resume(self, scanner: BatchScanner, segment: Segment) -> None:
        """Prepare a scanner of a segment for further batches, after a pause. Raises OSError."""

    def name_of(self, segment: Segment) -> str:
        """Return the segment's name for error messages, such as a path."""
        return segment.name

    # ---- streams

    def open_stream(self, number: int, identity: int, segment_bytes: i64) -> StreamStorage:
        """Return the stream with this number, without rows. Chunks are kept in parts of `segment_bytes`."""
        raise NotImplementedError

    def recover_stream(self, number: int, first: i64, behind: i64) -> None:
        """Restore the rows of an open stream from `first` up to `behind`, and delete all later ones.

        Raises OSError, LogDamaged.
        """
        raise NotImplementedError

    def store_again(self, number: int, offset: i64) -> None:
        """Make the chunks of a stream from an offset on durable, which may not be. Raises OSError."""

    def remove_stream(self, number: int) -> None:
        """Delete an open stream, whose removal is durable."""
        raise NotImplementedError

    def remove_stream_parts(self, names: list[str]) -> None:
        """Delete parts of streams that `StreamStorage.apply_retention` has returned."""
        raise NotImplementedError

    def remove_unknown_streams(self, known: Container[int]) -> None:
        """Delete the chunks of all streams that are neither open nor `known`, and parts without a row."""
