"""The upkeep of a log: the work that follows each durable batch, and the work of each second."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from broker.store.batch import Batch
from broker.store.commit import BatchStorage
from broker.store.held import HeldMessages
from broker.store.space import Space
from broker.store.state import LogState
from broker.store.streams.stream import Streams
from broker.store.substitutes import SUBSTITUTE, Substitutes


@final
class Upkeep:
    """Releases everything that had to be kept until a batch was durable, and reclaims space in small steps.

    `memory_budget`: bytes of content in memory beyond which the contents of a durable batch leave memory.
    """

    def __init__(
        self,
        log: LogState,
        storage: BatchStorage,
        held: HeldMessages,
        substitutes: Substitutes,
        streams: Streams,
        space: Space,
        memory_budget: i64,
    ) -> None:
        self.log = log
        self.storage = storage
        self.held = held
        self.substitutes = substitutes
        self.streams = streams
        self.space = space
        self.memory_budget = memory_budget

    def after_batch(self, batch: Batch) -> None:
        """Do the work that follows a durable batch."""
        log = self.log
        segment = batch.segment
        for burial in batch.burials:
            if burial.message.sequence == SUBSTITUTE:
                self.substitutes.settle(burial.message, burial.queue)
            else:
                self.held.release(burial.message, burial.queue.number)
        if log.content_bytes > self.memory_budget:  # this batch's contents are needed last
            log.content_bytes -= segment.drop_contents(batch.offset, batch.end)
        self.streams.on_durable(batch)
        if log.closing:
            return
        self.held.drop_orphans()
        if segment is not log.filling.segment:
            self.storage.retire(segment)
        self.space.step()
        self.make_ready()

    def tick(self, had_orphans: bool) -> None:
        """Request files that are due. If there were orphans and no batch is in flight, reclaim space too."""
        self.make_ready()
        if had_orphans and not self.log.in_flight:  # else the outcome of the batch in flight does it
            self.space.step()

    def make_ready(self) -> None:
        """Request the next segment in time, so that a segment that dies meanwhile can be used for it."""
        segment = self.log.filling.segment
        self.storage.make_ready(self.log.full or segment.end * 2 >= segment.limit)
