"""The outside of the queue core, by hand: scheduler without a loop, clients without sockets, memory store."""

from collections import deque

from broker.core.arguments.queue import NACK
from broker.core.counters import Counters
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, PullingTarget, Scheduler, Session
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.entries.list import FifoEntryList, QueueEntryList
from broker.core.message import Address, Message
from broker.core.ports import LoggedQueue, MessageStore
from broker.core.queues.attach import attach, detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue
from broker.core.queues.returns import release_entries

ADDRESS = Address("", "q")


def message(number: int, size: int = 1, priority: int = 0, persistent: bool = False) -> Message:
    """Return a message whose content is its number; `size` is its claimed size."""
    return Message(ADDRESS, b"%d" % number, size, persistent, priority)


def number_of(entry: QueueEntry) -> int:
    """The number that `message` gave it."""
    content = entry.message.content
    assert content is not None
    return int(content)


class HandScheduler(Scheduler):
    """A scheduler that runs turns when a test calls it, in the order of the requests."""

    def __init__(self) -> None:
        self.ready: deque[Connection] = deque()
        self.turns = 0

    def schedule(self, connection: Connection) -> None:
        assert connection not in self.ready, "a connection is scheduled once"
        if connection.in_round:
            self.ready.appendleft(connection)
        else:
            self.ready.append(connection)

    def prefer(self, connection: Connection) -> None:
        """Give `connection`, which waits, the next turn."""
        self.ready.remove(connection)
        self.ready.appendleft(connection)

    def step(self, budget: int = 16) -> bool:
        """Run a turn of the first waiting connection; False if no connection waits."""
        if not self.ready:
            return False
        self.turns += 1
        self.ready.popleft().pump(budget)
        return True

    def run(self, budget: int = 16, turns_max: int = 100_000) -> None:
        """Turns until nobody waits; more than `turns_max` is a live-lock."""
        for _ in range(turns_max):
            if not self.step(budget):
                return
        raise AssertionError("the dispatch does not come to rest")


