"""A hundred changes of a mapping under load, with an outside checker of the order of each key."""

import random
import threading
from collections import defaultdict

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Address, DaemonStarter

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.amqpd_only("RabbitMQ has no partitioned queues"),
]

CHANGES = 100
BETWEEN = 50  # messages between two changes
MEMBERS = [f"m{number}" for number in range(5)]
KEYS = [f"key {number}" for number in range(20)]
CONSUMERS = 3
TOTAL = CHANGES * BETWEEN


class Checker:
    """The order in which all consumers together have processed the messages of each key."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.count = 0
        self._next: dict[str, int] = defaultdict(int)
        self._changed = threading.Condition()

    def note(self, key: str, number: int) -> None:
        """Note that a consumer processes this message of a key."""
        with self._changed:
            if self._next[key] != number:
                self.wrong.append(f"{number} of '{key}' instead of {self._next[key]}")
            self._next[key] = number + 1
            self.count += 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until so many messages have been processed, or one was wrong."""
        with self._changed:
            found = self._changed.wait_for(lambda: self.count >= count or bool(self.wrong), PATIENCE_S)
        assert found, f"{self.count} of {count} messages in {PATIENCE_S} s"
        assert self.wrong == []


class Worker(threading.Thread):
    """A consumer with a connection of its own; each message is acknowledged when the checker knows it."""

    def __init__(self, address: Address, checker: Checker, prefetch: int) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.checker = checker
        self.prefetch = prefetch
        self.ready = threading.Event()
        self.over = threading.Event()

    def run(self) -> None:
        with amqp(self.address, "/") as channel:
            channel.basic_qos(prefetch_count=self.prefetch)
            channel.basic_consume("front", self._take)
            self.ready.set()
            while not self.over.is_set():
                channel.connection.process_data_events(0.05)

    def _take(
        self, channel: BlockingChannel, method: object, properties: pika.BasicProperties, body: bytes
    ) -> None:
        self.checker.note(properties.headers["key"], int(body))
        channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]


def declare(channel: BlockingChannel) -> None:
    for member in MEMBERS:
        channel.queue_declare(member, durable=True)
    arguments = {
        "x-queue-kind": "partitioned",
        "x-partition-by": "key",
        "x-partition-members": MEMBERS[:2],
        "x-single-active-consumer": True,
    }
    channel.queue_declare("front", durable=True, arguments=arguments)


def change(api: Api, chance: random.Random) -> None:
    """Choose members, weights and pinned values by chance."""
    names = chance.sample(MEMBERS, chance.randrange(1, len(MEMBERS) + 1))
    members = [chance.choice([name, {"to": name, "weight": chance.randrange(1, 9)}]) for name in names]
    pins = {key: chance.choice(names) for key in chance.sample(KEYS, chance.randrange(4))}
    api.put("partitioned", "/", "front", status=204, members=members, pins=pins)


def test_a_hundred_changes_keep_the_order_of_each_key(start_daemon: DaemonStarter) -> None:
    chance = random.Random(1)
    daemon = start_daemon()
    checker = Checker()
    with amqp(daemon.address, "/") as channel:
        declare(channel)
        workers = [Worker(daemon.address, checker, prefetch) for prefetch in (1, 10, 100)[:CONSUMERS]]
        for worker in workers:
            worker.start()
            assert worker.ready.wait(PATIENCE_S)
        api = Api(daemon.admin)
        numbers: dict[str, int] = defaultdict(int)
        for _ in range(CHANGES):
            for _ in range(BETWEEN):
                key = chance.choice(KEYS)
                properties = pika.BasicProperties(headers={"key": key}, delivery_mode=2)
                channel.basic_publish("", "front", str(numbers[key]).encode(), properties)
                numbers[key] += 1
            change(api, chance)
        checker.wait_for(TOTAL)
        for worker in workers:
            worker.over.set()
            worker.join(PATIENCE_S)
        shown = api.get("queues", "/", "front")
        assert (shown["messages"], shown["messages_moving"], shown["keys_moving"]) == (0, 0, 0)
        api.close()
    assert checker.count == TOTAL
