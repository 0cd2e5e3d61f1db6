"""Messages that are held until their date: published, moved, cancelled, released, there after a restart."""

from __future__ import annotations

from dataclasses import replace

from broker.core.message import Message
from broker.core.message_view import MessageView
from broker.core.publishing.delay import delays_of
from broker.core.queues.queue import Queue
from broker.core.schedule import HeldMessage, soonest_first
from tests.simulation.queues.delays import DELAY, DELIVERY_TIME, Wait
from tests.simulation.queues.invariants import check
from tests.simulation.queues.life import NoteView, content_of
from tests.simulation.queues.model import MAXLEN, REJECT_DLX, Shelf
from tests.simulation.queues.notes import Note
from tests.simulation.queues.state import WorldState

WAITS = (1, 5, 9, 30, 60)
AGAIN = 1_000_000  # the log has a message that is moved under a number that is so much higher


def delay(world: WorldState, note: Note, shelves: list[Shelf]) -> None:
    """Give a message a delivery date, in either form."""
    wait = world.rng.choice(WAITS)
    note.until = world.clock.now + wait
    if len(shelves) > 1 or world.rng.random() < 0.5:
        note.headers[DELAY] = wait
    else:
        note.headers[DELIVERY_TIME] = note.until + world.clock.offset


def places(queue: Queue) -> list[HeldMessage]:
    """Return the delayed messages of `queue`, soonest first."""
    timetable = None if queue.limits is None else queue.limits.timetable
    return [] if timetable is None else list(soonest_first(timetable.places()))


def waiting(world: WorldState) -> tuple[Shelf, Wait, HeldMessage] | None:
    """Any of the messages that are held."""
    shelves = [shelf for shelf in world.book.shelves.values() if shelf.delays.waits]
    if not shelves:
        return None
    shelf = world.rng.choice(shelves)
    at = world.rng.randrange(len(shelf.delays.waits))
    return shelf, shelf.delays.in_order()[at], places(world.queue_of(shelf))[at]


# ---- operators


def cancel(world: WorldState) -> None:
    """A message is never put in."""
    choice = waiting(world)
    if choice is not None:
        shelf, wait, held = choice
        shelf.delays.waits.remove(wait)
        world.book.journal.remove(wait.key)
        delays_of(world.queue_of(shelf), world.life.vhost).drop(held)
        world.seen("delayed: cancelled")


def move(world: WorldState) -> None:
    """A message waits for another date."""
    choice = waiting(world)
    if choice is None:
        return
    shelf, wait, held = choice
    until = world.clock.now + world.rng.choice(WAITS)
    if (shelf.name, wait.note.number, until) in world.book.journal.held:
        return
    shelf.delays.waits.remove(wait)
    logged = wait.note.persistent and shelf.spec.logged
    key = (shelf.name, wait.key[1] - AGAIN) if logged else wait.key
    if logged:
        world.book.journal.add(key)
        world.book.journal.move(wait.key, key)
        world.book.journal.remove(wait.key)
    shelf.delays.hold(wait.note, until, key)
    delays_of(world.queue_of(shelf), world.life.vhost).move(held, until + world.clock.offset)
    world.seen("delayed: moved")


# ---- when it is time


class ReleasedView(NoteView):
    """A message that was held, as consumers are to see it."""

    def __init__(self, message: Message, world: WorldState, note: Note) -> None:
        super().__init__(message, world.life.log)
        self.note = note

    def released_content(self, name: str) -> bytes:
        assert name == DELAY
        return content_of(self.note)


def released(world: WorldState, message: Message) -> MessageView | None:
    """A queue is about to get a message that it has held; None: it is only being published."""
    number = world.life.number(message)
    for shelf in world.book.shelves.values():
        for wait in shelf.delays.waits:
            due = wait.note.number == number and wait.until <= world.clock.now
            if due and (number, wait.until) not in as_found(world, world.queue_of(shelf)):
                return ReleasedView(message, world, put(world, shelf, wait))
    return None


def put(world: WorldState, shelf: Shelf, wait: Wait) -> Note:
    """Deliver in the model first. Earlier messages must have been refused."""
    book, seen = world.book, world.seen
    for other in shelf.delays.in_order():
        if other is wait:
            break
        full = shelf.refuses(other.note.size)
        check(seen, "T1", full, f"{wait.note.number} comes before {other.note.number}")
        shelf.delays.postpone(other, world.clock.now)
    shelf.delays.waits.remove(wait)
    check(seen, "T2", wait.until <= world.clock.now, f"{wait.note.number} comes too early")
    note = replace(wait.note, until=None, headers=dict(wait.note.headers))
    if DELAY in note.headers:
        world.note_numbers += 1
        note.number = world.note_numbers
        note.headers[DELAY] = -int(str(note.headers[DELAY]))
    book.new_note(note)
    book.journal.remove(wait.key)
    if shelf.refuses(note.size):
        passes_on = shelf.spec.overflow == REJECT_DLX and shelf.spec.dead_letter is not None
        check(seen, "T2", passes_on, f"{note.number} comes into a queue that is full")
        book.dying[shelf.name, note.number] = MAXLEN
        book.origins[note.number] = wait.key
        seen("delayed: passed on")
        return note
    book.append(note, [shelf])
    if note.persistent and shelf.spec.logged:
        book.journal.move(wait.key, (shelf.name, note.number))
    book.put(note, shelf)
    seen("delayed: released")
    return note


def check_due(world: WorldState, before: int) -> None:
    """Check that messages due since `before` have come, except refused ones."""
    for shelf in world.book.shelves.values():
        for wait in shelf.delays.in_order():
            if wait.until <= world.clock.now:
                full = shelf.refuses(wait.note.size)
                check(world.seen, "T2", full, f"{wait.note.number} does not come")
                shelf.delays.postpone(wait, max(before, wait.until))
                world.seen("delayed: refused")


def check_waits(world: WorldState, shelf: Shelf, queue: Queue) -> None:
    """Check that the queue's delayed messages equal the model's, in order."""
    expected = [(wait.note.number, wait.until) for wait in shelf.delays.in_order()]
    held = as_found(world, queue)
    check(world.seen, "T1", held == expected, f"{shelf.name} holds {held}, not {expected}")


# ---- after a restart


def as_found(world: WorldState, queue: Queue) -> list[tuple[int, int]]:
    """Return the numbers and dates of the delayed messages of `queue`, soonest first."""
    held = [(place.message, int(place.date)) for place in places(queue)]
    return [(world.life.number(each), date - world.clock.offset) for each, date in held if each is not None]


def held_keys(world: WorldState, queue: Queue) -> list[tuple[str, int]]:
    """Return the log's keys of the delayed messages with which `queue` was recovered."""
    return [world.book.journal.held[queue.name, *place] for place in as_found(world, queue)]


def take_over(world: WorldState, shelf: Shelf, queue: Queue) -> None:
    """Give `shelf` the recovered delayed messages of `queue`, by date and then by the log's order."""
    held = as_found(world, queue)
    added = world.book.journal.added
    ranks = [(until, added[key]) for (_, until), key in zip(held, held_keys(world, queue), strict=True)]
    check(world.seen, "T3", ranks == sorted(ranks), f"{shelf.name} holds {held}")
    for number, until in held:
        key = world.book.journal.held[shelf.name, number, until]
        shelf.delays.hold(world.book.notes[number], until, key)
        world.seen("restart: delayed")
