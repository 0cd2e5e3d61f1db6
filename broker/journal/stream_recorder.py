"""The journal's records of one stream. Rows have no lives: they come, are read, and go with retention."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from broker.core.entries.entry import QueueEntry
from broker.core.message import Message
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.hooks import DEAD_LETTERED
from broker.core.streams.stream import stream_of
from broker.journal.queue_recorder import WAY_REASONS, flags_of
from broker.journal.watched import FULL_LEVEL, LEVEL_REASONS, NO_PLACE, WatchedQueue
from protocol.journal import records as r


@final
class StreamRecorder(WatchedQueue):
    """Records rows by their offsets. A row is told when it is appended, before it is on disk."""

    def count(self) -> i64:
        """The count of rows (WatchedQueue)."""
        stream = stream_of(self.queue)
        return self.queue.ready if stream is None else stream.appended

    def lost(self) -> i64:
        """The count of rows that a restart does not bring back (WatchedQueue): none, as all are on disk."""
        return 0

    def last_place(self) -> i64:
        """No place (WatchedQueue): a stream may have partitions, each with offsets of its own."""
        return NO_PLACE

    def recovered(self) -> None:
        """Say how many rows there are after a restart (WatchedQueue), without a list of them.

        Retention has taken rows when the stream was opened, before anything could be told.
        """
        stream = stream_of(self.queue)
        if stream is not None:
            for stored, found in zip(stream.partitions, stream.found, strict=True):
                if stored.first > found:
                    self.trimmed(found, stored.first - 1, stored.first - found)
        self.tell(r.CHECKPOINT, self.count(), 0, NO_PLACE, LEVEL_REASONS[self.level])

    def enqueued(self, entry: QueueEntry) -> None:
        """Nothing to tell (QueueJournal): the row was told when it was appended."""

    def unwanted(self, entry: QueueEntry) -> None:
        """Nothing to tell (QueueJournal): streams take immediate messages."""

    def appended(self, message: Message, offset: i64) -> None:
        """A message is appended (QueueJournal)."""
        recorder = self.recorder
        if recorder.limit == 0:
            return
        way = DEAD_LETTERED if message.died else recorder.way
        recorder.write(
            r.APPEND,
            recorder.identify(message),
            offset,
            recorder.origin,
            self.name,
            recorder.route(message.address),
            recorder.maker(way),
            message.size,
            flags_of(message),
            WAY_REASONS[way],
            0,
            recorder.message_id(message),
        )

    def shown(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """A consumer is sent a row (QueueJournal)."""
        recorder = self.recorder
        if self.level == FULL_LEVEL and recorder.limit == FULL_LEVEL:
            actor = recorder.consumer(consumer)
            size = entry.message.size
            recorder.write(r.READ, 0, entry.order - 1, 0, self.name, None, actor, size, 0, 0, 0, b"")

    def trimmed(self, first: i64, last: i64, count: i64) -> None:
        """Retention takes rows away (QueueJournal)."""
        self.tell(r.TRIM, count, first, last, 0)
