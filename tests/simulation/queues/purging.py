"""Purges, which go in slices: the purged items so far, for the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.entries.entry import DEQUEUED, QueueEntry
from broker.core.queues.purge import Purge, PurgeWaiter
from tests.simulation.queues.checks import check
from tests.simulation.queues.model import EXPIRED, OUT, Item, Shelf

if TYPE_CHECKING:
    from tests.simulation.queues.world import World


class Purging(PurgeWaiter):
    """A requested purge. `marked`: its entries by item; `sure`: items that must leave."""

    def __init__(self, shelf: Shelf, entries: dict[Item, QueueEntry]) -> None:
        self.shelf = shelf
        self.entries = entries
        self.dead = list(shelf.dead)
        self.sure = {item for item in entries if item.state != OUT}
        self.dropped = 0
        self.over = False

    def on_purged(self, purge: Purge) -> None:
        assert not self.over, "a purge is over once"
        self.over = True

    def catch_up(self, world: World, dying: int) -> bool:
        """Update the model, except for a message that is dying now; return whether the purge is over."""
        shelf = self.shelf
        if not shelf.deleted:
            there = set(shelf.items)
            for item, entry in list(self.entries.items()):
                if item.state == OUT:
                    self.sure.discard(item)  # a taker came before the purge
                gone = entry.state == DEQUEUED and item.number != dying and item in there
                gone = gone and item.state != OUT  # items that are out have been settled this very moment
                if gone and not shelf.is_late(item, world.clock.now):
                    world.seen(f"entry: {item.state} to purged")
                    world.book.remove(shelf, item)
                    self.dropped += 1
        if not self.over:
            return False
        for item, entry in self.entries.items():
            key = (shelf.name, item.number)
            if entry.state == DEQUEUED and item.number != dying and world.book.dying.get(key) == EXPIRED:
                del world.book.dying[key]  # the item would have expired later
        for number in [number for number in self.dead if number in shelf.dead.keys() - shelf.seized]:
            world.seen("entry: dead to purged")
            world.book.bury(shelf, number)
            world.book.journal.remove((shelf.name, number))
        left = [item.number for item in shelf.items if item in self.sure]
        check(world.seen, "S2", not left, f"{left} were not purged")
        shelf.service.purges -= 1
        return True
