"""The replay: the records of a log become live messages and definitions."""

from __future__ import annotations

import json
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.message import Address, Body, Message
from broker.store.counts import Counts
from broker.store.errors import LogDamaged
from broker.store.format import (
    CHECKPOINT,
    CLOSED,
    COUNT,
    DEFINITION,
    DELIVERED,
    END,
    MESSAGE,
    REMOVED,
    SETTLE,
    STREAM,
    Records,
)
from broker.store.recovery.sink import RecoveryReport
from broker.store.scan import BatchScanner
from broker.store.segment import Segment, SegmentTable


@final
class Bodies:
    """The large bodies in a replay: pieces, and the records that name them, in any order.

    A message and its dead letter share a body, so they name the same pieces.
    """

    def __init__(self) -> None:
        self.pieces: dict[int, Message] = {}  # by sequence
        self.named: dict[int, list[int]] = {}  # by the sequence of the message that names them
        self._found: dict[int, Body] = {}  # by the sequence of their first piece

    def missing_piece(self, sequence: int) -> int:
        """Return a piece that the message with this sequence names and the log lacks; 0 if there is none."""
        numbers = self.named.get(sequence)
        if numbers is not None and numbers[0] not in self._found:
            for number in numbers:
                if number not in self.pieces:
                    return number
        return 0

    def join(self, message: Message, orphans: list[Message]) -> None:
        """Give a message its body, if it has a large one without a missing piece."""
        numbers = self.named.get(message.sequence)
        if numbers is None:
            return
        body = self._found.get(numbers[0])
        if body is None:
            body = Body(orphans)
            body.pieces = [self.pieces.pop(number) for number in numbers]
            self._found[numbers[0]] = body
        message.body = body

    def unnamed_pieces(self) -> list[Message]:
        """Return the pieces that belong to no live message, once all live messages have been joined."""
        return list(self.pieces.values())


PAGE: Final = 32  # few enough that a lone old message costs little, enough to find neighbours fast


@final
class Page:
    """The messages of PAGE consecutive sequences, and the queues that each was enqueued on."""

    def __init__(self) -> None:
        self.messages: list[Message | None] = [None] * PAGE
        self.queues: list[list[int]] = [[]] * PAGE


