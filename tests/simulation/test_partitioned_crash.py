"""Partitioned queues: the order of each key over changes of the mapping, with kills and power cuts any time.

An outside observer knows in which order messages of a key arrived. When a message is delivered, each earlier
one of its key is settled, or is out from the same member. What was confirmed is in one member until it is
settled.
"""

import random
from collections import defaultdict

import pytest

from broker.adapters.formats.either import view_of
from broker.core.arguments.queue import NACK
from broker.core.entries.entry import ACQUIRED, QueueEntry
from broker.core.errors import StoreFailed
from broker.core.message import NEVER, Message
from broker.core.partitions.partitioned import LOOK_MS, Partitioned, partitions_of
from broker.core.publishing.publisher import Outcome, Publisher
from broker.core.queues.attach import attach, detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.purge import purge
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.returns import release_entries
from broker.core.transactions.transaction import HeldPublish, Transaction
from broker.core.vhosts.members import change_mapping
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import PowerLoss, SimDisk
from tests.support.core.topology import KeepingTarget, content_of
from tests.support.effort import cases

SEEDS = range(cases(60))
STEPS = 600
KEYS = [f"k{number}" for number in range(12)]
NAMES = ["a", "b", "c", "d"]


class Observed(KeepingTarget):
    """A consumer of the partitioned queue, watched by the observer."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self.world = world

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        self.world.observe(consumer, entry)
        super().deliver(consumer, entry)


class Publish(HeldPublish):
    """A publish of a transaction, noted when its queue has it."""

    def __init__(self, world: "World", number: int, key: str, message: Message) -> None:
        super().__init__(world.life.vhost.publisher.route("", "front"), message, [], False)
        self.world, self.number, self.key = world, number, key

    def put(self, publisher: Publisher) -> Outcome:
        self.world.order[self.key].append(self.number)
        return super().put(publisher)

    def report_outcome(self, outcome: Outcome) -> None:
        self.world.confirmed.add(self.number)


class Work(Transaction):
    def on_committed(self) -> None:
        pass

    def on_commit_failed(self, reason: str) -> None:
        pass


class World:
    """A partitioned queue, its publishers, consumers and operators, through many lives of a broker."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(self.rng)
        self.numbers = 0
        self.key_of: dict[int, str] = {}
        self.order: dict[str, list[int]] = defaultdict(list)  # the numbers of a key in the order of arrival
        self.out: dict[int, Queue] = {}  # delivered, with the member
        self.done: set[int] = set()
        self.confirmed: set[int] = set()
        self.grouped: set[int] = set()  # published in transactions
        self.changes = self.restarts = self.waited = self.deliveries = 0
        self.alone = self.rng.random() < 0.4
        self.targets: list[tuple[Observed, QueueConsumer]] = []
        self.life = Life(self.disk, views=view_of)
        kinds: list[dict[str, object]] = [{}, {}, {"group_key": "key"}, {"max_length": 5000}]
        for name in NAMES:
            self.life.declare(name, **self.rng.choice(kinds))
        more = {"single_active_consumer": True} if self.alone else {}
        self.life.declare(
            "front", queue_kind="partitioned", partition_by="key", partition_members=["a", "b"], **more
        )
        self.life.commit()
        self.life.commit()

    @property
    def front(self) -> Queue:
        return self.life.vhost.topology.queues["front"]

    @property
    def partitions(self) -> Partitioned:
        found = partitions_of(self.front)
        assert found is not None
        return found

    def number(self, message: Message) -> int:
        value = view_of(message, self.life.log).property("correlation_id")
        assert isinstance(value, str)
        return int(value)

    # ---- steps

    def message(self) -> tuple[int, str, Message]:
        self.numbers += 1
        key = self.rng.choice(KEYS)
        self.key_of[self.numbers] = key
        content = content_of(headers={"key": key}, correlation_id=str(self.numbers))
        address = self.life.vhost.publisher.route("", "front").address
        return self.numbers, key, Message(address, content, 0, True, 0)

    def publish(self) -> None:
        number, key, message = self.message()
        vhost = self.life.vhost
        self.order[key].append(number)
        try:
            vhost.publisher.publish(vhost.publisher.route("", "front"), message)
        except StoreFailed:
            self.order[key].pop()
            return
        self.life.when_durable(lambda: self.confirmed.add(number))

    def commit(self) -> None:
        work = Work(self.life.vhost.publisher)
        for _ in range(self.rng.randrange(1, 4)):
            number, key, message = self.message()
            self.grouped.add(number)
            work.publishes.append(Publish(self, number, key, message))
        if not self.life.log.failure:
            work.commit()

    def change(self) -> None:
        rng = self.rng
        names = rng.sample(NAMES, rng.randrange(1, len(NAMES) + 1))
        members = [rng.choice([name, {"to": name, "weight": rng.randrange(1, 5)}]) for name in names]
        pins = {key: rng.choice(names) for key in rng.sample(KEYS, rng.choice([0, 0, 1, 3]))}
        try:
            change_mapping(self.life.vhost.topology, self.front, members, pins)
        except StoreFailed:
            return
        self.changes += 1

    def attach(self) -> None:
        if len(self.targets) < 4:
            target = Observed(self)
            consumer = QueueConsumer(target, self.front)
            attach(self.front, consumer)
            self.targets.append((target, consumer))

    def detach(self) -> None:
        if self.targets:
            target, consumer = self.targets.pop(self.rng.randrange(len(self.targets)))
            detach(self.front, consumer, [])
            self.give_back(target.taken)

    def pull(self) -> None:
        for _, consumer in self.targets:
            for part in list(consumer.parts):
                for _ in range(self.rng.randrange(4)):
                    queue_of(part).deliver_single_message(part)
        self.waited += self.partitions.runs.waiting > 0

    def observe(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        number = self.number(entry.message)
        key = self.key_of[number]
        self.deliveries += 1
        for earlier in self.order[key]:
            if earlier == number:
                break
            if earlier not in self.done:
                assert self.out.get(earlier) is consumer.queue, (
                    f"{number} of '{key}' comes from {consumer.queue.name} before {earlier}"
                )
        else:
            raise AssertionError(f"{number} was never published")
        assert number not in self.done
        self.out[number] = queue_of(consumer)

    def settle(self) -> None:
        for target, _ in self.targets:
            for entry in list(target.taken):
                if self.rng.random() < 0.6:
                    target.taken.remove(entry)
                    self.done.add(self.number(entry.message))
                    self.out.pop(self.number(entry.message), None)
                    owner = entry.owner
                    assert isinstance(owner, QueueConsumer)
                    queue_of(owner).settle(entry)

    def give_back(self, entries: list[QueueEntry]) -> None:
        owners: dict[QueueConsumer, list[QueueEntry]] = {}
        for entry in entries:
            assert isinstance(entry.owner, QueueConsumer)
            owners.setdefault(entry.owner, []).append(entry)
        entries.clear()
        for owner, held in owners.items():
            for entry in held:
                self.out.pop(self.number(entry.message), None)
            release_entries(queue_of(owner), held, owner, NACK)

    def requeue(self) -> None:
        """Return the deliveries of one consumer, unless a later message of a key is out elsewhere."""
        if self.targets:
            self.give_back(self.rng.choice(self.targets)[0].taken)

    def purge(self) -> None:
        queue = self.life.vhost.topology.queues[self.rng.choice(NAMES)]
        for entry in queue.entries:
            if entry.state != ACQUIRED:
                self.done.add(self.number(entry.message))
        purge(queue, self.life.clock.schedule)

    def publish_some(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            self.publish()

    def write(self) -> None:
        self.life.log.commit()

    def sync(self) -> None:
        if self.life.deferred.pending:
            self.life.deferred.step()

    def tidy(self) -> None:
        self.life.tidy()

    def wait(self) -> None:
        self.life.clock.advance(LOOK_MS)

    def break_disk(self) -> None:
        self.disk.operations_left = self.rng.randrange(12)

    def kill(self) -> None:
        self.disk.kill()
        self.restart()

    def step(self) -> None:
        actions = {
            self.publish_some: 60,
            self.commit: 8,
            self.write: 16,
            self.sync: 24,
            self.pull: 24,
            self.settle: 24,
            self.requeue: 6,
            self.attach: 10,
            self.detach: 6,
            self.change: 15,
            self.purge: 1,
            self.tidy: 1,
            self.wait: 2,
            self.break_disk: 1,
            self.kill: 1,
        }
        self.rng.choices(list(actions), list(actions.values()))[0]()
        self.life.clock.advance(0)

    # ---- a restart

    def restart(self) -> None:
        self.disk.operations_left = -1
        self.restarts += 1
        self.targets = []
        self.out = {}
        self.life = Life(self.disk, views=view_of)
        there: dict[int, Message] = {}
        for name in NAMES:
            for entry in self.life.vhost.topology.queues[name].entries:
                number = self.number(entry.message)
                assert number not in there, f"{number} is in two members"
                there[number] = entry.message
        assert self.confirmed <= self.done | set(there)
        self.done = set(range(1, self.numbers + 1)) - set(there)
        order: dict[str, list[int]] = defaultdict(list)
        for number, _ in sorted(there.items(), key=lambda item: int(item[1].sequence)):
            order[self.key_of[number]].append(number)
        for numbers in order.values():
            alone = [number for number in numbers if number not in self.grouped]
            assert alone == sorted(alone)
        self.order = order

    def run(self, steps: int = STEPS) -> None:
        for _ in range(steps):
            try:
                self.step()
            except PowerLoss:
                self.disk.crash()
                self.restart()
        self.drain()

    def drain(self) -> None:
        """Everything is consumed in the end, and the leaving members leave."""
        self.disk.operations_left = -1
        self.life.commit()
        self.life.commit()
        self.attach()
        idle = 0
        while idle < 100:
            self.life.clock.advance(1)
            before = self.deliveries
            self.pull()
            self.settle()
            idle = idle + 1 if before == self.deliveries and not self.out else 0
        left = [name for name in NAMES if self.life.vhost.topology.queues[name].depth]
        assert left == [], "a message waits for ever"
        self.life.clock.advance(2 * LOOK_MS)
        assert self.partitions.leaving == []
        assert self.partitions.runs.waiting == self.partitions.runs.moving == 0


def test_each_key_keeps_its_order_over_changes_and_crashes() -> None:
    worlds = []
    for seed in SEEDS:
        world = World(seed)
        try:
            world.run()
        except AssertionError as error:
            pytest.fail(f"seed {seed}, restart {world.restarts}, change {world.changes}: {error}")
        worlds.append(world)
    assert sum(world.changes for world in worlds) > 20 * len(SEEDS)
    assert sum(world.restarts for world in worlds) > len(SEEDS)
    assert sum(world.waited for world in worlds) > len(SEEDS)
    assert sum(world.deliveries for world in worlds) > 100 * len(SEEDS)


def test_a_message_that_may_not_wait_is_released_after_a_restart() -> None:
    disk = SimDisk(random.Random(1))
    life = Life(disk, views=view_of)
    for name in "ab":
        life.declare(name)
    life.declare("front", queue_kind="partitioned", partition_by="key", partition_members=["a"])
    route = life.vhost.publisher.route("", "front")
    for member, expiration in (("a", NEVER), ("b", 0)):
        change_mapping(life.vhost.topology, life.vhost.topology.queues["front"], [member], {})
        message = Message(route.address, content_of(headers={"key": "k"}), 0, True, 0)
        message.expiration = expiration
        life.vhost.publisher.publish_carefully(route, message)
    life.commit()
    disk.kill()
    life = Life(disk, views=view_of)
    life.clock.advance(1000)
    assert life.vhost.topology.queues["b"].held == 1
    purge(life.vhost.topology.queues["a"], life.clock.schedule)
    life.clock.advance(0)
    _, entries = life.take("b")
    assert [entry.message.expiration for entry in entries] == [0]


def test_a_hundred_changes_in_one_life_of_a_queue() -> None:
    world = World(1000)
    world.run(3 * STEPS)
    assert world.changes >= 100
