"""Publishers, and declarations and deletions of queues."""

from __future__ import annotations

from broker.core.errors import QueueStopped
from broker.core.message import DELAYED, Message
from broker.core.publishing.publisher import DUPLICATE, NO_CONSUMER, REFUSED, ROUTED, Outcome
from broker.core.routing.graph import Route
from broker.core.vhosts.alteration import stop_queue
from tests.simulation.queues import checks
from tests.simulation.queues.delaying import delay
from tests.simulation.queues.invariants import InvariantError, check
from tests.simulation.queues.model import DROP_HEAD, Item, Shelf
from tests.simulation.queues.notes import Note
from tests.simulation.queues.remembering import introduce, remember, strangers
from tests.simulation.queues.turns import SHORT
from tests.simulation.queues.world import World

SIZES = (1, 1, 1, 3, 7, 30)
BURSTS = (1, 3, 9) if SHORT else (1, 1, 1, 4)


def draft(world: World) -> tuple[Note, list[Shelf], Route]:
    """Return a message and its queues: a single queue, or all queues of an exchange."""
    profile, rng = world.profile, world.rng
    if profile.fanout and rng.random() < 0.3:
        shelves = [world.shelf(base) for base in profile.fanout]
        route = world.life.vhost.publisher.route("amq.fanout", "")
    else:
        shelves = [world.shelf(rng.choice(list(world.work)))]
        route = world.life.vhost.publisher.route("", shelves[0].name)
    # late entries that are not removed yet may take the room of messages that are then refused
    picky = any(shelf.spec.overflow != DROP_HEAD for shelf in shelves)
    note = world.new_note(
        rng.choice(SIZES),
        priority=rng.randrange(6),
        persistent=rng.random() < profile.persistent,
        expiration=None if picky else rng.choice(profile.expirations),
        kind=rng.randrange(5),
    )
    if profile.repeats:
        introduce(world, note)
    if rng.random() < profile.delays:
        delay(world, note, shelves)
    return note, shelves, route


def send(world: World, route: Route, message: Message, immediate: bool = False) -> Outcome:
    vhost = world.life.vhost
    if message.expiration >= 0 or message.marks & DELAYED:
        return vhost.publisher.publish_carefully(route, message, immediate=immediate)
    return vhost.publisher.publish(route, message, immediate=immediate)


def refuses_all(shelves: list[Shelf]) -> bool:
    """Whether a queue is stopped, so that no queue gets anything."""
    return any("enqueue" in shelf.service.stopped for shelf in shelves)


def publish(world: World) -> None:
    for _ in range(world.rng.choice(BURSTS)):
        note, shelves, route = draft(world)
        if refuses_all(shelves):
            try:
                send(world, route, world.message(note, route))
            except QueueStopped:
                world.seen("publish: the queue is stopped")
                continue
            raise InvariantError("I1", f"{note.number} goes into a queue that is stopped")
        shelves = strangers(world, note, shelves)
        refused = world.book.refused(note, shelves)
        if not refused:
            world.book.append(note, shelves)
            for shelf in shelves:
                world.book.accept(note, shelf)
                remember(note, shelf)
        queues = [world.queue_of(shelf) for shelf in shelves]
        before = [(queue.manager.wakeups, checks.lookers(queue)) for queue in queues]
        deliveries = world.deliveries
        outcome = send(world, route, world.message(note, route))
        check_outcome(world, note, outcome, REFUSED if refused else ROUTED if shelves else DUPLICATE)
        wakeups = [queue.manager.wakeups for queue in queues]
        nobody = deliveries == world.deliveries  # nothing was handed over
        world.turns.wait()
        world.book.end_of_step()
        if nobody and not refused:
            for after, (wakeups_before, waiting) in zip(wakeups, before, strict=True):
                checks.check_arrivals(world.seen, 1, after - wakeups_before, waiting)
        else:
            world.seen("publish: refused" if refused else "publish: handed over")


def publish_immediate(world: World) -> None:
    """Publish with immediate: an interested consumer of the highest priority gets the message, or nobody.

    A consumer without room for its own next message cannot take it. Queues may share a window, and then the
    first queue that delivers may leave no room for the other queues.
    """
    note, shelves, route = draft(world)
    note.until = None  # nothing is delayed then
    if refuses_all(shelves):
        return
    shelves = strangers(world, note, shelves)
    book, now = world.book, world.clock.now
    book.append(note, shelves)
    expected: list[tuple[Shelf, Item, bool, bool]] = []
    for shelf in shelves:
        takers = [taker for taker in shelf.takers if not taker.browses and not taker.suspended()]
        nexts = [(taker, shelf.first_for(taker, now)) for taker in takers]
        sure = all(first is None or taker.fits(first.note.size) for taker, first in nexts)
        item = book.put(note, shelf)
        shelf.fresh = item
        asked = [taker for taker in takers if shelf.could_take(taker, item, now)]
        top = max(map(shelf.urgency, asked), default=None)
        wanted = any(first is item and shelf.urgency(taker) == top for taker, first in shelf.able(now))
        expected.append((shelf, item, sure, wanted))
    outcome = send(world, route, world.message(note, route), True)
    count = 0
    for shelf, item, sure, wanted in expected:
        was_taken = item.was_out
        count += was_taken
        alone = all(known and not other for each, _, known, other in expected if each is not shelf)
        if sure and (alone or not wanted):
            check(world.seen, "Q4", was_taken == wanted, f"immediate {note.number}: {was_taken}")
        if was_taken:
            remember(note, shelf)
        else:
            book.remove(shelf, item)
        world.seen("immediate: taken" if was_taken else "immediate: not taken")
    check_outcome(world, note, outcome, (ROUTED if count else NO_CONSUMER) if shelves else DUPLICATE)


def check_outcome(world: World, note: Note, outcome: Outcome, expected: Outcome) -> None:
    """The publish of `note` has the expected outcome."""
    name = "U1" if note.headers else "I1"
    check(world.seen, name, outcome is expected, f"{note.number} was {outcome}, not {expected}")


def purge(world: World) -> None:
    world.turns.purge(world.shelf(world.rng.choice(list(world.work))))


def stop(world: World) -> None:
    """Enqueue or dequeue of a queue is switched off or on, which the log knows at once."""
    shelf = world.shelf(world.rng.choice(list(world.work)))
    names = [name for name in ("enqueue", "dequeue") if world.rng.random() < 0.35]
    for name in ("enqueue", "dequeue"):
        if (name in names) != (name in shelf.service.stopped):
            world.seen(f"stop: {name} {'off' if name in names else 'on'}")
    shelf.service.stopped = names
    stop_queue(world.life.vhost.topology, world.queue_of(shelf), names)
    world.life.sync()


def delete_queue(world: World) -> None:
    """Delete a queue, probably one with pending turns, and declare a similar one."""
    busy, targets = world.turns.shelves(), world.profile.targets
    busy_ones = [base for base, name in world.work.items() if name in busy and base not in targets]
    base = world.rng.choice(busy_ones or list(world.work))
    if base in targets:
        return
    shelf = world.shelf(base)
    world.delete_queue(shelf)
    world.declare(base, shelf.spec)
