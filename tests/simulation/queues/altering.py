"""Queues that are altered while they are in use."""

from __future__ import annotations

from dataclasses import replace

from broker.core.vhosts.alteration import alter_queue, merge_arguments
from tests.simulation.queues.checks import check
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