class MemoryStore(MessageStore):
    """A store that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.settled: list[tuple[Message, str]] = []
        self.forgotten: list[Message] = []
        self.counted: list[tuple[Message, str, int]] = []
        self.added: list[bytes] = []  # with each of them

    def append_count(
        self, message: Message, queue: LoggedQueue, count: int, annotations: bytes = b""
    ) -> None:
        self.counted.append((message, queue.name, count))
        self.added.append(annotations)

    def append_settle(self, message: Message, queue: LoggedQueue) -> None:
        self.settled.append((message, queue.name))

    def forget(self, message: Message, queue: LoggedQueue) -> None:
        self.forgotten.append(message)


class Client(PullingTarget):
    """A consumer of a single queue, by default on a connection of its own."""

    def __init__(
        self,
        queue: Queue,
        scheduler: Scheduler,
        prefetch: int = 0,
        prefetch_bytes: int = 0,
        session: Session | None = None,
        session_credit: Credit | None = None,
        acquires: bool = True,
        priority: int = 0,
        exclusive: bool = False,
        no_ack: bool = False,
        candidate: bool = False,
        getting: bool = False,
        entry_filter: EntryFilter | None = None,
    ) -> None:
        super().__init__(
            session or Session(Connection(scheduler)), Credit(prefetch, prefetch_bytes), session_credit
        )
        self.queue = queue
        self.deliveries: list[QueueEntry] = []
        self.flags: list[bool] = []  # the redelivered flag that the client saw
        self.held: list[QueueEntry] = []
        self.notified = 0
        self.drained = 0
        self.removed: list[QueueEntry] = []
        self.cancelled: list[QueueConsumer] = []
        self.activities: list[tuple[bool, str]] = []  # (is active, reason) of each call
        self.consumer = QueueConsumer(self, queue, acquires, priority, exclusive, "tag", no_ack, entry_filter)
        self.consumer.candidate = candidate
        self.consumer.getting = getting
        attach(queue, self.consumer)

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the deliveries, in order."""
        return [number_of(entry) for entry in self.deliveries]

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        self.deliveries.append(entry)
        self.flags.append(entry.redelivered)
        if not consumer.no_ack:
            self.held.append(entry)

    def notify_work(self) -> None:
        self.notified += 1
        super().notify_work()

    def on_no_messages(self, consumer: QueueConsumer) -> None:
        self.drained += 1

    def on_acquisition_removed(self, entry: QueueEntry) -> None:
        self.restore_credit(entry.message.size)
        self.removed.append(entry)

    def on_consumer_cancelled(self, consumer: QueueConsumer) -> None:
        self.cancelled.append(consumer)

    def on_activity_changed(self, consumer: QueueConsumer, active: bool, why: str) -> None:
        self.activities.append((active, why))

    def ack(self, *numbers: int) -> None:
        """Settle these, or everything."""
        for entry in self._take(numbers):
            if self.consumer.acquires:
                self.queue.settle(entry)
            self.restore_credit(entry.message.size)

    def nack(self, *numbers: int, outcome: int = NACK) -> None:
        """Give these back, or everything, in this way."""
        entries = self._take(numbers)
        sizes = [entry.message.size for entry in entries]
        release_entries(self.queue, entries, self.consumer, outcome)
        for size in sizes:
            self.restore_credit(size)

    def reject(self, *numbers: int) -> None:
        """Refuse these for good, or everything."""
        for entry in self._take(numbers):
            self.queue.discard(entry)
            self.restore_credit(entry.message.size)

    def cancel(self) -> None:
        """Stop consuming; unsettled deliveries stay acquired. [AMQP 0-9-1 basic.cancel]"""
        self.close()
        detach(self.queue, self.consumer, [])

    def vanish(self) -> None:
        """The connection is lost."""
        self.session.connection.close_targets()
        detach(self.queue, self.consumer, self._take(()))

    def _take(self, numbers: tuple[int, ...]) -> list[QueueEntry]:
        taken = [entry for entry in self.held if not numbers or number_of(entry) in numbers]
        self.held = [entry for entry in self.held if entry not in taken]
        return taken


class QueueBench:
    """A queue with its scheduler and store."""

    def __init__(self, entries: QueueEntryList | None = None, logged: bool = False) -> None:
        self.scheduler = HandScheduler()
        self.store = MemoryStore()
        self.counters = Counters()
        self.queue = Queue(
            "q",
            self.store,
            entries or FifoEntryList(),
            self.counters,
            durable=logged,
            logged=logged,
            number=1,
        )
        self.published = 0
        self.clients: list[Client] = []

    @property
    def notifications(self) -> int:
        """The number of notifications of clients."""
        return sum(client.notified for client in self.clients)

    @property
    def empty_pulls(self) -> int:
        """The number of notified pulls that found no entry."""
        return sum(client.drained for client in self.clients)

    def publish(self, count: int = 1, size: int = 1, priority: int = 0) -> None:
        """Messages 1, 2, 3 ... over the life of the bench."""
        for new in self.messages(count, size, priority):
            self.queue.enqueue(new)

    def messages(self, count: int = 1, size: int = 1, priority: int = 0) -> list[Message]:
        """The next messages, not published yet."""
        first = self.published + 1
        self.published += count
        return [message(number, size, priority) for number in range(first, first + count)]

    def client(self, prefetch: int = 0, **options: object) -> Client:
        """Attach a client; see `Client` for the options."""
        client = Client(self.queue, self.scheduler, prefetch, **options)  # type: ignore[arg-type]
        self.clients.append(client)
        return client

    def getter(self) -> QueueConsumer:
        """The consumer that owns the entries of basic.get."""
        target = PullingTarget(Session(Connection(self.scheduler)), Credit())
        return QueueConsumer(target, self.queue)

    def run(self, budget: int = 16) -> None:
        """Turns until nobody waits."""
        self.scheduler.run(budget)

    def numbers(self) -> list[int]:
        """Return the numbers of the queue's entries, in order."""
        return [number_of(entry) for entry in self.queue.entries]
