"""Receipts: a publisher learns that its message has arrived in a queue, and that it was consumed.

A message asks for them by its headers, and its marks say so, so that others pay one test. A receipt is
appended in the batch of what it tells, and put into its queue when that is on disk. What a transaction does
it does when its batch is on disk: so that its receipts are in that batch too, they are foretold.
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
from broker.core.publishing.passage import Passage, set_date
from broker.core.queues.hooks import OWN
from broker.core.queues.queue import Queue
from broker.core.queues.state import QueueState
from broker.core.routing.topology import Topology
from broker.core.schedule import RECEIPT, Alarm
from broker.core.values import show, type_name

RECEIPT_TO: Final = "x-receipt-to"
RECEIPT_ON: Final = "x-receipt-on"
ARRIVAL: Final = "arrival"
CONSUMED: Final = "consumed"
_MARKS: Final = {ARRIVAL: TELLS_ARRIVAL, CONSUMED: TELLS_CONSUMED}
SLICE: Final = 100  # receipts that are put into queues in one turn

ReceiptWriter = Callable[[dict[str, object], bytes, bool, str], bytes]
"""Makes the content of a receipt: its headers, its body of JSON, if it is persistent, its correlation-id."""


def bare_receipt(headers: dict[str, object], body: bytes, persistent: bool, correlation_id: str) -> bytes:
    """For protocols that are not known: the body."""
    return body


def receipt_marks(headers: dict[str, object]) -> int:
    """The marks of a message with these headers: which receipts it wants.

    Raises:
        PreconditionFailed: it says so in a way that makes no sense.
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


def _invalid(name: str, value: object, allowed: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"invalid header '{name}' of a message: '{show(value)}' of type '{type_name(value)}' is not {allowed}"
    )


@final
class Receipts(Alarm):
    """Those of one virtual host. `due`: what they tell has come to pass, and is on disk if it has to be.

    `foretold`: what the queue will do with the message has been appended, and is to be told when it does it.
    """

    def __init__(self, topology: Topology) -> None:
        super().__init__()
        self.write: ReceiptWriter = bare_receipt
        self._topology = topology
        self._due: deque[Passage] = deque()
        self._waiting: _Batch | None = None
        self._foretold: dict[tuple[Message, QueueState], _Foretold] = {}

    def arrived(self, message: Message, queues: list[Queue]) -> None:
        """These queues have just got the message, in the batch that is being filled if it is logged."""
        for queue in queues:
            self._add(message, queue, ARRIVAL)

    def consumed(self, message: Message, queue: QueueState) -> None:
        """The queue has just settled a message with marks, in that batch if the message is logged."""
        if message.marks & TELLS_CONSUMED:
            self._add(message, queue, CONSUMED)

    def _add(self, message: Message, queue: QueueState, what: str) -> None:
        """Write a receipt and have it go to its queue in time; without that queue, or room in it, drop it.

        So is the receipt of a message that the disk does not give back.
        """
        topology = self._topology
        waits = (queue.logged and message.sequence != 0) or (
            isinstance(queue, Queue) and queue.stream is not None
        )
        foretold = self._foretold.pop((message, queue), None)
        if foretold is not None:
            waits = waits and foretold.batch > topology.store.durable
            passage: Passage | None = foretold.passage
        else:
            passage = self._appended(message, queue, what)
        if passage is None:
            topology.counters.receipts_dropped += 1
        elif waits:
            self._wait(passage, what)
        else:
            self.now_due([passage])

    def foretell(self, message: Message, queue: QueueState, what: str) -> bool:
        """Append the receipt of what will be done when the batch being filled is on disk; false: not now.

        Then it is left to when that is done, which is to be told or else `withdraw`.
        """
        topology = self._topology
        passage = None if topology.store.failure else self._appended(message, queue, what)
        if passage is None:
            return False
        self._foretold[(message, queue)] = _Foretold(passage, topology.store.batch)
        return True

    def withdraw(self, message: Message, queue: QueueState) -> None:
        """What was foretold of a message, if it has not been told, will not be done."""
        foretold = self._foretold.pop((message, queue), None)
        if foretold is None:
            return
        passage = foretold.passage
        store = self._topology.store
        passage.unreserve()
        passage.leave_out_deleted(store)
        for holder in passage.logged:
            store.append_settle(passage.message, holder)

    def _appended(self, message: Message, queue: QueueState, what: str) -> Passage | None:
        """A receipt that is written, appended if that can be, and has its place."""
        topology = self._topology
        topology.schedule.allowance.use(RECEIPT)
        try:
            passage = self._written(message, queue, what)
        except Exception as error:
            topology.trouble(f"a receipt cannot be written: {type(error).__name__}: {error}")
            return None
        if passage is not None:
            if not topology.store.failure:
                passage.append(topology)
            passage.reserve()
        return passage

    def _wait(self, passage: Passage, what: str) -> None:
        """Have a receipt be put into its queue when the batch being filled is on disk."""
        topology = self._topology
        batch = self._waiting
        if batch is None or batch.number != topology.store.batch:
            batch = _Batch(self, topology, topology.store.batch)
            self._waiting = batch
            batch.add(passage, what)
            topology.store.wait(batch)
        else:
            batch.add(passage, what)

    def _written(self, message: Message, queue: QueueState, what: str) -> Passage | None:
        topology = self._topology
        view = topology.views(message, topology.store)
        to = str(view.headers().get(RECEIPT_TO))
        target = topology.queues.get(to)
        if target is None:
            return None
        name = _text(view.property("message_id"))
        told: dict[str, object] = {
            "what": what,
            "queue": queue.name,
            "message_id": name,
            "exchange": message.address.exchange,
            "routing_key": message.address.routing_key,
            "time": int(topology.schedule.date()),
        }
        body = json.dumps(told, ensure_ascii=False).encode()
        correlation = name or _text(view.property("correlation_id"))
        content = self.write(told, body, message.persistent, correlation)
        address = Address(DEFAULT_EXCHANGE, to)
        receipt = Message(address, content, len(body), message.persistent, 0)
        if target.rules is not None and target.rules.refuses(receipt):
            return None
        set_date(topology, receipt, [target])
        return Passage(receipt, [target], [])

    def now_due(self, passages: list[Passage]) -> None:
        """Put these into their queues, when the step that is under way is over."""
        schedule = self._topology.schedule
        self._due.extend(passages)
        schedule.set(self, schedule.now())

    def dropped(self, passage: Passage) -> None:
        """What a receipt was to tell has not come to pass, as far as is known."""
        passage.unreserve()
        self._topology.counters.receipts_dropped += 1

    def ring(self) -> None:
        """Put a slice of what is due into its queues (Alarm)."""
        topology = self._topology
        for _ in range(SLICE):
            if not self._due:
                return
            passage = self._due.popleft()
            passage.unreserve()
            passage.leave_out_deleted(topology.store)
            if passage.queues:
                topology.counters.receipts_sent += 1
                passage.put(topology, OWN)
            else:
                topology.counters.receipts_dropped += 1
        if self._due:
            topology.schedule.set(self, topology.schedule.now())


