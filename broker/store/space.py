"""Space in the log: segments are removed or copied forward, and a full disk is handled."""

from __future__ import annotations

from typing import Final, final

import structlog
from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.core.message import Message
from broker.core.ports import LoggedQueue
from broker.store.appender import Appender
from broker.store.batch import Batch, Move, encode_queues
from broker.store.commit import BatchStorage
from broker.store.counts import Count
from broker.store.disk import NO_DESCRIPTORS
from broker.store.format import COUNT, DELIVERED, END, MALFORMED, MESSAGE, SETTLE, Records
from broker.store.scan import BatchScanner
from broker.store.segment import Segment
from broker.store.state import LogState
from broker.store.streams.stream import Streams
from broker.store.substitutes import Substitutes

SLICE: Final = 256 * 1024  # the most bytes copied per batch, or one batch of the victim if larger
SETTLE_BYTES: Final = 17

_log = structlog.get_logger("amqpd.store")


@final
class Space:
    """The reclaiming of space; works a little after every durable batch.

    A segment is removed in three steps. First, no live message is in the segment, and no older segment needs
    its settles and counts, or all of these have been appended again (the segment is *emptied*). Second, a
    batch with the record of the removal becomes durable, and from then on recovery ignores the segment.
    Third, the segment's file is deleted in the background.
    """

    def __init__(self, log: LogState, storage: BatchStorage) -> None:
        self.log = log
        self.storage = storage
        self.victim: Segment | None = None  # the segment being copied forward
        self.scanner: BatchScanner | None = None
        self.records = Records()

    def on_batches_failed(self, number: i64) -> None:
        """Undo the records of batches from this number on, which have not been written."""
        for segment in self.log.segments.all():
            if segment.removed_in >= number:
                segment.removed_in = 0
            if segment.emptied_in >= number:
                segment.emptied_in = 0
        self.victim = None
        self.scanner = None
        self.log.space_changed = True

    def step(self) -> None:
        """Do some work after a batch has become durable."""
        if self.log.space_changed:
            self.log.space_changed = False
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
            if 0 < segment.removed_in <= log.durable:
                log.segments.remove(segment)
                self.storage.remove(segment)

    def _remove_dead(self) -> None:
        log = self.log
        going: set[int] = set()
        current = log.filling.segment
        for segment in log.segments.all():
            if segment.removed_in:
                going.add(segment.number)
            elif segment is current or segment.live > 0:
                continue
            elif segment.emptied_in or self._needs_only(segment, going):
                going.add(segment.number)
                segment.removed_in = log.filling.number
                log.filling.add_removed(segment.number)
        if going:
            self.log.space_changed = True

    def _needs_only(self, segment: Segment, going: set[int]) -> bool:
        """Whether every segment that this one must outlive is being removed or was."""
        for number in segment.needs:
            if number not in going and self.log.segments.get(number) is not None:
                return False
        return True

    def _choose(self) -> Segment | None:
        """Return the segment with the smallest needed share, if too much of the log is not needed."""
        log = self.log
        current = log.filling.segment
        total: i64 = 0
        needed: i64 = 0
        best: Segment | None = None
        best_needed: i64 = 0
        for segment in log.segments.all():
            if segment.removed_in:
                continue
            part = segment.live_bytes + segment.settles * SETTLE_BYTES + segment.count_bytes
            total += segment.end
            needed += part
            if segment is current or segment.emptied_in or segment.end == 0:
                continue
            if best is None or part * best.end < best_needed * segment.end:
                best = segment
                best_needed = part
        if best is None or best_needed * 2 > best.end:
            return None
        if log.full:
            return best if best_needed < (current.limit - current.end) // 4 else None
        return best if total > 2 * needed + 2 * self.storage.segment_bytes else None

    def _copy_slice(self, victim: Segment) -> None:
        """Append some of the victim's needed records to the batch being filled."""
        log = self.log
        log.filling.segment.needs.add(victim.number)
        scanner = self.scanner
        try:
            if scanner is None:
                scanner = self.storage.scan(victim, log.identity)
                self.scanner = scanner
            else:
                self.storage.resume(scanner, victim)
            before: i64 = len(log.filling.writer)
            while len(log.filling.writer) - before < SLICE:
                if scanner.position >= victim.written:
                    self._emptied(victim)
                    return
                start = scanner.position
                if not scanner.next() or not self.copy_batch(victim, scanner):
                    self._give_up(victim, f"{scanner.path} is damaged at offset {start}")
                    return
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                return  # the next batch tries again
            self._give_up(victim, f"{self.storage.name_of(victim)}: {error}")

    def _emptied(self, victim: Segment) -> None:
        log = self.log
        assert victim.live == 0, "every live message has a record"
        assert victim.count_bytes == 0, "every count has a record, in a segment that needs its message's"
        victim.emptied_in = log.filling.number
        self.victim = None
        self.scanner = None
        log.space_changed = True

    def _give_up(self, victim: Segment, problem: str) -> None:
        """Leave an unreadable segment as it is, and never choose that segment again."""
        _log.error("a segment of the log does not read back and is left as it is", reason=problem)
        self.log.damaged_segments += 1
        victim.settles = victim.end
        self.victim = None
        self.scanner = None

    def copy_batch(self, victim: Segment, scanner: BatchScanner) -> bool:
        """Append the needed records of the scanner's batch again; false if one is malformed."""
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
        """Whether an existing older segment may have a record of this message."""
        needed = False
        for number in victim.needs:
            older = self.log.segments.get(number)
            if older is not None and older.lowest <= sequence <= older.highest:
                self.log.filling.segment.needs.add(number)
                needed = True
        return needed

    def _copy_count(self, victim: Segment) -> None:
        """Append a valid count again. Counts of messages in the victim itself are copied with these."""
        log = self.log
        records = self.records
        count = log.counts.of(records.sequence, records.queue)
        if (
            count is not None
            and count.segment == victim.number
            and count.matches(records)
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
        settled_queues = log.settled.get(message.sequence)
        if settled_queues is not None:
            queues = [queue for queue in queues if queue not in settled_queues]
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


WAITING_MAX: Final = 5000  # the most waiting counts, which are appended in one step
WAITING_BYTES_MAX: Final = 1048576  # the most bytes of annotations in waiting counts


@final
class Room:
    """Continues in the reserve when the storage has no room for publishes, until it has room again."""

    def __init__(
        self,
        log: LogState,
        storage: BatchStorage,
        space: Space,
        substitutes: Substitutes,
        appender: Appender,
        streams: Streams,
    ) -> None:
        self.log = log
        self.storage = storage
        self.space = space
        self.substitutes = substitutes
        self.appender = appender
        self.streams = streams
        self.waiting: dict[tuple[Message, LoggedQueue], tuple[int, bytes]] = {}  # counts to append later
        self.waiting_bytes: i64 = 0  # the bytes of their annotations
        self._annotations_left: i64 = 0  # further bytes of annotations that the reserve takes

    def enter_reserve(self, reason: str) -> None:
        """Refuse publishes from now on; the next segment is the reserve."""
        self._annotations_left = self.storage.reserve_length // 4
        self.log.space_changed = True
        self.log.full = True
        self.log.failure = reason

    def leave_reserve(self) -> None:
        """Accept publishes again: the storage has room for them, and another reserve."""
        log = self.log
        if log.full and not log.stopped:
            log.full = False
            log.failure = ""
            self._append_counts()

    def takes_count(self, message: Message, queue: LoggedQueue, count: i64, annotations: bytes) -> bool:
        """Whether a count is appended in spite of a failure; else it waits for the end of the failure.

        The count is appended if the logged count is too high, because the queue could give up too early after
        a crash. At most one such count of a message exists, as its next deliveries are not appended. If too
        many annotations were added to messages, even such a count waits.
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
        """Append the waiting counts of messages that are still in their queues."""
        log = self.log
        waiting, self.waiting = self.waiting, {}
        self.waiting_bytes = 0
        for (message, queue), (count, added) in waiting.items():
            if message.sequence <= 0 or message.references <= 0 or queue.deleted:
                continue
            if queue.number not in log.settled.get(message.sequence, []):
                log.append_count(message, queue, count, added)

    def continue_after(self, batch: Batch) -> None:
        """Fill the reserve with an undone batch, and with the one behind it, except for their publishes."""
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
        self.space.on_batches_failed(batch.number)
        self.streams.refuse(batch)
        self.streams.refuse(filling)
        needs = segment.needs | following.needs
        if segment.written == 0:  # not even its first batch fitted: the reserve replaces it
            log.segments.remove(segment)
            self.storage.discard(segment)
            following = segment
        elif following is segment:
            following = self.storage.new_segment(segment.number + 1)
        needs.add(segment.number)
        needs.discard(following.number)
        following.needs = needs
        following.settles = 0  # salvaged settles are counted again; counts are voided one by one
        following.end = 0
        filling.seal(0)
        self.appender.fill(following, BytesWriter())
        log.filling.dead_streams = batch.dead_streams + filling.dead_streams
        log.filling.dead_files = batch.dead_files + filling.dead_files
        self._salvage(batch, batch.first_sequence)
        self._salvage(filling, batch.first_sequence)
        self.substitutes.take_over(burials)

    def _undo_moves(self, moves: list[Move]) -> None:
        log = self.log
        for move in reversed(moves):
            message = move.message
            if message.references == 0:
                continue
            log.segments.holding(message).unlink(message)
            move.segment.put_back(message, move.offset)

    def _disown(self, segment: Segment, offset: i64) -> None:
        """Forget messages appended from this offset on, which are not on disk, and stay in memory, unlogged.

        A message without content at the end of the batch before is at this offset, and is on disk.
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
        """Append a failed batch's records about messages on disk again.

        The settles of transactions are left out, because their publishes are lost with the batch: all or
        nothing.
        """
        records = Records()
        records.open(batch.payload, 0, batch.unconditional_bytes)
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
        """Append a count again unless it is void: settled meanwhile, or replaced by a later one.

        If too many annotations were added to messages, the count is appended without them: otherwise the log
        would have to stop.
        """
        counts = self.log.counts
        count = counts.of(records.sequence, records.queue)
        if count is not None and count.matches(records):
            annotations = count.annotations if self._reserve_takes(count.annotations) else b""
            filling.add_count(records.sequence, count.queue, count.value, annotations)
            counts.note(records.sequence, count.queue, count.value, annotations, filling.segment)
