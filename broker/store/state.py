"""The state of a log that its parts share: the batch being filled, the segments, and the live messages."""

from __future__ import annotations

from collections.abc import Callable

from librt.strings import BytesWriter
from mypy_extensions import i64

from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.store.batch import Batch
from broker.store.counts import Counts
from broker.store.segment import Segment, SegmentTable


def do_nothing() -> None:
    """Do nothing: the `wants_commit` of a log that is committed by hand."""


def ignore(change: dict[str, object]) -> None:
    """Ignore a change: the `defined` of a log without a watcher of definitions."""


class LogState(MessageStore):
    """A log as its parts see it: the data. `broker.store.log.Log` extends this class and has the parts.

    `filling`: the batch that receives appends. `sealed`: the batch before it, until its outcome is known.
    `in_flight`: the number of the sealed batch, 0: none. `identity`: the number that distinguishes this log
    from all others. `settled`: by sequence, the queues that have settled a message which others still hold.
    `wants_commit` is called before the first append into an empty batch. `defined` is called with each
    appended change of the definitions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.identity: int = 0
        self.stopped = False  # for good: nothing is appended or committed any more
        self.full = False  # no room: publishes are refused, settles and copies go on in the reserve
        self.closing = False  # only the last batch is still committed
        self.wants_commit: Callable[[], None] = do_nothing
        self.defined: Callable[[dict[str, object]], None] = ignore
        self.filling = Batch(0, Segment(0, 0), 0, BytesWriter())
        self.sealed: Batch | None = None
        self.in_flight: i64 = 0
        self.next_sequence: i64 = 1
        self.last_needed: i64 = 0  # the segment most recently added to the filling one's `needs`
        self.segments = SegmentTable()
        self.space_changed = False  # a segment may have become removable
        self.damaged_segments: i64 = 0  # found since the start, when their space was to be reclaimed
        self.content_bytes: i64 = 0  # content of live messages that is in memory
        self.settled: dict[int, list[int]] = {}
        self.counts = Counts(self.segments)
        self.orphans: list[Message] = []  # pieces of unreferenced bodies
