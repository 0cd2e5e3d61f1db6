"""Space that is given back, and what the log does when the disk is full."""

from __future__ import annotations

from typing import Final, final

import structlog
from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.core.message import Message
from broker.core.ports import LoggedQueue
from broker.store.append import HeldMessages
from broker.store.batch import Batch, Move, encode_queues
from broker.store.counts import Count
from broker.store.disk import DISK_FULL, NO_DESCRIPTORS
from broker.store.format import COUNT, DELIVERED, END, MALFORMED, MESSAGE, SETTLE, Records
from broker.store.scan import SegmentScanner
from broker.store.segment import READY, Segment
from broker.store.stand_ins import StandIns

SLICE: Final = 256 * 1024  # copied per batch at most, or one batch of the victim if that is larger
SETTLE_BYTES: Final = 17

_log = structlog.get_logger("amqpd.store")


@final
class Space:
    """Works a little after every durable batch.

    A segment is removed in three steps: nothing live is in it and nothing older needs its settles and counts
    (or all of that has been appended again: it is *emptied*); a batch that says it is removed becomes
    durable, and from then on recovery ignores it; its file is deleted in the background.
    """

    def __init__(self, log: HeldMessages) -> None:
        self.log = log
        self.changed = False  # a segment may have become removable
        self.victim: Segment | None = None  # the segment being copied forward
        self.scanner: SegmentScanner | None = None
        self.records = Records()

    def batches_failed(self, number: i64) -> None:
        """What batches from this number on said has not been written."""
        for segment in self.log.segments.all():
            if segment.removal >= number:
                segment.removal = 0
            if segment.emptied >= number:
                segment.emptied = 0
        self.victim = None
        self.scanner = None
        self.changed = True

    def step(self) -> None:
        """A batch has become durable."""
        if self.changed:
            self.changed = False
            self._finish_removals()
            self._remove_dead()
            if self.victim is None:
                self.victim = self._choose()
                self.scanner = None
        if self.victim is not None:
            self._copy_slice(self.victim)

    def _finish_removals(self) -> None:
        log = self.log
        for segment in log.segments.all():
            if 0 < segment.removal <= log.durable:
                log.segments.remove(segment)
                if log.full or not log.files.recycle(segment):
                    log.files.close(segment)
                    log.syncer.remove(segment.name)

    def _remove_dead(self) -> None:
        log = self.log
        going: set[int] = set()
        current = log.filling.segment
        for segment in log.segments.all():
            if segment.removal:
                going.add(segment.number)
            elif segment is current or segment.live > 0:
                continue
            elif segment.emptied or self._needs_only(segment, going):
                going.add(segment.number)
                segment.removal = log.filling.number
                log.filling.add_removed(segment.number)
        if going:
            self.changed = True

    def _needs_only(self, segment: Segment, going: set[int]) -> bool:
        """Whether every segment that this one must outlive is going or gone."""
        for number in segment.needs:
            if number not in going and self.log.segments.get(number) is not None:
                return False
        return True

    def _choose(self) -> Segment | None:
        """The segment with the smallest share of what is needed, if too much of the log is not needed."""
        log = self.log
        current = log.filling.segment
        total: i64 = 0
        needed: i64 = 0
        best: Segment | None = None
        best_needed: i64 = 0
        for segment in log.segments.all():
            if segment.removal:
                continue
            part = segment.live_bytes + segment.settles * SETTLE_BYTES + segment.count_bytes
            total += segment.end
            needed += part
            if segment is current or segment.emptied or segment.end == 0:
                continue
            if best is None or part * best.end < best_needed * segment.end:
                best = segment
                best_needed = part
        if best is None or best_needed * 2 > best.end:
            return None
        if log.full:
            return best if best_needed < (current.limit - current.end) // 4 else None
        return best if total > 2 * needed + 2 * log.files.segment_bytes else None

    def _copy_slice(self, victim: Segment) -> None:
        """Append some of what is needed of the victim to the batch being filled."""
        log = self.log
        log.filling.segment.needs.add(victim.number)
        scanner = self.scanner
        try:
            if scanner is None:
                fd = log.files.readable(victim)
                path = log.files.path(victim.name)
                scanner = SegmentScanner(log.disk, fd, path, victim.number, log.identity)
                scanner.size = victim.good
                self.scanner = scanner
            scanner.fd = log.files.readable(victim)
            before: i64 = len(log.filling.writer)
            while len(log.filling.writer) - before < SLICE:
                if scanner.position >= victim.good:
                    self._emptied(victim)
                    return
                start = scanner.position
                if not scanner.next() or not self.copy_batch(victim, scanner):
                    self._give_up(victim, f"{scanner.path} is damaged at offset {start}")
                    return
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                return  # the next batch tries again
            self._give_up(victim, f"{log.files.path(victim.name)}: {error}")

    def _emptied(self, victim: Segment) -> None:
        log = self.log
        assert victim.live == 0, "every live message has a record"
        assert victim.count_bytes == 0, "every count has a record, in a segment that needs its message's"
        victim.emptied = log.filling.number
        self.victim = None
        self.scanner = None
        self.changed = True

    def _give_up(self, victim: Segment, problem: str) -> None:
        """Leave a segment that does not read back where it is; it is never chosen again."""
        _log.error("a segment of the log does not read back and is left as it is", reason=problem)
        self.log.damaged_segments += 1
        victim.settles = victim.end
        self.victim = None
        self.scanner = None

    def copy_batch(self, victim: Segment, scanner: SegmentScanner) -> bool:
        """Append again what is needed of the batch that the scanner stands on; false if it makes no sense."""
        records = self.records
        records.open(scanner.data, scanner.start, scanner.end)
        while True:
            kind = records.next()
            if kind == MESSAGE:
                message = victim.first
                if message is not None and message.offset == scanner.shift + records.content_at:
                    self._copy(victim, message)
            elif kind == SETTLE:
                if self._is_needed(victim, records.sequence):
                    self.log.filling.add_settle(records.sequence, records.queue)
                    self.log.filling.segment.settles += 1
            elif kind == COUNT:
                self._copy_count(victim)
            elif kind == END:
                return True
            elif kind == MALFORMED:
                return False

    def _is_needed(self, victim: Segment, sequence: i64) -> bool:
        """Whether a segment that still exists may have a record of this message."""
        needed = False
        for number in victim.needs:
            older = self.log.segments.get(number)
            if older is not None and older.lowest <= sequence <= older.highest:
                self.log.filling.segment.needs.add(number)
                needed = True
        return needed

    def _copy_count(self, victim: Segment) -> None:
        """Append a count again that is not void. One of a message in the victim itself goes with that."""
        log = self.log
        records = self.records
        count = log.counts.of(records.sequence, records.queue)
        if (
            count is not None
            and count.segment == victim.number
            and count.is_said_by(records)
            and self._is_needed(victim, records.sequence)
        ):
            self._add_count(records.sequence, count)

    def _add_count(self, sequence: i64, count: Count) -> None:
        filling = self.log.filling
        filling.add_count(sequence, count.queue, count.value, count.annotations)
        self.log.counts.note(sequence, count.queue, count.value, count.annotations, filling.segment)

    def _copy(self, victim: Segment, message: Message) -> None:
        log = self.log
        records = self.records
        content = records.data[records.content_at : records.content_at + records.length]
        queues = records.queue_numbers()
        done = log.settled.get(message.sequence)
        if done is not None:
            queues = [queue for queue in queues if queue not in done]
        filling = log.filling
        filling.moved.append(Move(message, victim, message.offset))
        if message.content is None:  # the copy is not in the file yet
            message.content = content
            log.content_bytes += message.length
        victim.unlink(message)
        filling.add_message(message, content, encode_queues(queues) + message.address.encoded)
        filling.segment.link(message)
        count = log.counts.first.get(message.sequence) if log.counts.first else None
        while count is not None:
            self._add_count(message.sequence, count)
            count = count.following


WAITING_MAX: Final = 5000  # so many counts are appended in one step
WAITING_BYTES_MAX: Final = 1048576  # of what was added to their messages


@final
class Room:
    """Decides what a failed write means."""

    def __init__(self, log: HeldMessages, space: Space, stand_ins: StandIns) -> None:
        self.log = log
        self.space = space
        self.stand_ins = stand_ins
        self.use_reserve = False
        # counts that are to be appended
        self.waiting: dict[tuple[Message, LoggedQueue], tuple[int, bytes]] = {}
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
        self.space.changed = True
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

    def takes_count(self, message: Message, queue: LoggedQueue, count: i64, annotations: bytes) -> bool:
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
        self.space.batches_failed(batch.number)
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
        self.stand_ins.take_over(burials)
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
