"""A virtual host in which publishers ask for receipts, and whose disk takes its time."""

import json
from typing import Any

from broker.core.message import TELLS_ARRIVAL, TELLS_CONSUMED, Message
from broker.core.message_view import MessageView
from broker.core.ports import DurableWaiter
from tests.support.core.timed_vhost import VhostBench
from tests.support.core.topology import RecordingStore

BOTH = TELLS_ARRIVAL | TELLS_CONSUMED


class ReceiptView(MessageView):
    """Every message asks for receipts in the queue `back`."""

    def headers(self) -> dict[str, object]:
        return {"x-receipt-to": "back"}

    def property(self, name: str) -> object | None:
        return "id-\udc80" if name == "message_id" else None


class SlowStore(RecordingStore):
    """A disk that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.waiters: list[DurableWaiter] = []

    def wait(self, waiter: DurableWaiter) -> None:
        self.waiters.append(waiter)

    def sync(self) -> None:
        """The batch is on disk."""
        waiters, self.waiters = self.waiters, []
        self.durable = self.batch
        self.batch += 1
        for waiter in waiters:
            waiter.on_durable(self.durable)

    def fail(self) -> None:
        """The batch has not reached the disk, as that is full."""
        waiters, self.waiters = self.waiters, []
        for message, _ in self.enqueued:
            message.sequence = 0
        for waiter in waiters:
            waiter.on_store_failed("the disk is full")


class ReceiptBench(VhostBench):
    """A bench with the queues `q` and `back`, both durable, and a slow disk."""

    def __init__(self, **back: object) -> None:
        self.slow = SlowStore()
        super().__init__(self.slow)
        self.vhost.views = lambda message, store: ReceiptView()
        self.q = self.queue(durable=True)
        self.back = self.queue("back", durable=True, **back)

    def send(self, marks: int = BOTH, persistent: bool = True) -> Message:
        route = self.vhost.publisher.route("", "q")
        message = Message(route.address, b"1", 1, persistent, 0)
        message.marks = marks
        self.vhost.publisher.publish_carefully(route, message)
        return message

    def receipts(self) -> list[str]:
        """Return the kinds of the receipts in the queue, after a millisecond."""
        self.clock.advance(1)
        return [receipt_body(entry.message)["what"] for entry in self.back.entries]


def receipt_body(message: Message) -> dict[str, Any]:
    assert message.content is not None
    found = json.loads(message.content)
    assert isinstance(found, dict)
    return found
