"""The messages of the log that queues hold: when all have let go of one, its record is dead."""

from collections.abc import Callable

from mypy_extensions import i64

from broker.core.message import Body, Message
from broker.store.counts import Counts
from broker.store.definition_text import Describe
from broker.store.disk import Disk
from broker.store.files import Files
from broker.store.segmented_commit import SegmentedCommit
from broker.store.syncer import Syncer


class HeldMessages(SegmentedCommit):
    """Knows how many queues hold a message, and who has let go of one that others still hold."""

    def __init__(
        self,
        disk: Disk,
        syncer: Syncer,
        clock: Callable[[], float],
        describe: Describe,
        files: Files,
    ) -> None:
        super().__init__(disk, syncer, clock, describe, files)
        self.content_bytes: i64 = 0  # content of live messages that is in memory
        self.settled: dict[int, list[int]] = {}  # queues that have settled a message others still hold
        self.counts = Counts(self.segments)
        self.orphans: list[Message] = []  # pieces of bodies that nobody refers to any more

    def on_segment_dead(self) -> None:
        """A segment has no live message any more."""
        raise NotImplementedError

    def new_body(self) -> Body:
        """A large body without pieces yet."""
        return Body(self.orphans)

    def release(self, message: Message, number: i64) -> None:
        """The queue with this number no longer holds the message."""
        references = message.references - 1
        message.references = references
        if references > 0:
            self.settled.setdefault(message.sequence, []).append(number)
            if self.counts.first:
                self.counts.settle(message.sequence, number)
        else:
            self.drop(message)

    def drop(self, message: Message) -> None:
        """The last queue has let go of the message."""
        segment = self.filling.segment
        if segment.number != message.segment:
            segment = self.segments.holding(message)
        segment.unlink(message)
        if segment.live == 0:
            self.on_segment_dead()
        if message.content is not None:
            self.content_bytes -= message.length
        if self.settled:
            self.settled.pop(message.sequence, None)
        if self.counts.first:
            self.counts.drop(message.sequence)

    def drop_orphans(self) -> None:
        """Let go of the pieces that nobody refers to."""
        orphans = self.orphans
        while orphans:
            piece = orphans.pop()
            if piece.sequence > 0:
                piece.references = 0
                self.drop(piece)
