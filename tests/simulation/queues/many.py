"""Clients that settle many deliveries by a single frame: all of a channel, up to a given delivery."""

from __future__ import annotations

from broker.core.arguments.queue import NACK
from broker.core.queues import returns
from broker.core.queues.groups import Groups
from broker.core.queues.queue import queue_of
from broker.core.queues.returns import discard_all, settle_runs
from tests.simulation.queues import transacting
from tests.simulation.queues.clients import Held
from tests.simulation.queues.world import World

COUNTS = (2, 3, 5, 7, 100)


def up_to(world: World) -> list[Held]:
    """Return the deliveries of a channel that are in no transaction, oldest first."""
    free = [held for client in world.clients for held in client.held if not held.in_transaction]
    channels = list(dict.fromkeys(held.client.channel for held in free))
    if not channels:
        return []
    channel = world.rng.choice(channels)
    mine = sorted((held for held in free if held.client.channel is channel), key=lambda held: held.number)
    return mine[: world.rng.choice(COUNTS)]


def take(world: World) -> list[list[Held]]:
    """Take them from the client, in runs of the same consumer."""
    runs: list[list[Held]] = []
    for held in up_to(world):
        held.client.held.remove(held)
        if runs and runs[-1][0].consumer is held.consumer:
            runs[-1].append(held)
        else:
            runs.append([held])
    return runs


def settle(world: World) -> None:
    """basic.ack of several. [amqp-0-9-1 1.8.3.13]"""
    runs = take(world)
    if runs:
        world.turns.settle([held for run in runs for held in run])
        entries = [(run[0].consumer, [held.entry for held in run]) for run in runs]
        settle_runs(entries, runs[0][0].client.session, world.life.vhost)


def refuse(world: World) -> None:
    """basic.nack of several that are not to come back. [RabbitMQ negative acknowledgements]"""
    for run in take(world):
        consumer = run[0].consumer
        groups = queue_of(consumer).discipline
        alone = isinstance(groups, Groups) and groups.sticky  # or who knows which group is idle first
        for some in [[held] for held in run] if alone else [run]:
            if consumer.acquires:
                world.turns.refuse(some)
                discard_all(queue_of(consumer), [held.entry for held in some], consumer)
                world.turns.catch_up()
        for held in run:
            held.client.restore_credit(held.item.note.size)


def give_back(world: World) -> None:
    """Do basic.nack for several deliveries, for all of a consumer at once."""
    helds = [held for run in take(world) for held in run]
    if any(held.shelf.spec.max_bytes is not None for held in helds):
        for held in helds:  # a single message may push out more than fit in a turn, in an unknown order
            _give_back(world, [held])
            world.turns.advance(0)
    elif helds:
        _give_back(world, helds)


def _give_back(world: World, helds: list[Held]) -> None:
    runs = [
        [held for held in helds if held.consumer is consumer]
        for consumer in dict.fromkeys(held.consumer for held in helds)
    ]
    world.turns.give_back(runs, owed=True)
    entries = [(run[0].consumer, [held.entry for held in run]) for run in runs]
    returns.requeue_runs(entries, NACK, helds[0].client.session, world.life.vhost)
    world.turns.catch_up()


def transact(world: World) -> None:
    """Settle several deliveries in a transaction."""
    transacting.transact(world, [held for held in up_to(world) if held.consumer.acquires])
