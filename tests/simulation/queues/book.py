"""The model of a whole broker: all queues, messages between them, and the log's records.

The world tells the book of everything before the broker does it, and of everything that the broker does by
itself when it does it. It shares no code with the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.queues.invariants import InvariantError, Seen
from tests.simulation.queues.journal import Journal
from tests.simulation.queues.model import (
    EXPIRED,
    HELD,
    LIMIT,
    MAXLEN,
    OUT,
    READY,
    REJECT_DLX,
    REJECTED,
    Item,
    Shelf,
    Spec,
    Taker,
)
from tests.simulation.queues.notes import Note


@dataclass
class Letter:
    """A dead letter that is on its way. `to`: where it is put; `origin`: what it is of, in the log.

    `waits`: it does not arrive, and its message waits.
    """

    note: Note
    to: list[Shelf]
    origin: tuple[str, int]
    waits: bool = False


def ends_cycle(note: Note, queue: str, reason: str) -> bool:
    """Whether a letter about `note` may not go to `queue`: it died there, and no client refused it since."""
    if reason == REJECTED:
        return False
    for where, why in note.deaths:
        if why == REJECTED:
            return False
        if where == queue:
            return True
    return False


def key_of(note: Note, shelf: Shelf) -> tuple[str, int]:
    """Return the log's key of a note in a queue."""
    return shelf.name, note.number if note.until is None else -note.number


