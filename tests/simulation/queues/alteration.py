"""Queues that are altered or renamed while they are in use."""

from __future__ import annotations

from dataclasses import replace

from broker.core.vhosts.alteration import alter_queue, merge_arguments
from tests.simulation.queues.invariants import check
from tests.simulation.queues.model import DROP_HEAD, REJECT, Shelf, Spec
from tests.simulation.queues.profiles import DEAD, Profile
from tests.simulation.queues.transacting import finish
from tests.simulation.queues.world import World

ALTERED = (
    "x-message-ttl",
    "x-max-length",
    "x-overflow",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
)


def alter(world: World) -> None:
    """A queue has other limits from now on, or sends its dead letters elsewhere."""
    finish(world)
    rng = world.rng
    shelf = world.shelf(rng.choice(list(world.work)))
    spec = rng.choice(
        (
            replace(shelf.spec, ttl=rng.choice((None, 10, 40))),
            replace(shelf.spec, max_length=rng.choice((None, 2, 5)), overflow=DROP_HEAD),
            replace(shelf.spec, max_length=rng.choice((2, 5)), overflow=REJECT),
            replace(shelf.spec, dead_letter=rng.choice((None, DEAD))),
        )
    )
    world.seen("alter: longer" if spec.max_length is None else "alter: shorter")
    world.altering = {shelf.name: shelf.spec}
    shelf.spec = shelf.service.spec = spec
    world.book.trim(shelf, handing_over=False)
    queue, arguments = world.queue_of(shelf), Profile.arguments(spec)
    changes = {name: arguments.get(name) for name in ALTERED}
    alter_queue(world.life.vhost.topology, queue, queue.name, merge_arguments(queue, changes), False)
    world.turns.advance(0)
    world.life.sync()
    world.altering.clear()
    world.specs[shelf.name] = spec


def in_force(world: World, shelf: Shelf) -> Spec:
    """Return the specification of a recovered queue: the altered one, or the earlier one before the sync."""
    arguments = world.life.vhost.topology.queues[shelf.name].arguments
    before = world.altering.pop(shelf.name, None)
    if before is not None and arguments == Profile.arguments(before):
        return before
    check(world.seen, "A1", arguments == Profile.arguments(shelf.spec), f"{shelf.name} is {arguments}")
    return shelf.spec


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


def settle_renames(world: World) -> None:
    """Check that a recovered queue has its new name, or its old one if that was not on disk."""
    queues = world.life.vhost.topology.queues
    for new, old in world.renaming.items():
        if new in queues:
            world.seen("restart: renamed")
        elif old in queues:
            world.seen("restart: not renamed")
            call(world, world.book.shelves[new], old)
            renamed = [(key, item) for key, item in world.remembered.items() if key[0] == new]
            for (_, number), item in renamed:
                world.remembered[old, number] = item
    world.renaming.clear()
