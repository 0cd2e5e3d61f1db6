"""Operators delete, move, copy or redrive many messages at once: all of them or none."""

from __future__ import annotations

from broker.core.entries.entry import QueueEntry
from broker.core.errors import BrokerError, NotFound, PreconditionFailed
from broker.core.operators.operation import Operation, OperatorPublish
from broker.core.publishing.publisher import ROUTED, Outcome, Publisher
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.dead_letter_backlog import existing_backlog
from broker.core.queues.death import Death
from broker.core.queues.source import COPIED, MOVED, PUBLISHED, REDRIVEN
from broker.core.routing.graph import Route
from broker.core.transactions.transaction import REMOVE
from tests.simulation.queues.book import Book
from tests.simulation.queues.clients import Client, Held
from tests.simulation.queues.invariants import check
from tests.simulation.queues.model import OUT, READY, Item, Shelf, Taker
from tests.simulation.queues.notes import Note
from tests.simulation.queues.transacting import Job, note_commit
from tests.simulation.queues.windows import Window
from tests.simulation.queues.world import World

DELETE, MOVE, COPY, REDRIVE = "delete", "move", "copy", "redrive"
COUNT_MAX = 4
WAYS = {DELETE: PUBLISHED, MOVE: MOVED, COPY: COPIED, REDRIVE: REDRIVEN}


class Sent(OperatorPublish):
    """A message that an operation puts into a queue. `where`: the queue's current name."""

    def __init__(self, errand: Errand, note: Note, route: Route, to: Shelf) -> None:
        super().__init__(route, errand.world.message(note, route), errand.kind == COPY)
        self.errand = errand
        self.note = note
        self.to = to
        self.where = to.name

    def put(self, publisher: Publisher) -> Outcome:
        job, to = self.errand.job, self.to
        job.put(self.note, [to])
        outcome = super().put(publisher)
        if job.world.book.shelves.get(to.name) is to:
            job.world.book.tidy(to)
        if self is self.errand.publishes[-1]:
            job.settle()
        return outcome

    def report_outcome(self, outcome: Outcome) -> None:
        check(self.errand.world.seen, "O1", outcome is ROUTED, f"{self.note.number} was put nowhere")


class Errand(Operation):
    """An operation, and the client that holds its messages. `puts`: the messages that it enqueues."""

    def __init__(self, world: World, shelf: Shelf, kind: str) -> None:
        self.world = world
        self.shelf = shelf
        self.kind = kind
        self.job = Job(world, own=True)
        self.puts: list[Sent] = []
        self.client = Client(world, world.new_channel(world.new_wire()), Window(), False)
        queue = world.queue_of(shelf)
        super().__init__(
            world.life.vhost.publisher, queue, QueueConsumer(self.client, queue, no_ack=True), WAYS[kind]
        )
        talk, windows = self.client.channel.talk, self.client.windows
        self.client.takers[self.holder] = Taker(shelf, talk, windows, no_ack=True, gets=True, operates=True)

    def take(self, item: Item, entry: QueueEntry, to: Shelf) -> None:
        """Be about this message, too, which goes `to` a queue if it goes anywhere."""
        if self.kind != DELETE:
            self.put(self.world.book.new_note(item.note.again(self.world.next_number())), to)
        if self.kind != COPY:
            taker = self.client.takers[self.holder]
            self.shelf.groups.taken(item, taker)
            item.state, item.holder, item.was_out = OUT, taker, True
            held = Held(self.client, self.holder, entry, item, 0)
            self.client.charge(item.note.size)
            self.client.held.append(held)
            self.job.settlements.append((held, REMOVE))
            self.remove(entry)

    def take_dead(self, number: int, death: Death, to: Shelf) -> None:
        """Be about a message that waits to be dead-lettered."""
        if self.kind != DELETE:
            self.put(
                self.world.book.new_note(self.world.book.notes[number].again(self.world.next_number())), to
            )
        if self.kind != COPY:
            self.shelf.seized.add(number)
            self.job.dead.append((self.shelf, number))
            self.remove_dead(death)

    def put(self, note: Note, to: Shelf) -> None:
        """Have `to` get a note."""
        if self.kind == REDRIVE:
            self.world.redriven.add(note.number)
        self.job.puts.append((note, [to]))
        sent = Sent(self, note, self.world.life.vhost.publisher.route("", to.name), to)
        self.puts.append(sent)
        self.publishes.append(sent)

    def give_back(self) -> None:
        """Undo: return the marked items to their places."""
        helds, self.client.held = self.client.held, []
        if not self.shelf.deleted:
            unmark(self.world.book, self.shelf, [held.item for held in helds])
            self.shelf.seized.difference_update(number for _, number in self.job.dead)
            if self.shelf.seeks:
                self.world.book.seek(self.shelf)
        self.abort()
        for held in helds:
            there = held.item in self.shelf.items and held.item.state == READY
            same = held.entry.delivery_count == held.item.count
            check(self.world.seen, "O2", same or not there, f"{held.item.number} was counted")

    def on_durable(self, batch: int) -> None:
        self.world.committing = None
        if not self.publishes:
            self.job.settle()
        super().on_durable(batch)

    def on_committed(self) -> None:
        self.world.seen("operation: " + self.kind)
        self.world.pending.remove(self)

    def on_commit_failed(self, reason: str) -> None:
        raise AssertionError(reason)


