"""Transactions: publishes and settlements in a single step."""

from __future__ import annotations

from broker.core.errors import PreconditionFailed
from broker.core.publishing.publisher import DUPLICATE, ROUTED, Outcome, Publisher
from broker.core.routing.graph import Route
from broker.core.transactions.transaction import DISCARD, RELEASE, REMOVE, SETTLE, HeldPublish, Transaction
from tests.simulation.queues.book import Letter
from tests.simulation.queues.clients import Held
from tests.simulation.queues.invariants import InvariantError, check
from tests.simulation.queues.model import REJECTED, Shelf
from tests.simulation.queues.notes import Note
from tests.simulation.queues.publishing import check_outcome, draft, refuses_all
from tests.simulation.queues.remembering import strangers
from tests.simulation.queues.turns import AT_ONCE
from tests.simulation.queues.world import World


class Job:
    """The model of a transaction. `own`: of an operator, without deduplication."""

    def __init__(self, world: World, own: bool = False) -> None:
        self.world = world
        self.own = own
        self.puts: list[tuple[Note, list[Shelf]]] = []
        self.settlements: list[tuple[Held, int]] = []
        self.letters: list[Letter] = []
        self.dead: list[tuple[Shelf, int]] = []  # waiting dead letters that are taken away
        self.doubt = 0  # so far the log must be on disk for what was known before

    def is_large(self) -> bool:
        """Whether the settlements take several turns, so that the job does nothing else."""
        return sum(outcome == SETTLE for _, outcome in self.settlements) > AT_ONCE

    def unreserve(self, note: Note, shelves: list[Shelf]) -> None:
        for shelf in shelves:
            if note.until is None:  # a delayed message needs no room before its date
                shelf.reserved.remove(note.size)
            if not self.own:
                shelf.recall.coming.remove(note)

    def put(self, note: Note, shelves: list[Shelf]) -> None:
        self.unreserve(note, shelves)
        for shelf in shelves:
            if self.world.book.shelves.get(shelf.name) is shelf:
                self.world.book.accept(note, shelf)
                if not self.own:
                    shelf.recall.keep(note, note.persistent and shelf.spec.logged)

    def settle(self) -> None:
        """Settle all at once, before the broker does: nothing is delivered meanwhile."""
        book = self.world.book
        for held, _ in self.settlements:
            if held in held.client.lost:
                held.client.lost.remove(held)
        if self.is_large():
            for held, _ in self.settlements:
                if held in held.client.held:
                    held.client.held.remove(held)
            self.world.turns.settle([held for held, _ in self.settlements])
            return
        valid = [(held, outcome) for held, outcome in self.settlements if held in held.client.held]
        for held, outcome in valid:
            held.client.held.remove(held)
            if held.shelf.deleted:
                continue
            if outcome == SETTLE:
                book.settle(held.shelf, held.item)
            elif outcome == REMOVE:
                self.world.seen("entry: out to taken away")
                book.remove(held.shelf, held.item)
            elif outcome == DISCARD:
                self.world.seen("entry: out to rejected")
                book.remove(held.shelf, held.item)
        for letter in self.letters:
            for shelf in letter.to:
                shelf.reserved.remove(letter.note.size)
            book.post(letter)
        self._bury()
        returned = [held for held, outcome in valid if outcome == RELEASE]
        for consumer in dict.fromkeys(held.consumer for held in returned):
            self.world.turns.give_back([[held for held in returned if held.consumer is consumer]])

    def _bury(self) -> None:
        """A message that waited to be dead-lettered is taken away."""
        for shelf, number in self.dead:
            if number in shelf.dead:
                self.world.seen("entry: dead to taken away")
                self.world.book.bury(shelf, number)


class Sending(HeldPublish):
    """A publish in a transaction."""

    def __init__(self, job: Job, note: Note, shelves: list[Shelf], route: Route, last: bool) -> None:
        super().__init__(route, job.world.message(note, route), [], False)
        self.job = job
        self.note = note
        self.shelves = shelves
        self.last = last

    def put(self, publisher: Publisher) -> Outcome:
        self.job.put(self.note, self.shelves)
        outcome = super().put(publisher)
        for shelf in self.shelves:
            if self.job.world.book.shelves.get(shelf.name) is shelf:
                self.job.world.book.tidy(shelf)
        if self.last:
            self.job.settle()
        return outcome

    def report_outcome(self, outcome: Outcome) -> None:
        check_outcome(self.job.world, self.note, outcome, ROUTED if self.shelves else DUPLICATE)


