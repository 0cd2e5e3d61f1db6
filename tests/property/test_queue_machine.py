"""The queue core as a state machine, explored and shrunk by Hypothesis, beside a list model."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.core.message import NEVER
from tests.property.queue_checks import check_structure
from tests.property.queue_rules import SERVINGS
from tests.property.queue_world import World
from tests.support.effort import cases

some = st.integers(0, 11)
sizes = st.sampled_from([1, 3, 7, 30])
counts = st.sampled_from([0, 1, 2, 5])
windows = st.sampled_from([0, 4, 10])
expirations = st.sampled_from([NEVER, NEVER, 5, 20])


class QueueMachine(RuleBasedStateMachine):
    """Every rule is an operation of `World`, which compares each delivery with its model."""

    world: World

    @initialize(
        levels=st.sampled_from([1, 3]),
        queues=st.integers(1, 2),
        scan=st.sampled_from([1, 5000]),
        serving=st.sampled_from(SERVINGS),
        ttl=st.sampled_from([None, NEVER, 15]),
    )
    def start(self, levels: int, queues: int, scan: int, serving: str, ttl: int | None) -> None:
        self.world = World(levels, queues, scan, serving, ttl=ttl)

    @rule(
        queue=some, size=sizes, priority=st.integers(0, 3), copies=st.integers(1, 4), expiration=expirations
    )
    def publish(self, queue: int, size: int, priority: int, copies: int, expiration: int) -> None:
        for _ in range(copies):
            self.world.publish(queue, size, priority, expiration)

    @rule(queue=some, size=sizes, priority=st.integers(0, 2), expiration=expirations)
    def publish_immediate(self, queue: int, size: int, priority: int, expiration: int) -> None:
        self.world.publish_immediate(queue, size, priority, expiration)

    @rule(
        wire=some,
        queues=some,
        priority=st.sampled_from([0, 1, 5]),
        prefetch=counts,
        prefetch_bytes=windows,
        kind=st.integers(0, 7),
        shared=st.booleans(),
        lease=st.sampled_from([0, 0, 10, 50]),
    )
    def consume(
        self,
        wire: int,
        queues: int,
        priority: int,
        prefetch: int,
        prefetch_bytes: int,
        kind: int,
        shared: bool,
        lease: int,
    ) -> None:
        self.world.attach(wire, queues, priority, prefetch, prefetch_bytes, kind, shared, lease)

    @rule(which=some)
    def cancel(self, which: int) -> None:
        self.world.cancel(which)

    @rule(wire=some)
    def lose_connection(self, wire: int) -> None:
        self.world.lose_connection(wire)

    @rule(wire=some, blocked=st.booleans())
    def block(self, wire: int, blocked: bool) -> None:
        self.world.block(wire, blocked)

    @rule(wire=some, active=st.booleans())
    def flow(self, wire: int, active: bool) -> None:
        self.world.flow(wire, active)

    @rule(which=some, shared=st.booleans(), count=counts, size=windows)
    def qos(self, which: int, shared: bool, count: int, size: int) -> None:
        self.world.resize(which, shared, count, size)

    @rule(wire=some, queue=some, waits=st.booleans())
    def get(self, wire: int, queue: int, waits: bool) -> None:
        self.world.get(wire, queue, waits)

    @rule(which=some, first=some, count=st.sampled_from([1, 2, 100]))
    def ack(self, which: int, first: int, count: int) -> None:
        self.world.settle(which, first, count)

    @rule(which=some, first=some, count=st.sampled_from([1, 2, 100]))
    def nack(self, which: int, first: int, count: int) -> None:
        self.world.release(which, first, count)

    @rule(which=some, first=some)
    def reject(self, which: int, first: int) -> None:
        self.world.settle(which, first, 1, discard=True)

    @rule(milliseconds=st.sampled_from([1, 9, 10, 60]))
    def advance(self, milliseconds: int) -> None:
        self.world.pass_time(milliseconds)

    @rule(queue=some)
    def purge(self, queue: int) -> None:
        self.world.purge(queue)

    @rule(queue=some)
    def delete(self, queue: int) -> None:
        self.world.delete(queue)

    @rule(budget=st.sampled_from([1, 2, 16]))
    def step(self, budget: int) -> None:
        self.world.step(budget)

    @rule(budget=st.sampled_from([1, 4, 64]))
    def run(self, budget: int) -> None:
        self.world.run(budget)

    @invariant()
    def holds(self) -> None:
        check_structure(self.world)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.run(16)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(
    max_examples=cases(120),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
