"""Steps of clients: attach and detach, basic.get, settlement, and the passage of time."""

from __future__ import annotations

from broker.core.errors import AccessRefused, QueueStopped, ResourceLocked
from broker.core.queues.attach import attach as attach_consumer
from broker.core.queues.attach import detach as detach_consumer
from broker.core.queues.attach import get_one
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.lease import Lease
from broker.core.queues.queue import queue_of
from broker.core.queues.returns import deliver_again
from tests.simulation.queues import checks
from tests.simulation.queues.clients import Channel, Client, Held, Wire
from tests.simulation.queues.delaying import check_due
from tests.simulation.queues.delays import RETRY
from tests.simulation.queues.invariants import check
from tests.simulation.queues.life import KindFilter
from tests.simulation.queues.model import LIMIT, Shelf, Taker
from tests.simulation.queues.transacting import finish
from tests.simulation.queues.turns import SHORT
from tests.simulation.queues.windows import Window
from tests.simulation.queues.world import World

PREFETCH = (0, 0, 1, 5, 8) if SHORT else (0, 1, 1, 2, 5)
BELOW = (1, 2, 4)


def chance(world: World, share: float) -> bool:
    return share > 0 and world.rng.random() < share


def any_channel(world: World) -> Channel:
    return world.rng.choice(world.rng.choice(world.wires).channels)


def any_shelf(world: World) -> Shelf:
    return world.shelf(world.rng.choice(list(world.work)))


# ---- coming and going


def attach(world: World) -> None:
    """Attach a consumer, sometimes to several queues."""
    profile, rng = world.profile, world.rng
    channel = any_channel(world)
    browses = chance(world, profile.browsers)
    no_ack = not browses and chance(world, profile.no_ack)
    window = Window() if no_ack else Window(rng.choice(PREFETCH), rng.choice(profile.bytes_max))
    client = Client(world, channel, window, not no_ack and chance(world, profile.shared))
    world.clients.append(client)
    client.forgets = browses and chance(world, profile.forgets)
    if not browses and not no_ack and chance(world, profile.leases):
        client.lease = Lease(world.clock.schedule, client.terms, rng.choice((10, 50)))
    shelves = [any_shelf(world)]
    if chance(world, profile.several):
        shelves = rng.sample([world.shelf(base) for base in world.work], 2)
    alone = not browses and chance(world, profile.alone)
    below = rng.choice(BELOW) if chance(world, profile.selectors) else None
    priority = rng.choice(profile.priorities)
    for shelf in shelves:
        looks = browses or shelf.spec.keeps
        taker = Taker(shelf, channel.talk, client.windows, priority, looks, no_ack, alone, below)
        taker.candidate = not looks and chance(world, profile.candidates)
        join(world, client, taker)


def join(world: World, client: Client, taker: Taker) -> None:
    """Attach a single consumer, or check its refusal."""
    shelf = taker.queue
    queue = world.queue_of(shelf)
    consumer = QueueConsumer(
        client,
        queue,
        not taker.browses,
        taker.priority,
        taker.alone,
        "",
        taker.no_ack,
        None if taker.below is None else KindFilter(taker.below, world.life.log),
    )
    consumer.candidate = taker.candidate
    consumer.getting = taker.waits
    client.takers[consumer] = taker
    turned_away = shelf.turns_away(taker)
    if not turned_away:
        world.book.attach(taker)
    try:
        attach_consumer(queue, consumer)
    except AccessRefused:
        check(world.seen, "D4", turned_away, "a consumer was turned away")
        world.seen("attach: turned away")
        return
    check(world.seen, "D4", not turned_away, "two consumers, one of them exclusive")
    if world.profile.scan_budget:
        consumer.context.scan_budget = world.profile.scan_budget
    world.seen("attach: filtered" if taker.below is not None else "attach: plain")


def cancel(world: World) -> None:
    """Do basic.cancel: deliveries stay with the channel."""
    clients = [client for client in world.clients if client.consumers]
    if clients:
        client = world.rng.choice(clients)
        for taker in client.takers.values():
            world.book.detach(taker)
        client.close()
        for consumer in list(client.consumers):
            detach_consumer(queue_of(consumer), consumer, [])


def leave(world: World, clients: list[Client]) -> None:
    """Return the deliveries of clients whose session is closed."""
    for client in clients:
        world.clients.remove(client)
        for consumer in client.takers:
            helds = [held for held in client.held if held.consumer is consumer]
            client.held = [held for held in client.held if held.consumer is not consumer]
            if consumer.acquires:
                world.turns.give_back([helds])
                detach_consumer(queue_of(consumer), consumer, [held.entry for held in helds])
                world.turns.catch_up()
            else:
                detach_consumer(queue_of(consumer), consumer, [])
            for held in helds:
                client.restore_credit(held.item.note.size)
        if client.lease is not None:
            client.lease.stop()


def close_channel(world: World) -> None:
    finish(world)
    wire = world.rng.choice(world.wires)
    at = world.rng.randrange(len(wire.channels))
    channel = wire.channels[at]
    clients = [client for client in world.clients if client.channel is channel]
    for client in clients:
        for taker in client.takers.values():
            world.book.detach(taker)
    channel.session.close_targets()
    leave(world, clients)
    wire.channels[at] = world.new_channel(wire)


def lose_connection(world: World) -> None:
    finish(world)
    at = world.rng.randrange(len(world.wires))
    lose(world, world.wires[at])
    world.wires[at] = world.new_wire()


