"""Purges that go on while clients do, a few entries at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.queues.purge import Purge, purge
from tests.property.queue_items import OUT
from tests.property.queue_model import Model
from tests.support.core.queue_bench import number_of

if TYPE_CHECKING:
    from tests.property.queue_world import World


class Watch:
    """A purge, and the entries of it that have left the model."""

    def __init__(self, model: Model, newest: int, asked: Purge) -> None:
        self.model = model
        self.newest = newest
        self.asked = asked
        self.known = 0


def begin(world: World, queue: int, most: int) -> None:
    """Purge a queue, `most` entries in a turn."""
    model = world.models[queue % len(world.models)]
    if model.queue.manager.purges:
        return  # the model cannot know which purge has dropped which entry
    world.watches.append(Watch(model, world.numbers, purge(model.queue, world.clock.schedule, most)))
    look(world)


def turn(world: World) -> None:
    """Run everything that is due once."""
    world.clock.wakes.clear()
    world.clock.schedule.run()
    look(world)
    for model in world.models:
        model.expire(world.clock.now)


def look(world: World) -> None:
    """P1: a removed entry was purged or late; P2: after the purge only acquired entries are left."""
    for watch in list(world.watches):
        model, asked = watch.model, watch.asked
        if model in world.models:
            live = {number_of(entry) for entry in model.queue.entries}
            gone = [item for item in model.items if item.number not in live and item.number <= watch.newest]
            dropped = asked.dropped - watch.known
            sure = [item for item in gone if not item.is_late(world.clock.now)]
            assert len(sure) <= dropped <= len(gone), "P1: something else has gone"
            for item in gone:
                assert item.state != OUT, "P1: somebody had it"
                model.drop(item)
            for item in model.items if asked.over else ():
                stays = item.number > watch.newest or item.was_out
                assert stays, f"P2: {item.number} is left"
        watch.known = int(asked.dropped)
        if asked.over:
            world.watches.remove(watch)
