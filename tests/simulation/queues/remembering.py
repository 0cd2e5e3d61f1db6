"""Deduplication: the ids and sequences of publishers, and the records after a restart."""

from __future__ import annotations

from broker.core.queues.duplicates import memory_of
from broker.core.queues.queue import Queue
from tests.simulation.queues.invariants import check
from tests.simulation.queues.journal import MAY
from tests.simulation.queues.model import Shelf
from tests.simulation.queues.notes import Note
from tests.simulation.queues.recall import ID, MESSAGE_ID, NUMBER, PRODUCER, SEQUENCE
from tests.simulation.queues.world import World

IDS = 8
PRODUCERS = ("one", "two", "three")


def introduce(world: World, note: Note) -> None:
    """Have a message say who it is, which another may have said before."""
    rng = world.rng
    if rng.random() < world.profile.repeats:
        note.headers[MESSAGE_ID] = f"id-{rng.randrange(IDS)}"
    if rng.random() < world.profile.repeats:
        producer = rng.choice(PRODUCERS)
        number = max(0, world.sequences.get(producer, 0) + rng.choice((-1, 0, 1, 1, 1, 2)))
        world.sequences[producer] = number
        note.headers |= {PRODUCER: producer, SEQUENCE: number}


def strangers(world: World, note: Note, shelves: list[Shelf]) -> list[Shelf]:
    """The queues that have not had `note`."""
    left = [shelf for shelf in shelves if not shelf.recall.has_had(note, world.clock.now)]
    if len(left) < len(shelves):
        world.seen("duplicate: of some" if left else "duplicate: of all")
    return left


def remember(note: Note, shelf: Shelf) -> None:
    """`shelf` takes `note`, which was appended just now."""
    logged = note.persistent and shelf.spec.logged
    if logged:
        shelf.recall.append(note)
    shelf.recall.keep(note, logged)


def recognize(
    world: World, shelf: Shelf, queue: Queue, recovered: set[tuple[str, int]], was_there: bool
) -> None:
    """After a restart `queue` knows what it must know. `recovered`: which messages are there.

    `was_there`: it had not just been deleted; then nobody knows any more.
    """
    seen, recall, now = world.seen, shelf.recall, world.clock.now
    memory = memory_of(queue)
    if memory is None:
        return
    offset = world.clock.offset
    ids = {key: int(mark.date) - offset for key, mark in memory.ids.items()}
    producers = {name: int(progress.highest) for name, progress in memory.producers.items()}
    known = [(ID, key) for key in ids] + [(NUMBER, name) for name in producers]
    for what in dict.fromkeys([*recall.events, *known]) if was_there else ():
        possible = recall.possible(what)
        value = ids.get(what[1]) if what[0] == ID else producers.get(what[1])
        if what[0] == ID:
            value = None if recall.is_over(value, now) else value
            possible = [None if recall.is_over(each, now) else each for each in possible]
        check(seen, "U2", value in possible, f"{what} is known as {value} in {shelf.name}, not {possible}")
        if value is not None:
            seen(f"restart: {what[0]} known")
        events = recall.events.get(what)
        if not events or events[-1].value is None or value == possible[0] or len(set(possible)) < 2:
            continue
        last = events[-1]
        if last.value in [event.value for event in events[:-1]]:
            continue  # the fact was said before at that very time
        key = (shelf.name, last.note)
        if world.book.journal.status(key) == MAY and key not in world.book.journal.removed:
            seen("restart: known in doubt")
            # a crash can bring the message back as it was while it was delayed, under another key
            is_there = key in recovered or world.book.journal.moved.get(key) in recovered
            check(seen, "U2", is_there == (value == last.value), f"{what} is known, {key} is not there")
    recall.adopt(ids, producers)
