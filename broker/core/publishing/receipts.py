"""Receipts, which report to a publisher that its message arrived in a queue, and that it was consumed.

The headers of a message ask for receipts. Its marks repeat this, so that other messages cost only one test. A
receipt is appended in the batch of the event that it reports. The receipt is put into its queue when the
batch is on disk. A transaction enqueues and settles only when its batch is on disk. Its receipts are prepared
before, with `prepare`, so that they are in the same batch.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from broker.core.errors import PreconditionFailed
from broker.core.message import DELAYED, TELLS_ARRIVAL, TELLS_CONSUMED, Address, Message
from broker.core.names import DEFAULT_EXCHANGE, is_short
from broker.core.ports import DurableWaiter
from broker.core.publishing.routed_message import RoutedMessage, find_full_queue, set_date
from broker.core.queues.queue import Queue
from broker.core.queues.source import OWN_SOURCE
from broker.core.queues.state import QueueState
from broker.core.routing.topology import Topology
from broker.core.routing.virtual_host import RoutingHost
from broker.core.schedule import RECEIPT, Chore
from broker.core.values import show, type_name

RECEIPT_TO: Final = "x-receipt-to"
RECEIPT_ON: Final = "x-receipt-on"
RECEIPT_PATH: Final = "x-receipt-path"
"""The queues through which receipts of a forwarded message return to earlier brokers, the next one first."""

PATH_MAX: Final = 16  # brokers through which receipts return
CLUSTER: Final = "cluster"
ARRIVAL: Final = "arrival"
CONSUMED: Final = "consumed"
_MARKS: Final = {ARRIVAL: TELLS_ARRIVAL, CONSUMED: TELLS_CONSUMED}
SLICE: Final[i64] = 100  # receipts that are put into queues in one turn

ReceiptWriter = Callable[[dict[str, object], bytes, bool, str], bytes]
"""Makes the content of a receipt from its headers, its JSON body, its persistence and its correlation-id."""


def bare_receipt(headers: dict[str, object], body: bytes, persistent: bool, correlation_id: str) -> bytes:
    """Return the body alone, for brokers without a protocol."""
    return body


def receipt_marks(headers: dict[str, object]) -> int:
    """Return the marks for the receipts that these headers ask for.

    Raises:
        PreconditionFailed: the headers are malformed.
    """
    if RECEIPT_TO not in headers and RECEIPT_ON not in headers:
        return 0
    to = headers.get(RECEIPT_TO)
    if not isinstance(to, str) or to == "" or not is_short(to):
        raise _invalid(RECEIPT_TO, to, "the name of a queue")
    on = headers.get(RECEIPT_ON)
    marks = 0
    for what in on.split(",") if isinstance(on, str) else [""]:
        if what.strip() not in _MARKS:
            raise _invalid(RECEIPT_ON, on, f"{ARRIVAL}, {CONSUMED}, or both with a comma between them")
        marks |= _MARKS[what.strip()]
    return marks


def receipt_path(headers: dict[str, object]) -> list[str]:
    """Return the queues through which receipts return to earlier brokers; none for a malformed path."""
    path = headers.get(RECEIPT_PATH)
    if not isinstance(path, list) or len(path) > PATH_MAX:
        return []
    names = [name for name in path if isinstance(name, str) and name != "" and is_short(name)]
    return names if len(names) == len(path) else []


def _invalid(name: str, value: object, allowed: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"invalid header '{name}' of a message: '{show(value)}' of type '{type_name(value)}' is not {allowed}"
    )


@final
class Receipts(Chore):
    """The receipts of one virtual host.

    `write` makes their contents. `cluster_name` returns the name of this broker for other brokers.
    `_due`: receipts whose event has happened, and is on disk if it must be. `_prepared`: appended receipts
    for events that will happen when their batch is on disk.
    """

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology.host.schedule, SLICE)
        self.write: ReceiptWriter = bare_receipt
        self.cluster_name: Callable[[], str] = str
        self._topology = topology
        self._host = topology.host
        self._due: deque[RoutedMessage] = deque()
        self._waiting: _Batch | None = None
        self._prepared: dict[tuple[Message, QueueState], _Prepared] = {}

    def write_arrivals(self, message: Message, queues: list[Queue]) -> None:
        """Write the receipts for the arrival of a message in `queues`.

        The receipts go into the batch of the message, if the message is logged.
        """
        for queue in queues:
            self._add(message, queue, ARRIVAL)

    def write_consumption(self, message: Message, queue: QueueState) -> None:
        """Write the receipt for a message that `queue` has just settled.

        The receipt goes into the batch of the settle, if the message is logged.
        """
        if message.marks & TELLS_CONSUMED:
            self._add(message, queue, CONSUMED)

    def _add(self, message: Message, queue: QueueState, what: str) -> None:
        """Write a receipt and send it to its queue in time.

        The receipt is dropped if its queue does not exist or is full, or if the disk cannot read the message.
        """
        host = self._host
        waits = (queue.logged and message.sequence != 0) or (
            isinstance(queue, Queue) and queue.stream is not None
        )
        prepared = self._prepared.pop((message, queue), None)
        if prepared is not None:
            waits = waits and prepared.batch > host.store.durable
            passage: RoutedMessage | None = prepared.passage
        else:
            passage = self._append_receipt(message, queue, what)
        if passage is None:
            host.counters.receipts_dropped += 1
        elif waits:
            self._wait(passage, what)
        else:
            self.put_soon([passage])

    def prepare(self, message: Message, queue: QueueState, what: str) -> bool:
        """Append the receipt of an event that happens when the batch being filled is on disk.

        Return whether this was possible. If so, the caller must report the event when it happens, or else
        call `withdraw`.
        """
        host = self._host
        passage = None if host.store.failure else self._append_receipt(message, queue, what)
        if passage is None:
            return False
        self._prepared[(message, queue)] = _Prepared(passage, host.store.batch)
        return True

    def withdraw(self, message: Message, queue: QueueState) -> None:
        """Cancel a prepared receipt, if it has not been sent."""
        prepared = self._prepared.pop((message, queue), None)
        if prepared is None:
            return
        passage = prepared.passage
        store = self._host.store
        passage.unreserve()
        passage.remove_deleted_queues(store)
        for holder in passage.logged:
            store.append_settle(passage.message, holder)

    def _append_receipt(self, message: Message, queue: QueueState, what: str) -> RoutedMessage | None:
        """Write a receipt, append it if possible, and reserve its room."""
        host = self._host
        host.schedule.allowance.use(RECEIPT)
        try:
            passage = self._write_receipt(message, queue, what)
        except Exception as error:
            host.trouble(f"a receipt cannot be written: {type(error).__name__}: {error}")
            return None
        if passage is not None:
            if not host.store.failure:
                passage.append(host)
            passage.reserve()
        return passage

    def _wait(self, passage: RoutedMessage, what: str) -> None:
        """Put a receipt into its queue when the batch being filled is on disk."""
        host = self._host
        batch = self._waiting
        if batch is None or batch.number != host.store.batch:
            batch = _Batch(self, host, host.store.batch)
            self._waiting = batch
            batch.add(passage, what)
            host.store.wait(batch)
        else:
            batch.add(passage, what)

    def _write_receipt(self, message: Message, queue: QueueState, what: str) -> RoutedMessage | None:
        host = self._host
        view = host.views(message, host.store)
        headers = view.headers()
        to = str(headers.get(RECEIPT_TO))
        target = self._topology.queues.get(to)
        if target is None:
            return None
        name = _text(view.property("message_id"))
        fields: dict[str, object] = {
            "what": what,
            "queue": queue.name,
            "message_id": name,
            "exchange": message.address.exchange,
            "routing_key": message.address.routing_key,
            "time": int(host.schedule.date()),
        }
        path = receipt_path(headers)
        if path:  # the publisher is at another broker
            fields[CLUSTER] = self.cluster_name()
        body = json.dumps(fields, ensure_ascii=False).encode()
        if path:
            fields[RECEIPT_PATH] = path
        correlation = name or _text(view.property("correlation_id"))
        content = self.write(fields, body, message.persistent, correlation)
        address = Address(DEFAULT_EXCHANGE, to)
        receipt = Message(address, content, len(body), message.persistent, 0)
        passage = RoutedMessage(receipt, [target], [], OWN_SOURCE)
        if not passage.queues or find_full_queue(receipt, passage.queues) is not None:
            return None
        set_date(host, receipt, passage.queues)
        return passage

    def put_soon(self, passages: list[RoutedMessage]) -> None:
        """Put receipts into their queues after the current step."""
        self._due.extend(passages)
        self.continue_soon()

    def drop(self, passage: RoutedMessage) -> None:
        """Drop a receipt whose event did not become durable."""
        passage.unreserve()
        self._host.counters.receipts_dropped += 1

    def step(self, budget: i64) -> bool:
        """Put up to `budget` due receipts into their queues."""
        host = self._host
        for _ in range(budget):
            if not self._due:
                return False
            passage = self._due.popleft()
            passage.unreserve()
            passage.remove_deleted_queues(host.store)
            if passage.queues:
                host.counters.receipts_sent += 1
                passage.put(host)
            else:
                host.counters.receipts_dropped += 1
        return bool(self._due)


@final
class _Prepared:
    """A receipt, appended in `batch`, for an event that happens when this batch is on disk."""

    def __init__(self, passage: RoutedMessage, batch: i64) -> None:
        self.passage = passage
        self.batch = batch


@final
class _Batch(DurableWaiter):
    """Receipts that wait for one batch of the log.

    If the batch fails, no queue has the message durably, so receipts of its arrival are dropped. On a full
    disk the log repeats the batch's settles in the next one, so receipts of consumption wait for that one.
    The receipts are only in memory then.
    """

    def __init__(self, receipts: Receipts, host: RoutingHost, number: i64) -> None:
        self.number = number
        self._receipts = receipts
        self._host = host
        self._passages: list[tuple[RoutedMessage, str]] = []
        self._again = False

    def add(self, passage: RoutedMessage, what: str) -> None:
        """Add a receipt for the event `what`."""
        self._passages.append((passage, what))

    def on_durable(self, batch: i64) -> None:
        """Send the receipts: the batch is on disk."""
        self._receipts.put_soon([passage for passage, _ in self._passages])

    def on_store_failed(self, reason: str) -> None:
        """Drop the receipts, or let them wait again: the batch is not on disk."""
        again = _Batch(self._receipts, self._host, -1)
        again._again = True
        for passage, what in self._passages:
            if what == CONSUMED and not self._again:
                again.add(passage, what)
            else:
                self._receipts.drop(passage)
        if again._passages:
            self._host.store.wait(again)


def _text(value: object | None) -> str:
    """Return a property as valid text, which the publisher may have encoded badly."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


@final
class PreparedReceipts:
    """The receipts of one transaction, in its batch, so that both become durable or neither does."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts
        self._prepared: list[tuple[Message, QueueState]] = []

    def prepare_arrivals(self, message: Message, queues: list[Queue]) -> None:
        """Prepare the receipts of queues that will get the message, which has been appended if need be."""
        if message.marks & (TELLS_ARRIVAL | DELAYED) == TELLS_ARRIVAL and message.persistent:
            for queue in queues:
                self._prepare(message, queue, ARRIVAL)

    def prepare_consumption(self, message: Message, queue: QueueState) -> None:
        """Prepare the receipt of a queue that will settle the message."""
        if message.marks & TELLS_CONSUMED:
            self._prepare(message, queue, CONSUMED)

    def withdraw(self) -> None:
        """End: the transaction is over, so receipts that were not sent are cancelled."""
        for message, queue in self._prepared:
            self._receipts.withdraw(message, queue)
        self._prepared = []

    def _prepare(self, message: Message, queue: QueueState, what: str) -> None:
        if queue.logged and message.sequence != 0 and self._receipts.prepare(message, queue, what):
            self._prepared.append((message, queue))
