"""The commit into files: segment files and stream files in one folder, synced by a helper process."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, final

import structlog
from mypy_extensions import i64

from broker.core.message import Message
from broker.store.batch import Batch
from broker.store.commit import BatchStorage, CommitListener
from broker.store.content import ContentReader
from broker.store.disk import DISK_FULL, NO_DESCRIPTORS, Disk
from broker.store.format import HEADER_BYTES
from broker.store.recovery.files import FileReplay
from broker.store.recovery.replay import StoredLog
from broker.store.scan import BatchScanner, SegmentScanner
from broker.store.segment import Segment
from broker.store.segment_files import READY, RESERVE, SPARE, SegmentFiles
from broker.store.streams.files import Appended, OpenFiles, StreamFiles, incarnation_of, parse_stream_name
from broker.store.sync import Syncer, SyncTarget

MIB: Final = 1024 * 1024
INLINE_WRITE_MAX: Final = MIB  # a larger write would block the loop for too long

_log = structlog.get_logger("amqpd.store")


@final
class FileStorage(BatchStorage):
    """Batches in segment files of one folder, of `segment_bytes` each, and chunks in files of streams.

    A batch is written when it is submitted, and durable when the syncer has synced its files. A failed sync
    is never retried: the kernel may have dropped the pages that it could not write, and would report success
    the next time. The folder is locked: no other process becomes its owner, so the log is never deposed.

    `clock`: a monotonic time in seconds. The first segment is `first_segment_bytes` long, and each one twice
    as long as the one before. After a full disk, `reserve_bytes` are left beside a checkpoint.
    """

    def __init__(
        self,
        directory: str,
        disk: Disk,
        syncer: Syncer,
        clock: Callable[[], float],
        segment_bytes: int = 64 * MIB,
        first_segment_bytes: int = 4 * MIB,
        reserve_bytes: int = 4 * MIB,
    ) -> None:
        super().__init__(segment_bytes)
        self.disk = disk
        self.syncer = syncer
        self.clock = clock
        self.files = SegmentFiles(directory, disk, syncer, segment_bytes, first_segment_bytes, reserve_bytes)
        self.reader = ContentReader(disk, self.files)
        self.open_files = OpenFiles(disk)
        self.streams: dict[int, StreamFiles] = {}  # the open ones, by number
        self.listener = CommitListener()
        self.answers = Answers(self)
        self.batch: Batch | None = None  # in flight
        self.appended: list[tuple[StreamFiles, Appended]] = []  # the chunks of the batch in flight
        self.unwritten = False  # the batch in flight waits for descriptors for its chunks
        self.problem: OSError | None = None  # why the next batch has no file
        self.full = False  # from an undone batch on, until there is room again
        self.wants_reserve = False  # the next segment is made from the reserve
        self.sync_started = 0.0

    # ---- the start

    def open(self, listener: CommitListener) -> None:
        """Lock the folder, which is made if it does not exist, and start the syncer."""
        self.files.lock()
        try:
            self.attach(listener)
        except BaseException:
            self.close([])
            raise

    def attach(self, listener: CommitListener) -> None:
        """Start the syncer for the folder, which is locked. Raises OSError."""
        self.listener = listener
        self.syncer.attach(self.files.directory, self.answers, self.files.lock_fd)

    def replay(self) -> StoredLog:
        """Replay the files; a last batch whose chunks are not whole is torn."""
        reading = FileReplay(self.files)
        reading.run()
        tail = reading.tail_segment
        if tail is not None and not self.has_chunks_of(reading):
            cut = (int(tail.number), int(reading.tail_at))
            reading.forget()
            reading = FileReplay(self.files, cut)
            reading.run()
        return reading

    def has_chunks_of(self, reading: FileReplay) -> bool:
        """Whether all rows of streams that were appended with the last batch exist."""
        return all(
            self.stream_files(number, reading.identity).is_whole(*rows)
            for number, *rows in reading.replay.appended
        )

    def begin(self, stored: StoredLog) -> None:
        """Make the files match the replayed log exactly.

        The order of the writes matters: a torn end is cut, and the last batch, which may be only in the page
        cache, is written again and synced before anything follows it.
        """
        assert isinstance(stored, FileReplay), "found by `replay`"
        disk = self.disk
        files = self.files
        tail = stored.tail_segment
        if tail is not None:
            fd = disk.open(files.path(tail.name))
            try:
                length = tail.written - stored.tail_at
                assert length > HEADER_BYTES
                disk.truncate(fd, tail.written)
                disk.write(fd, [disk.read(fd, length, stored.tail_at)], stored.tail_at)
                disk.sync(fd)
            finally:
                disk.close(fd)
        # the newest name may be in memory only, and must be on disk before the next steps
        disk.sync_directory(files.directory)
        for name in [*stored.leftovers, SPARE]:
            disk.unlink(files.path(name))
        if RESERVE in disk.names(files.directory):
            fd = disk.open(files.path(RESERVE))
            files.reserve_length = disk.size(fd)
            disk.close(fd)
            if files.reserve_length >= files.reserve_bytes:
                files.reserve = READY
            else:
                disk.unlink(files.path(RESERVE))
        disk.sync_directory(files.directory)
        stored.report.removed += stored.leftovers

    def new_identity(self) -> int:
        """Return a random number of 63 bits, not 0."""
        return self.disk.new_identity()

    def on_recovery_end(self) -> None:
        """Make segments from removed segments from now on."""
        self.files.recycles = True

    # ---- batches

    def new_segment(self, number: i64) -> Segment:
        """Return a segment without a file."""
        return self.files.new_segment(number)

    def prepare(self, segment: Segment) -> bool:
        """Give the segment its file, unless there is no descriptor now."""
        if segment.fd < 0:
            try:
                self._make(segment)
            except OSError as error:
                if error.errno in NO_DESCRIPTORS:  # nothing has been written: `Log.tick` tries again
                    _log.error("the log waits for a file descriptor", reason=error.strerror)
                    return False
                self.problem = error
        return True

    def _make(self, segment: Segment) -> None:
        if self.wants_reserve:
            self.files.make_of_reserve(segment)
            self.wants_reserve = False
        else:
            self.files.make(segment)

    def submit(self, batch: Batch) -> None:
        """Write the batch and start its sync."""
        self.batch = batch
        self.appended = []
        problem = self.problem
        self.problem = None
        if problem is None:
            self._write(batch)
        else:
            self.on_written(problem)

    def _write(self, batch: Batch) -> None:
        fd = batch.segment.fd
        self.unwritten = False
        try:
            self._write_chunks(batch)
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:  # nothing has been written: `Log.tick` tries again
                _log.error("the log waits for a file descriptor", reason=error.strerror)
                self.unwritten = True
            else:
                self.on_written(error)
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
            self.on_written(error)
            return
        self.on_written(None)

    def _write_chunks(self, batch: Batch) -> None:
        """Write the chunks of a batch. Raises OSError: then no chunk is written."""
        try:
            for chunk in batch.chunks:
                files = self.streams[chunk.number]
                self.appended.append((files, files.append(chunk.data)))
        except OSError:
            self._take_back_chunks()
            raise

    def _take_back_chunks(self) -> None:
        for files, appended in reversed(self.appended):
            files.take_back(appended)
        self.appended = []

    def on_written(self, error: BaseException | None) -> None:
        """Start the sync of the batch in flight, which is in the file now; or handle the error."""
        batch = self.batch
        if batch is None:
            return
        try:
            if error is not None:
                self._fail(batch, error)
                return
            segment = batch.segment
            segment.written = batch.end
            self.sync_started = self.clock()
            is_new = not segment.entry_synced or any(
                not appended.is_entry_synced for _, appended in self.appended
            )
            self.syncer.start_sync(segment.fd, is_new, [appended.fd for _, appended in self.appended])
        except Exception as problem:
            self._break(problem)

    def on_synced(self, reason: str) -> None:
        """Note that the batch in flight is on disk; a `reason` says why that is not known.

        A reason without a batch in flight (the syncer died) is a failure too.
        """
        batch = self.batch
        if reason:
            self.batch = None
            self.listener.on_batch_failed(reason)
        elif batch is not None:
            self.batch = None
            try:
                self._note_synced(batch)
            except Exception as problem:
                self._break(problem)
                return
            self.listener.on_batch_durable()

    def _note_synced(self, batch: Batch) -> None:
        self.sync_latency.observe(self.clock() - self.sync_started)
        segment = batch.segment
        segment.entry_synced = True
        if segment.number > self.files.noted:
            self.files.note_newest(segment.number)
        for files, appended in self.appended:
            appended.segment.entry_synced = True
            files.note_synced(appended)
        self.appended = []

    def _break(self, error: Exception) -> None:
        """Report an internal error; otherwise the log would wait for an outcome that never comes."""
        _log.error("the log is broken", exc_info=error)
        self.batch = None
        self.listener.on_batch_failed(f"{type(error).__name__}: {error}")

    def store(self, batch: Batch) -> None:
        """Write and sync a batch here and now."""
        segment = batch.segment
        if segment.fd < 0:
            self._make(segment)
        self.appended = []
        self._write_chunks(batch)
        for _, appended in self.appended:
            self.disk.sync(appended.fd)
        self.disk.write(segment.fd, batch.parts(), batch.offset)
        segment.written = batch.end
        self.sync_started = self.clock()
        self.disk.sync(segment.fd)
        self.disk.sync_directory(self.files.directory)
        self._note_synced(batch)

    def retry(self) -> None:
        """Write a batch that waits for descriptors."""
        batch = self.batch
        if self.unwritten and batch is not None:
            self._write(batch)

    def finish(self) -> None:
        """Wait for the syncer; a batch that waits for descriptors has failed."""
        while self.batch is not None and not self.unwritten:
            self.syncer.finish()
        if self.batch is not None:
            self.batch = None
            self.listener.on_batch_failed(
                "no file descriptor is free for the rows of streams in the last batch"
            )

    def abandon(self) -> None:
        """Report no outcome any more."""
        self.batch = None

    def close(self, segments: list[Segment]) -> None:
        """Close every file and the syncer, and release the folder's lock."""
        self.batch = None
        self.syncer.close()
        self.open_files.close()
        self.streams.clear()
        for segment in segments:
            self.files.close(segment)
        self.files.unlock()

    # ---- a full disk

    def _fail(self, batch: Batch, error: BaseException) -> None:
        """Cut off the written part of the batch, and report that the batch has failed, or is undone.

        A crash before the cut reaches the disk does no harm: a part of a batch is never valid, and the
        checkpoint of the segment made from the reserve records the length of this one.
        """
        segment = batch.segment
        self.batch = None
        try:
            if segment.fd >= 0:
                self.disk.truncate(segment.fd, segment.written)
        except OSError as problem:
            self.listener.on_batch_failed(
                f"write failed: {error}; and the written part of the batch could not be cut off: {problem}"
            )
            return
        segment.end = segment.written
        if not self._has_reserve_for(error):
            self.listener.on_batch_failed(f"write failed: {error}")
            return
        self._enter_reserve()
        self._take_back_chunks()
        self.listener.on_batch_failed(f"the disk is full: {error}", True)

    def _has_reserve_for(self, error: BaseException) -> bool:
        """Whether the error means a full disk, and the reserve is ready."""
        full = isinstance(error, OSError) and error.errno in DISK_FULL
        return full and not self.full and self.files.reserve == READY

    def _enter_reserve(self) -> None:
        self.full = True
        self.wants_reserve = True
        self.reserve_length = self.files.reserve_length

    def use_reserve(self, segment: Segment, error: OSError) -> bool:
        """Delete the file of the run's first segment, if the disk is full."""
        if not self._has_reserve_for(error):
            return False
        self.files.close(segment)
        self.disk.unlink(self.files.path(segment.name))
        self._enter_reserve()
        return True

    def on_prepared(self, name: str, reason: str) -> None:
        """Note that a spare or reserve file is ready, or could not be made."""
        self.files.on_prepared(name, reason)
        if self.full and self.files.reserve == READY and self.files.spare == READY:
            self.full = False
            self.listener.on_room()

    def on_removed(self) -> None:
        """Note that a file has been deleted, so that there is room again."""
        if self.full:
            self.files.request(True)

    # ---- space

    def expect_checkpoint(self, length: i64) -> None:
        """Note how long a checkpoint is."""
        self.files.checkpoint_bytes = length

    def make_ready(self, segment: bool) -> None:
        """Request the reserve, and the spare if `segment` is set, from the syncer."""
        self.files.request(segment)

    def retire(self, segment: Segment) -> None:
        """Note that a segment gets no batch any more, and may be closed."""
        self.files.retire(segment)

    def cut(self, segment: Segment) -> None:
        """Cut off the room behind the last batch."""
        self.disk.truncate(segment.fd, segment.written)

    def remove(self, segment: Segment) -> None:
        """Make the spare of a segment's file, or delete the file."""
        if self.full or not self.files.recycle(segment):
            self.files.close(segment)
            self.syncer.remove(segment.name)

    def discard(self, segment: Segment) -> None:
        """Close a segment's file, over which the reserve is renamed."""
        self.files.close(segment)

    # ---- reading

    def load(self, message: Message, segment: Segment) -> bytes:
        """Return the content of a message."""
        self.message_reads += 1
        return self.reader.load(message, segment)

    def scan(self, segment: Segment, identity: int) -> SegmentScanner:
        """Return a scanner over a segment's file."""
        fd = self.files.open_for_reading(segment)
        scanner = SegmentScanner(self.disk, fd, self.files.path(segment.name), segment.number, identity)
        scanner.size = segment.written
        return scanner

    def resume(self, scanner: BatchScanner, segment: Segment) -> None:
        """Open a segment's file again, if it was closed meanwhile."""
        assert isinstance(scanner, SegmentScanner), "made by `scan`"
        scanner.fd = self.files.open_for_reading(segment)

    def name_of(self, segment: Segment) -> str:
        """Return the path of a segment's file."""
        return self.files.path(segment.name)

    # ---- streams

    def stream_files(self, number: int, identity: int, segment_bytes: i64 = 0) -> StreamFiles:
        """Return the files of a stream, not read yet."""
        incarnation = incarnation_of(identity, number)
        return StreamFiles(self.files.directory, self.open_files, number, incarnation, segment_bytes)

    def open_stream(self, number: int, identity: int, segment_bytes: i64) -> StreamFiles:
        """Return the files of a stream, which are appended to from now on."""
        files = self.stream_files(number, identity, segment_bytes)
        self.streams[number] = files
        return files

    def recover_stream(self, number: int, first: i64, behind: i64) -> None:
        """Find the rows of a stream, and cut off all later ones."""
        self.streams[number].recover(first, behind)

    def store_again(self, number: int, offset: i64) -> None:
        """Write and sync the chunks of a stream from an offset on again."""
        self.streams[number].write_again(offset)

    def remove_stream(self, number: int) -> None:
        """Delete the files of a stream."""
        files = self.streams.pop(number)
        files.close()
        self.remove_stream_parts(files.names())

    def remove_stream_parts(self, names: list[str]) -> None:
        """Delete files of streams."""
        for name in names:
            self.syncer.remove(name)

    def remove_unknown_streams(self, known: Container[int]) -> None:
        """Delete the files of unknown streams now: others may soon have their names."""
        for name in self.disk.names(self.files.directory):
            parsed = parse_stream_name(name)
            if parsed is None or parsed[0] in known:
                continue
            files = self.streams.get(parsed[0])
            if files is None or name not in files.names():
                self.disk.unlink(self.files.path(name))


@final
class Answers(SyncTarget):
    """Passes the answers of the syncer on to the storage."""

    def __init__(self, storage: FileStorage) -> None:
        self.storage = storage

    def on_written(self, error: BaseException | None) -> None:
        """Start the sync of the batch."""
        self.storage.on_written(error)

    def on_synced(self, reason: str) -> None:
        """Report the outcome of the batch."""
        self.storage.on_synced(reason)

    def on_prepared(self, name: str, reason: str) -> None:
        """Note a spare or a reserve."""
        self.storage.on_prepared(name, reason)

    def on_removed(self, name: str, reason: str) -> None:
        """Note new room."""
        self.storage.on_removed()
