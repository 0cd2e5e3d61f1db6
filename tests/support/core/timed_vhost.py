"""A virtual host in which time passes by hand, for queues that limit time and space."""

import itertools

from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.entries.entry import QueueEntry
from broker.core.message import NEVER, Message
from broker.core.ports import MessageStore
from broker.core.publishing.publisher import UNROUTED, Outcome
from broker.core.queues.death import CAUSES
from broker.core.queues.hooks import REASONS
from broker.core.queues.queue import Queue
from tests.support.core.hand_clock import HandClock
from tests.support.core.queue_bench import Client, HandScheduler, number_of
from tests.support.core.topology import RecordingStore


class VhostBench:
    """Queues by name, messages by number; a dead letter keeps the number of the message that died."""

    def __init__(self, store: MessageStore | None = None) -> None:
        names = itertools.count(1)
        self.clock = HandClock()
        self.store = store or RecordingStore()
        self.troubles: list[str] = []
        self.broker = Broker(
            self.store,
            Counters(),
            lambda: str(next(names)),
            self.clock.schedule,
            trouble=self.troubles.append,
        )
        self.vhost = self.broker.declare_vhost("/")
        self.scheduler = HandScheduler()
        self.published = 0

    @property
    def counters(self) -> Counters:
        return self.broker.counters

    def queue(self, name: str = "q", durable: bool = False, **arguments: object) -> Queue:
        """Declare a queue; `message_ttl=5` is its x-message-ttl, and so on."""
        held = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.vhost.declarations.declare_queue(name, durable, None, False, held)

    def publish(
        self,
        key: str = "q",
        count: int = 1,
        expiration: int = NEVER,
        size: int = 1,
        priority: int = 0,
        persistent: bool = False,
        exchange: str = "",
    ) -> Outcome:
        """Publish messages 1, 2, 3 ... over the life of the bench; return the result of the last publish."""
        outcome = UNROUTED
        route = self.vhost.publisher.route(exchange, key)
        for _ in range(count):
            self.published += 1
            message = Message(route.address, b"%d" % self.published, size, persistent, priority)
            message.expiration = expiration
            publish = (
                self.vhost.publisher.publish
                if expiration == NEVER
                else self.vhost.publisher.publish_carefully
            )
            outcome = publish(route, message)
        return outcome

    def client(self, queue: Queue, prefetch: int = 0, **options: object) -> Client:
        """Attach a client; see `Client` for the options."""
        return Client(queue, self.scheduler, prefetch, **options)  # type: ignore[arg-type]

    def run(self) -> None:
        """Turns until nobody waits."""
        self.scheduler.run()

    def died(self) -> dict[str, int]:
        """Return the number of deaths for each reason, dead-lettered or discarded."""
        both = zip(REASONS, self.counters.dead_lettered, self.counters.discarded, strict=True)
        return {reason: sent + dropped for reason, sent, dropped in both if sent + dropped}

    def dropped(self) -> dict[str, int]:
        """The counts of dropped dead letters, by reason of the death and cause of the drop."""
        return dropped(self.counters)


def dropped(counters: Counters) -> dict[str, int]:
    """The counts of dropped dead letters, by reason of the death and cause of the drop."""
    names = [f"{reason}, {cause}" for reason in REASONS for cause in CAUSES]
    return {name: count for name, count in zip(names, counters.letters_dropped, strict=True) if count}


def numbers(queue: Queue) -> list[int]:
    """Return the numbers of the queue's entries, in order."""
    return [number_of(entry) for entry in queue.entries]


def entry_of(queue: Queue, number: int) -> QueueEntry:
    """The entry with a message."""
    return next(entry for entry in queue.entries if number_of(entry) == number)


def delivered_bench(
    count: int = 1, prefetch: int = 0, **arguments: object
) -> tuple[VhostBench, Queue, Client]:
    """Return a bench, a queue with these arguments, and its client with the published deliveries."""
    bench = VhostBench()
    queue = bench.queue(**arguments)  # type: ignore[arg-type]
    client = bench.client(queue, prefetch)
    bench.publish(count=count)
    bench.run()
    return bench, queue, client
