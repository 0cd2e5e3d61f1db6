"""The messages that queues hold: released queue by queue, and dropped with the last one."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from broker.core.message import Message
from broker.store.state import LogState


@final
class HeldMessages:
    """Counts the queues that hold each message, and notes queues that settle a message before others."""

    def __init__(self, log: LogState) -> None:
        self.log = log

    def release(self, message: Message, number: i64) -> None:
        """Note that the queue with this number no longer holds the message."""
        references = message.references - 1
        message.references = references
        if references > 0:
            log = self.log
            log.settled.setdefault(message.sequence, []).append(number)
            if log.counts.first:
                log.counts.settle(message.sequence, number)
        else:
            self.drop(message)

    def drop(self, message: Message) -> None:
        """Drop a message that its last queue has released."""
        log = self.log
        segment = log.filling.segment
        if segment.number != message.segment:
            segment = log.segments.holding(message)
        segment.unlink(message)
        if segment.live == 0:
            log.space_changed = True
        if message.content is not None:
            log.content_bytes -= message.length
        if log.settled:
            log.settled.pop(message.sequence, None)
        if log.counts.first:
            log.counts.drop(message.sequence)

    def drop_orphans(self) -> None:
        """Drop the pieces of unreferenced bodies."""
        orphans = self.log.orphans
        while orphans:
            piece = orphans.pop()
            if piece.sequence > 0:
                piece.references = 0
                self.drop(piece)
