"""The restoration of a broker from the log: definitions become topology, messages entries; and its close."""

from __future__ import annotations

from typing import final

from broker.core.broker import Broker
from broker.core.message import Message
from broker.core.vhosts.changes import queue_change
from broker.core.vhosts.definitions import restore_message
from broker.store.counts import Count
from broker.store.log import Log
from broker.store.recovery.sink import RecoverySink


def close(broker: Broker, log: Log) -> None:
    """Mark every entry that a client has seen, then sync and close. Raises StoreFailed if that failed.

    Settles of clients that wait for later turns are finished before. Rejected deliveries are delivered again
    instead: there may be more dead letters than fit into one batch. Volatile queues record how many messages
    they lose.
    """
    for vhost in broker.vhosts.values():
        vhost.finish_settlements()
        for queue in vhost.topology.queues.values():
            if queue.volatile is not None:
                log.append_definition(queue_change(vhost.name, queue, True))
            if queue.logged:
                for entry in queue.entries:
                    if entry.redelivered or entry.delivery_count > 0:
                        log.append_delivered(entry.message, queue)
    log.close()


@final
class Recovered(RecoverySink):
    """A sink that fills an empty broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def apply(self, change: dict[str, object]) -> None:
        """Apply a definition."""
        self.broker.apply(change)

    def on_definitions_end(self) -> None:
        """Apply policies, and open streams and partitioned queues, before messages are restored."""
        self.broker.apply_policies()
        self.broker.open_streams()
        self.broker.open_partitions()
        self.broker.count_lost()

    def has(self, queue: int) -> bool:
        """Whether a queue with this number exists."""
        return self.broker.queue_numbered(queue) is not None

    def message(
        self, message: Message, queues: list[int], redelivered: bool, counts: dict[int, Count]
    ) -> int:
        """Restore a message in the queues that hold it."""
        taken = 0
        for number in queues:
            queue = self.broker.queue_numbered(number)
            if queue is None:
                continue
            count = counts.get(number)
            if count is None:
                taken += restore_message(queue, message, redelivered)
            else:
                taken += restore_message(queue, message, redelivered, count.value, count.annotations)
        return taken