class Book:
    """The expected place of every message."""

    def __init__(self, time: Callable[[], int], seen: Seen) -> None:
        self.time = time
        self.seen = seen
        self.ticks = 0
        self.shelves: dict[str, Shelf] = {}
        self.notes: dict[int, Note] = {}
        self.dying: dict[tuple[str, int], str] = {}
        self.origins: dict[int, tuple[str, int]] = {}  # origins of letters that no queue has taken
        self.journal = Journal()
        self.waiting: Callable[[str], list[int]] = lambda _: []  # numbers that wait in a queue of the broker
        self.loose: list[Shelf] = []  # queues that have got a message and may have to drop a message

    def tick(self) -> int:
        self.ticks += 1
        return self.ticks

    # ---- queues

    def declare(self, name: str, spec: Spec) -> Shelf:
        shelf = self.shelves[name] = Shelf(name, spec, self.journal, self.seen)
        if spec.durable:
            self.journal.declare(name)
        return shelf

    def delete(self, name: str) -> None:
        shelf = self.shelves.pop(name)
        for number in list(shelf.dead):
            self.bury(shelf, number)
        for taker in shelf.takers:
            taker.attached = 0
        shelf.items.clear()
        if shelf.spec.durable:
            self.journal.delete(name)

    def attach(self, taker: Taker) -> None:
        taker.attached = self.tick()
        taker.queue.takers.append(taker)
        taker.queue.service.attached(taker, self.time())
        taker.queue.groups.attached(taker)

    def detach(self, taker: Taker) -> None:
        if taker.attached:
            taker.attached = 0
            taker.queue.takers.remove(taker)
            taker.queue.service.detached(taker, self.time())
            taker.queue.groups.detached(taker)

    # ---- arrivals

    def new_note(self, note: Note) -> Note:
        self.notes[note.number] = note
        return note

    def append(self, note: Note, shelves: list[Shelf]) -> None:
        """Append `note` to the log, if any queue needs it."""
        note.appended, note.date = self.tick(), self.time()
        limited = any(shelf.spec.ttl is not None for shelf in shelves) or note.expiration is not None
        note.dated = note.dated or limited or note.until is not None or bool(note.deaths)
        for shelf in shelves:
            if note.persistent and shelf.spec.logged:
                self.journal.add(key_of(note, shelf))
            if note.until is not None:
                self.journal.held[shelf.name, note.number, note.until] = key_of(note, shelf)

    def accept(self, note: Note, shelf: Shelf) -> None:
        """Put the note into the queue, or delay it."""
        if note.until is None:
            self.put(note, shelf)
        else:
            shelf.delays.hold(note, note.until, key_of(note, shelf))

    def put(self, note: Note, shelf: Shelf) -> Item:
        """Link the note; no consumer is notified yet."""
        shelf.fresh = None
        self.tidy(shelf)
        self.loose.append(shelf)
        old = shelf.displaced(note)
        item = shelf.put(note, self.tick(), self.time(), None if old is None else old.place)
        if old is not None:
            self.replace(shelf, old)
        return item

    def refused(self, note: Note, shelves: list[Shelf]) -> bool:
        """Whether one of the queues is full; then some send on what nobody gets.

        A queue takes what it delays, and looks for room when its date has come.
        """
        if note.until is not None:
            return False
        full = [shelf for shelf in shelves if shelf.refuses(note.size)]
        for shelf in full:
            self.seen("refused: " + shelf.spec.overflow)
            if shelf.spec.overflow == REJECT_DLX and shelf.spec.dead_letter is not None:
                self.dying[shelf.name, note.number] = MAXLEN
        return bool(full)

    # ---- deliveries and returns

    def give(self, item: Item, taker: Taker, counts: bool) -> None:
        """Give the item to `taker`; `counts`: the log records the delivery count."""
        self.seen("entry: ready to out")
        taker.queue.groups.taken(item, taker)
        item.state, item.holder = OUT, taker
        item.count += 1
        item.was_out = True
        if counts:
            self.journal.count((taker.queue.name, item.number), item.count)

    def settle(self, shelf: Shelf, item: Item) -> None:
        self.seen("entry: out to settled")
        self.remove(shelf, item)

    def discard(self, shelf: Shelf, item: Item) -> None:
        self.leave(shelf, item, REJECTED)

    def release(self, shelf: Shelf, items: list[Item]) -> None:
        """Return the items to their places, except items that may not return."""
        if not items:
            return
        for item in [item for item in items if shelf.is_outdated(item)]:
            self.replace(shelf, item)
        items = [item for item in items if item.holder is not None]
        back = [item for item in items if not shelf.is_exhausted(item)]
        for item in back:
            self.seen("entry: out to ready")
            item.state, item.holder, item.redelivered = READY, None, True
            item.since = self.tick()
            if shelf.spec.retry is not None:
                self.hold(item, *shelf.spec.retry)
        shelf.groups.lessened(back)
        for item in items:
            if item not in back:
                self.leave(shelf, item, LIMIT)
        self.expire(shelf)
        self.trim(shelf, handing_over=False)

    def hold(self, item: Item, least: int, most: int) -> None:
        """Hold the item before it is ready again, twice as long each time."""
        self.seen("entry: out to held")
        item.state = HELD
        item.again = self.time() + min(most, least * 2 ** (max(item.count, 1) - 1))

    def revive(self, shelf: Shelf) -> None:
        """Make items ready whose retry delay has ended."""
        for item in shelf.items:
            if item.state == HELD and item.again <= self.time():
                self.seen("entry: held to ready")
                item.state, item.since = READY, self.tick()

    def replace(self, shelf: Shelf, item: Item) -> None:
        """Replace the item by a later message of the same kind."""
        self.seen(f"entry: {item.state} to replaced")
        self.remove(shelf, item)

    def remove(self, shelf: Shelf, item: Item, stays: bool = False) -> None:
        """`stays`: the log has it still."""
        shelf.items.remove(item)
        if shelf.current.get(item.note.kind) is item:
            del shelf.current[item.note.kind]
        item.holder = None
        shelf.groups.lessened([item])
        if not stays:
            self.journal.remove((shelf.name, item.number))

    # ---- expiry and limits

    def leave(self, shelf: Shelf, item: Item, reason: str) -> None:
        """Remove the item from the queue, and dead-letter it if the queue has a dead-letter exchange."""
        self.seen(f"entry: {item.state} to {reason}")
        self.remove(shelf, item, shelf.spec.sure)
        if shelf.spec.dead_letter is not None:
            self.dying[shelf.name, item.number] = reason
        if shelf.spec.sure:
            shelf.dead_sizes[item.number] = item.note.size

    def expire(self, shelf: Shelf) -> None:
        now = self.time()
        for item in [item for item in shelf.items if item.state != OUT and shelf.is_late(item, now)]:
            self.leave(shelf, item, EXPIRED)

    def tidy(self, shelf: Shelf) -> None:
        """Remove late items, then items beyond the limits."""
        if shelf.spec.retry is not None:
            self.revive(shelf)
        self.expire(shelf)
        self.trim(shelf)

    def settle_down(self) -> None:
        """Check that all new items are linked, delivered or dropped by now."""
        loose, self.loose = self.loose, []
        for shelf in loose:
            if self.shelves.get(shelf.name) is shelf:
                shelf.fresh = None
                self.tidy(shelf)

    def trim(self, shelf: Shelf, handing_over: bool = True) -> None:
        """Drop items beyond the limits; `handing_over`: deliver to waiting consumers first."""
        if shelf.spec.overflow != "drop-head":
            return
        while shelf.is_over():
            victim = shelf.victim()
            able = shelf.able(self.time()) if handing_over else []
            sure = not any(item.restored for item in shelf.items) and all(
                taker.fits(first.note.size)
                for taker in shelf.takers
                if not taker.suspended() and not taker.browses
                for first in [shelf.first_for(taker, self.time())]
                if first is not None
            )
            if sure and able:
                raise InvariantError(
                    "Q4", f"{victim.number} has to go while {able[0][1].number} could be taken"
                )
            self.seen("check: Q4")
            self.leave(shelf, victim, MAXLEN)
            handing_over = False  # the room for the next messages is not checked again

    def end_of_step(self) -> None:
        """End the step: all items have left and all dead letters have been sent."""
        self.loose.clear()
        for shelf in self.shelves.values():
            shelf.fresh = None
            if shelf.items:
                self.tidy(shelf)
        self.line_up()
        if self.dying:
            (name, number), reason = next(iter(self.dying.items()))
            raise InvariantError("I1", f"message {number} of queue {name} is not dead-lettered as {reason}")
        self.seen("check: I1")

    # ---- waiting dead letters

    def line_up(self) -> None:
        """A message that dies while others of its queue wait lines up behind them; no letter is written."""
        for shelf in self.shelves.values():
            behind = [number for name, number in self.dying if name == shelf.name] if shelf.dead else []
            if behind:
                self.seen("letter: lines up")
                there = self.waiting(shelf.name)
                for number in sorted(set(behind) & set(there), key=there.index):
                    self.wait(shelf, number, self.dying.pop((shelf.name, number)))

    def wait(self, shelf: Shelf, number: int, reason: str) -> None:
        shelf.dead[number] = reason
        shelf.dead_sizes[number] = self.notes[number].size
        self.journal.die((shelf.name, number))

    def seek(self, shelf: Shelf) -> None:
        """Dead messages of a queue wait for room where their letters go."""
        shelf.seeks = True
        target = self.shelves.get(shelf.spec.dead_letter or "")
        if target is not None:
            target.sought.add(shelf.name)

    def bury(self, shelf: Shelf, number: int) -> None:
        """A message waits no longer."""
        del shelf.dead[number], shelf.dead_sizes[number]
        shelf.seized.discard(number)
        if not shelf.dead:
            shelf.seeks = False
            target = self.shelves.get(shelf.spec.dead_letter or "")
            if target is not None:
                target.sought.discard(shelf.name)

    def starved(self, shelf: Shelf) -> bool:
        """Whether the dead letters that wait in a queue have room."""
        target = self.shelves.get(shelf.spec.dead_letter or "")
        if not shelf.seeks or target is None or shelf.is_seized():
            return False
        return not target.lacks(shelf.dead_sizes[next(iter(shelf.dead))])

    # ---- dead letters

    def letter(self, name: str, number: int, reason: str, note: Note) -> Letter:
        """The broker writes `note`, a letter about a message that has left a queue."""
        shelf = self.shelves[name]
        tried = number in shelf.dead
        if tried:
            self._check_turn(shelf, number, reason)
        elif (name, number) not in self.dying:
            if reason == MAXLEN:
                self.trim(shelf)
            elif reason == EXPIRED:
                if shelf.fresh is not None and shelf.fresh.number == number:
                    shelf.fresh = None
                self.expire(shelf)
        if not tried and self.dying.pop((name, number), None) != reason:
            raise InvariantError("I1", f"message {number} of queue {name} is dead-lettered as {reason}")
        self.seen("letter: " + reason)
        old = self.notes[number]
        note.deaths = ((name, reason), *old.deaths)
        self.new_note(note)
        target = self.shelves.get(shelf.spec.dead_letter or "")
        targets = [] if target is None else [target]
        if any(ends_cycle(note, to.name, reason) for to in targets):
            self.seen("letter: ends a cycle")
            targets = []
        if shelf.spec.sure:
            waits = any(other.lacks(note.size) if tried else other.refuses(note.size) for other in targets)
            if shelf.dead and not tried:
                raise InvariantError("Z1", f"{number} of queue {shelf.name} overtakes {list(shelf.dead)}")
            if waits and not tried:
                self.wait(shelf, number, reason)
            if waits:
                self.seen("letter: waits")
                self.seek(shelf)
                return Letter(note, [], (name, number), waits=True)
            if tried:
                self.seen("letter: arrives late")
                self.bury(shelf, number)
            else:
                del shelf.dead_sizes[number]
            self.journal.remove((name, number))
        to = [other for other in targets if not other.lacks(note.size)]
        origin = self.origins.pop(number, (name, number))
        for full in targets:
            if full not in to and full.spec.overflow == REJECT_DLX and full.spec.dead_letter is not None:
                self.seen("letter: passed on")
                self.dying[full.name, note.number] = MAXLEN
                self.origins[note.number] = origin
        return Letter(note, to, origin)

    def _check_turn(self, shelf: Shelf, number: int, reason: str) -> None:
        """Waiting messages are tried in the order of dying."""
        first = next(iter(shelf.dead))
        if first != number or number in shelf.seized:
            raise InvariantError("Z1", f"{number} of queue {shelf.name} is tried before {first}")
        if shelf.dead[number] != reason:
            raise InvariantError("Z1", f"{number} has died as {shelf.dead[number]}, not as {reason}")
        self.seen("check: Z1")

    def append_letter(self, letter: Letter) -> None:
        self.append(letter.note, letter.to)
        for shelf in letter.to:
            if letter.note.persistent and shelf.spec.logged:
                self.journal.move(letter.origin, (shelf.name, letter.note.number))

    def post(self, letter: Letter) -> None:
        for shelf in letter.to:
            self.put(letter.note, shelf)
