"""The broker and its clients beside the model, which learns here what the broker does by itself.

Whatever a client does is a step, in `steps`, `publishing`, `transacting` and `restarting`.
"""

from __future__ import annotations

import random

from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, Session
from broker.core.entries.entry import QueueEntry
from broker.core.message import BY_CLOCK, DELAYED, Message
from broker.core.message_view import MessageView
from broker.core.operators.operation import Operation
from broker.core.ports import MessageStore
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.dead_letter_backlog import existing_backlog
from broker.core.queues.death import DeadLetter, Notice
from broker.core.queues.hooks import REASONS
from broker.core.queues.queue import queue_of
from broker.core.queues.returns import release_entries
from broker.core.routing.graph import Route
from tests.simulation.queues import checks, delaying
from tests.simulation.queues.book import Letter
from tests.simulation.queues.calling import Calls
from tests.simulation.queues.clients import Channel, Client, Held, Wire
from tests.simulation.queues.delays import DELAY
from tests.simulation.queues.invariants import InvariantError, Seen, check
from tests.simulation.queues.life import Life, Mark, NoteView, content_of, message_of
from tests.simulation.queues.model import Item, Shelf, Spec, Taker
from tests.simulation.queues.notes import Note, group_headers
from tests.simulation.queues.profiles import Profile
from tests.simulation.queues.state import WorldState
from tests.simulation.queues.structure import check_dead, check_structure, room_waiters
from tests.simulation.queues.turns import Turns
from tests.simulation.queues.windows import Line, Talk
from tests.support.core.queue_bench import HandScheduler


