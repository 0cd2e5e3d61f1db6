"""Group commit into segment files: a batch is sealed, written, and synced together with its chunks."""

from __future__ import annotations

from typing import Final

import structlog
from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.core.errors import StoreFailed
from broker.store.batch import Batch
from broker.store.disk import NO_DESCRIPTORS
from broker.store.filling import Filling
from broker.store.segment import Segment

INLINE_WRITE_MAX: Final = 1024 * 1024  # a larger write would take the loop too long
WRITER_KEPT_MAX: Final = 4 * 1024 * 1024  # a buffer that one huge batch made larger is not kept

_log = structlog.get_logger("amqpd.store")


class SegmentedCommit(Filling):
    """Seals the batch being filled, writes it at the end of the current segment, and has it synced."""

    def make_file(self, segment: Segment) -> None:
        """Give a new segment its file. Raises OSError."""
        raise NotImplementedError

    def on_write_failed(self, batch: Batch, error: BaseException) -> None:
        """The sealed batch could not be written, or only in part."""
        raise NotImplementedError

    def on_start_failed(self, segment: Segment, error: OSError) -> None:
        """The first batch could not be written; raises the error unless another try makes sense."""
        raise NotImplementedError

    def let_go(self) -> None:
        """Close every file and the syncer, and let the next daemon in."""
        raise NotImplementedError

    def commit(self) -> None:
        """Seal the batch being filled and send it to the disk, unless one is on its way."""
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
        """Write the sealed batch, if descriptors were what it needed."""
        batch = self.sealed
        if not self.unwritten or batch is None or self.stopped:
            return
        try:
            self._write(batch)
        except Exception as error:
            self.broken(error)

    def written(self, error: BaseException | None) -> None:
        """The batch in flight is in the file; it becomes durable by a sync."""
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
            self._describe()  # the disk takes its time
        except Exception as problem:
            self.broken(problem)

    def _describe(self) -> None:
        """Describe some more of the definitions, if that is due; there is a reserve for what comes of it."""
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
        """Nothing is on its way any more."""
        self.sealed = None

    def close(self) -> None:
        """Write and sync what is left, mark a clean stop, let go of everything. Blocks.

        Raises StoreFailed if the last batch did not reach the disk: then it is as after a crash.
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
