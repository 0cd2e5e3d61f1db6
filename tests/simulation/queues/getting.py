"""basic.get, which may wait for a message."""

from __future__ import annotations

from broker.core.errors import QueueStopped, ResourceLocked
from broker.core.queues.attach import get_one
from broker.core.queues.consumer import QueueConsumer
from tests.simulation.queues import checks
from tests.simulation.queues.clients import Channel, Client
from tests.simulation.queues.model import Shelf, Taker
from tests.simulation.queues.steps import any_channel, any_shelf, chance, join
from tests.simulation.queues.windows import Window
from tests.simulation.queues.world import World


def get(world: World) -> None:
    """basic.get, acknowledged or not."""
    shelf = any_shelf(world)
    queue = world.queue_of(shelf)
    client = Client(world, any_channel(world), Window(), False)
    keeps = shelf.spec.keeps
    no_ack = not keeps and world.rng.random() < 0.3
    taker = Taker(shelf, client.channel.talk, client.windows, browses=keeps, no_ack=no_ack, gets=True)
    refused = shelf.service.get_refused(world.clock.now)
    consumer = QueueConsumer(client, queue, not keeps, no_ack=no_ack)
    client.takers[consumer] = taker
    world.clients.append(client)
    try:
        entry = get_one(queue, consumer)
    except (ResourceLocked, QueueStopped) as error:
        expected = ResourceLocked if refused == "locked" else QueueStopped
        checks.check(world.seen, "D4", bool(refused) and isinstance(error, expected), f"a get: {error}")
        world.seen("get: " + refused)
        return
    checks.check(world.seen, "D4", not refused, f"a get was not refused, the queue is {refused}")
    world.turns.catch_up()
    spec = shelf.spec
    dear = spec.max_length is not None or spec.max_bytes is not None
    left = shelf.service.returning and not dear
    checks.check(world.seen, "S2", not left, "a get leaves things on their way back")
    if entry is None:
        world.turns.wait()
        world.book.end_of_step()
        first = shelf.first_for(taker, world.clock.now)
        checks.check(world.seen, "D1", first is None, f"a get found nothing, there is {first}")
        world.seen("get: empty")
        if not keeps and chance(world, world.profile.waits):
            wait(world, client.channel, shelf)
        return
    world.delivered(client, consumer, entry, getting=True)
    if no_ack:
        queue.settle(entry)


def wait(world: World, channel: Channel, shelf: Shelf) -> None:
    """Wait in the consumers' order, whatever channel.flow says, until the time-out cancels the wait."""
    client = Client(world, channel, Window(1), False)
    client.waits = True
    client.update()
    world.clients.append(client)
    join(world, client, Taker(shelf, channel.talk, client.windows, waits=True))
    world.seen("get: waits")
