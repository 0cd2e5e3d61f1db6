"""Appends: records go into the batch being filled, and a new segment begins with a checkpoint."""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.core.message import Message
from broker.store.batch import Batch
from broker.store.commit import BatchStorage
from broker.store.definition_text import DefinitionText, Describe
from broker.store.segment import Segment
from broker.store.state import LogState
from broker.store.streams.stream import Streams


@final
class Appender:
    """Appends records to the batch being filled.

    A segment that has reached its limit is full; the next batch begins another one, with a checkpoint.
    """

    def __init__(self, log: LogState, storage: BatchStorage, streams: Streams, describe: Describe) -> None:
        self.log = log
        self.storage = storage
        self.streams = streams
        self.definitions = DefinitionText(describe)
        self.checkpoint_bytes: i64 = 0  # the length of a checkpoint, if it were written now

    def add_message(self, message: Message, destination: bytes) -> None:
        """Append an enqueue of a message, or a piece, with its content, which is in memory.

        `destination`: the queues and the address, encoded.
        """
        log = self.log
        batch = log.filling
        if batch.count == 0:
            log.wants_commit()
        message.sequence = log.next_sequence
        log.next_sequence += 1
        content = message.content
        assert content is not None, "only the content of durable messages leaves memory"
        batch.add_message(message, content, destination)
        batch.segment.link(message)
        log.content_bytes += message.length

    def add_settle(self, message: Message, number: i64) -> None:
        """Append that the queue with this number no longer holds the message."""
        log = self.log
        batch = log.filling
        if batch.count == 0:
            log.wants_commit()
        batch.add_settle(message.sequence, number)
        if message.segment != batch.segment.number:
            batch.segment.settles += 1
            if message.segment != log.last_needed:
                log.last_needed = message.segment
                batch.segment.needs.add(message.segment)

    def add_transacted_settle(self, message: Message, number: i64) -> None:
        """Append a settle that happens only if the rest of the batch becomes durable."""
        self._touch()
        self.log.filling.conditional_settles.append((message, int(number)))

    def add_count(self, message: Message, number: i64, count: i64, annotations: bytes) -> None:
        """Append the delivery count and annotations of a message in the queue with this number."""
        self._touch()
        log = self.log
        batch = log.filling
        segment = batch.segment
        batch.add_count(message.sequence, number, count, annotations)
        log.counts.note(message.sequence, number, count, annotations, segment)
        if message.segment != segment.number and message.segment != log.last_needed:
            log.last_needed = message.segment
            segment.needs.add(message.segment)

    def add_delivered(self, message: Message, number: i64) -> None:
        """Append that a consumer of the queue with this number has seen the message."""
        self._touch()
        self.log.filling.add_delivered(message.sequence, number)

    def add_definition(self, change: dict[str, object]) -> None:
        """Append a change of the durable topology. Raises TypeError if it cannot be JSON."""
        text = self.definitions.add(change)
        self._touch()
        self.log.filling.add_definition(text)
        self._expect_checkpoint(self.checkpoint_bytes + len(text))

    def _touch(self) -> None:
        """Request a commit, if the record about to be appended is the first of its batch."""
        if self.log.filling.count == 0:
            self.log.wants_commit()

    def fill(self, segment: Segment, writer: BytesWriter) -> None:
        """Begin to fill batch number `batch`, at the end of `segment`."""
        log = self.log
        log.filling = Batch(log.batch, segment, log.next_sequence, writer)
        log.last_needed = 0
        if segment.end == 0:
            self._begin_segment(segment)

    def _begin_segment(self, segment: Segment) -> None:
        log = self.log
        definitions = self.definitions.text()
        older = [[other.number, other.end] for other in log.segments.all() if not other.removed_in]
        log.segments.add(segment)
        log.filling.add_checkpoint(older, definitions)
        log.space_changed = True  # with a new segment an older one may have become removable
        self.streams.record_extents(log.filling)
        length: i64 = len(log.filling.writer)
        self._expect_checkpoint(length)
        segment.limit += length  # so that even a large topology leaves room for messages

    def describe(self) -> None:
        """Describe some more definitions, if that is due; the reserve has room for the result."""
        self.definitions.step()
        self._expect_checkpoint(max(self.checkpoint_bytes, self.definitions.length))

    def _expect_checkpoint(self, length: i64) -> None:
        self.checkpoint_bytes = length
        self.storage.expect_checkpoint(length)
