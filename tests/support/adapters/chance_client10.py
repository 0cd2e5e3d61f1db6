"""A random client of AMQP 1.0, which sometimes breaks the protocol."""

import random
from collections import Counter

from broker.adapters.amqp10.state import CLOSED, CLOSING
from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import (
    Accepted,
    Coordinator,
    Declare,
    DeliveryState,
    Discharge,
    Error,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from protocol.amqp10.performatives import Attach, Begin, Close, Detach, Disposition, End, Flow, Transfer
from protocol.amqp10.types import Composite
from tests.support.adapters.connection10_without_socket import WINDOW, Client10
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.adapters.queued_messages10 import data
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.reference_codec import described
from tests.support.amqp10.seeds import FILTERS, MESSAGES

SENDER, RECEIVER, CONTROLLER, ANY = range(4)  # handles of links that are there most of the time
OTHERS = range(4, 9)
TXN_IDS = (b"\0\0\0\1", b"\0\0\0\2", b"none")
ERROR = Error(condition="a:b", info={"n": 1})
QUEUES: tuple[dict[str, object], ...] = (
    {},
    {"x-max-length": 2, "x-overflow": "reject-publish"},
    {"x-delivery-limit": 1},
    {"x-single-active-consumer": True},
)
ADDRESSES = (
    "/queues/q", "/queues/none", "q", None, "", "%", "/management", "/exchanges/amq.topic/a", "/topic/a",
    "/exchanges/amq.fanout", "/exchange/amq.direct/k",
)  # fmt: skip
STATES: tuple[DeliveryState, ...] = (
    Accepted(),
    Released(),
    Rejected(error=ERROR),
    Modified(),
    Modified(delivery_failed=True, undeliverable_here=True, message_annotations={"x-a": 1}),
    Received(section_number=0, section_offset=0),
    *(TransactionalState(txn_id=txn_id) for txn_id in TXN_IDS),
    *(TransactionalState(txn_id=txn_id, outcome=Accepted()) for txn_id in TXN_IDS),
)
PAYLOADS = (*MESSAGES, b"", data(b"x" * 3000), bare10(to="/queues/q", user_id=b"guest"))


class ChanceClient:
    """A random client with its own broker. `heard` counts performatives, and errors by condition."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.bench = BrokerBench()
        self.vhost = self.bench.broker.vhosts["/"]
        self.vhost.declarations.declare_queue("q", True, None, False, self._chance.choice(QUEUES))
        self.vhost.declarations.declare_queue("v", False, None, False, {})
        self.wired = Client10(self.bench, self._chance.choice([512, 4096]))
        self.heard: Counter[str] = Counter()
        self._forget()
        self._attach_all()

    def live(self, steps: int) -> None:
        """Take so many steps, or until the connection is over; then it is lost."""
        connection = self.wired.connection
        for _ in range(steps):
            self._step()
            self._listen()
            if connection.state in (CLOSING, CLOSED):
                break
        self._settle_down()
        self._listen()
        if connection.state != CLOSED:
            connection.on_lost("gone")
        self._settle_down()

    def _forget(self) -> None:
        """A session begins."""
        self._sent = 0
        self._delivery = 0
        self._received = 0
        self._deliveries: list[int] = []
        self._handles: set[int] = set()

    def _step(self) -> None:
        chance, bench = self._chance, self.bench
        made = self._said()
        if made is not None:
            self.wired.send(made[0], payload=made[1])
        if chance.random() < 0.5:
            bench.turns.run()
        if chance.random() < 0.3:
            bench.store.complete()
        if chance.random() < 0.1:
            bench.clock.advance(5)

    def _settle_down(self) -> None:
        self.bench.turns.run()
        self.bench.store.complete()
        self.bench.clock.advance(5000)
        self.bench.turns.run()

    def _listen(self) -> None:
        """Record the received performatives, and answer them where an answer is required."""
        for frame in self.wired.written():
            made = frame.performative
            error = getattr(made, "error", None)
            self.heard[type(made).__name__ if error is None else error.condition] += 1
            if isinstance(made, Transfer):
                self._received += 1
                if made.delivery_id is not None:
                    self._deliveries.append(made.delivery_id)
            elif isinstance(made, Detach) and error is not None:
                self._handles.discard(made.handle)
                self.wired.send(Detach(handle=made.handle, closed=True))
            elif isinstance(made, End):
                if error is not None:
                    self.wired.send(End())
                self._forget()
                self.wired.send(Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
                self._attach_all()
            elif isinstance(made, Close) and error is not None:
                break

    def _said(self) -> tuple[Composite, bytes] | None:
        """A frame, or None."""
        what = self._chance.randrange(24)
        if self._handles.isdisjoint((SENDER, RECEIVER, CONTROLLER, ANY)) or self._chance.random() < 0.3:
            self._attach_all()
        if what < 10:
            return self._transfer()
        if what < 15:
            return self._flow(), b""
        if what < 20:
            return self._disposition(), b""
        if what == 20:
            return self._attach(), b""
        if what == 21:
            return self._detach()
        return (End(), b"") if what == 22 and self._chance.random() < 0.15 else None

    def _attach_all(self) -> None:
        """Attach the missing links of the four."""
        choice = self._chance.choice
        target = Target(address=choice(["/queues/q", "/queues/v"]))
        source = Source(address=choice(["/queues/q", "/queues/v"]))
        second = choice([0, 1])
        made = [
            Attach(name="s", handle=SENDER, role=False, source=Source(), target=target),
            Attach(name="r", handle=RECEIVER, role=True, source=source, target=Target()),
            Attach(name="c", handle=CONTROLLER, role=False, source=Source(), target=Coordinator()),
            Attach(name="a", handle=ANY, role=False, source=Source(), target=Target()),
        ]
        for attach in made:
            if attach.handle not in self._handles:
                attach.initial_delivery_count = None if attach.role else 0
                attach.rcv_settle_mode = second
                attach.snd_settle_mode = choice([0, 0, 1]) if attach.role else 2
                self._handles.add(attach.handle)
                self.wired.send(attach)

    def _attach(self) -> Attach:
        """Return the attach of a random link, on a free handle if there is any."""
        choice = self._chance.choice
        handle = choice([each for each in OTHERS if each not in self._handles] or [RECEIVER])
        self._handles.add(handle)
        address = choice(ADDRESSES)
        sources = (
            None,
            Source(),
            Source(address=address),
            Source(address=address, durable=2, expiry_policy="never"),
            Source(dynamic=True),
            Source(address=address, filter=FILTERS),
            Source(address=address, distribution_mode="copy"),
            Source(address=address, outcomes=("amqp:accepted:list",), default_outcome=Released()),
        )
        targets = (None, Target(), Target(address=address), Coordinator(), Target(dynamic=True))
        return Attach(
            name=choice("abcrs"),
            handle=handle,
            role=choice([True, False]),
            source=choice(sources),
            target=choice(targets),
            snd_settle_mode=choice([0, 1, 2]),
            rcv_settle_mode=choice([0, 1]),
            unsettled=choice([None, None, {b"t": None}, {b"t": Accepted()}]),
            initial_delivery_count=choice([None, 0, 0, 2**32 - 1]),
            max_message_size=choice([None, 0, 100, 10**6]),
            properties=choice([None, None, {"paired": True}]),
        )

    def _detach(self) -> tuple[Detach, bytes] | None:
        handle = self._chance.randrange(9)
        if handle not in self._handles or self._chance.random() < 0.5:
            return None
        self._handles.discard(handle)
        return Detach(handle=handle, closed=self._chance.random() < 0.5), b""

    def _transfer(self) -> tuple[Transfer, bytes]:
        choice, number = self._chance.choice, self._delivery
        handles = [SENDER, SENDER, SENDER, CONTROLLER, CONTROLLER, ANY]
        handle = choice([each for each in handles if each in self._handles] or handles)
        transfer = Transfer(
            handle=handle,
            delivery_id=number,
            delivery_tag=b"%d" % number,
            settled=choice([None, False, False, True]),
            more=self._chance.random() < 0.15,
            aborted=self._chance.random() < 0.05,
        )
        self._delivery += self._chance.random() < 0.9
        self._sent += 1
        if handle != CONTROLLER:
            transfer.state = choice([None] * len(STATES) + list(STATES))
            return transfer, choice(PAYLOADS)
        discharge = Discharge(txn_id=choice(TXN_IDS), fail=choice([False, True]))
        return transfer, described(0x77, encode_composite(choice([Declare(), Declare(), discharge])))

    def _flow(self) -> Flow:
        choice = self._chance.choice
        return Flow(
            next_incoming_id=choice([0, self._received, self._received]),
            incoming_window=choice([0, 1, 2, WINDOW, WINDOW]),
            next_outgoing_id=self._sent,
            outgoing_window=WINDOW,
            handle=choice([None, *[RECEIVER] * 4]) if RECEIVER in self._handles else None,
            delivery_count=choice([0, self._received, len(self._deliveries)]),
            link_credit=choice([0, 1, 5, 20, 2**32 - 1]),
            drain=self._chance.random() < 0.2,
            echo=self._chance.random() < 0.2,
            properties=choice([None, None, None, {"txn-id": choice(TXN_IDS)}]),
        )

    def _disposition(self) -> Disposition:
        choice = self._chance.choice
        first = choice(self._deliveries or [0])
        return Disposition(
            role=self._chance.random() < 0.8,
            first=first,
            last=choice([None, first, first + 2]),
            settled=self._chance.random() < 0.6,
            state=choice([None, *STATES]),
        )
