"""AMQP 1.0: transactions that are open for too long. [amqp-1.0 4.5.8]"""

import time

import pytest

from protocol.amqp10.composites import Accepted, Declare, Declared, Discharge
from protocol.amqp10.performatives import Disposition, Flow
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.controller import CONTROLLER, Controller, condition, within
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ has no transactions over AMQP 1.0")

TIMEOUT = "amqp:transaction:timeout"


@pytest.fixture
def daemon(start_daemon: DaemonStarter) -> Daemon:
    """A broker whose transactions may be open for a second."""
    return start_daemon("--transaction-timeout-ms", "1000")


@pytest.fixture
def session(daemon: Daemon, meet: Meet) -> PeerSession10:
    """A session with it."""
    peer = meet(daemon.address)
    peer.open()
    return PeerSession10(peer)


@pytest.fixture
def channel(daemon: Daemon, connect: Connector) -> PeerChannel:
    """A channel of the daemon, and a queue `q` with a message."""
    channel = connect(daemon.address).channel()
    channel.declare("q")
    channel.publish(b"x", "q")
    return channel


def wait_until_ready(channel: PeerChannel, count: int) -> None:
    """So many messages are in the queue again."""
    deadline = time.monotonic() + PATIENCE_S
    while channel.counts("q")[0] != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def declared(controller: Controller, count: int, first: int) -> list[object]:
    """Return the outcomes of `count` declarations, with ids from `first` on."""
    session = controller.session
    for number in range(first, first + count):
        session.transfer(CONTROLLER, controller.message(Declare()), number)
    states: list[object] = []
    while len(states) < count:
        frame, _ = session.read()
        if isinstance(frame, Disposition):
            states.append(frame.state)
        else:
            assert isinstance(frame, Flow), frame
    return states


@pytest.mark.spec("amqp-1.0", "4.3")
def test_work_of_a_timed_out_transaction_is_undone(session: PeerSession10, channel: PeerChannel) -> None:
    controller = Controller(session)
    txn_id = controller.declare()
    session.sends("q", 0)
    session.transfer(0, state=within(txn_id))
    session.outcome(0)
    session.receives("q", 1, 1)
    delivery = session.delivery(1)
    session.settle(delivery.id, state=within(txn_id, Accepted()))
    assert channel.counts("q")[0] == 0
    wait_until_ready(channel, 1)
    assert condition(controller.ask(Discharge(txn_id=txn_id, fail=False))) == TIMEOUT
    assert channel.take("q").body == b"x"
    later = controller.declare()
    session.transfer(0, delivery_id=1, state=within(later))
    session.outcome(1)
    assert controller.ask(Discharge(txn_id=later, fail=False)) == Accepted()
    assert channel.counts("q")[0] == 1


@pytest.mark.spec("amqp-1.0", "4.4.1")
@pytest.mark.parametrize("what", ["post", "retire", "acquire"])
def test_work_after_the_time_out_ends_its_link(
    session: PeerSession10, channel: PeerChannel, what: str
) -> None:
    controller = Controller(session)
    txn_id = controller.declare()
    session.receives("q", 1, 1)
    delivery = session.delivery(1)
    if what == "post":
        session.sends("q", 0)
    state = within(txn_id)
    time.sleep(1.2)
    controller.declare()  # the broker reads this after the time-out
    if what == "post":
        session.transfer(0, state=state)
    elif what == "retire":
        session.settle(delivery.id, state=within(txn_id, Accepted()))
    else:
        session.flow(1, delivery_count=1, link_credit=1, properties={"txn-id": txn_id})
    session.expect_detach(0 if what == "post" else 1, TIMEOUT, txn_id.hex())


@pytest.mark.spec("amqp-1.0", "4.3")
def test_as_many_may_be_open_again(session: PeerSession10) -> None:
    """The link may have a hundred transactions, as before the time-outs."""
    controller = Controller(session)
    transaction_id = declared(controller, 101, 0)
    assert [isinstance(state, Declared) for state in transaction_id] == [True] * 100 + [False]
    assert condition(transaction_id[100]) == "amqp:resource-limit-exceeded"
    deadline = time.monotonic() + PATIENCE_S
    number = 101
    while not isinstance(declared(controller, 1, number)[0], Declared):
        assert time.monotonic() < deadline
        number += 1
        time.sleep(0.1)
