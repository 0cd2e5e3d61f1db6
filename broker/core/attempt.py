"""What one task has written of a batch, apart from all queues until the batch is committed. [amqpd]"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.core.entry import DEQUEUED, QueueEntry
from broker.core.fifo_list import FifoEntryList
from broker.core.leaving import drop
from broker.core.message import Message
from broker.core.ports import DurableWaiter
from broker.core.queue import Queue
from broker.core.taker import taker_of

if TYPE_CHECKING:
    from broker.core.vhost import VirtualHost


@final
class Row:
    """A message that is to be published to an exchange; `keys`: all its routing keys, [] for just the one."""

    def __init__(self, message: Message, exchange: str, routing_key: str, keys: list[str]) -> None:
        self.message = message
        self.exchange = exchange
        self.routing_key = routing_key
        self.keys = keys


Known = set[tuple[str, str]]
"""Exchanges and routing keys."""

OpenRows = Callable[[bytes, "VirtualHost", "Known | None"], list[Row]]
"""The rows of a stored chunk, for publishing in a virtual host; made anew for each call.

Without those that have no headers and whose exchange and routing key are known.
"""


def no_rows(content: bytes, virtual_host: VirtualHost, known: Known | None) -> list[Row]:
    """For brokers that only look at what a log has."""
    raise NotImplementedError


@final
class Attempt:
    """Chunks of rows in the order in which they came, each one message of a queue that no client knows.

    `number`: that of the queue in the log, which is never given twice, so it names the attempt. The routing
    key of a stored chunk is how many rows it has.
    """

    def __init__(
        self, virtual_host: VirtualHost, number: i64, batch: i64, partition: i64, epoch: i64
    ) -> None:
        queue = Queue(
            "",
            virtual_host.store,
            FifoEntryList(),
            virtual_host.counters,
            durable=True,
            logged=True,
            number=number,
            vhost=virtual_host.name,
        )
        virtual_host.numbers.queues[number] = queue
        self.queue = queue
        self.number = number
        self.batch = batch
        self.partition = partition
        self.epoch = epoch
        self.taker = taker_of(queue)
        self.taker.no_ack = True  # nothing that it has counts as acknowledged
        self.rows: i64 = 0

    def add(self, chunks: list[Message], done: Callable[[str], object]) -> None:
        """Append chunks to the log and here. The log accepts appends.

        `done` is called when they are on disk, with "", or else with why not: they are not here then either.
        """
        store = self.queue.store
        entries: list[QueueEntry] = []
        for chunk in chunks:
            store.append_message(chunk, [self.queue])
            entries.append(self.queue.link(chunk))
            self.rows += rows_in(chunk)
        store.wait(_Added(self, entries, done))

    def take_back(self, entries: list[QueueEntry]) -> None:
        """The log does not have what was added."""
        for entry in entries:
            if entry.state != DEQUEUED:  # the attempt was not dropped meanwhile
                self.rows -= rows_in(entry.message)
                drop(self.queue, entry)

    def count(self) -> None:
        """Recovery has brought back the chunks."""
        self.rows = 0
        for entry in self.queue.entries:
            self.rows += rows_in(entry.message)

    def described(self) -> list[int]:
        """All but the rows, for the log."""
        return [int(self.number), int(self.batch), int(self.partition), int(self.epoch)]


@final
class _Added(DurableWaiter):
    """Chunks on their way to the disk."""

    def __init__(self, attempt: Attempt, entries: list[QueueEntry], done: Callable[[str], object]) -> None:
        self._attempt = attempt
        self._entries = entries
        self._done = done

    def on_durable(self, batch: i64) -> None:
        """They are there (DurableWaiter)."""
        self._done("")

    def on_store_failed(self, reason: str) -> None:
        """They are not (DurableWaiter)."""
        self._attempt.take_back(self._entries)
        self._done(reason)


def rows_in(chunk: Message) -> i64:
    """How many rows a stored chunk has."""
    return int(chunk.address.routing_key)


def content_of(chunk: Message, virtual_host: VirtualHost) -> bytes:
    """A stored chunk as it was stored. Raises what MessageStore.load raises."""
    return virtual_host.store.load(chunk) if chunk.content is None else chunk.content
