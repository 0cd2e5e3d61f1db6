"""Shares of equal consumers and their wake-ups: F1 to F3, measured."""

from __future__ import annotations

import random

from broker.core.delivery.session import Connection, Session
from tests.simulation.queues.invariants import InvariantError
from tests.support.core.queue_bench import Client, QueueBench

NAMES = {
    "F1": "equal consumers get equal shares",
    "F2": "everybody is served after finitely many",
    "F3": "nobody is woken more often than something arrives, and few are woken for nothing",
}
CONSUMERS = 100
WINDOW = 1_000  # messages for each consumer
STRIDE = 5_000  # so far apart are the windows that are looked at
EMPTY_MAX = 0.1  # wake-ups for nothing, for each arrival


def check(name: str, holds: bool, text: str) -> None:
    if not holds:
        raise InvariantError(name, f"{NAMES[name]}: {text}")


def jain(counts: list[int]) -> float:
    """Return 1 if all counts are equal, 1/n if a single one has all. [Jain, Chiu and Hawe, DEC-TR-301]"""
    return sum(counts) ** 2 / (len(counts) * sum(count * count for count in counts))


class Worker(Client):
    """A consumer that records its deliveries, and settles them when it is called."""

    def __init__(
        self, bench: QueueBench, served: list[int], number: int, prefetch: int, connection: Connection | None
    ) -> None:
        self.served = served
        self.number = number
        session = None if connection is None else Session(connection)
        super().__init__(bench.queue, bench.scheduler, prefetch, session=session)

    def deliver(self, consumer: object, entry: object) -> None:
        self.served.append(self.number)
        self.held.append(entry)  # type: ignore[arg-type]

    def settle_all(self) -> None:
        held, self.held = self.held, []
        for entry in held:
            self.queue.settle(entry)
            self.restore_credit(entry.message.size)


class Fair:
    """Equal consumers of one queue, and in which order they were served.

    The first `shared` of them are channels of one connection. The others have connections of their own.
    """

    def __init__(self, consumers: int, prefetch: int, shared: int = 0) -> None:
        self.bench = QueueBench()
        self.served: list[int] = []
        connection = Connection(self.bench.scheduler)
        self.workers = [
            Worker(self.bench, self.served, n, prefetch, connection if n < shared else None)
            for n in range(consumers)
        ]

    def publish(self, count: int) -> None:
        self.bench.publish(count)

    def turns(self, budget: int = 16) -> None:
        """Run all turns and settle all deliveries, until nothing is left."""
        while self.bench.scheduler.ready:
            self.bench.run(budget)
            for worker in self.workers:
                if worker.held:
                    worker.settle_all()

    def check_shares(self, window: int, least: float) -> None:
        """F1 in every window of so many deliveries for each consumer."""
        length = window * len(self.workers)
        check("F1", len(self.served) >= length, f"{len(self.served)} deliveries are too few to tell")
        for start in range(0, len(self.served) - length + 1, STRIDE):
            counts = [0] * len(self.workers)
            for number in self.served[start : start + length]:
                counts[number] += 1
            index = jain(counts)
            check("F1", index >= least, f"Jain's index is {index:.4f} from delivery {start} on")

    def check_gaps(self, most: int) -> None:
        """F2: nobody waits for more than `most` deliveries to others."""
        last = dict.fromkeys(range(len(self.workers)), 0)
        for at, number in enumerate(self.served):
            check("F2", at - last[number] <= most, f"{number} waited {at - last[number]} deliveries")
            last[number] = at

    def check_wakeups(self) -> None:
        """F3: every wake-up was caused by an arrival, and few were for nothing."""
        counters, manager = self.bench.counters, self.bench.queue.manager
        arrivals, empty = int(counters.made_ready), int(manager.empty_wakeups)
        check("F3", manager.wakeups <= arrivals, f"{arrivals} arrivals, {manager.wakeups} wake-ups")
        check("F3", empty <= EMPTY_MAX * arrivals, f"{arrivals} arrivals, {empty} in vain")


def singles(messages: int, consumers: int = CONSUMERS) -> Fair:
    """Publish messages one by one to idle consumers."""
    fair = Fair(consumers, 0)
    for _ in range(messages):
        fair.publish(1)
        fair.turns()
    return fair


def steady(messages: int, prefetch: int, consumers: int = CONSUMERS, shared: int = 0) -> Fair:
    """Publish an endless backlog to consumers that settle their deliveries."""
    fair = Fair(consumers, prefetch, shared)
    while len(fair.served) < messages:
        fair.publish(5 * consumers)
        fair.turns()
    return fair


def bursts(messages: int, seed: int, consumers: int = CONSUMERS, prefetch: int = 10, shared: int = 0) -> Fair:
    """Bursts of any size, to consumers whose turns are of any length."""
    fair, rng = Fair(consumers, prefetch, shared), random.Random(seed)
    while len(fair.served) < messages:
        fair.publish(rng.choice((1, 3, 20, 300, 1500)))
        fair.turns(rng.choice((1, 4, 16, 64)))
    return fair
