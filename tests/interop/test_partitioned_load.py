"""A hundred changes of a mapping under load, with an outside checker of each key's order."""

import random
import threading
from collections import defaultdict
from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Address, DaemonStarter

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.amqpd_only("RabbitMQ has no partitioned queues"),
]

CHANGES = 100
BETWEEN = 40  # messages between two changes, at least
MEMBERS = [f"m{number}" for number in range(5)]
PUBLISHERS = 2
KEYS = [[f"key {publisher}.{number}" for number in range(10)] for publisher in range(PUBLISHERS)]
PREFETCHES = [1, 10, 100]
SHARED_PREFETCHES = [1, 2, 4]  # fewer than ACKNOWLEDGED together, so that members have a backlog
ACKNOWLEDGED = 30  # messages at once


class Checker:
    """The messages that were published and processed, and the order of each key."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.published = 0
        self.processed = 0
        self.repeated = 0
        self._next: dict[str, int] = defaultdict(int)
        self._changed = threading.Condition()

    def note_published(self) -> None:
        """Note that the broker has confirmed a message."""
        with self._changed:
            self.published += 1
            self._changed.notify_all()

    def note_processed(self, key: str, number: int, redelivered: bool) -> None:
        """Note that a consumer processes this message of a key, before it acknowledges the message."""
        with self._changed:
            following = self._next[key]
            if number == following:
                self._next[key] += 1
                self.processed += 1
            elif number < following and redelivered:
                self.repeated += 1
            else:
                self.wrong.append(f"{number} of '{key}' instead of {following}, redelivered: {redelivered}")
            self._changed.notify_all()

    def note_failure(self, error: Exception) -> None:
        """Note that a client has failed."""
        with self._changed:
            self.wrong.append(f"{type(error).__name__}: {error}")
            self._changed.notify_all()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds. Something wrong ends the test."""
        with self._changed:
            found = self._changed.wait_for(lambda: bool(self.wrong) or holds(), PATIENCE_S)
        assert self.wrong == []
        assert found, f"{self.processed} of {self.published} messages were processed in {PATIENCE_S} s"


class Client(threading.Thread):
    """A client with a connection of its own, which works until `end`."""

    def __init__(self, address: Address, checker: Checker) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.checker = checker
        self.ready = threading.Event()
        self._over = threading.Event()

    def run(self) -> None:
        try:
            with amqp(self.address, "/") as channel:
                self.begin(channel)
                self.ready.set()
                while not self._over.is_set():
                    self.work(channel)
        except Exception as error:
            self.checker.note_failure(error)
            self.ready.set()

    def begin(self, channel: BlockingChannel) -> None:
        """Prepare the channel."""

    def work(self, channel: BlockingChannel) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """Close the connection. The broker returns what a consumer has not acknowledged."""
        self._over.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


class Publisher(Client):
    """Publishes persistent messages of its own keys, each of which it numbers, one by one with confirms."""

    def __init__(self, address: Address, checker: Checker, number: int) -> None:
        super().__init__(address, checker)
        self._keys = KEYS[number]
        self._chance = random.Random(number)
        self._numbers: dict[str, int] = defaultdict(int)

    def work(self, channel: BlockingChannel) -> None:
        key = self._chance.choice(self._keys)
        properties = pika.BasicProperties(headers={"key": key}, delivery_mode=2)
        channel.basic_publish("", "front", b"%d" % self._numbers[key], properties, mandatory=True)
        self._numbers[key] += 1
        self.checker.note_published()


