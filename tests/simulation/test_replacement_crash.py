"""Last-value queues, with the power cut, the process killed or the disk full at any time.

Of each value a queue has the latest message that was confirmed, or a later one, until one of these is
consumed. An earlier one comes back only if it was with a consumer.
"""

import random

import pytest

from broker.core.arguments.queue import NACK
from broker.core.entries.entry import QueueEntry
from broker.core.errors import StoreFailed
from broker.core.message import Message
from broker.core.queues.attach import detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import queue_of
from broker.core.queues.returns import release_entries
from broker.store.file_commit import INLINE_WRITE_MAX
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import PowerLoss, SimDisk
from tests.support.core.key_header import KEY, key_view
from tests.support.store.hand_log import content_of

SEEDS = range(40)
STEPS = 300
NAMES = ("a", "b")
VALUES = 3

Slot = tuple[str, int]  # a queue and a value


class World:
    """Two queues, one of them bound to the same exchange, through many lives of a broker."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(self.rng)
        self.confirmed: dict[Slot, int] = {}  # the latest
        self.consumed: dict[Slot, int] = {}
        self.published = 0
        self.restarts = 0
        self.full = 0
        self.taken: list[tuple[QueueConsumer, QueueEntry, Slot, int]] = []
        self.late: set[tuple[Slot, int]] = set()  # returned or settled, if that may not be durable
        self.back: set[tuple[Slot, int]] = set()  # brought back by a restart
        self.life = Life(self.disk, views=key_view)
        for name in NAMES:
            self.life.declare(name, last_value_key=KEY)
            self.life.vhost.declarations.bind_queue(name, "amq.fanout", "", {})
        self.life.commit()
        self.life.commit()

    def publish(self, length: int = 0) -> None:
        """Publish to a single queue or to both."""
        rng = self.rng
        length = length or rng.choice([10, 10, 10, 1500])
        value = rng.randint(1, VALUES)
        exchange, name = rng.choice((("", "a"), ("amq.fanout", "")))
        route = self.life.vhost.publisher.route(exchange, name)
        self.published += 1
        content = content_of(self.published, length)
        message = Message(route.address, content, len(content), True, value)
        try:
            self.life.vhost.publisher.publish(route, message)
        except StoreFailed:
            return
        slots = [(name, value) for name in (NAMES if exchange else "a")]
        number = self.published
        self.life.when_durable(lambda: self.confirm(slots, number))

    def confirm(self, slots: list[Slot], number: int) -> None:
        for slot in slots:
            self.confirmed[slot] = max(number, self.confirmed.get(slot, 0))

    def take(self) -> None:
        """Consume the ready messages of a queue, and detach."""
        name = self.rng.choice(NAMES)
        consumer, entries = self.life.take(name)
        for entry in entries:
            self.taken.append((consumer, entry, (name, int(entry.message.priority)), self.number_of(entry)))
        detach(queue_of(consumer), consumer, [])

    def settle(self) -> None:
        """Something that was taken is acknowledged, or comes back."""
        if not self.taken:
            return
        consumer, entry, slot, number = self.taken.pop(self.rng.randrange(len(self.taken)))
        queue = queue_of(consumer)
        if self.rng.random() < 0.5:
            release_entries(queue, [entry], consumer, NACK)
        else:
            self.consumed[slot] = max(self.consumed.get(slot, 0), number)
            queue.settle(entry)
        settled = (slot, number)
        self.late.add(settled)
        self.life.when_durable(lambda: self.late.discard(settled))

    def fill_disk(self) -> None:
        """Or make room. It may be the batch on its way that does not fit."""
        if self.disk.capacity < 1 << 30:
            self.disk.capacity = 1 << 40
            return
        self.disk.capacity = self.disk.used() + self.rng.randrange(4000)
        if self.rng.random() < 0.5:
            self.publish()
            self.publish(INLINE_WRITE_MAX)
            self.life.log.commit()
            for _ in range(self.rng.randrange(4)):
                self.settle()

    def step(self) -> None:
        rng, life = self.rng, self.life
        action = rng.random()
        if action < 0.35:
            self.publish()
        elif action < 0.5:
            life.log.commit()
        elif action < 0.72:
            if life.deferred.pending:
                life.deferred.step()
        elif action < 0.78:
            self.take()
        elif action < 0.9:
            self.settle()
        elif action < 0.93:
            life.tidy()
        elif action < 0.97:
            self.fill_disk()
        elif action < 0.985:
            self.disk.operations_left = rng.randrange(12)
        else:
            self.disk.kill()
            self.restart()
        self.full += self.life.log.full
        assert "Error: " not in self.life.log.failure, f"the log is broken: {self.life.log.failure}"

    def restart(self) -> None:
        self.disk.operations_left = -1
        self.disk.capacity = 1 << 40
        self.restarts += 1
        out = self.late | self.back | {(slot, number) for _, _, slot, number in self.taken}
        in_memory = {  # refused values that the queues have
            (name, int(entry.message.priority))
            for name in NAMES
            for entry in self.life.vhost.topology.queues[name].entries
            if entry.message.sequence <= 0
        }
        self.taken = []
        self.late = set()
        self.life = Life(self.disk, views=key_view)
        self.life.broker.resume()
        found: dict[Slot, list[int]] = {}
        for name in NAMES:
            for entry in self.life.vhost.topology.queues[name].entries:
                found.setdefault((name, int(entry.message.priority)), []).append(self.number_of(entry))
        self.back = {(slot, number) for slot, there in found.items() for number in there}
        for slot, latest in self.confirmed.items():
            there = found.get(slot, [])
            assert len(there) <= 1, f"{slot} has {there}"
            if self.consumed.get(slot, 0) < latest:
                assert there, f"{slot} has nothing instead of {latest}"
            if slot not in in_memory:
                assert all(number >= latest or (slot, number) in out for number in there), (
                    f"{slot} has {there}, which {latest} has replaced"
                )

    def number_of(self, entry: QueueEntry) -> int:
        content = entry.message.content
        text = self.life.log.load(entry.message) if content is None else content
        return int(text[1 : text.index(b">")])

    def run(self) -> None:
        for _ in range(STEPS):
            try:
                self.step()
            except PowerLoss:
                self.disk.crash()
                self.restart()
        self.disk.kill()
        self.restart()


def test_the_latest_confirmed_value_or_a_later_value_survives() -> None:
    worlds = []
    for seed in SEEDS:
        world = World(seed)
        try:
            world.run()
        except AssertionError as error:
            pytest.fail(f"seed {seed}, restart {world.restarts}: {error}")
        worlds.append(world)
    assert sum(world.restarts for world in worlds) > 100
    assert sum(world.full for world in worlds) > 500
    assert sum(len(world.consumed) for world in worlds) > 100
