"""Time, space and death as a state machine that Hypothesis explores, beside a model of each message.

A message is ready, with a client, settled, or in the queue of the dead; nothing is delivered after its time;
no more is ready than may be; and what was too much was the oldest of the lowest priority.
"""

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.core.entries.entry import AVAILABLE, QueueEntry
from broker.core.message import NEVER
from broker.core.publishing.publisher import REFUSED
from broker.core.queues import limits
from tests.support.core.purge import purge
from tests.support.core.queue_bench import Client, number_of
from tests.support.core.timed_vhost import VhostBench, numbers
from tests.support.effort import cases

READY, OUT, GONE, DEAD = "ready", "out", "gone", "dead"

times = st.sampled_from([NEVER, NEVER, 0, 1, 10, 30])
which = st.integers(0, 7)


@dataclass
class Item:
    """The model's knowledge of a message."""

    number: int
    priority: int
    size: int
    due: int | None
    state: str = READY


class RulesMachine(RuleBasedStateMachine):
    """A queue with rules, its dead letters, and clients."""

    @initialize(
        levels=st.sampled_from([0, 2]),
        ttl=st.sampled_from([None, None, 0, 20]),
        length=st.sampled_from([None, None, 0, 1, 4]),
        size=st.sampled_from([None, None, 0, 9]),
        overflow=st.sampled_from(["drop-head", "drop-head", "reject-publish", "reject-publish-dlx"]),
    )
    def start(
        self, levels: int, ttl: int | None, length: int | None, size: int | None, overflow: str
    ) -> None:
        self.bench = VhostBench()
        held: dict[str, object] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        if levels:
            held["x-max-priority"] = levels
        self.queue = self.bench.vhost.declarations.declare_queue("q", False, None, False, held)
        self.dead = self.bench.queue("dead")
        self.items: dict[int, Item] = {}
        self.clients: list[Client] = []
        self.levels = levels
        self.limit(ttl, length, size, overflow)

    def limit(self, ttl: int | None, length: int | None, size: int | None, overflow: str) -> None:
        given = {"x-message-ttl": ttl, "x-max-length": length, "x-max-length-bytes": size}
        held = {name: value for name, value in given.items() if value is not None}
        self.queue.effective = {**self.queue.arguments, **held, "x-overflow": overflow}
        limits.apply(self.queue, self.bench.vhost)
        self.ttl, self.length, self.size, self.drops = ttl, length, size, overflow == "drop-head"
        self.overflow = overflow
        self.bench.clock.advance(0)
        self.look()

    # ---- operations

    @rule(priority=st.integers(0, 3), size=st.sampled_from([0, 1, 4, 12]), expiration=times)
    def publish(self, priority: int, size: int, expiration: int) -> None:
        waits = [time for time in (self.ttl, expiration) if time is not None and time != NEVER]
        full = not self.drops and (
            (self.length is not None and self.queue.ready >= self.length)
            or (self.size is not None and self.queue.ready_bytes + size > self.size)
        )
        number = self.bench.published + 1
        due = self.bench.clock.now + min(waits) if waits else None
        self.items[number] = Item(number, min(priority, self.levels), size, due)
        answer = self.bench.publish(expiration=expiration, priority=priority, size=size)
        assert (answer == REFUSED) == full, "refused if and only if it was one too many"
        if full and self.overflow == "reject-publish":
            self.items[number].state = GONE
        self.look()

    @rule(prefetch=st.integers(1, 3))
    def consume(self, prefetch: int) -> None:
        if len(self.clients) < 3:
            self.clients.append(self.bench.client(self.queue, prefetch=prefetch))

    @rule(milliseconds=st.sampled_from([0, 1, 5, 20]), rings=st.booleans())
    def pass_time(self, milliseconds: int, rings: bool) -> None:
        if rings:
            self.bench.clock.advance(milliseconds)
            late = [i for i in self.items.values() if i.state == READY and self.is_late(i)]
            assert not ({i.number for i in late} & self.ready()), "an alarm that rings leaves nothing"
        else:
            self.bench.clock.now += milliseconds  # the alarm is late
        self.look()

    @precondition(lambda self: self.clients)
    @rule()
    def run_turns(self) -> None:
        before = {id(client): len(client.deliveries) for client in self.clients}
        self.bench.run()
        for client in self.clients:
            for entry in client.deliveries[before[id(client)] :]:
                item = self.items[number_of(entry)]
                assert not self.is_late(item), "delivered late"
        self.look()
        wanting = [client for client in self.clients if client.desired]
        assert not wanting or not self.queue.ready, "somebody could have had it"

    @precondition(lambda self: self.clients)
    @rule(client=which, what=st.sampled_from(["ack", "nack", "reject"]), first=which)
    def settle(self, client: int, what: str, first: int) -> None:
        chosen = self.clients[client % len(self.clients)]
        if not chosen.held:
            return
        number = number_of(chosen.held[first % len(chosen.held)])
        getattr(chosen, what)(number)
        self.items[number].state = {"ack": GONE, "nack": READY, "reject": DEAD}[what]
        self.look()

    @precondition(lambda self: self.clients)
    @rule(client=which)
    def vanish(self, client: int) -> None:
        lost = self.clients.pop(client % len(self.clients))
        for entry in lost.held:
            self.items[number_of(entry)].state = READY
        lost.vanish()
        self.look()

    @rule()
    def purge(self) -> None:
        for number in self.ready():
            self.items[number].state = GONE
        purge(self.queue)
        self.look()

    # ---- invariants

    def is_late(self, item: Item) -> bool:
        return item.due is not None and item.due <= self.bench.clock.now

    def entries(self) -> list[QueueEntry]:
        return list(self.queue.entries)

    def ready(self) -> set[int]:
        return {number_of(entry) for entry in self.entries() if entry.state == AVAILABLE}

    def look(self) -> None:
        """Follow deaths and deliveries, and check that each was right."""
        ready = self.ready()
        held = {number_of(entry) for client in self.clients for entry in client.held}
        dead = set(numbers(self.dead))
        for item in self.items.values():
            if item.state not in (READY, OUT):
                continue
            if item.number in held:
                item.state = OUT
            elif item.number in dead:
                if not self.is_late(item) and self.drops:
                    better = [self.items[n] for n in ready if self.items[n].priority < item.priority]
                    older = [n for n in ready if self.items[n].priority == item.priority and n < item.number]
                    assert not better, "one of a lower priority would have had to go"
                    assert not older, "an older one would have had to go"
                item.state = DEAD
            else:
                item.state = READY

    @invariant()
    def everything_is_somewhere(self) -> None:
        if not hasattr(self, "items"):
            return
        states: dict[str, set[int]] = {READY: set(), OUT: set(), GONE: set(), DEAD: set()}
        for item in self.items.values():
            states[item.state].add(item.number)
        assert self.ready() == states[READY]
        assert set(numbers(self.dead)) == states[DEAD]
        assert len(numbers(self.dead)) == len(states[DEAD]), "nobody dies twice"
        assert {number_of(entry) for client in self.clients for entry in client.held} == states[OUT]
        sizes = [self.items[number].size for number in states[READY]]
        assert (self.queue.ready, self.queue.ready_bytes) == (len(sizes), sum(sizes))
        if self.drops:
            assert self.length is None or self.queue.ready <= self.length
            assert self.size is None or self.queue.ready_bytes <= self.size

    @invariant()
    def timers_run_for_what_is_ready(self) -> None:
        if hasattr(self, "queue"):
            assert self.queue.limits is not None
            timed = [entry for entry in self.entries() if entry.timer is not None]
            running = [entry for entry in timed if entry.state == AVAILABLE]
            assert self.queue.limits.timers.count == len(running)
            for entry in timed:
                assert entry.timer is not None
                assert entry.timer.due == self.items[number_of(entry)].due
                assert (entry.timer.entry is entry) == (entry.state == AVAILABLE)

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.bench.vhost.declarations.delete_queue("q", False, False)
            self.bench.clock.advance(100)


TestRulesMachine = RulesMachine.TestCase
TestRulesMachine.settings = settings(
    max_examples=cases(150),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
