"""A partitioned queue in a virtual host without clients, and consumers that keep their deliveries."""

import json
from copy import copy
from typing import Any, Self

from broker.core.arguments.queue import NACK
from broker.core.entries.entry import QueueEntry
from broker.core.message import NEVER, Message
from broker.core.message_view import MessageView
from broker.core.partitions.partitioned import Partitioned, partitions_of
from broker.core.publishing.publisher import Outcome
from broker.core.queues.attach import attach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.returns import release_entries
from broker.core.vhosts.members import change_mapping
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import KeepingTarget, RecordingStore, content_of, new_broker, new_vhost

FRONT = "front"
KEY = "key"


class PartitionedBench:
    """The partitioned queue `front` with the members `a`, `b` and `c`, by the header `key`."""

    def __init__(self, *members: object, by: str = KEY, durable: bool = False, **arguments: object) -> None:
        self.clock = HandClock()
        self.store = RecordingStore()
        self.vhost: VirtualHost = new_vhost(self.store, self.clock)
        self.warned: list[str] = []
        self.vhost.warn = self.warned.append
        self.durable = durable
        for name in "abcd":
            self.declare(name)
        named = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
        given: dict[str, object] = {
            "x-queue-kind": "partitioned",
            "x-partition-by": by,
            "x-partition-members": list(members) or ["a", "b", "c"],
        }
        self.front = self.declare(FRONT, **(given | named))
        self.count = 0

    def restart(self) -> Self:
        """The same queues in another broker, which has read the changes. Their messages are not there."""
        restarted = copy(self)
        restarted.store = RecordingStore()
        restarted.warned = []
        broker = new_broker(restarted.store, self.clock, restarted.warned.append)
        for change in self.store.changes:
            broker.apply(json.loads(json.dumps(change)))
        broker.open_partitions()
        restarted.vhost = broker.declare_vhost("/")
        restarted.front = restarted.queue(FRONT)
        return restarted

    def declare(self, name: str, **arguments: object) -> Queue:
        return self.vhost.declarations.declare_queue(name, self.durable, None, False, arguments)

    def queue(self, name: str) -> Queue:
        return self.vhost.topology.queues[name]

    @property
    def partitions(self) -> Partitioned:
        found = partitions_of(self.front)
        assert found is not None
        return found

    def change(self, *members: object, **pins: str) -> None:
        change_mapping(self.vhost.topology, self.front, list(members), dict(pins))

    def publish(self, key: object = None, exchange: str = "", to: str = FRONT, **properties: Any) -> int:
        """Publish a message and return its number, the correlation id."""
        self.count += 1
        headers = {} if key is None else {KEY: key}
        self.outcome = self.send(headers, exchange, to, correlation_id=str(self.count), **properties)
        return self.count

    def send(
        self,
        headers: dict[str, object],
        exchange: str = "",
        to: str = FRONT,
        expiration: int = NEVER,
        **properties: Any,
    ) -> Outcome:
        route = self.vhost.publisher.route(exchange, to)
        content = content_of(headers=headers, **properties)
        message = Message(route.address, content, 0, self.durable, 0)
        message.expiration = expiration
        if expiration == NEVER:
            return self.vhost.publisher.publish(route, message)
        return self.vhost.publisher.publish_carefully(route, message)

    def view(self, message: Message) -> MessageView:
        return self.vhost.views(message, self.store)

    def number(self, entry: QueueEntry) -> int:
        """The number of an entry's message."""
        value = self.view(entry.message).property("correlation_id")
        assert isinstance(value, str)
        return int(value)

    def numbers(self, name: str) -> list[int]:
        """The messages in a member, in order."""
        return [self.number(entry) for entry in self.queue(name).entries]

    def member_of(self, key: object) -> str:
        """The member to which the mapping sends a key."""
        address = self.vhost.publisher.route("", FRONT).address
        message = Message(address, content_of(headers={KEY: key}), 0, False, 0)
        queue = self.partitions.choose(message, None)
        assert queue is not None
        return queue.name

    def key_for(self, name: str, number: int = 0) -> str:
        """A key of the member `name`, the one with this number."""
        found = [f"k{n}" for n in range(1000) if self.member_of(f"k{n}") == name]
        return found[number]

    def consume(self, priority: int = 0, candidate: bool = False, no_ack: bool = False) -> "Taker":
        return Taker(self, priority, candidate, no_ack)

    def run(self) -> None:
        """Do the due work."""
        self.clock.advance(0)


class Taker:
    """A consumer of the partitioned queue."""

    def __init__(self, bench: PartitionedBench, priority: int, candidate: bool, no_ack: bool) -> None:
        self.bench = bench
        self.target = KeepingTarget()
        self.consumer = QueueConsumer(self.target, bench.front, priority=priority, no_ack=no_ack)
        self.consumer.candidate = candidate
        attach(bench.front, self.consumer)

    def pull(self) -> list[int]:
        """Take all that the members have, and return the numbers."""
        self.bench.run()
        before = len(self.target.taken)
        for part in list(self.consumer.parts):
            while queue_of(part).deliver_single_message(part):
                pass
        return [self.bench.number(entry) for entry in self.target.taken[before:]]

    def settle(self, *numbers: int) -> None:
        """Settle deliveries, by default all."""
        for entry in list(self.target.taken):
            if not numbers or self.bench.number(entry) in numbers:
                owner = entry.owner
                assert isinstance(owner, QueueConsumer)
                queue_of(owner).settle(entry)
                self.target.taken.remove(entry)

    def _owners(self) -> dict[QueueConsumer, list[QueueEntry]]:
        """All deliveries by their parts; they are not the taker's any more."""
        owners: dict[QueueConsumer, list[QueueEntry]] = {}
        for entry in self.target.taken:
            owner = entry.owner
            assert isinstance(owner, QueueConsumer)
            owners.setdefault(owner, []).append(entry)
        self.target.taken.clear()
        return owners

    def release(self) -> None:
        """Return all deliveries."""
        for owner, entries in self._owners().items():
            release_entries(queue_of(owner), entries, owner, NACK)

    def discard(self) -> None:
        """Reject all deliveries."""
        for owner, entries in self._owners().items():
            for entry in entries:
                queue_of(owner).discard(entry)

    @property
    def members(self) -> list[str]:
        """The members that serve the consumer."""
        return [part.queue.name for part in self.consumer.parts if part.blockers == 0]
