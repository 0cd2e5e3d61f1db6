"""The journal of a running broker: created from settings, opened, written, supervised and closed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Protocol, final

import structlog

from broker.core.broker import Broker
from broker.core.message_view import Views
from broker.core.queues.queue import Queue
from broker.journal.catalogue import ServedJournal
from broker.journal.recorder import Recorder, WatchedQueue
from broker.journal.writer import FULL, OFF, JournalWriter
from config.settings import Settings

FLUSH_SECONDS: Final = 0.05
CHECKPOINT_TICKS: Final = 60
SLICE: Final = 5000  # queues described in one turn


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> object:
        """Cancel the call."""


CallLater = Callable[[float, Callable[[], None]], Timer]
OffLoop = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]

_log = structlog.get_logger("amqpd")


@final
class BrokerJournal:
    """The daemon's journal: opened, written, synced and closed.

    Create it before recovery, which creates queues.

    `soon` calls a function at the end of this turn of the loop, `later` after a number of seconds.
    `mandatory`: publishers wait while the journal cannot be written. `synced`: the journal is synced each
    second, in a thread of `off_loop`.
    """

    def __init__(
        self,
        broker: Broker,
        writer: JournalWriter,
        level: str,
        clock: Callable[[], int],
        views: Views,
        soon: Callable[[Callable[[], None]], object],
        later: CallLater,
        off_loop: OffLoop,
        mandatory: bool,
        synced: bool,
    ) -> None:
        self.writer = writer
        self.recorder = Recorder(level, writer.encoder, clock, broker.store, views, writer.flush, self._wait)
        self._broker = broker
        self._soon = soon
        self._later = later
        self._off_loop = off_loop
        self._mandatory = mandatory
        self._synced = synced
        self._flush_timer: Timer | None = None
        self._syncs = False
        self._sync_failure = ""
        self._ticks = 0
        self._failure = ""
        self._first = writer.encoder.seq
        self._limit = FULL
        broker.journal = self.recorder

    @property
    def holds_publishers(self) -> bool:
        """Whether publishers must wait for the journal."""
        return self._mandatory and self.recorder.on and bool(self.writer.failure or self.writer.limit < FULL)

    def start(self, version: str) -> None:
        """Record the start with the version, and the contents of each queue. Recovery has ended."""
        self.recorder.started = True
        if self.recorder.on:
            self.recorder.began(version)
        else:
            self.writer.stay_away()
        for recorder in self._recorders():
            recorder.recovered()

    def tick(self) -> None:
        """Check the journal, once a second."""
        writer = self.writer
        if not self.recorder.on:
            if writer.failure:  # the writer could not record that journaling is off
                writer.stay_away()
            return
        writer.tick(writer.free_bytes())
        self.recorder.limit = writer.limit
        self.recorder.events = writer.encoder.seq - self._first
        self.recorder.lost = writer.lost
        self._tell()
        self._ticks += 1
        if self._ticks % CHECKPOINT_TICKS == 0:
            self._checkpoint(self._recorders())
        if self._synced:
            self._sync()

    def stop(self, closed: bool) -> None:
        """Record the broker's stop with the messages that a restart recovers, and close the file.

        `closed`: the log was closed cleanly. Otherwise the next start records the contents, after a gap. The
        loop still runs for a while. No later event may begin another file, which would look like a crash.
        """
        if self.recorder.on:
            if closed:
                for recorder in self._recorders():
                    recorder.stopped()
            self.writer.close(closed)
        self.recorder.limit = OFF
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None

    def served(self) -> ServedJournal:
        """Return the files for readers."""
        return ServedJournal(self.recorder, self.writer)

    def _recorders(self) -> Iterator[WatchedQueue]:
        for vhost in list(self._broker.vhosts.values()):
            for queue in list(vhost.topology.queues.values()):
                recorder = _recorder_of(queue)
                if recorder is not None:
                    yield recorder

    def _checkpoint(self, recorders: Iterator[WatchedQueue]) -> None:
        """Record the counts of each queue, in slices."""
        described = 0
        for recorder in islice(recorders, SLICE):
            described += 1
            recorder.checkpoint()
        if described == SLICE:
            self._soon(lambda: self._checkpoint(recorders))

    def _wait(self) -> None:
        """Schedule the flush: this is the first record of a turn."""
        self._soon(self._turn_over)
        if self._flush_timer is None:
            self._flush_timer = self._later(FLUSH_SECONDS, self._flush)

    def _turn_over(self) -> None:
        self.recorder.stale = True

    def _flush(self) -> None:
        self._flush_timer = None
        self.writer.flush()

    def _sync(self) -> None:
        """Begin a sync of the open file, unless another sync is still running."""
        fd = self.writer.to_sync()
        if fd < 0 or self._syncs:
            return
        try:
            copy = os.dup(fd)  # the file may be completed meanwhile
        except OSError as error:
            self._tell_sync(str(error))
            return
        self._off_loop(lambda: _sync_and_close(copy), self._after_sync)
        self._syncs = True

    def _after_sync(self, error: BaseException | None) -> None:
        self._syncs = False
        self._tell_sync("" if error is None else str(error))

    def _tell_sync(self, failure: str) -> None:
        """Log a new failure of the sync, or its end. The next tick tries again."""
        if failure == self._sync_failure:
            return
        self._sync_failure = failure
        if failure:
            _log.error("the journal cannot be synced", reason=failure)
        else:
            _log.warning("the journal is synced again")

    def _tell(self) -> None:
        """Log a new failure of the journal, or its end."""
        writer = self.writer
        if writer.failure != self._failure:
            self._failure = writer.failure
            if writer.failure:
                _log.error("events are not journaled", reason=writer.failure, lost=int(writer.lost))
            else:
                _log.warning("events are journaled again", lost=int(writer.lost))
        if writer.limit != self._limit:
            self._limit = writer.limit
            level = ("off", "lifecycle", "full")[writer.limit]
            _log.warning("the space for journals has changed", most=level)


def _recorder_of(queue: Queue) -> WatchedQueue | None:
    journal = queue.journal
    return journal if isinstance(journal, WatchedQueue) else None


def _sync_and_close(fd: int) -> None:
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def current_time_us() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


def create_journal(
    settings: Settings,
    broker: Broker,
    views: Views,
    soon: Callable[[Callable[[], None]], object],
    later: CallLater,
    off_loop: OffLoop,
) -> BrokerJournal:
    """Create the journal of a broker before its recovery; its file is created with the first record.

    Raises OSError: its folder cannot be read.
    """
    writer = JournalWriter(
        settings.journal_dir or settings.data_dir / "journal",
        settings.node_name,
        current_time_us,
        settings.journal_file_bytes,
        settings.journal_file_s,
        settings.journal_free_min,
    )
    return BrokerJournal(
        broker,
        writer,
        settings.journal,
        current_time_us,
        views,
        soon,
        later,
        off_loop,
        settings.journal_mandatory,
        settings.journal_sync == "second",
    )
