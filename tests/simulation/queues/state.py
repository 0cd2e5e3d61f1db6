"""The state of a world: the broker and its clients beside the model, without what happens to them."""

from __future__ import annotations

import random

from broker.core.queues.queue import Queue
from tests.simulation.queues.book import Book
from tests.simulation.queues.clients import Client
from tests.simulation.queues.invariants import Seen
from tests.simulation.queues.life import Life
from tests.simulation.queues.model import Shelf
from tests.simulation.queues.profiles import Profile
from tests.simulation.sim_disk import SimDisk
from tests.support.core.hand_clock import HandClock


class WorldState:
    """`work`: the queues of the profile and their names now: one that is declared anew has a new one.

    `life`, `clients`: of the process that runs. `haste`: how often clients go on before what goes in slices
    has had all its turns. They always wait for what the model does at once: where a queue drops what is late
    or too much, or forgets what it remembers, and where more groups become free than can in one turn.
    """

    life: Life
    clients: list[Client]

    def __init__(self, profile: Profile, rng: random.Random, seen: Seen, haste: float = 0) -> None:
        self.profile = profile
        self.rng = rng
        self.seen = seen
        self.haste = haste
        self.clock = HandClock()
        self.disk = SimDisk(rng)
        self.book = Book(lambda: self.clock.now, seen)
        self.note_numbers = 0
        self.work: dict[str, str] = {}

    def shelf(self, base: str) -> Shelf:
        return self.book.shelves[self.work[base]]

    def queue_of(self, shelf: Shelf) -> Queue:
        return self.life.vhost.topology.queues[shelf.name]

    def next_number(self) -> int:
        """The number of a note."""
        self.note_numbers += 1
        return self.note_numbers
