"""The shared state of a log's parts: its files, and the batch being filled."""

from __future__ import annotations

from collections.abc import Callable

from librt.strings import BytesWriter

from broker.store.batch import Batch
from broker.store.commit import GroupCommit
from broker.store.disk import Disk
from broker.store.segment import Files, Segment
from broker.store.sync import Syncer


def do_nothing() -> None:
    """Do nothing: the `wants_commit` of a log that is committed by hand."""


class LogState(GroupCommit):
    """A log as its streams see it; `broker.store.append` extends this class.

    `filling`: the batch that receives appends. `identity`: the number that distinguishes this log from all
    others.
    `wants_commit` is called before the first append into an empty batch.
    """

    def __init__(self, disk: Disk, syncer: Syncer, clock: Callable[[], float], files: Files) -> None:
        super().__init__(clock)
        self.disk = disk
        self.syncer = syncer
        self.files = files
        self.identity: int = 0
        self.wants_commit: Callable[[], None] = do_nothing
        self.filling = Batch(0, Segment(0, 0), 0, BytesWriter())
