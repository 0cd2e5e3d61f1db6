"""Transactions in the life of a log: publishes and settlements of several queues that share a fate."""

from broker.core.message import Message
from broker.core.ports import DurableWaiter
from tests.simulation.store_deaths import Deaths
from tests.simulation.store_model import Event, published
from tests.simulation.store_state import WorkState
from tests.support.store.hand_log import logged_queue

SETTLES_MAX = 4
PUBLISHES_MAX = 4


class Transaction(DurableWaiter):
    """Appended at once; done in memory, as the core does it, when its batch is durable."""

    def __init__(self, work: WorkState, deaths: Deaths) -> None:
        self.work = work
        self.deaths = deaths
        self.log = work.log
        self.published: list[tuple[int, Message, list[int]]] = []
        self.settled: list[tuple[int, Message, int]] = []

    def append(self) -> None:
        """Choose the parts of a transaction, append it, and wait."""
        work = self.work
        rng, log, model = work.rng, self.log, work.model
        batch = log.batch
        for _ in range(0 if log.failure else rng.randrange(PUBLISHES_MAX)):
            chosen = rng.sample(sorted(work.queues), rng.randrange(1, len(work.queues) + 1))
            message = work.new_message()
            log.append_message(message, [work.queues[number] for number in chosen])
            model.add(batch, published(message, chosen, work.load(message)))
            self.published.append((work.next_message - 1, message, chosen))
        free = [
            (key, number)
            for key, (_, queues) in work.held.items()
            for number in queues
            if (key, number) not in work.reserved
        ]
        for key, number in rng.sample(free, min(len(free), rng.randrange(SETTLES_MAX))):
            message = work.held[key][0]
            work.reserved.add((key, number))
            self.settled.append((key, message, number))
            origin = self.deaths.origins.get(key)
            if message.sequence > 0:
                model.add(batch, Event("transacted", message.sequence, (number,)))
            elif origin is not None:
                self.deaths.look(origin)
            if message.sequence != 0:
                log.append_transacted_settle(message, work.queues[number])
        assert log.batch == batch
        log.wait(self)

    def on_durable(self, batch: int) -> None:
        """Do it."""
        work = self.work
        for key, message, chosen in self.published:
            alive = {number for number in chosen if number in work.queues}
            for number in chosen:
                if number not in alive:
                    self.log.forget(message, logged_queue(number))
            if alive:
                work.held[key] = (message, alive)
        for key, message, number in self.settled:
            if (key, number) in work.reserved:  # else the queue was deleted
                work.let_go(key, number)
                self.log.append_settle(message, work.queues[number])

    def on_store_failed(self, reason: str) -> None:
        """Do nothing, and let others settle."""
        for key, _, number in self.settled:
            self.work.reserved.discard((key, number))
            origin = self.deaths.origins.get(key)
            if origin is not None:
                origin.leaving = False
