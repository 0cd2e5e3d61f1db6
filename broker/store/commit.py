"""Group commit: one sync in flight, everything appended meanwhile is the next batch."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from mypy_extensions import i64

from broker.core.ports import DurableWaiter, MessageStore
from broker.store.latency import Latency

_log = structlog.get_logger("amqpd.store")


class GroupCommit(MessageStore):
    """Counts batches and tells waiters when theirs is on disk. What a batch is, the subclass knows.

    A batch is written only after the previous one has been synced: at most one is on its way at any instant.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self.clock = clock
        self.sync_latency = Latency()
        self.stopped = False  # fail-stop: nothing is appended or written any more
        self.in_flight: i64 = 0  # number of the batch that is being written or synced, 0: none
        self.sync_started = 0.0
        self.waiters: list[DurableWaiter] = []  # for the batch being filled
        self.in_flight_waiters: list[DurableWaiter] = []

    def wait(self, waiter: DurableWaiter) -> None:
        """Call `waiter.on_durable` once when everything appended so far is on disk.

        At once if it is, and `waiter.on_store_failed` at once if it will never be.
        """
        if self.stopped:
            waiter.on_store_failed(self.failure)
            return
        self.waiters.append(waiter)
        if not self.in_flight and self.is_empty():
            self.skip()

    def is_empty(self) -> bool:
        """Whether nothing has been appended to the batch being filled."""
        raise NotImplementedError

    def commit(self) -> None:
        """Write the batch being filled and have it synced, unless one is on its way or it is empty."""
        raise NotImplementedError

    def on_batch_durable(self) -> None:
        """Batch number `durable` is on disk and its waiters know."""
        raise NotImplementedError

    def on_stopped(self) -> None:
        """The store has stopped; `failure` says why."""
        raise NotImplementedError

    def written(self, error: BaseException | None) -> None:
        """The syncer reports that the large batch it was given is written completely, or what went wrong."""
        raise NotImplementedError

    def prepared(self, name: str, reason: str) -> None:
        """The syncer reports that a file exists and has its room on the disk, or the reason why not."""
        raise NotImplementedError

    def removed(self, name: str, reason: str) -> None:
        """The syncer reports that a file is gone for good, or the reason why that is not known."""
        raise NotImplementedError

    def renumber(self) -> None:
        """The batch being filled, which is empty, is now number `batch`."""
        raise NotImplementedError

    def skip(self) -> None:
        """Pass the empty batch being filled: there is nothing that its waiters would have to wait for."""
        waiters = self.waiters
        self.waiters = []
        self.durable = self.batch
        self.batch += 1
        self.renumber()
        self._tell(waiters, self.durable)

    def begin(self) -> None:
        """The batch being filled is sealed and on its way; another one is being filled."""
        self.in_flight = self.batch
        self.in_flight_waiters = self.waiters
        self.waiters = []
        self.batch += 1

    def completed(self, reason: str) -> None:
        """The syncer reports that the batch in flight is on disk, or the `reason` why that is not known.

        A failed sync is never retried: the kernel may have dropped the pages that it could not write and
        would report success the next time. A reason without a batch in flight (the syncer died) stops the
        store too.
        """
        if self.stopped:
            return
        if reason:
            self.stop(reason)
            return
        if not self.in_flight:
            return
        self.sync_latency.observe(self.clock() - self.sync_started)
        number = self.in_flight
        self.durable = number
        self.in_flight = 0
        waiters = self.in_flight_waiters
        self.in_flight_waiters = []
        self._tell(waiters, number)
        try:
            self.on_batch_durable()
        except Exception as error:
            self.broken(error)
        self.commit()

    def _tell(self, waiters: list[DurableWaiter], batch: i64) -> None:
        """Tell each that the batch is on disk; what goes wrong at one of them is not the others' trouble."""
        for waiter in waiters:
            try:
                waiter.on_durable(batch)
            except Exception:
                _log.exception("what waited for the log has failed", batch=batch)

    def broken(self, error: Exception) -> None:
        """Stop because of what no disk does: otherwise all would wait for a batch that nobody writes."""
        _log.error("the log is broken", exc_info=error)
        self.stop(f"{type(error).__name__}: {error}")

    def stop(self, reason: str) -> None:
        """Accept nothing any more, for good: what is on disk is what recovery will find."""
        if self.stopped:
            return
        self.stopped = True
        self.failure = reason
        self.in_flight = 0
        self.on_stopped()
        self.fail_waiters()

    def fail_waiters(self) -> None:
        """Tell everybody who waits that what was appended must not be confirmed."""
        waiters = self.in_flight_waiters + self.waiters
        self.in_flight_waiters = []
        self.waiters = []
        for waiter in waiters:
            try:
                waiter.on_store_failed(self.failure)
            except Exception:
                _log.exception("what waited for the log has failed", reason=self.failure)
