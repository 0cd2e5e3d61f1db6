"""The content of queues in memory, and the model of the log beside it."""

import random

from broker.core.message import Body, Message
from broker.core.queues.queue import Queue
from broker.store.log import Log
from broker.store.streams.stream import Stream
from protocol.streams.chunk import BASIC
from tests.simulation.sim_disk import SimDisk
from tests.simulation.store_model import Event, Model, random_message, whole
from tests.support.store.hand_log import content_of


class WorkState:
    """The queues, messages, streams and uploads of a life of the log."""

    log: Log

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.disk = SimDisk(rng)
        self.model = Model()
        self.queues: dict[int, Queue] = {}
        self.held: dict[int, tuple[Message, set[int]]] = {}  # in the memory of queues, by an own number
        self.counts: dict[tuple[int, int], int] = {}  # by that number and the queue's
        self.waiting: dict[tuple[int, int], int] = {}  # counts that a full disk has not taken, by sequence
        self.reserved: set[tuple[int, int]] = set()  # to be settled by transactions, likewise
        self.uploads: list[Body] = []
        self.streams: dict[int, Stream] = {}
        self.next_queue = 1
        self.next_message = 1

    def new_message(self) -> Message:
        """Return a message that is not appended, sometimes with a body that was uploaded in pieces."""
        message = random_message(self.rng, self.next_message)
        self.next_message += 1
        ready = [body for body in self.uploads if body.pieces]
        if ready and self.rng.random() < 0.2:
            message.body = self.rng.choice(ready)
            self.uploads.remove(message.body)
        return message

    def append_row(self, number: int, length: int) -> None:
        """A row of this length is appended to the stream of the queue with this number."""
        stream = self.streams[number]
        body = content_of(self.next_message, length)
        self.next_message += 1
        batch = self.log.batch
        offset = stream.next
        assert stream.add(batch, BASIC, b"", b"k", b"", body) == offset
        self.model.add(batch, Event("row", number, content=body))

    def load(self, message: Message) -> bytes:
        rotten, self.disk.rotten_reads = self.disk.rotten_reads, 0
        content = whole(self.log, message)
        self.disk.rotten_reads = rotten
        return content

    def let_go(self, key: int, queue: int) -> None:
        """Remove a message from a queue's memory."""
        _, queues = self.held[key]
        queues.discard(queue)
        if not queues:
            del self.held[key]
        self.counts.pop((key, queue), None)
        self.reserved.discard((key, queue))
