"""Group commit: one sync is in flight, and everything appended meanwhile is the next batch."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from mypy_extensions import i64

from broker.core.ports import DurableWaiter, MessageStore
from broker.store.latency import Latency

_log = structlog.get_logger("amqpd.store")


class GroupCommit(MessageStore):
    """Counts batches and notifies waiters when their batch is on disk. The subclass defines what a batch is.

    A batch is written only after the previous one has been synced: at most one is in flight at any instant.
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

        The call comes at once if all of it is on disk already. If it will never be, `waiter.on_store_failed`
        is called at once.
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
        """Write the batch being filled and start its sync, unless another one is in flight or it is empty."""
        raise NotImplementedError

    def on_batch_durable(self) -> None:
        """Note that batch number `durable` is on disk and its waiters have been notified."""
        raise NotImplementedError

    def on_stopped(self) -> None:
        """Note that the store has stopped; `failure` says why."""
        raise NotImplementedError

    def written(self, error: BaseException | None) -> None:
        """Note that the syncer has written a large batch completely, or the error."""
        raise NotImplementedError

    def prepared(self, name: str, reason: str) -> None:
        """Note that a file exists and has its room on the disk, or the reason why not."""
        raise NotImplementedError

    def removed(self, name: str, reason: str) -> None:
        """Note that a file has been deleted for good, or the reason why that is not known."""
        raise NotImplementedError

    def renumber(self) -> None:
        """Give the batch being filled, which is empty, the number `batch`."""
        raise NotImplementedError

    def skip(self) -> None:
        """Skip the empty batch being filled: its waiters have nothing to wait for."""
        waiters = self.waiters
        self.waiters = []
        self.durable = self.batch
        self.batch += 1
        self.renumber()
        self._tell(waiters, self.durable)

    def begin(self) -> None:
        """Note that the batch being filled is sealed and in flight; another one is being filled."""
        self.in_flight = self.batch
        self.in_flight_waiters = self.waiters
        self.waiters = []
        self.batch += 1

    def completed(self, reason: str) -> None:
        """Note that the batch in flight is on disk, or the `reason` why that is not known.

        A failed sync is never retried: the kernel may have dropped the pages that it could not write, and
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
        """Notify each waiter that the batch is on disk; an error of one must not affect the others."""
        for waiter in waiters:
            try:
                waiter.on_durable(batch)
            except Exception:
                _log.exception("what waited for the log has failed", batch=batch)

    def broken(self, error: Exception) -> None:
        """Stop because of an internal error; otherwise all would wait for a batch that is never written."""
        _log.error("the log is broken", exc_info=error)
        self.stop(f"{type(error).__name__}: {error}")

    def stop(self, reason: str) -> None:
        """Accept nothing any more, for good. Recovery will find what is on disk."""
        if self.stopped:
            return
        self.stopped = True
        self.failure = reason
        self.in_flight = 0
        self.on_stopped()
        self.fail_waiters()

    def fail_waiters(self) -> None:
        """Notify all waiters that their records must not be confirmed."""
        waiters = self.in_flight_waiters + self.waiters
        self.in_flight_waiters = []
        self.waiters = []
        for waiter in waiters:
            try:
                waiter.on_store_failed(self.failure)
            except Exception:
                _log.exception("what waited for the log has failed", reason=self.failure)
