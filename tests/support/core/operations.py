"""Operations of operators in tests of the core: how they end, and a store that is as slow as a test wants."""

from broker.core.message import Message
from broker.core.operators.operation import Operation
from broker.core.ports import DurableWaiter, LoggedQueue
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.topology import KeepingTarget, RecordingStore


class SlowStore(RecordingStore):
    """A store whose records become durable when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[DurableWaiter] = []
        self.last_words: list[Message] = []

    def append_transacted_settle(self, message: Message, queue: LoggedQueue) -> None:
        self.last_words.append(message)

    def wait(self, waiter: DurableWaiter) -> None:
        self.waiting.append(waiter)


class RecordedOperation(Operation):
    """Remembers how it ended."""

    def __init__(self, vhost: VirtualHost, queue: Queue) -> None:
        super().__init__(vhost.publisher, queue, QueueConsumer(KeepingTarget(), queue, no_ack=True))
        self.end = ""

    def on_committed(self) -> None:
        self.end = "committed"

    def on_commit_failed(self, reason: str) -> None:
        self.end = reason