class World(WorldState):
    """A world in which things happen: the model follows the events of the broker and the steps of clients."""

    def __init__(self, profile: Profile, rng: random.Random, seen: Seen, haste: float = 0) -> None:
        super().__init__(profile, rng, seen, haste)
        self.book.waiting = lambda name: [number for number, _ in self.waiting(name)]
        self.sequences: dict[str, int] = {}  # how far producers are
        self.queue_numbers = 0
        self.deliveries = 0
        self.specs: dict[str, Spec] = {}  # all queues that there ever were, as they were last
        self.altering: dict[str, Spec] = {}  # queues as they were, until that is on disk
        self.redriven: set[int] = set()  # notes that operators have sent back
        self.renaming: dict[str, str] = {}  # the former names, until the rename is on disk
        self.committing: list[Letter] | None = None
        self.remembered: dict[tuple[str, int], Item] = {}  # as they were when the process ended
        self.begin()
        for name, spec in profile.queues.items():
            self.declare(name, spec)
        self.life.sync()

    def begin(self) -> None:
        """A process starts: nobody is connected."""
        self.committing = None
        self.life = Life(self.disk, self.clock, self.write_letter, self.view)
        self.scheduler = HandScheduler()
        self.clients = []
        self.calls = Calls(self.seen)
        self.turns = Turns(self)
        self.deleting: Shelf | None = None
        self.wires = [self.new_wire() for _ in range(self.profile.wires)]
        self.marked = 0
        self.pending: list[object] = []  # transactions that wait for the disk
        self.errands: list[Operation] = []  # operations under way, see `operating`

    # ---- queues and clients

    def declare(self, base: str, spec: Spec) -> None:
        """Declare a queue of the profile, under a name of its own unless dead letters go to it."""
        name = base
        if base not in self.profile.targets:
            self.queue_numbers += 1
            name = f"{base}.{self.queue_numbers}"
        self.work[base] = name
        self.specs[name] = spec
        self.book.declare(name, spec)
        self.life.vhost.declarations.declare_queue(
            name, spec.durable, None, False, self.profile.arguments(spec)
        )
        if base in self.profile.fanout:
            self.life.vhost.declarations.bind_queue(name, "amq.fanout", "", {})

    def new_wire(self) -> Wire:
        wire = Wire(Connection(self.scheduler), Line())
        wire.channels = [self.new_channel(wire) for _ in range(2)]
        return wire

    def new_channel(self, wire: Wire) -> Channel:
        return Channel(Session(wire.connection), Credit(), Talk(wire.line))

    def new_note(self, size: int, **fields: int | bool | None) -> Note:
        headers = group_headers(self.profile.groups, self.rng)
        note = Note(self.next_number(), size, headers=headers, **fields)  # type: ignore[arg-type]
        return self.book.new_note(note)

    def message(self, note: Note, route: Route) -> Message:
        """The message of a note, as its publisher sends it."""
        message = message_of(note, route)
        if note.until is not None:
            message.date = note.until + self.clock.offset
            message.marks |= DELAYED | BY_CLOCK if DELAY in note.headers else DELAYED
        return message

    # ---- events of the broker

    def view(self, message: Message, store: MessageStore) -> MessageView:
        """Return the broker's view of a message; a delayed message is read at its date."""
        if message.marks & DELAYED:
            view = delaying.released(self, message)
            if view is not None:
                return view
        return NoteView(message, store)

    def delivered(
        self, client: Client, consumer: QueueConsumer, entry: QueueEntry, getting: bool = False
    ) -> Held | None:
        """`consumer` is given `entry`."""
        self.deliveries += 1
        self.turns.catch_up()
        taker = client.takers[consumer]
        shelf = taker.queue
        self.book.revive(shelf)
        item = self.item(shelf, self.life.number(entry.message))
        checks.check_delivery(self.seen, shelf, taker, item, entry, self.clock.now, getting)
        self.seen("delivery: " + self.manner(taker, getting))
        if taker.browses:
            taker.shown.add(item.number)
        else:
            self.book.give(item, taker, shelf.spec.counts and not consumer.no_ack)
        if consumer.no_ack and not taker.browses:
            self.book.settle(shelf, item)
            return None
        client.charge(item.note.size)
        if client.forgets:
            client.restore_credit(item.note.size)
            return None
        held = Held(client, consumer, entry, item, self.deliveries)
        client.hold(held)
        return held

    def item(self, shelf: Shelf, number: int) -> Item:
        for item in shelf.items:
            if item.number == number:
                return item
        raise InvariantError("I1", f"message {number} is not in queue {shelf.name}")

    @staticmethod
    def manner(taker: Taker, getting: bool) -> str:
        if getting:
            return "got"
        if taker.waits:
            return "got after waiting"
        if taker.browses:
            return "browsed"
        return "no-ack" if taker.no_ack else "acquired"

    def woken(self, client: Client) -> None:
        """Record that `client` is notified."""
        checks.check_woken(self.seen, client)

    def drained(self, client: Client, consumer: QueueConsumer) -> None:
        """`consumer` looked for something and found nothing."""
        self.book.revive(client.takers[consumer].queue)
        checks.check_end(self.seen, client.takers[consumer], self.clock.now)

    def credit_restored(self, client: Client, count: int, size: int) -> None:
        """Record that `client` has the credit of `count` deliveries back."""
        self.turns.left(client, count, size)

    def on_leases_ended(self, ended: list[Held]) -> None:
        """Deliveries were kept too long."""
        for held in ended:
            check(self.seen, "L1", held.ends == self.clock.now, f"{held.ends} at {self.clock.now}")
            self.seen("lease: ended")
            self.give_back([held])

    def write_letter(self, message: Message, store: MessageStore, notice: Notice) -> DeadLetter:
        """A message has died."""
        number = self.life.number(message)
        self.turns.catch_up(number)
        self.follow_seized()
        note = self.book.notes[number].again(self.next_number())
        letter = self.book.letter(notice.queue, number, notice.reason, note)
        if number in self.redriven:
            self.seen("redrive: died again")
        if letter.waits:
            pass  # the broker finds that it does not arrive
        elif self.committing is None:
            self.book.append_letter(letter)
            self.book.post(letter)
        else:
            self.book.append_letter(letter)
            self.committing.append(letter)
            for shelf in letter.to:
                shelf.reserved.append(note.size)
        return DeadLetter(content_of(note), [], list(note.deaths), MessageView())

    def follow_seized(self) -> None:
        """Check that no consumer waits for room at a seized entry."""
        for shelf in self.book.shelves.values():
            target = self.book.shelves.get(shelf.spec.dead_letter or "")
            if shelf.is_seized() and target is not None:
                limits = self.queue_of(target).limits
                if limits is None or shelf.name not in room_waiters(limits):
                    target.sought.discard(shelf.name)

    def waiting(self, name: str) -> list[tuple[int, str]]:
        """The messages of a queue that wait to be dead-lettered, each with its reason."""
        backlog = existing_backlog(self.life.vhost.topology.queues[name])
        deaths = [] if backlog is None else backlog.deaths()
        return [(self.life.number(death.message), REASONS[death.reason]) for death in deaths]

    # ---- settling

    def give_back(self, helds: list[Held]) -> None:
        """Return deliveries of a single consumer, or forget those of a browser."""
        self.give_back_entries(helds)
        for held in helds:
            held.client.restore_credit(held.item.note.size)

    def give_back_entries(self, helds: list[Held]) -> None:
        """The same, but the windows do not know of it yet."""
        consumer = helds[0].consumer
        for held in helds:
            held.client.held.remove(held)
        if consumer.acquires:
            self.turns.give_back([helds])
            release_entries(queue_of(consumer), [held.entry for held in helds], consumer)
            self.turns.catch_up()

    # ---- queues that go

    def delete_queue(self, shelf: Shelf) -> None:
        """Clients learn of it in turns, if that takes several."""
        self.deleting = shelf
        self.turns.note("deleted")
        self.life.vhost.declarations.delete_queue(shelf.name, False, False)
        self.queue_deleted()

    def queue_deleted(self) -> None:
        """Remove the deleted queue from the model, after the items that leave before."""
        shelf, self.deleting = self.deleting, None
        if shelf is not None:
            self.turns.deleted(shelf)
            self.book.delete(shelf.name)
            shelf.deleted = True

    # ---- after every step

    def end_of_step(self) -> None:
        """Compare everything."""
        self.turns.come()
        self.book.end_of_step()
        self.follow_seized()
        for shelf in self.book.shelves.values():
            queue = self.queue_of(shelf)
            numbers = {entry: self.life.number(entry.message) for entry in queue.entries}
            check_structure(self.seen, shelf, queue, numbers, self.clock.now)
            check_dead(self.seen, shelf, queue, self.waiting(shelf.name))
            self.life.ledger.compare(self.seen, queue)
            delaying.check_waits(self, shelf, queue)
        for client in self.clients:
            self.turns.check_credit(client)
            if client.lease is not None:
                ends = [
                    held.ends for held in client.held if held.ends is not None and not held.in_transaction
                ]
                check(self.seen, "L1", all(end > self.clock.now for end in ends), "a lease is over")
        journal = self.book.journal
        if journal.position > self.marked:
            self.marked = journal.position
            self.life.log.wait(Mark(journal))

    def rest(self, budget: int) -> None:
        """Run all turns; then everything that can be delivered must have been."""
        self.scheduler.run(budget, turns_max=20_000)
        while self.turns.are_due():
            self.turns.advance(0)
            self.scheduler.run(budget, turns_max=20_000)
        self.book.end_of_step()
        for shelf in self.book.shelves.values():
            checks.check_rest(self.seen, shelf, self.queue_of(shelf), self.clock.now)
            check(self.seen, "Z3", not self.book.starved(shelf), f"{list(shelf.dead)[:1]} has room")