def lose(world: World, wire: Wire) -> None:
    clients = [client for client in world.clients if client.channel in wire.channels]
    for client in clients:
        for taker in client.takers.values():
            world.book.detach(taker)
    wire.connection.close_targets()
    leave(world, clients)


# ---- windows and flow


def block(world: World) -> None:
    """The transport of a connection is full, or takes data again."""
    wire = world.rng.choice(world.wires)
    wire.line.blocked = world.rng.random() < 0.4
    world.seen("connection: full" if wire.line.blocked else "connection: takes data")
    wire.connection.set_blocked(wire.line.blocked)


def flow(world: World) -> None:
    channel = any_channel(world)
    channel.talk.flow = world.rng.random() < 0.6
    world.seen("flow: on" if channel.talk.flow else "flow: off")
    channel.session.set_flow(channel.talk.flow)


def resize(world: World) -> None:
    """basic.qos, for a session or for a consumer that is there."""
    rng = world.rng
    channel = any_channel(world)
    window, credit = channel.talk.shared, channel.credit
    clients = [client for client in world.clients if not any(t.no_ack for t in client.takers.values())]
    if clients and rng.random() < 0.5:
        client = rng.choice(clients)
        window, credit = client.window, client.credit
    window.count_max, window.bytes_max = rng.choice((0, 1, 3)), rng.choice(world.profile.bytes_max)
    credit.resize(window.count_max, window.bytes_max)


# ---- basic.get


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
        check(world.seen, "D4", bool(refused) and isinstance(error, expected), f"a get: {error}")
        world.seen("get: " + refused)
        return
    check(world.seen, "D4", not refused, f"a get was not refused, the queue is {refused}")
    world.turns.catch_up()
    spec = shelf.spec
    dear = spec.max_length is not None or spec.max_bytes is not None
    left = shelf.service.returning and not dear
    check(world.seen, "S2", not left, "a get leaves things on their way back")
    if entry is None:
        world.turns.wait()
        world.book.end_of_step()
        first = shelf.first_for(taker, world.clock.now)
        check(world.seen, "D1", first is None, f"a get found nothing, there is {first}")
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


# ---- settling


def pick(world: World) -> list[Held]:
    """Return some deliveries of a client for a settlement outside a transaction."""
    holders = [client for client in world.clients if any(not held.in_transaction for held in client.held)]
    if not holders:
        return []
    free = [held for held in world.rng.choice(holders).held if not held.in_transaction]
    start = world.rng.randrange(len(free))
    return free[start : start + world.rng.choice((1, 1, 2, 100))]


def settle(world: World) -> None:
    for held in pick(world):
        held.client.held.remove(held)
        if held.there:
            world.book.settle(held.shelf, held.item)
        if held.consumer.acquires:
            queue_of(held.consumer).settle(held.entry)
        held.client.restore_credit(held.item.note.size)


def discard(world: World) -> None:
    """Refused for good."""
    for held in pick(world)[:2]:
        if held.consumer.acquires and held in held.client.held:
            held.client.held.remove(held)
            if held.there:
                world.book.discard(held.shelf, held.item)
            queue_of(held.consumer).discard(held.entry)
            held.client.restore_credit(held.item.note.size)


def release(world: World) -> None:
    """Return all deliveries of a queue at once."""
    picked = pick(world)
    for consumer in dict.fromkeys(held.consumer for held in picked):
        helds = [held for held in picked if held.consumer is consumer]
        queue = queue_of(consumer)
        limited = queue.limits is not None
        before = queue.manager.wakeups
        waiting = checks.lookers(queue)
        world.give_back_entries(helds)
        if consumer.acquires and not limited:
            checks.check_arrivals(world.seen, len(helds), queue.manager.wakeups - before, waiting)
        for held in helds:
            held.client.restore_credit(held.item.note.size)


def send_again(world: World) -> None:
    """basic.recover without requeueing: to the same consumer once more."""
    for held in pick(world)[:1]:
        consumer, item, shelf = held.consumer, held.item, held.shelf
        if not consumer.acquires:
            continue
        world.seen("delivery: sent again")
        exhausted = shelf.is_exhausted(item)
        gone = exhausted or shelf.spec.retry is not None or shelf.deleted
        if shelf.deleted:
            held.client.held.remove(held)
        elif gone and not exhausted:
            held.client.held.remove(held)
            world.book.release(shelf, [item])
        elif exhausted:
            held.client.held.remove(held)
            world.book.leave(shelf, item, LIMIT)
        else:
            item.redelivered = True
            item.count += 1
            if shelf.spec.counts:
                world.book.journal.count((shelf.name, item.number), item.count)
        sent = deliver_again(queue_of(consumer), held.entry, consumer)
        check(world.seen, "D9", sent != gone, f"{item.number} is sent again: {sent}")
        if gone:
            held.client.restore_credit(item.note.size)


# ---- time and turns


def turn(world: World) -> None:
    world.scheduler.step(world.rng.choice((1, 2, 16)))


def rest(world: World) -> None:
    world.rest(world.rng.choice((1, 2, 4, 64)))


def pass_time(world: World) -> None:
    """Whatever becomes due happens at its own time."""
    before = world.clock.now
    world.turns.advance(world.rng.choice((1, 5, 9, 10, 60, *((RETRY,) if world.profile.delays else ()))))
    check_due(world, before)
