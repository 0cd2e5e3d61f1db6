"""Deduplication, with the power cut, the process killed or the disk full at any time.

What was confirmed is in its queue once, until it is consumed, and stays known for good. What is in a queue is
known. Publishers repeat what was not confirmed. The producer is an application in some worlds, and a broker
that forwards exactly once in the others.
"""

import random
from collections import Counter

import pytest

from broker.core.errors import StoreFailed
from broker.core.message import KNOWN, Message
from broker.core.publishing.publisher import DUPLICATE
from broker.core.queues.attach import detach
from broker.core.queues.duplicates import memory_of
from broker.core.queues.queue import queue_of
from broker.core.queues.source import PUBLISHED, Source
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import PowerLoss, SimDisk
from tests.support.core.duplicate_vhost import OriginView

FORWARDING = Source(PUBLISHED)
FORWARDING.names_origins = True
SEEDS = range(40)
STEPS = 400


class World:
    """A queue, a publisher of ids and a producer of sequences, through many lives of a broker."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(self.rng)
        self.sent: list[str] = []
        self.confirmed: set[str] = set()
        self.consumed: set[str] = set()
        self.next_number = 1  # the producer's first number that is not confirmed
        self.producer = "@o" if seed % 2 else "p"
        self.restarts = 0
        self.duplicates = 0
        self.life = self.new_life()
        ids = {} if self.producer == "@o" else {"dedup_window": 1 << 30}
        self.life.declare("q", dedup_producers=3, **ids)
        self.life.commit()
        self.life.commit()

    def new_life(self) -> Life:
        life = Life(self.disk)
        life.vhost.views = lambda message, store: OriginView(message)
        return life

    def publish(self) -> None:
        """Something new, or something again."""
        rng = self.rng
        unheard = [sent for sent in self.sent if sent not in self.confirmed and not sent.startswith("/")]
        new = f"id-{len(self.sent)}"
        if self.producer == "@o" or rng.random() < 0.4:
            self.produce(rng.randrange(1, 6))
        else:
            self.say(rng.choice([new, rng.choice([*unheard, new]), self.anything(new)]))

    def produce(self, count: int) -> None:
        """Numbers of the producer, from the first that is not confirmed on: several in a batch."""
        while self.numbered(self.next_number) in self.confirmed:
            self.next_number += 1
        for number in range(self.next_number, self.next_number + count):
            if not self.say(self.numbered(number)):
                return

    def numbered(self, number: int) -> str:
        """A message of the producer; an origin names the message before, too."""
        preceding = f">{number - 1}" if self.producer == "@o" and number > 1 else ""
        return f"/{self.producer}/{number}{preceding}"

    def say(self, sent: str) -> bool:
        """Publish; false if the log has refused the message."""
        rng = self.rng
        if sent not in self.sent:
            self.sent.append(sent)
        route = self.life.vhost.publisher.route("", "q")
        content = f"{sent}{'' if sent.count('/') else '//'}/{'x' * rng.choice([10, 1500])}".encode()
        message = Message(route.address, content, len(content), True, 0)
        try:
            taken = self.life.vhost.publisher.publish(route, message, FORWARDING)
        except StoreFailed:
            return False
        self.duplicates += taken == DUPLICATE
        assert (message.sequence != 0) != bool(message.marks & KNOWN)
        self.life.when_durable(lambda: self.confirmed.add(sent))
        return True

    def anything(self, otherwise: str) -> str:
        """Something that has been said before, confirmed or not."""
        return self.rng.choice([sent for sent in self.sent if not sent.startswith("/")] or [otherwise])

    def consume(self) -> None:
        consumer, entries = self.life.take("q")
        for entry in entries:
            if self.rng.random() < 0.7:
                self.consumed.add(said_by(self.life, entry.message))
                queue_of(consumer).settle(entry)
        detach(queue_of(consumer), consumer, [entry for entry in entries if entry.owner is consumer])

    def fill_disk(self) -> None:
        full = self.disk.capacity < 1 << 30
        self.disk.capacity = 1 << 40 if full else self.disk.used() + self.rng.randrange(4000)

    def step(self) -> None:
        rng, life = self.rng, self.life
        action = rng.random()
        if action < 0.5:
            self.publish()
        elif action < 0.65:
            life.log.commit()
        elif action < 0.85:
            if life.deferred.pending:
                life.deferred.step()
        elif action < 0.92:
            self.consume()
        elif action < 0.95:
            life.tidy()
        elif action < 0.97:
            self.fill_disk()
        elif action < 0.985:
            self.disk.operations_left = rng.randrange(12)
        else:
            self.disk.kill()
            self.restart()

    def restart(self) -> None:
        self.disk.operations_left = -1
        self.disk.capacity = 1 << 40
        self.restarts += 1
        self.life = self.new_life()
        self.check()

    def check(self) -> None:
        queue = self.life.vhost.topology.queues["q"]
        there = Counter(said_by(self.life, entry.message) for entry in queue.entries)
        assert set(there.values()) <= {1}, there
        assert self.confirmed <= self.consumed | set(there), (
            "what was confirmed is there, or has been consumed"
        )
        memory = memory_of(queue)
        assert memory is not None
        for sent in self.confirmed | set(there):
            key, _, number = [*sent.split("/"), "", ""][:3]
            position = number.partition(">")[0]
            known = memory.knows_sequence(self.producer, int(position)) if number else memory.knows_id(key, 0)
            assert known, sent

    def run(self) -> None:
        for _ in range(STEPS):
            try:
                self.step()
            except PowerLoss:
                self.disk.crash()
                self.restart()
        self.disk.kill()
        self.restart()


def said_by(life: Life, message: Message) -> str:
    content = message.content
    text = (life.log.load(message) if content is None else content).decode()
    return text.rsplit("/", 1)[0].removesuffix("//")


def test_confirmed_messages_exist_once_and_stay_recorded() -> None:
    worlds = []
    for seed in SEEDS:
        world = World(seed)
        try:
            world.run()
        except AssertionError as error:
            pytest.fail(f"seed {seed}, restart {world.restarts}: {error}")
        worlds.append(world)
    assert sum(world.restarts for world in worlds) > 100
    assert sum(world.duplicates for world in worlds) > 1000
