"""Queues that are called otherwise while they are in use."""

from __future__ import annotations

from broker.core.vhosts.alteration import alter_queue
from tests.simulation.queues.model import Shelf
from tests.simulation.queues.transacting import finish
from tests.simulation.queues.world import World


def rename(world: World) -> None:
    """A queue has another name from now on: dead letters do not find it by the one that it had.

    What it holds, who consumes it and what is bound to it stay. The log knows at once, or the process dies of
    it now and then.
    """
    finish(world)
    base = world.rng.choice(list(world.work))
    shelf = world.shelf(base)
    queue, old = world.queue_of(shelf), shelf.name
    if base in world.profile.targets and old != base:
        new = base
        world.seen("rename: the name that it had")
    else:
        world.queue_numbers += 1
        new = f"{base}.{world.queue_numbers}"
        world.seen("rename: another name")
    world.renaming[new] = old
    call(world, shelf, new)
    if shelf.spec.durable and world.disk.operations_left < 0 and world.rng.random() < 0.2:
        world.disk.operations_left = world.rng.randrange(3)
    alter_queue(world.life.vhost.topology, queue, new, queue.arguments, False)
    world.turns.advance(0)
    world.life.sync()
    world.renaming.clear()


def call(world: World, shelf: Shelf, name: str) -> None:
    """Give the queue this name in the model."""
    book, old = world.book, shelf.name
    del book.shelves[old]
    shelf.name = name
    book.shelves[name] = shelf
    book.journal.rename(old, name)
    for wait in shelf.delays.waits:
        wait.key = (name, wait.key[1])
    world.work = {base: name if each == old else each for base, each in world.work.items()}
    world.specs[name] = shelf.spec


def settle(world: World) -> None:
    """Check that a recovered queue has its new name, or its old one if that was not on disk."""
    queues = world.life.vhost.topology.queues
    for new, old in world.renaming.items():
        if new in queues:
            world.seen("restart: renamed")
        elif old in queues:
            world.seen("restart: not renamed")
            call(world, world.book.shelves[new], old)
            found = [(key, item) for key, item in world.remembered.items() if key[0] == new]
            for (_, number), item in found:
                world.remembered[old, number] = item
    world.renaming.clear()