@final
class Replay:
    """The state of messages and definitions after the records replayed so far.

    Dead messages stay in the pages until the end, because the needs of segments depend on them too.
    """

    def __init__(self, segments: SegmentTable) -> None:
        self.segments = segments
        self.pages: dict[int, Page] = {}
        self.page_number: i64 = -1
        self.page = Page()
        self.records = Records()
        self.settled: dict[int, list[int]] = {}
        self.counts = Counts(segments)
        self.delivered: dict[int, list[int]] = {}
        self.next_sequence: i64 = 1
        self.checkpoint = b""
        self.changes: list[bytes] = []
        self.removed: set[int] = set()
        self.closed = False
        self.streams: dict[int, tuple[int, int]] = {}  # first and next offset of each
        # rows of the latest batch: stream, from, up to, and the checksum of their chunks
        self.appended: list[tuple[int, int, int, int]] = []
        self.address_bytes = b""
        self.address = Address("", "")
        self.addresses: dict[bytes, Address] = {}
        self.queue_bytes = b""
        self.queue_list: list[int] = []
        self.bodies = Bodies()

    def replay_batch(self, scanner: BatchScanner, segment: Segment) -> None:
        """Replay the batch at the scanner. Raises LogDamaged if a record is malformed."""
        records = self.records
        records.open(scanner.data, scanner.start, scanner.end)
        self.next_sequence = max(self.next_sequence, scanner.first_sequence)
        shift = scanner.shift
        self.appended = []
        count: i64 = 0
        while True:
            kind = records.next()
            if kind == MESSAGE:
                self._replay_message(segment, shift)
            elif kind == SETTLE:
                self._replay_settle(segment)
            elif kind == COUNT:
                self._replay_count(segment)
            elif kind == END:
                break
            elif not self._replay_other(kind):
                raise LogDamaged(
                    scanner.path, scanner.batch_at, f"record {count + 1} of the batch is malformed"
                )
            count += 1
            self.closed = kind == CLOSED
        if count != scanner.count:
            raise LogDamaged(scanner.path, scanner.batch_at, f"{count} records instead of {scanner.count}")

    def _replay_other(self, kind: i64) -> bool:
        records = self.records
        if kind == DELIVERED:
            self.delivered.setdefault(records.sequence, []).append(records.queue)
        elif kind == DEFINITION:
            self.changes.append(records.data[records.content_at : records.content_at + records.length])
        elif kind == CHECKPOINT:
            self.checkpoint = records.data[records.content_at : records.content_at + records.length]
            self.changes = []
        elif kind == REMOVED:
            self.removed.add(records.segment)
        elif kind == STREAM:
            self.streams[records.queue] = (records.first, records.behind)
            if records.rows > 0:
                first = records.behind - records.rows
                self.appended.append((records.queue, first, records.behind, records.checksum))
        else:
            return kind == CLOSED
        return True

    def _turn_to(self, number: i64, create: bool) -> bool:
        page = self.pages.get(number)
        if page is None:
            if not create:
                return False
            page = Page()
            self.pages[number] = page
        self.page = page
        self.page_number = number
        return True

    def _replay_message(self, segment: Segment, shift: i64) -> None:
        records = self.records
        sequence = records.sequence
        number = sequence // PAGE
        if number != self.page_number:
            self._turn_to(number, True)
        slot = sequence % PAGE
        message = self.page.messages[slot]
        if message is None:
            message = Message(self._address(), None, records.size, True, records.priority)
            message.sequence = sequence
            if records.date != 0:
                message.date = records.date
                message.expiration = records.expiration
                message.died = records.died
                message.marks = records.marks
            self.page.messages[slot] = message
            if sequence >= self.next_sequence:
                self.next_sequence = sequence + 1
        else:  # a copy
            if message.segment != segment.number:
                segment.needs.add(message.segment)
            if message.references > 0:
                self.segments.holding(message).unlink(message)
            self.settled.pop(sequence, None)
        if records.queues == 0:
            message.references = 1  # until it is known which messages name it
            self.bodies.pieces[sequence] = message
        else:
            message.references = records.queues
            if records.pieces > 0:
                self.bodies.named[sequence] = records.piece_numbers()
        self.page.queues[slot] = self._queues()
        message.offset = shift + records.content_at
        message.length = records.length
        segment.link(message)

    def _address(self) -> Address:
        records = self.records
        encoded = records.data[records.address_at : records.address_end]
        if encoded != self.address_bytes:
            address = self.addresses.get(encoded)
            if address is None:
                middle = 1 + encoded[0]
                address = Address(
                    encoded[1:middle].decode("utf-8", "surrogateescape"),
                    encoded[middle + 1 :].decode("utf-8", "surrogateescape"),
                )
                self.addresses[encoded] = address
            self.address_bytes = encoded
            self.address = address
        return self.address

    def _queues(self) -> list[int]:
        records = self.records
        encoded = records.data[records.queues_at : records.address_at]
        if encoded != self.queue_bytes:
            self.queue_bytes = encoded
            self.queue_list = records.queue_numbers()
        return self.queue_list

    def _replay_settle(self, segment: Segment) -> None:
        sequence = self.records.sequence
        queue = self.records.queue
        number = sequence // PAGE
        if number != self.page_number and not self._turn_to(number, False):
            return
        slot = sequence % PAGE
        message = self.page.messages[slot]
        if message is None:
            return
        if message.segment != segment.number:
            segment.needs.add(message.segment)
            segment.settles += 1
        if message.references <= 0:
            return
        queues = self.page.queues[slot]
        if queue not in queues:
            return
        if message.references > 1 or len(queues) > 1:
            settled_queues = self.settled.setdefault(sequence, [])
            if queue in settled_queues:
                return
            settled_queues.append(queue)
        message.references -= 1
        if message.references == 0:
            self.settled.pop(sequence, None)
            self.segments.holding(message).unlink(message)

        if self.counts.first:
            if message.references == 0:
                self.counts.drop(sequence)
            else:
                self.counts.settle(sequence, queue)

    def _replay_count(self, segment: Segment) -> None:
        sequence = self.records.sequence
        message = self.find(sequence)
        if message is None or message.references <= 0:
            return
        if message.segment != segment.number:
            segment.needs.add(message.segment)
        settled_queues = self.settled.get(sequence)
        if settled_queues is None or self.records.queue not in settled_queues:
            self.counts.note(
                sequence, self.records.queue, self.records.count, self.records.annotations(), segment
            )

    def find(self, sequence: int) -> Message | None:
        """Return the message with this sequence, dead or alive."""
        page = self.pages.get(sequence // PAGE)
        return None if page is None else page.messages[sequence % PAGE]

    def queues_of(self, message: Message) -> list[int]:
        """Return the queues that hold a live message."""
        queues = self.pages[message.sequence // PAGE].queues[message.sequence % PAGE]
        settled_queues = self.settled.get(message.sequence, ())
        return [queue for queue in queues if queue not in settled_queues]

    def definitions(self) -> list[dict[str, object]]:
        """Return the changes that rebuild the durable topology, in order."""
        changes: list[dict[str, object]] = []
        if self.checkpoint:
            changes += json.loads(self.checkpoint)["definitions"]
        changes += map(json.loads, self.changes)
        return changes

    def listed_segments(self) -> dict[int, int]:
        """Return the segments, with lengths, of the last checkpoint that no later record has removed."""
        if not self.checkpoint:
            return {}
        pairs = json.loads(self.checkpoint)["segments"]
        return {number: length for number, length in pairs if number not in self.removed}


@mypyc_attr(allow_interpreted_subclasses=True)
class StoredLog:
    """Everything that a storage has, replayed.

    `last_batch`: the number of the last batch. `highest`: the highest number of a segment that exists, or may
    have existed. `identity`: the log's number, 0 if the log is new.
    """

    def __init__(self) -> None:
        self.segments = SegmentTable()
        self.replay = Replay(self.segments)
        self.report = RecoveryReport()
        self.identity: int = 0
        self.last_batch: i64 = 0
        self.highest: i64 = 0
