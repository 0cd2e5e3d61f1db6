"""The start of a log: everything stored is given to a sink, and a new segment begins."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.message import REMEMBERED, Message
from broker.store.appender import Appender
from broker.store.commit import BatchStorage
from broker.store.counts import Count
from broker.store.errors import LogDamaged
from broker.store.group_commit import GroupCommit
from broker.store.recovery.replay import PAGE, StoredLog
from broker.store.recovery.sink import RecoveryReport, RecoverySink
from broker.store.state import LogState
from broker.store.streams.stream import Streams

_NO_COUNTS: Final[dict[int, Count]] = {}


@final
class Start:
    """Starts a log: recovery, or the new log that a repair makes of a damaged one."""

    def __init__(
        self,
        log: LogState,
        storage: BatchStorage,
        appender: Appender,
        streams: Streams,
        group: GroupCommit,
    ) -> None:
        self.log = log
        self.storage = storage
        self.appender = appender
        self.streams = streams
        self.group = group

    def recover(self, sink: RecoverySink) -> RecoveryReport:
        """Replay the storage, give everything to the sink, and begin a new segment for this run.

        No segment of an earlier run ever gets a batch again. Raises LogDamaged, LogVersionUnknown, LogLocked,
        OSError.
        """
        self.storage.open(self.group)
        try:
            stored = self.storage.replay()
            self.log.identity = stored.identity or self.storage.new_identity()
            self.streams.recovered = dict(stored.replay.streams)
            self.streams.last = {number: first for number, first, _, _ in stored.replay.appended}
            void = Handover(self.log, self.storage, stored, sink).run()
            self.streams.recovered = {}  # the queues of the rest have been deleted
            self.streams.last = {}
            self.begin(stored, void)
        except BaseException:
            self.group.release()
            raise
        self.storage.on_recovery_end()
        return stored.report

    def begin(self, stored: StoredLog, void: list[tuple[Message, int]]) -> None:
        """Take over the replayed state, and store the first batch: a checkpoint without unneeded segments.

        `void`: large messages, and the numbers of their deleted queues. Raises OSError.
        """
        log = self.log
        log.identity = log.identity or stored.identity or self.storage.new_identity()
        self.storage.begin(stored)
        replay = stored.replay
        log.next_sequence = replay.next_sequence
        log.settled = replay.settled
        log.counts = replay.counts
        log.batch = stored.last_batch + 1
        log.durable = stored.last_batch
        gone: set[int] = set()
        dead = []
        for segment in log.segments.all():
            if segment.live == 0 and segment.needs <= gone:
                gone.add(segment.number)
                dead.append(segment)
                log.segments.remove(segment)
        self.group.start(stored.highest + 1)
        for message, queue in void:
            if log.segments.get(message.segment) is not None:
                self.appender.add_settle(message, queue)
        for segment in dead:
            self.storage.remove(segment)
        self.storage.remove_unknown_streams(self.streams.recovered)
        stored.report.removed += [segment.name for segment in dead]
        self.storage.make_ready(True)
        stored.report.segments = log.segments.count


@final
class Handover:
    """Gives a sink the definitions and messages of a replayed log."""

    def __init__(self, log: LogState, storage: BatchStorage, stored: StoredLog, sink: RecoverySink) -> None:
        self.log = log
        self.storage = storage
        self.stored = stored
        self.sink = sink
        self.void: list[tuple[Message, int]] = []

    def run(self) -> list[tuple[Message, int]]:
        """Give the sink everything. The contents of its messages can be loaded.

        Return large messages with the numbers of their deleted queues.
        """
        stored = self.stored
        sink = self.sink
        self.log.segments = stored.segments
        replay = stored.replay
        for change in replay.definitions():
            sink.apply(change)
            stored.report.definitions += 1
        sink.on_definitions_end()
        clean = replay.closed
        stored.report.clean = clean
        pages = replay.pages
        for number in sorted(pages):
            page = pages[number]
            for slot in range(PAGE):
                message = page.messages[slot]
                if message is not None and message.references > 0 and page.queues[slot]:
                    self._deliver(message, page.queues[slot], clean)
            page.messages = []
        pages.clear()
        for piece in replay.bodies.unnamed_pieces():
            piece.references = 0
            stored.segments.holding(piece).unlink(piece)
        return self.void

    def _deliver(self, message: Message, queues: list[int], clean: bool) -> None:
        stored = self.stored
        replay = stored.replay
        sink = self.sink
        if replay.bodies.named:
            self._join(message)
        if len(queues) != message.references:
            queues = replay.queues_of(message)
        if message.marks & REMEMBERED == 0:
            stored.report.messages += 1
        seen = replay.delivered.get(message.sequence) if clean and replay.delivered else None
        counts = replay.counts.by_queue(message.sequence) if replay.counts.first else _NO_COUNTS
        taken: i64 = 0
        if message.body is not None:
            queues = self._existing(message, queues)
        if seen is not None:
            taken = sink.message(message, [queue for queue in queues if queue in seen], True, counts)
            queues = [queue for queue in queues if queue not in seen]
        if queues:
            taken += sink.message(message, queues, not clean, counts)
        message.references = taken
        if taken == 0:
            stored.segments.holding(message).unlink(message)
            replay.settled.pop(message.sequence, None)
            replay.counts.drop(message.sequence)

    def _existing(self, message: Message, queues: list[int]) -> list[int]:
        """Return the queues that still exist.

        For all others it must be on disk that they do not hold the message: the pieces may be removed before
        the record that names the pieces.
        """
        there = [queue for queue in queues if self.sink.has(queue)]
        self.void += [(message, queue) for queue in queues if queue not in there]
        return there

    def _join(self, message: Message) -> None:
        """Give a message its body. Raises LogDamaged if a piece of it is missing."""
        stored = self.stored
        bodies = stored.replay.bodies
        missing = bodies.missing_piece(message.sequence)
        if missing:
            path = self.storage.name_of(stored.segments.holding(message))
            problem = (
                f"message {message.sequence} names piece {missing} of its body, which the log does not have"
            )
            raise LogDamaged(path, message.offset, problem)
        bodies.join(message, self.log.orphans)