class Consumer(Client):
    """Consumes the partitioned queue with `prefetches`, by as many consumers of a single channel.

    The broker writes the deliveries of one channel in their order, whichever consumer gets them. The client
    acknowledges several at once, or what it has when nothing comes, so that messages of moved keys wait.
    """

    def __init__(
        self, address: Address, checker: Checker, prefetches: list[int], arguments: dict[str, object]
    ) -> None:
        super().__init__(address, checker)
        self._prefetches = prefetches
        self._arguments = arguments
        self._tags: list[int] = []  # not acknowledged

    def begin(self, channel: BlockingChannel) -> None:
        for prefetch in self._prefetches:
            channel.basic_qos(prefetch_count=prefetch)
            channel.basic_consume("front", self._take, arguments=self._arguments)

    def work(self, channel: BlockingChannel) -> None:
        before = len(self._tags)
        channel.connection.process_data_events(0.02)
        if len(self._tags) >= ACKNOWLEDGED or (self._tags and len(self._tags) == before):
            channel.basic_ack(self._tags[-1], multiple=True)
            self._tags.clear()

    def _take(
        self,
        channel: BlockingChannel,
        method: Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        self.checker.note_processed(properties.headers["key"], int(body), method.redelivered)
        self._tags.append(method.delivery_tag)


class Load:
    """The partitioned queue `front`, its publishers and its consumers."""

    def __init__(self, address: Address, alone: bool, arguments: dict[str, object]) -> None:
        self.checker = Checker()
        self._address = address
        self._arguments = arguments
        self._prefetch = 0
        with amqp(address, "/") as channel:
            for member in MEMBERS:
                channel.queue_declare(member, durable=True)
            given: dict[str, object] = {
                "x-queue-kind": "partitioned",
                "x-partition-by": "key",
                "x-partition-members": MEMBERS[:2],
            }
            if alone:
                given["x-single-active-consumer"] = True
            channel.queue_declare("front", durable=True, arguments=given)
        self.publishers = [Publisher(address, self.checker, number) for number in range(PUBLISHERS)]
        self.consumers: list[Client] = []

    def begin(self, client: Client) -> Client:
        client.start()
        assert client.ready.wait(PATIENCE_S)
        return client

    def add_consumer(self, prefetches: list[int]) -> None:
        self.consumers.append(self.begin(Consumer(self._address, self.checker, prefetches, self._arguments)))

    def replace_consumer(self) -> None:
        """End the oldest consumer, and add another one."""
        self.consumers.pop(0).end()
        self._prefetch += 1
        self.add_consumer([PREFETCHES[self._prefetch % len(PREFETCHES)]])

    def wait_for_more(self) -> None:
        """Wait until the publishers have published, and the consumers have processed, some more messages."""
        published, processed = self.checker.published, self.checker.processed
        self.checker.wait_until(
            lambda: self.checker.published >= published + BETWEEN and self.checker.processed > processed
        )

    def finish(self) -> None:
        """End the publishers, and let the consumers process the rest."""
        for publisher in self.publishers:
            publisher.end()
        checker = self.checker
        while checker.processed < checker.published:  # a consumer that prefetches one message is slow
            before = checker.processed
            checker.wait_until(lambda before=before: checker.processed > before)  # type: ignore[misc]
        for consumer in self.consumers:
            consumer.end()
        assert self.checker.wrong == []


def change(api: Api, chance: random.Random) -> None:
    """Choose members, weights and pinned values by chance."""
    names = chance.sample(MEMBERS, chance.randrange(1, len(MEMBERS) + 1))
    members = [chance.choice([name, {"to": name, "weight": chance.randrange(1, 9)}]) for name in names]
    pinned = chance.sample([key for keys in KEYS for key in keys], chance.randrange(5))
    pins = {key: chance.choice(names) for key in pinned}
    api.put("partitioned", "/", "front", status=204, members=members, pins=pins)


@pytest.mark.parametrize("how", ["shared", "single active", "exclusive"])
def test_a_hundred_changes_keep_the_order_of_each_key(how: str, start_daemon: DaemonStarter) -> None:
    chance = random.Random(how)
    daemon = start_daemon()
    arguments: dict[str, object] = {"x-exclusive-consumer": True} if how == "exclusive" else {}
    load = Load(daemon.address, how == "single active", arguments)
    if how == "shared":
        load.add_consumer(SHARED_PREFETCHES)
    else:
        for prefetch in PREFETCHES:
            load.add_consumer([prefetch])
    for publisher in load.publishers:
        load.begin(publisher)
    api = Api(daemon.admin)
    moving = 0
    for number in range(CHANGES):
        load.wait_for_more()
        change(api, chance)
        moving += api.get("partitioned", "/", "front")["messages_moving"]
        if how != "shared" and number % 10 == 9:
            load.replace_consumer()
    load.finish()
    shown = api.get("queues", "/", "front")
    assert (shown["messages"], shown["messages_moving"], shown["keys_moving"]) == (0, 0, 0)
    assert shown["message_stats"]["publish"] == load.checker.published
    assert load.checker.published >= CHANGES * BETWEEN
    assert moving > 0, "no message had to wait"
    api.close()
