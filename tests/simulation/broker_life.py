"""The real core and the real log on a simulated disk: a broker from its start to its end."""

import itertools
from collections.abc import Callable
from typing import Any

from broker.adapters.amqp091.rows import rows_of
from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.entries.entry import QueueEntry
from broker.core.message import Message
from broker.core.message_view import Views, bare_view
from broker.core.ports import DurableWaiter
from broker.core.queues.attach import attach
from broker.core.queues.consumer import QueueConsumer
from broker.core.vhosts.vhost import VirtualHost
from broker.store.restore import Recovered
from broker.store.sync import DiskSyncer
from tests.simulation.sim_disk import SimDisk
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import KeepingTarget
from tests.support.store.hand_log import DeferredWork, file_log

FOLDER = "/data"


class Confirm(DurableWaiter):
    """Waits as a channel does, and notes with `confirm` that everything appended before is on disk."""

    def __init__(self, confirm: Callable[[], object]) -> None:
        self.confirm = confirm

    def on_durable(self, batch: int) -> None:
        self.confirm()

    def on_store_failed(self, reason: str) -> None:
        pass


class Life:
    """A process of the broker; the disk outlives it."""

    def __init__(self, disk: SimDisk, memory_budget: int = 1 << 30, views: Views = bare_view) -> None:
        self.deferred = DeferredWork()
        self.log = file_log(
            FOLDER,
            disk,
            DiskSyncer(disk, self.deferred.run),
            lambda: 0.0,
            lambda: self.broker.describe(),
            segment_bytes=8192,
            first_segment_bytes=8192,
            reserve_bytes=8192,
            memory_budget=memory_budget,
        )
        names = itertools.count(1)
        self.clock = HandClock()
        self.broker = Broker(self.log, Counters(), lambda: str(next(names)), self.clock.schedule, views)
        self.broker.sinks.open_rows = rows_of
        self.log.recover(Recovered(self.broker))
        self.vhost: VirtualHost = self.broker.declare_vhost("/")

    def commit(self) -> None:
        """End the turn, and do the disk's work."""
        self.log.commit()
        self.deferred.run_all()

    def when_durable(self, confirm: Callable[[], object]) -> None:
        """Call `confirm` when everything appended so far is on disk."""
        self.log.wait(Confirm(confirm))

    def tidy(self) -> None:
        """Run some more turns, in which segments begin and are deleted."""
        for _ in range(3):
            self.log.tick()
            self.commit()

    def declare(self, name: str, **arguments: Any) -> None:
        """Declare a durable queue; `message_ttl=5` is its x-message-ttl, and so on."""
        held = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.vhost.declarations.declare_queue(name, True, None, False, held)

    def publish(self, queue: str, content: bytes) -> None:
        """Publish a persistent message."""
        route = self.vhost.publisher.route("", queue)
        self.vhost.publisher.publish(route, Message(route.address, content, len(content), True, 0))

    def take(self, name: str) -> tuple[QueueConsumer, list[QueueEntry]]:
        """A new consumer of a queue, and everything in it."""
        taker = KeepingTarget()
        queue = self.vhost.topology.queues[name]
        consumer = QueueConsumer(taker, queue)
        attach(queue, consumer)
        while queue.deliver_single_message(consumer):
            pass
        return consumer, taker.taken

    def held(self) -> dict[str, list[bytes]]:
        """Return the contents of each queue, ready or acquired."""
        return {
            name: [entry.message.content or self.log.load(entry.message) for entry in queue.entries]
            for name, queue in self.vhost.topology.queues.items()
        }
