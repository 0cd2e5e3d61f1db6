"""kill -9 among transactions of AMQP 1.0: each is there as a whole or not at all. [amqp-1.0 4.3, 4.4]"""

from collections import deque
from pathlib import Path
from typing import Final

import pytest

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Header,
    Rejected,
    Source,
    TransactionalState,
)
from protocol.amqp10.encoding import encode
from protocol.amqp10.performatives import Attach, Disposition, Flow, Transfer
from protocol.amqp10.sections import scan
from protocol.amqp10.types import Composite
from tests.interop.kill_work import RESULTS, SMALL, Outcome, Worker, body_of, number_of, rounds
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import Peer10
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.amqp10.reference_codec import described
from tests.support.daemon.daemon import Address

CREDIT: Final = 10
WORK: Final = 0  # handles; those of the results are 1, 2, 3
CONTROLLER: Final = 9
DURABLE: Final = encode_composite(Header(durable=True))


class Worker10(Worker):
    """A worker that uses AMQP 1.0. `inbox` has its unprocessed messages, by delivery-id."""

    def __init__(self, address: Address, seed: int) -> None:
        super().__init__(seed)
        peer = Peer10(address)
        peer.open(container_id=f"worker {seed}")
        self.session = session = PeerSession10(peer)
        for handle, queue in enumerate(RESULTS, 1):
            session.sends(queue, handle)
        session.write(
            Attach(
                name="controller",
                handle=CONTROLLER,
                role=False,
                source=Source(),
                target=Coordinator(),
                initial_delivery_count=0,
            )
        )
        session.expect(Attach)
        session.expect(Flow)
        session.receives("work", WORK)
        self.inbox: deque[tuple[int, int]] = deque()
        self.taken = 0
        self.outcomes: dict[int, DeliveryState | None] = {}
        self.sent = 0

    def drop(self) -> None:
        """Close the connection."""
        self.session.peer.socket.close()

    def transaction(self) -> None:
        """Run a transaction, sometimes after a rollback."""
        count = self.random.randrange(1, 6)
        self.session.allow(WORK, CREDIT - len(self.inbox), self.taken)
        while len(self.inbox) < count:
            self.take_frame()
        work = [self.inbox.popleft() for _ in range(count)]
        if self.random.random() < 0.2:
            false = self.declare()
            self.fill(false, work[:1], settled=False)  # so that it stays with this side
            assert self.ask(Discharge(txn_id=false, fail=True)) == Accepted()
        txn_id = self.declare()
        outcome = self.fill(txn_id, work, settled=self.random.random() < 0.5)
        self.asked = outcome.done | outcome.rejected
        assert self.ask(Discharge(txn_id=txn_id)) == Accepted()
        self.asked = set()
        self.committed.add(outcome)

    def fill(self, txn_id: bytes, work: list[tuple[int, int]], settled: bool) -> Outcome:
        """Do them, or reject them."""
        outcome = Outcome()
        posted: list[int] = []
        for delivery_id, number in work:
            if self.random.random() < 0.3:
                state = TransactionalState(txn_id=txn_id, outcome=Rejected())
                outcome.rejected.add(number)
            else:
                state = TransactionalState(txn_id=txn_id, outcome=Accepted())
                outcome.done.add(number)
                payload = DURABLE + bare10(body=described(0x75, encode(body_of(number))))
                for handle in range(1, len(RESULTS) + 1):
                    posted.append(self.send(handle, payload, state=TransactionalState(txn_id=txn_id)))
            self.session.settle(delivery_id, state=state, settled=settled)
        for delivery in posted:
            assert self.outcome(delivery) == TransactionalState(txn_id=txn_id, outcome=Accepted())
        return outcome

    def declare(self) -> bytes:
        """A new transaction."""
        state = self.ask(Declare())
        assert isinstance(state, Declared)
        return state.txn_id

    def ask(self, asked: Composite) -> DeliveryState | None:
        """Send a message to the coordinator and return its outcome."""
        return self.outcome(self.send(CONTROLLER, described(0x77, encode_composite(asked))))

    def send(self, handle: int, payload: bytes, **fields: object) -> int:
        """Send a delivery; returns its id."""
        self.session.transfer(handle, payload, self.sent, **fields)
        self.sent += 1
        return self.sent - 1

    def outcome(self, delivery: int) -> DeliveryState | None:
        """Wait for the outcome of a delivery and return it."""
        while delivery not in self.outcomes:
            self.take_frame()
        return self.outcomes.pop(delivery)

    def take_frame(self) -> None:
        """Take the next frame."""
        frame, payload = self.session.read()
        if isinstance(frame, Transfer):
            assert not frame.more
            assert frame.delivery_id is not None
            self.taken += 1
            self.inbox.append((frame.delivery_id, number_of(data_of(payload))))
        elif isinstance(frame, Disposition):
            if frame.role:
                assert frame.last is not None
                for each in range(frame.first, frame.last + 1):
                    self.outcomes[each] = frame.state
        else:
            assert isinstance(frame, Flow), frame


def data_of(payload: bytes) -> bytes:
    """Return the body of a message: a single data section of fewer than 256 bytes, or of more."""
    start = scan(payload, 0, len(payload)).body + 3
    return payload[start + (2 if payload[start] == 0xA0 else 5) :]


@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_kill_among_transactions(tmp_path: Path, settings: dict[str, str]) -> None:
    rounds(tmp_path, 2, settings, Worker10)


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_fifty_kills_among_transactions(tmp_path: Path, settings: dict[str, str]) -> None:
    rounds(tmp_path, 50, settings, Worker10)