def unmark(book: Book, shelf: Shelf, items: list[Item]) -> None:
    """Return the marked items: no delivery is counted, and replaced items do not return."""
    for item in items:
        if shelf.is_outdated(item):
            book.replace(shelf, item)
        else:
            item.state, item.holder, item.since = READY, None, book.tick()
    shelf.groups.lessened(items)
    book.expire(shelf)
    book.trim(shelf, handing_over=False)


def begin(world: World) -> None:
    """Mark messages, by a selector; clients have turns meanwhile."""
    rng = world.rng
    shelf, to = (world.shelf(rng.choice(list(world.work))) for _ in range(2))
    below, count = rng.choice((1, 2, 4, 5)), rng.randrange(1, COUNT_MAX + 1)
    errand = Errand(world, shelf, rng.choice((DELETE, MOVE, COPY)))
    numbers = {world.life.number(entry.message): entry for entry in errand.queue.entries}
    chosen = [item for item in shelf.items if item.state == READY and item.note.kind < below]
    for item in chosen[:count]:
        errand.take(item, numbers[item.number], to)
    world.errands.append(errand)


def begin_dead(world: World) -> None:
    """Seize messages that wait to be dead-lettered."""
    rng = world.rng
    shelves = [shelf for shelf in world.book.shelves.values() if shelf.dead.keys() - shelf.seized]
    if not shelves:
        return
    shelf, to = rng.choice(shelves), world.shelf(rng.choice(list(world.work)))
    errand = Errand(world, shelf, rng.choice((DELETE, MOVE, MOVE, COPY)))
    backlog = existing_backlog(errand.queue)
    assert backlog is not None
    deaths = {world.life.number(death.message): death for death in backlog.deaths()}
    free = [number for number in shelf.dead if number not in shelf.seized]
    for number in sorted(rng.sample(free, min(len(free), rng.randrange(1, COUNT_MAX))), key=free.index):
        errand.take_dead(number, deaths[number], to)
    world.seen("operation: on what waits")
    world.errands.append(errand)


def redrive(world: World) -> None:
    """Mark dead letters that return to the queues in which they died first; others stay."""
    rng = world.rng
    shelves = [
        shelf for shelf in world.book.shelves.values() if any(item.note.deaths for item in shelf.items)
    ]
    if not shelves:
        return
    shelf = rng.choice(shelves)
    errand = Errand(world, shelf, REDRIVE)
    numbers = {world.life.number(entry.message): entry for entry in errand.queue.entries}
    letters = [item for item in shelf.items if item.state == READY and item.note.deaths]
    for item in letters[: rng.randrange(1, COUNT_MAX + 1)]:
        name, _ = item.note.deaths[-1]
        to = world.book.shelves.get(name)
        if to is None:  # the operation requests the target and ends
            errand.give_back()
            world.seen("redrive: the queue is gone")
            return
        errand.take(item, numbers[item.number], to)
    world.errands.append(errand)


def end(world: World) -> None:
    """Do it, or not."""
    if not world.errands:
        return
    errand = world.errands.pop(world.rng.randrange(len(world.errands)))
    assert isinstance(errand, Errand)
    if world.rng.random() < 0.3:
        errand.give_back()
        world.seen("operation: aborted")
        return
    refusal = room_for(errand)
    added: list[tuple[str, int]] = []
    removed: list[tuple[str, int]] = []
    if refusal is None:
        added, removed = note_commit(errand.job)
        world.pending.append(errand)
    error: BrokerError | None = None
    try:
        errand.commit()
    except (NotFound, PreconditionFailed) as raised:
        error = raised
    expected = refusal is None if error is None else refusal is not None and isinstance(error, refusal)
    check(world.seen, "O1", expected, f"{errand.kind}: {error}")
    if error is not None:
        errand.give_back()
        world.seen("operation: refused")
        return
    journal = world.book.journal
    logged = journal.added
    journal.bind([key for key in added if key in logged], [key for key in removed if key in logged])


def room_for(errand: Errand) -> type[BrokerError] | None:
    """Return the reason to refuse, or None and reserve the room."""
    there = errand.world.book.shelves
    if there.get(errand.shelf.name) is not errand.shelf:
        return NotFound
    done: list[Sent] = []
    for sent in errand.puts:
        if there.get(sent.where) is not sent.to or sent.to.refuses(sent.note.size):
            for other in done:
                errand.job.unreserve(other.note, [other.to])
            return PreconditionFailed
        sent.to.reserved.append(sent.note.size)
        done.append(sent)
    return None


def give_all_back(world: World) -> None:
    """The broker is about to stop."""
    errands, world.errands = world.errands, []
    for errand in errands:
        assert isinstance(errand, Errand)
        errand.give_back()
