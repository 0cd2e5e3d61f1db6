"""What the log does when the disk is full: settles and copies go on in the reserve, as they make room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.core.message import Message
from broker.store.batch import Batch, Move
from broker.store.disk import DISK_FULL
from broker.store.files import READY
from broker.store.format import COUNT, DELIVERED, SETTLE
from broker.store.records import Records
from broker.store.segment import Segment

if TYPE_CHECKING:
    from broker.core.queues.queue import Queue
    from broker.store.log import Log

WAITING_MAX: Final = 5000  # so many counts are appended in one step
WAITING_BYTES_MAX: Final = 1048576  # of what was added to their messages


@final
class Room:
    """Decides what a failed write means."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.use_reserve = False
        self.waiting: dict[tuple[Message, Queue], tuple[int, bytes]] = {}  # counts that are to be appended
        self.waiting_bytes: i64 = 0  # what was added to their messages
        self._annotations_left: i64 = 0  # bytes of them that the reserve takes, which is for settles

    def make(self, segment: Segment) -> None:
        """Give a new segment its file, of the reserve if that is what it is for. Raises OSError."""
        files = self.log.files
        if self.use_reserve:
            files.make_of_reserve(segment)
            self.use_reserve = False
        else:
            files.make(segment)

    def is_full(self, error: BaseException) -> bool:
        """Whether the error means a full disk, and the reserve is there to go on with."""
        log = self.log
        full = isinstance(error, OSError) and error.errno in DISK_FULL
        return full and not log.full and log.files.reserve == READY

    def enter(self, error: BaseException) -> None:
        """Refuse publishes from now on; the next segment is made of the reserve."""
        self.use_reserve = True
        self._annotations_left = self.log.files.reserve_length // 4
        self.log.space.changed = True
        self.log.full = True
        self.log.failure = f"the disk is full: {error}"

    def start_failed(self, segment: Segment, error: OSError) -> None:
        """The first batch of a run did not fit: begin in the reserve, or raise the error."""
        if not self.is_full(error):
            raise error
        self.log.files.close(segment)
        self.log.disk.unlink(self.log.files.path(segment.name))
        self.enter(error)

    def prepared(self) -> None:
        """A file has been preallocated: with the reserve and a spare there is room to go on as before."""
        log = self.log
        if log.full and not log.stopped and log.files.reserve == READY and log.files.spare == READY:
            log.full = False
            log.failure = ""
            self._append_counts()

    def takes_count(self, message: Message, queue: Queue, count: i64, annotations: bytes) -> bool:
        """Whether a count is appended all the same, while there is a failure; else it waits for its end.

        That is so if the log says more than it should, or the queue could give up too early after a crash.
        There is one such count of a message at most, as what it is given out for then is not appended. Where
        too much was added to messages it waits all the same.
        """
        log = self.log
        if log.stopped:
            return False
        before = self.waiting.pop((message, queue), None)
        if before is not None:
            self.waiting_bytes -= len(before[1])
        known = log.counts.of(message.sequence, queue.number)
        if known is not None and count < known.value and self._reserve_takes(annotations):
            return True
        if len(self.waiting) < WAITING_MAX and self.waiting_bytes + len(annotations) <= WAITING_BYTES_MAX:
            self.waiting[(message, queue)] = (int(count), annotations)
            self.waiting_bytes += len(annotations)
        return False

    def _reserve_takes(self, annotations: bytes) -> bool:
        if len(annotations) > self._annotations_left:
            return False
        self._annotations_left -= len(annotations)
        return True

    def _append_counts(self) -> None:
        """Append the counts that wait of what is there still."""
        log = self.log
        waiting, self.waiting = self.waiting, {}
        self.waiting_bytes = 0
        for (message, queue), (count, added) in waiting.items():
            if message.sequence <= 0 or message.references <= 0 or queue.deleted:
                continue
            if queue.number not in log.settled.get(message.sequence, []):
                log.append_count(message, queue, count, added)

    def write_failed(self, batch: Batch, error: BaseException) -> None:
        """Cut what was written of the batch; stop, or go on with the reserve.

        If the cut does not reach the disk before a crash, that is no harm: a part of a batch is never valid,
        and the checkpoint of the segment made of the reserve says how long this one is.
        """
        log = self.log
        segment = batch.segment
        try:
            if segment.fd >= 0:
                log.disk.truncate(segment.fd, segment.good)
        except OSError as problem:
            log.stop(f"write failed: {error}; and the rest of it could not be cut off: {problem}")
            return
        segment.end = segment.good
        if not self.is_full(error):
            log.stop(f"write failed: {error}")
            return
        self.enter(error)
        self._go_on(batch)

    def _go_on(self, batch: Batch) -> None:
        log = self.log
        filling = log.filling
        segment = batch.segment
        log.in_flight = 0
        log.sealed = None
        self._undo_moves(filling.moved)
        self._undo_moves(batch.moved)
        burials = batch.burials + filling.burials
        for burial in burials:
            burial.count(log.settled.get(burial.letter.sequence, []))
        self._disown(segment, batch.offset)
        following = filling.segment
        if following is not segment:
            self._disown(following, 0)
            log.segments.remove(following)
        log.space.batches_failed(batch.number)
        log.streams.refuse(batch)
        log.streams.refuse(filling)
        needs = segment.needs | following.needs
        if segment.good == 0:  # not even its first batch fitted: the reserve takes its place
            log.segments.remove(segment)
            log.files.close(segment)
            following = segment
        elif following is segment:
            following = log.files.new_segment(segment.number + 1)
        needs.add(segment.number)
        needs.discard(following.number)
        following.needs = needs
        following.settles = 0  # what is salvaged is counted again, but counts are voided one by one
        following.end = 0
        filling.seal(0)
        log.fill(following, BytesWriter())
        log.filling.dead_streams = batch.dead_streams + filling.dead_streams
        log.filling.dead_files = batch.dead_files + filling.dead_files
        self._salvage(batch, batch.first_sequence)
        self._salvage(filling, batch.first_sequence)
        log.stand_ins.take_over(burials)
        log.fail_waiters()
        log.commit()
        if not log.stopped:
            log.files.ask(True)

    def _undo_moves(self, moves: list[Move]) -> None:
        log = self.log
        for move in reversed(moves):
            message = move.message
            if message.references == 0:
                continue
            log.segments.holding(message).unlink(message)
            move.segment.put_back(message, move.offset)

    def _disown(self, segment: Segment, offset: i64) -> None:
        """Messages appended from this offset on are not on disk: they live in memory as if never logged.

        One without content at the end of the batch before is at this offset, and is on disk.
        """
        log = self.log
        message: Message | None = segment.last
        while message is not None and message.offset > offset:
            previous = message.log_previous
            segment.unlink(message)
            log.settled.pop(message.sequence, None)
            log.counts.drop(message.sequence)
            log.content_bytes -= message.length
            message.sequence = 0
            message.references = 0
            message = previous

    def _salvage(self, batch: Batch, first_sequence: i64) -> None:
        """Append again what a failed batch said about messages that are on disk.

        Not so what transactions settle, as what they publish is lost with the batch: all or nothing.
        """
        records = Records()
        records.open(batch.payload, 0, batch.spoken)
        filling = self.log.filling
        while True:
            kind = records.next()
            if kind <= 0:
                return
            if kind == SETTLE and records.sequence < first_sequence:
                filling.add_settle(records.sequence, records.queue)
                filling.segment.settles += 1
            elif kind == DELIVERED and records.sequence < first_sequence:
                filling.add_delivered(records.sequence, records.queue)
            elif kind == COUNT and records.sequence < first_sequence:
                self._salvage_count(records, filling)

    def _salvage_count(self, records: Records, filling: Batch) -> None:
        """Append a count again unless it is void: meanwhile settled, or given out more often.

        Where too much was added to messages, it is without that: the log would have to stop.
        """
        counts = self.log.counts
        count = counts.of(records.sequence, records.queue)
        if count is not None and count.is_said_by(records):
            annotations = count.annotations if self._reserve_takes(count.annotations) else b""
            filling.add_count(records.sequence, count.queue, count.value, annotations)
            counts.note(records.sequence, count.queue, count.value, annotations, filling.segment)
