"""A broker on a store that records changes, and consumers that acquire messages."""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from pamqp.commands import Basic

from broker.adapters.formats.amqp091 import View091
from broker.adapters.formats.either import view_of as view_of_message
from broker.adapters.formats.either import write_letter
from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, PullingTarget, Scheduler, Session
from broker.core.entries.entry import QueueEntry
from broker.core.message import Message
from broker.core.ports import LoggedQueue, MessageStore
from broker.core.publishing.publisher import Outcome
from broker.core.queues.attach import attach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.virtual_host import ignore_report
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp091.properties import Properties
from tests.support.amqp091.frames import header_bytes
from tests.support.core.hand_clock import HandClock

Change = dict[str, object]

DELETIONS = ("queue.delete", "exchange.delete", "vhost.delete")


class RecordingStore(MessageStore):
    """A store that records the appended changes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[dict[str, object]] = []
        self.enqueued: list[tuple[Message, list[str]]] = []
        self.settled: list[tuple[Message, str]] = []
        self.forgotten: list[Message] = []

    def append_message(self, message: Message, queues: Sequence[LoggedQueue]) -> None:
        assert not self.failure, "the core asks before it appends"
        message.sequence = len(self.enqueued) + 1
        self.enqueued.append((message, [queue.name for queue in queues]))

    def append_settle(self, message: Message, queue: LoggedQueue) -> None:
        self.settled.append((message, queue.name))

    def append_definition(self, change: dict[str, object]) -> None:
        if not self.failure:
            self.changes.append(change)

    def forget(self, message: Message, queue: LoggedQueue) -> None:
        says_so = ("queue.delete", "exchange.delete", "vhost.delete", "sink", "sink.delete")
        assert self.kinds()[-1] in says_so, "the change comes first"
        self.forgotten.append(message)

    def kinds(self) -> list[object]:
        """The kinds of the appended changes."""
        return [change["kind"] for change in self.changes]


def new_broker(
    store: MessageStore | None = None,
    clock: HandClock | None = None,
    warn: Callable[[str], None] = ignore_report,
) -> Broker:
    """A broker whose generated names count up."""
    numbers = itertools.count(1)
    return Broker(
        store or RecordingStore(),
        Counters(),
        lambda: str(next(numbers)),
        (clock or HandClock()).schedule,
        view_of_message,
        write_letter,
        warn=warn,
    )


class Described(Protocol):
    """An object whose description is a list of changes that create the same object."""

    def describe(self) -> Iterable[list[Change]]:
        """A list for each object."""


def definitions_of(whole: Described) -> list[Change]:
    """Return all changes that describe a broker or users, in order."""
    return [change for changes in whole.describe() for change in changes]


def rebuilt(changes: list[dict[str, object]]) -> Broker:
    """A new broker that got the changes through JSON."""
    store = RecordingStore()
    broker = new_broker(store)
    for change in changes:
        broker.apply(json.loads(json.dumps(change)))
    assert store.changes == [], "what is applied is not appended again"
    return broker


def new_vhost(store: MessageStore | None = None, clock: HandClock | None = None) -> VirtualHost:
    """The virtual host `/` of a new broker."""
    return new_broker(store, clock).declare_vhost("/")


def add_queue(vhost: VirtualHost, name: str, durable: bool = False) -> Queue:
    """Declare a queue without anything special."""
    return vhost.declarations.declare_queue(name, durable, None, False, {})


def add_exchange(vhost: VirtualHost, name: str, kind: str = "direct", **properties: Any) -> None:
    """Declare an exchange with the given properties; underscores in arguments mean dashes."""
    flags = {flag: bool(properties.pop(flag, False)) for flag in ("durable", "auto_delete", "internal")}
    arguments = {name.replace("_", "-"): value for name, value in properties.items()}
    vhost.declarations.declare_exchange(
        name, kind, flags["durable"], flags["auto_delete"], flags["internal"], arguments
    )


def routed(vhost: VirtualHost, exchange: str, key: str = "") -> list[str]:
    """The names of the queues that a route leads to, sorted."""
    return sorted(queue.name for queue in vhost.publisher.route(exchange, key).queues)


def publish(
    vhost: VirtualHost,
    exchange: str,
    key: str = "",
    persistent: bool = False,
    headers: dict[str, object] | None = None,
    immediate: bool = False,
    **properties: Any,
) -> Outcome:
    """Publish an empty message; return the result of Publisher.publish."""
    route = vhost.publisher.route(exchange, key)
    content = content_of(headers=headers, **properties)
    message = Message(route.address, content, 0, persistent, 0)
    if route.by_message:
        keys = [route.address.routing_key]
        return vhost.publisher.publish_by_message(
            route, message, keys, View091(Properties(content)), immediate=immediate
        )
    return vhost.publisher.publish(route, message, immediate=immediate)


def content_of(**properties: Any) -> bytes:
    """The content of an empty message with these properties."""
    return header_bytes(0, Basic.Properties(**properties), 1)


def view_of(**properties: Any) -> View091:
    """Return the view that routing has of a message with these properties."""
    return View091(Properties(content_of(**properties)))


class _NeverScheduled(Scheduler):
    """A scheduler that refuses turns: deliveries are immediate in these tests."""

    def schedule(self, connection: Connection) -> None:
        pass


class KeepingTarget(PullingTarget):
    """A consumer that keeps its deliveries."""

    def __init__(self) -> None:
        super().__init__(Session(Connection(_NeverScheduled())), Credit())
        self.taken: list[QueueEntry] = []
        self.cancelled = 0

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        self.taken.append(entry)

    def on_consumer_cancelled(self, consumer: QueueConsumer) -> None:
        self.cancelled += 1


def consume(queue: Queue, no_ack: bool = False) -> tuple[KeepingTarget, QueueConsumer]:
    """Attach a consumer to a queue."""
    taker = KeepingTarget()
    consumer = QueueConsumer(taker, queue, no_ack=no_ack)
    attach(queue, consumer)
    return taker, consumer


def pull(consumer: QueueConsumer) -> int:
    """Let a consumer pull; return the number of its messages."""
    count = 0
    queue = queue_of(consumer)
    while queue.deliver_single_message(consumer):
        count += 1
    return count