class Commit(Transaction):
    """A transaction that tells the world when it has happened."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.world.life.vhost.publisher)
        self.job = job

    def on_durable(self, batch: int) -> None:
        self.job.world.committing = None
        if not self.job.puts:
            self.job.settle()
        super().on_durable(batch)

    def on_committed(self) -> None:
        world = self.job.world
        world.seen("transaction: committed")
        world.pending.remove(self)
        on_disk = self.job.doubt <= world.book.journal.durable
        check(world.seen, "U3", on_disk, "a duplicate is confirmed too early")

    def on_commit_failed(self, reason: str) -> None:
        raise AssertionError(reason)


def transact(world: World, picked: list[Held]) -> None:
    """Publish and settle in a single step."""
    rng, book, job = world.rng, world.book, Job(world)
    commit = Commit(job)
    drafts = [draft(world) for _ in range(rng.randrange(4))]
    refused = False
    for number, (note, everywhere, route) in enumerate(drafts, 1):
        shelves = strangers(world, note, everywhere)
        job.doubt = max([job.doubt, *doubts(note, everywhere, shelves)])
        is_full = note.until is None and any(shelf.refuses(note.size) for shelf in shelves)
        refused = refused or refuses_all(shelves) or is_full
        commit.publishes.append(Sending(job, note, shelves, route, number == len(drafts)))
        job.puts.append((note, shelves))
        for shelf in shelves:
            if note.until is None:
                shelf.reserved.append(note.size)
            shelf.recall.coming.append(note)
    outcomes = [SETTLE, DISCARD if rng.random() < 0.5 else RELEASE]
    if any(held.shelf.spec.sure for held in picked):
        outcomes = [SETTLE, RELEASE]
    chosen: list[int] = []
    for held in picked:
        chosen.append(rng.choice(outcomes))
        if chosen[-1] == DISCARD and not arrives_at_once(world, held.shelf):
            outcomes.remove(DISCARD)  # a single one at most: letters arrive one by one
    if chosen.count(SETTLE) > AT_ONCE:
        chosen = [SETTLE] * len(picked)
    for held, outcome in zip(picked, chosen, strict=True):
        job.settlements.append((held, outcome))
        commit.hold_settlement(held.number, held.entry, held.consumer, outcome)
    if refused:
        try:
            commit.commit()
        except PreconditionFailed:
            world.seen("transaction: refused")
            for note, shelves in job.puts:
                job.unreserve(note, shelves)
            return
        raise InvariantError("I1", "a transaction is not refused")
    added, removed = note_commit(job)
    world.committing = job.letters
    world.pending.append(commit)
    try:
        commit.commit()
    finally:
        world.committing = None
    for letter in job.letters:
        added += [(to.name, letter.note.number) for to in letter.to]
    logged = book.journal.added
    book.journal.bind([key for key in added if key in logged], [key for key in removed if key in logged])


def arrives_at_once(world: World, shelf: Shelf) -> bool:
    """Whether dead letters of a queue push nothing out at their destination: then several may die at once."""
    target = world.book.shelves.get(shelf.spec.dead_letter or "")
    return target is None or (target.spec.max_length is None and target.spec.max_bytes is None)


def doubts(note: Note, everywhere: list[Shelf], left: list[Shelf]) -> list[int]:
    """Return the log positions that must be on disk before other queues report `note` as a duplicate."""
    had = [shelf for shelf in everywhere if shelf not in left and shelf.spec.logged]
    return [shelf.recall.in_doubt(note) for shelf in had if note.persistent]


def note_commit(job: Job) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Record the commit in the journal: the added and the removed keys."""
    book = job.world.book
    added, removed = [], []
    for note, shelves in job.puts:
        book.append(note, shelves)
        for shelf in shelves:
            if note.persistent and shelf.spec.logged and not job.own:
                shelf.recall.append(note)
        added += [(shelf.name, note.number) for shelf in shelves]
    for held, outcome in job.settlements:
        held.in_transaction = True
        key = (held.shelf.name, held.item.number)
        if outcome != RELEASE:
            book.journal.remove(key)
            removed.append(key)
        if outcome == DISCARD and held.there and held.shelf.spec.dead_letter is not None:
            book.dying[key] = REJECTED
    for shelf, number in job.dead:
        key = (shelf.name, number)
        book.journal.remove(key)
        removed.append(key)
    return added, removed


def finish(world: World) -> None:
    """Transactions that wait for the disk happen now."""
    if world.pending:
        world.life.sync()
    if world.pending:
        world.turns.advance(0)
    assert not world.pending
