"""Group commit: a single batch is in flight, and everything appended meanwhile is the next batch."""

from __future__ import annotations

from typing import Final, final

import structlog
from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.core.errors import StoreFailed
from broker.core.ports import DurableWaiter
from broker.store.appender import Appender
from broker.store.batch import Batch
from broker.store.commit import BatchStorage, CommitListener
from broker.store.space import Room
from broker.store.state import LogState
from broker.store.streams.stream import Streams
from broker.store.upkeep import Upkeep

WRITER_KEPT_MAX: Final = 4 * 1024 * 1024  # a buffer that one huge batch made larger is not kept

_log = structlog.get_logger("amqpd.store")


@final
class GroupCommit(CommitListener):
    """Seals the batch being filled, submits it to the storage, and notifies waiters of the outcome.

    A batch is submitted only after the outcome of the one before: at most one is in flight at any instant.
    """

    def __init__(
        self,
        log: LogState,
        storage: BatchStorage,
        appender: Appender,
        streams: Streams,
        room: Room,
        upkeep: Upkeep,
    ) -> None:
        self.log = log
        self.storage = storage
        self.appender = appender
        self.streams = streams
        self.room = room
        self.upkeep = upkeep
        self.waiters: list[DurableWaiter] = []  # for the batch being filled
        self.in_flight_waiters: list[DurableWaiter] = []

    def wait(self, waiter: DurableWaiter) -> None:
        """Call `waiter.on_durable` once when everything appended so far is durable.

        The call comes at once if all of it is durable already. If it will never be, `waiter.on_store_failed`
        is called at once.
        """
        log = self.log
        if log.stopped:
            waiter.on_store_failed(log.failure)
            return
        self.waiters.append(waiter)
        if not log.in_flight and log.filling.is_empty():
            self._skip()

    def _skip(self) -> None:
        """Skip the empty batch being filled, whose waiters have nothing to wait for."""
        log = self.log
        waiters = self.waiters
        self.waiters = []
        log.durable = log.batch
        log.batch += 1
        log.filling.number = log.batch
        self._notify(waiters, log.durable)

    def _notify(self, waiters: list[DurableWaiter], batch: i64) -> None:
        """Notify each waiter that the batch is durable; an error of one must not affect the others."""
        for waiter in waiters:
            try:
                waiter.on_durable(batch)
            except Exception:
                _log.exception("a waiter of the log has failed", batch=batch)

    # ---- a batch

    def commit(self) -> None:
        """Seal the batch being filled and submit it, unless another batch is in flight or it is empty."""
        log = self.log
        if log.in_flight or log.stopped or log.closing:
            return
        if log.filling.is_empty():
            if self.waiters:
                self._skip()
            return
        try:
            if self.storage.prepare(log.filling.segment):
                self.storage.submit(self._begin_next())
                if not log.stopped:
                    self.appender.describe()  # while the storage is busy
        except Exception as error:
            self._stop_broken(error)

    def _seal_filling(self) -> Batch:
        """Seal the batch being filled, with its end in its segment, and return the batch."""
        batch = self.log.filling
        self.streams.seal(batch)
        batch.seal(self.log.identity)
        batch.segment.end = batch.end
        return batch

    def _begin_next(self) -> Batch:
        """Seal the batch being filled, begin the next one, and return the sealed batch."""
        batch = self._seal_filling()
        self._begin(batch)
        segment = batch.segment
        writer = batch.writer
        if len(writer) > WRITER_KEPT_MAX:
            writer = BytesWriter()
        else:
            writer.truncate(0)
        if segment.end >= segment.limit:
            segment = self.storage.new_segment(segment.number + 1)
        self.appender.fill(segment, writer)
        return batch

    def _begin(self, batch: Batch) -> None:
        """Note that a sealed batch is in flight; another one is being filled."""
        log = self.log
        log.sealed = batch
        log.in_flight = log.batch
        self.in_flight_waiters = self.waiters
        self.waiters = []
        log.batch += 1

    def retry(self) -> None:
        """Let the storage repeat an attempt that has failed for a passing reason."""
        if self.log.stopped:
            return
        try:
            self.storage.retry()
        except Exception as error:
            self._stop_broken(error)

    # ---- the outcome (CommitListener)

    def on_batch_durable(self) -> None:
        """Notify the waiters of the batch in flight, and submit the next one."""
        log = self.log
        batch = log.sealed
        if log.stopped or batch is None:
            return
        number = log.in_flight
        log.durable = number
        log.in_flight = 0
        waiters = self.in_flight_waiters
        self.in_flight_waiters = []
        self._notify(waiters, number)
        if log.sealed is batch:  # else a waiter has committed the next one
            log.sealed = None
        try:
            self.upkeep.after_batch(batch)
        except Exception as error:
            self._stop_broken(error)
        self.commit()

    def on_batch_failed(self, reason: str, undone: bool = False) -> None:
        """Stop; or continue in the reserve, if the batch is undone."""
        log = self.log
        batch = log.sealed
        if log.stopped:
            return
        if not undone or batch is None:
            self.stop(reason)
            return
        try:
            self.room.enter_reserve(reason)
            self.room.continue_after(batch)
            self.fail_waiters()
            self.commit()
            if not log.stopped and not log.closing:
                self.storage.make_ready(True)
        except Exception as error:
            self._stop_broken(error)

    def on_deposed(self, reason: str) -> None:
        """Stop: whether the batch in flight counts is the new owner's decision."""
        self.stop(f"another process has taken over the log: {reason}")

    def on_room(self) -> None:
        """Accept publishes again."""
        self.room.leave_reserve()

    # ---- the end

    def _stop_broken(self, error: Exception) -> None:
        """Stop because of an internal error; otherwise all would wait for a batch that is never submitted."""
        _log.error("the log is broken", exc_info=error)
        self.stop(f"{type(error).__name__}: {error}")

    def stop(self, reason: str) -> None:
        """Accept nothing any more, for good. Recovery will find all that is stored."""
        log = self.log
        if log.stopped:
            return
        log.stopped = True
        log.failure = reason
        log.in_flight = 0
        log.sealed = None
        self.storage.abandon()
        self.fail_waiters()

    def fail_waiters(self) -> None:
        """Notify all waiters that their records must not be confirmed."""
        waiters = self.in_flight_waiters + self.waiters
        self.in_flight_waiters = []
        self.waiters = []
        for waiter in waiters:
            try:
                waiter.on_store_failed(self.log.failure)
            except Exception:
                _log.exception("a waiter of the log has failed", reason=self.log.failure)

    # ---- the start and the stop

    def start(self, number: i64) -> None:
        """Begin the first segment of this run; in the reserve if there is no room. Raises OSError."""
        segment = self.storage.new_segment(number)
        self.appender.fill(segment, BytesWriter())
        try:
            self._commit_now()
        except OSError as error:
            if not self.storage.use_reserve(segment, error):
                raise
            self.room.enter_reserve(f"the disk is full: {error}")
            self._commit_now()

    def _commit_now(self) -> None:
        """Make the batch being filled durable here and now, for the start and the stop. Raises OSError."""
        batch = self._seal_filling()
        self.storage.store(batch)
        self._begin(batch)
        batch.writer.truncate(0)
        self.appender.fill(batch.segment, batch.writer)
        self.on_batch_durable()

    def close(self) -> None:
        """Make the rest durable, and mark a clean stop. Blocks.

        Only the batch in flight and a last one are committed. Work that each batch leaves for the next one,
        such as copies of old messages, continues after the next start.

        Raises StoreFailed if the last batch did not become durable: then the log is as after a crash.
        """
        log = self.log
        try:
            self.retry()
            log.closing = True
            self.storage.finish()
            if not log.stopped:
                segment = log.filling.segment
                self.streams.seal(log.filling)
                log.filling.add_conditional_settles()
                log.filling.add_closed()
                self._commit_now()
                self.storage.cut(segment)
        except Exception as error:
            self.stop(f"the log could not be closed: {error}")
        failure = log.failure if log.stopped else ""
        self.release()
        if failure:
            raise StoreFailed(failure)

    def release(self) -> None:
        """Release the storage; nothing is appended any more."""
        log = self.log
        log.stopped = True
        if not log.failure:
            log.failure = "the log is closed"
        segments = log.segments.all()
        for segment in segments:
            segment.forget_all()
        self.storage.close(segments)
