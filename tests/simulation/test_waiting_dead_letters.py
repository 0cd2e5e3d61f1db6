"""Random histories of queues that dead-letter at least once: none is lost, counts are right, order is kept.

What must hold is known here from what was done alone, by the numbers of messages. Each mutant of the broker
breaks one rule, and must be found.
"""

import random
from collections.abc import Callable

import pytest

from broker.core.publishing.dead_letters import DeadLetters
from broker.core.publishing.publisher import REFUSED, ROUTED
from broker.core.queues.dead_letter_backlog import (
    RETRY_MS,
    SOON_MS,
    DeadLetterBacklog,
    Lane,
    existing_backlog,
)
from broker.core.queues.death import FULL
from broker.core.queues.limits import Limits
from broker.core.queues.queue import Queue
from broker.flavour import FLAVOUR
from tests.support.core.queue_bench import Client
from tests.support.core.timed_vhost import VhostBench, numbers

SEEDS = range(12)
STEPS = 150
SOURCES = ("a", "b", "c", "d")
TARGETS = ("narrow", "far", "between", "last")
EXCHANGE = "comes"


class World:
    """Queues, the operations on them, and the expected place of every message."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bench = VhostBench()
        self.alive: set[int] = set()  # published, and neither consumed nor dropped by anybody
        self.died: dict[str, list[int]] = {name: [] for name in SOURCES}  # in their order
        self.came: dict[str, list[int]] = {name: [] for name in SOURCES}
        self.home: dict[int, str] = {}
        self.declare_targets()
        for name, to in zip(SOURCES, ("narrow", "narrow", "far", "between"), strict=True):
            self.bench.queue(
                name,
                dead_letter_exchange=EXCHANGE if to == "far" else "",
                dead_letter_routing_key=to,
                dead_letter_strategy="at-least-once",
                max_length=8,
                overflow="reject-publish",
                message_ttl=50,
                delivery_limit=1,
            )
        self.clients: list[Client] = []

    def declare_targets(self) -> None:
        """Declare the targets that are not there."""
        limits = {"narrow": 2, "last": 2}
        for name in TARGETS:
            if name in self.bench.vhost.topology.queues:
                continue
            if name == "between":
                self.bench.queue(
                    name,
                    max_length=1,
                    overflow="reject-publish-dlx",
                    dead_letter_exchange="",
                    dead_letter_routing_key="last",
                )
            else:
                self.bench.queue(name, max_length=limits.get(name, 3), overflow="reject-publish")

    def queue(self, name: str) -> Queue | None:
        return self.bench.vhost.topology.queues.get(name)

    # ---- steps

    def step(self) -> None:
        """Do anything."""
        chosen = self.random.choices(
            (self.publish, self.refuse, self.consume, self.wait, self.route, self.purge, self.delete),
            (8, 6, 6, 4, 2, 0.3, 0.5),
        )
        chosen[0]()
        self.bench.clock.advance(0)
        self.bench.run()
        self.check()

    def publish(self) -> None:
        self.publish_to(self.random.choice((*SOURCES, *SOURCES, *TARGETS)))

    def publish_to(self, name: str) -> None:
        """Publish a message to a queue, if it is there."""
        queue = self.queue(name)
        if queue is None:
            return
        sought = queue.limits is not None and bool(queue.limits.room_waiters)
        outcome = self.bench.publish(name)
        number = self.bench.published
        assert outcome in (ROUTED, REFUSED)
        if outcome is ROUTED:
            assert not sought, "a publisher takes the room for which dead letters wait"
            self.alive.add(number)
            self.home[number] = name
        elif name == "between" and any(
            number in numbers(found) for found in self.bench.vhost.topology.queues.values()
        ):
            self.alive.add(number)  # refused, and its dead letter has arrived
            self.home[number] = name

    def refuse(self) -> None:
        """A client gets some and rejects them, gives them back, or goes."""
        queue = self.queue(self.random.choice(SOURCES))
        assert queue is not None
        client = self.bench.client(queue, self.random.choice((1, 3)))
        self.bench.run()
        if client.numbers:
            self.random.choice((client.reject, client.nack))(*client.numbers)
        self.bench.run()
        client.vanish()

    def consume(self) -> None:
        """Settle the deliveries of a client."""
        queue = self.queue(self.random.choice(TARGETS))
        if queue is None:
            return
        client = self.bench.client(queue, self.random.choice((1, 2)))
        self.bench.run()
        for number in list(client.numbers):
            self.consumed(number)
        client.ack(*client.numbers)
        client.cancel()
        if self.random.random() < 0.5:  # publish before the waiting messages are served
            self.publish_to(queue.name)

    def consumed(self, number: int) -> None:
        self.alive.discard(number)
        if self.home[number] in self.came:
            self.came[self.home[number]].append(number)

    def wait(self) -> None:
        self.bench.clock.advance(self.random.choice((1, 10, 60, RETRY_MS)))

    def route(self) -> None:
        """The exchange and its binding come and go."""
        vhost = self.bench.vhost
        if EXCHANGE not in vhost.topology.exchanges:
            vhost.declarations.declare_exchange(EXCHANGE, "direct", False, False, False, {})
        elif self.queue("far") is not None and self.random.random() < 0.6:
            vhost.declarations.bind_queue("far", EXCHANGE, "far", {})
        else:
            vhost.declarations.delete_exchange(EXCHANGE, False)
        self.bench.clock.advance(SOON_MS)

    def purge(self) -> None:
        name = self.random.choice(SOURCES)
        queue = self.queue(name)
        assert queue is not None
        gone = {*numbers(queue), *waiting(queue)}
        self.bench.vhost.declarations.purge_queue(name)
        self.alive -= gone
        self.died[name] = [number for number in self.died[name] if number not in gone]

    def delete(self) -> None:
        """Delete a target with its messages, or declare the missing targets."""
        queue = self.queue(self.random.choice(TARGETS))
        if queue is None or self.random.random() < 0.5:
            self.declare_targets()
        else:
            gone = set(numbers(queue))
            self.bench.vhost.declarations.delete_queue(queue.name, False, False)
            self.alive -= gone
            for died in self.died.values():
                died[:] = [number for number in died if number not in gone]
        self.bench.clock.advance(SOON_MS)

    # ---- invariants

    def check(self) -> None:
        """Check that each message is in a single place, and that all counts are right."""
        places: list[int] = []
        for queue in self.bench.vhost.topology.queues.values():
            dead = waiting(queue)
            places += [*numbers(queue), *dead]
            assert (queue.dead, queue.dead_bytes) == (len(dead), len(dead)), "counts of what waits"
            assert queue.messages == len(numbers(queue)) + len(dead)
            assert (queue in self.queues_with_backlogs()) is bool(dead)
            limits = queue.limits
            assert limits is not None
            assert (limits.reserved, limits.reserved_bytes) == (0, 0), "room that nobody uses"
            assert bool(queue.waiters) == bool(limits.room_waiters), "who is told of room"
            lacking = queue.ready + queue.dead >= limits.max_length
            assert lacking or not limits.room_waiters, (
                f"there is room in {queue.name}, and dead letters wait for it"
            )
            for name in SOURCES:  # deaths are noticed where they wait, or have arrived
                for number in dead if name == queue.name else ():
                    if number not in self.died[name]:
                        self.died[name].append(number)
        assert len(places) == len(set(places)), "none is in two places"
        assert set(places) == self.alive, f"lost {self.alive - set(places)}, there {set(places) - self.alive}"
        assert [name for name in self.bench.dropped() if not name.startswith("maxlen")] == []

    def queues_with_backlogs(self) -> list[Queue]:
        """The queues whose messages are tried again when routes change."""
        queues: list[Queue] = []
        for backlog in self.bench.vhost.dead_letters.backlogs:
            assert isinstance(backlog, DeadLetterBacklog)
            queues.append(backlog.queue)
        return queues

    def finish(self) -> None:
        """Open all ways: all messages arrive, in order."""
        vhost = self.bench.vhost
        self.declare_targets()
        if EXCHANGE not in vhost.topology.exchanges:
            vhost.declarations.declare_exchange(EXCHANGE, "direct", False, False, False, {})
        vhost.declarations.bind_queue("far", EXCHANGE, "far", {})
        for _ in range(1000):
            if not self.alive:
                break
            self.bench.clock.advance(SOON_MS)
            for name in TARGETS:
                queue = vhost.topology.queues[name]
                client = self.bench.client(queue, 1)
                self.bench.run()
                for number in list(client.numbers):
                    self.consumed(number)
                client.ack(*client.numbers)
                client.cancel()
        assert not self.alive, "all have come"
        for name in SOURCES[:3]:  # messages by way of another queue may overtake
            waited = [number for number in self.came[name] if number in set(self.died[name])]
            wanted = [number for number in self.died[name] if number in set(waited)]
            assert waited == wanted, f"those that waited in {name} come in the order in which they died"
        for queue in vhost.topology.queues.values():
            assert (queue.messages, queue.waiters) == (0, {})
            assert queue.limits is not None
            assert not queue.limits.room_waiters


def waiting(queue: Queue) -> list[int]:
    """The numbers of the messages that wait to be dead-lettered."""
    backlog = existing_backlog(queue)
    return [] if backlog is None else [int(death.message.content or b"") for death in backlog.deaths()]


def run(seed: int) -> int:
    """Run a history; returns how many messages waited in it."""
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.finish()
    return sum(len(died) for died in world.died.values())


def run_all() -> int:
    """Run all histories; return the number of waiting messages."""
    return sum(run(seed) for seed in SEEDS)


def test_random_histories() -> None:
    waited = run_all()
    assert waited > 10 * len(SEEDS), "much of what dies has to wait"


# ---- mutants


def drops_what_does_not_arrive(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "sure", property(lambda _: False, lambda *_: None), raising=False)


def forgets_a_count(patch: pytest.MonkeyPatch) -> None:
    tries = DeadLetterBacklog._try

    def wrong(self: DeadLetterBacklog, death: object) -> bool:
        went = tries(self, death)  # type: ignore[arg-type]
        if not went:
            self.queue.dead -= 1
        return went

    patch.setattr(DeadLetterBacklog, "_try", wrong)


def tells_nobody_of_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "on_room_made", lambda _: None)


def lets_publishers_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "refuses", Limits.lacks_room)


def overtakes_those_that_wait(patch: pytest.MonkeyPatch) -> None:
    def add_first(self: DeadLetterBacklog, death: object, full: list[Limits], notified: bool = False) -> None:
        adds(self, death, full, notified)  # type: ignore[arg-type]
        for lane in self._lanes.values():
            lane.deaths.move_to_end(next(reversed(lane.deaths)), last=False)

    adds = DeadLetterBacklog.add
    patch.setattr(DeadLetterBacklog, "add", add_first)


def puts_it_in_both_places(patch: pytest.MonkeyPatch) -> None:
    def send(self: DeadLetters, death: object) -> None:
        chain = self.plan_chain(death, False)  # type: ignore[arg-type]
        failed = chain[0].failure == FULL
        self._complete(chain)
        if failed or chain[0].number % 2 == 0:
            self.wait(chain[0], [])

    patch.setattr(DeadLetters, "_send", send)


def goes_on_seeking(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lane, "stop_waiting", lambda _: [])


def does_not_count_what_waits(patch: pytest.MonkeyPatch) -> None:
    def take(self: DeadLetterBacklog, death: object) -> None:
        self.queue.dead_bytes -= 1

    patch.setattr(DeadLetterBacklog, "_forget", take)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    function.__name__: function
    for function in (
        drops_what_does_not_arrive,
        forgets_a_count,
        tells_nobody_of_room,
        lets_publishers_in,
        overtakes_those_that_wait,
        puts_it_in_both_places,
        goes_on_seeking,
        does_not_count_what_waits,
    )
}


@pytest.mark.skipif(FLAVOUR == "compiled", reason="what is compiled cannot be changed")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    with pytest.raises((AssertionError, KeyError, IndexError)):
        run_all()