@final
class _Foretold:
    """A receipt that is appended in this batch, and tells what will be done when that is on disk."""

    def __init__(self, passage: Passage, batch: i64) -> None:
        self.passage = passage
        self.batch = batch


@final
class _Batch(DurableWaiter):
    """Receipts that wait for one batch of the log.

    If the batch fails, nobody has the message durably, and its arrival is not told. On a full disk what was
    consumed in it is said again in the next one; the receipt is in memory only then.
    """

    def __init__(self, receipts: Receipts, topology: Topology, number: i64) -> None:
        self.number = number
        self._receipts = receipts
        self._topology = topology
        self._passages: list[tuple[Passage, str]] = []
        self._again = False

    def add(self, passage: Passage, what: str) -> None:
        """One more."""
        self._passages.append((passage, what))

    def on_durable(self, batch: i64) -> None:
        """It is on disk (DurableWaiter)."""
        self._receipts.now_due([passage for passage, _ in self._passages])

    def on_store_failed(self, reason: str) -> None:
        """It is not (DurableWaiter)."""
        again = _Batch(self._receipts, self._topology, -1)
        again._again = True
        for passage, what in self._passages:
            if what == CONSUMED and not self._again:
                again.add(passage, what)
            else:
                self._receipts.dropped(passage)
        if again._passages:
            self._topology.store.wait(again)


def _text(value: object | None) -> str:
    """A property that the publisher may have spelt badly."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


@final
class Foretelling:
    """The receipts of what one transaction will do: in its batch, so that none is there without the other."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts
        self._told: list[tuple[Message, QueueState]] = []

    def arrival(self, message: Message, queues: list[Queue]) -> None:
        """These queues will get the message, which has been appended for those that are logged."""
        if message.marks & (TELLS_ARRIVAL | DELAYED) == TELLS_ARRIVAL and message.persistent:
            for queue in queues:
                self._foretell(message, queue, ARRIVAL)

    def consumed(self, message: Message, queue: QueueState) -> None:
        """The queue will settle the message."""
        if message.marks & TELLS_CONSUMED:
            self._foretell(message, queue, CONSUMED)

    def withdraw(self) -> None:
        """The transaction is over: what has not been told will not be done."""
        for message, queue in self._told:
            self._receipts.withdraw(message, queue)
        self._told = []

    def _foretell(self, message: Message, queue: QueueState, what: str) -> None:
        if queue.logged and message.sequence != 0 and self._receipts.foretell(message, queue, what):
            self._told.append((message, queue))
