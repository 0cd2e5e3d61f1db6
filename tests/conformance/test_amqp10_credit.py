"""AMQP 1.0: how many deliveries a receiver takes, and how a sender says that there are no more. [2.6.7]"""

import pytest

from protocol.amqp10.performatives import Disposition, Flow, Transfer
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.peer_session import LAST, PeerSession10

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")


@pytest.fixture
def full(channel: PeerChannel, node: str) -> str:
    """A queue with ten messages."""
    for number in range(10):
        channel.publish(b"%d" % number, node)
    assert channel.counts(node)[0] == 10
    return node


def drained(session: PeerSession10, count: int, available: int = 0, handle: int = 0) -> None:
    """The broker says once that it has used up all it was allowed."""
    flow = session.expect(Flow)
    assert (flow.handle, flow.drain, flow.echo) == (handle, True, False), flow
    assert (flow.delivery_count, flow.link_credit, flow.available) == (count & LAST, 0, available), flow


@pytest.mark.spec("amqp-1.0", "2.6.8")
def test_a_single_message_at_a_time(session: PeerSession10, full: str) -> None:
    session.receives(full)
    for count in range(3):
        session.allow(0, 1, count)
        delivery = session.delivery()
        assert (delivery.id, delivery.payload[-1:]) == (count, b"%d" % count)
        session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.9")
def test_messages_are_delivered_while_the_link_has_credit(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    session.receives(node, 0, 100)
    for number in range(5):
        channel.publish(b"%d" % number, node)
        assert session.delivery().payload[-1:] == b"%d" % number


@pytest.mark.spec("amqp-1.0", "2.6.10")
def test_a_receiver_stops_its_sender(session: PeerSession10, channel: PeerChannel, node: str) -> None:
    session.receives(node, 0, 100)
    channel.publish(b"0", node)
    session.delivery()
    session.allow(0, 0, 1, echo=True)
    flow = session.expect(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.echo) == (0, 1, 0, False)
    channel.publish(b"1", node)
    assert channel.counts(node)[0] == 1
    session.expect_silence()
    session.allow(0, 1, 1)
    assert session.delivery().payload[-1:] == b"1"


@pytest.mark.spec("amqp-1.0", "2.6.7")
@pytest.mark.parametrize("credit", [1, 2, 9, 10])
def test_never_more_than_was_allowed(session: PeerSession10, full: str, credit: int) -> None:
    session.receives(full, 0, credit)
    assert [session.delivery().id for _ in range(credit)] == list(range(credit))
    session.expect_silence()
    session.settle(0, credit - 1)
    session.expect_silence()  # settling allows no more


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_credit_is_set_and_does_not_add_up(session: PeerSession10, full: str) -> None:
    session.receives(full)
    for _ in range(3):
        session.allow(0, 2)
    assert [session.delivery().id for _ in range(2)] == [0, 1]
    session.allow(0, 2)  # this flow was sent before either delivery
    session.expect_silence()
    session.allow(0, 3, 1)
    assert [session.delivery().id for _ in range(2)] == [2, 3]
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_a_missing_delivery_count_means_zero(session: PeerSession10, full: str) -> None:
    session.receives(full)
    session.flow(0, link_credit=3)
    assert [session.delivery().id for _ in range(3)] == [0, 1, 2]
    session.flow(0, link_credit=4)
    session.delivery()
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.7")
@pytest.mark.parametrize(("count", "credit"), [(0, LAST), (LAST, LAST), (0x7FFFFFFF, LAST), (LAST, 1)])
def test_credit_as_large_as_it_can_be(session: PeerSession10, full: str, count: int, credit: int) -> None:
    session.receives(full)
    session.allow(0, credit, count, echo=True)
    flow = session.expect(Flow)
    assert flow.link_credit is not None
    seen = min((credit - (0 - count + 0x80000000 & LAST) + 0x80000000), 10)
    for number in range(seen):
        assert session.delivery().id == number
    session.settle(0, 9)
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_an_empty_queue_is_drained_at_once(session: PeerSession10, node: str) -> None:
    session.receives(node)
    session.allow(0, 7, drain=True)
    drained(session, 7)
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.7")
@pytest.mark.parametrize(("credit", "left"), [(100, 0), (11, 0), (10, 0), (9, 1), (3, 7)])
def test_available_messages_come_before_the_end_of_a_drain(
    session: PeerSession10, full: str, credit: int, left: int
) -> None:
    session.receives(full)
    session.allow(0, credit, drain=True)
    assert [session.delivery().id for _ in range(10 - left)] == list(range(10 - left))
    drained(session, credit, left)
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_each_drain_has_an_end(session: PeerSession10, node: str) -> None:
    session.receives(node)
    count = 0
    for credit in (1, 5, 0, 1000, LAST):
        session.allow(0, credit, count, drain=True)
        count += credit
        drained(session, count)
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_many_drains_in_one_write_are_answered(session: PeerSession10, full: str) -> None:
    session.receives(full)
    frame = Flow(
        next_incoming_id=0,
        incoming_window=2048,
        next_outgoing_id=0,
        outgoing_window=2048,
        handle=0,
        delivery_count=0,
        link_credit=20,
        drain=True,
    )
    session.peer.send(session.encode(frame) * 20)
    for number in range(10):
        assert session.delivery().id == number
    drained(session, 20)
    while True:  # late deliveries get the same answer again
        session.flow(echo=True)
        answer = session.expect(Flow)
        if answer.handle is None:
            break
        assert (answer.link_credit, answer.delivery_count) == (0, 20)


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_a_drained_link_goes_on(session: PeerSession10, channel: PeerChannel, node: str) -> None:
    session.receives(node)
    session.allow(0, 5, drain=True)
    drained(session, 5)
    channel.publish(b"0", node)
    session.expect_silence()
    session.allow(0, 1, 5)
    assert session.delivery().payload[-1:] == b"0"


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_a_drain_that_is_taken_back(session: PeerSession10, channel: PeerChannel, node: str) -> None:
    session.receives(node)
    session.flow(incoming_window=0)
    session.allow(0, 5, drain=True, incoming_window=0)
    session.allow(0, 5, incoming_window=0)
    session.flow()
    session.expect_silence()
    channel.publish(b"0", node)
    session.delivery()


@pytest.mark.spec("amqp-1.0", "2.6.8")
def test_a_receiver_polls_with_credit_and_drain(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    session.receives(node, 0, 1)
    session.expect_silence()
    session.allow(0, 1, drain=True)
    drained(session, 1)
    session.allow(0, 1, 1)
    channel.publish(b"0", node)
    session.delivery()
    session.allow(0, 1, 1, drain=True)
    drained(session, 2)


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_a_consumer_that_is_not_the_active_one_is_drained(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    channel.declare(name + ".single", auto_delete=True, arguments={"x-single-active-consumer": True})
    session.receives(name + ".single", 0, 1)
    session.receives(name + ".single", 1, 1)
    channel.publish(b"0", name + ".single")
    session.delivery(0)
    channel.publish(b"1", name + ".single")
    session.allow(1, 4, drain=True)
    drained(session, 4, 1, 1)


@pytest.mark.spec("amqp-1.0", "2.7.4")
def test_a_link_says_its_state_once_when_asked(session: PeerSession10, full: str) -> None:
    session.receives(full)
    session.allow(0, 0, echo=True)
    flow = session.expect(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.available) == (0, 0, 0, 10)
    assert (flow.drain, flow.echo) == (False, False)
    _, allowed = session.sends(full, 1)
    session.flow(1, delivery_count=0, echo=True)
    flow = session.expect(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (1, 0, allowed.link_credit)
    assert flow.echo is False
    session.expect_silence()


# ---- the peer sends


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_a_sender_is_allowed_more_in_time(session: PeerSession10, node: str) -> None:
    _, allowed = session.sends(node)
    left, sent, limit = 0, 0, int(str(allowed.link_credit))
    while sent < 3 * limit:
        session.transfer(0, None, sent)
        sent += 1
        while True:
            frame, _ = session.read()
            if isinstance(frame, Disposition):
                break
            assert isinstance(frame, Flow)
            if frame.handle is not None:
                assert frame.delivery_count is not None
                assert frame.link_credit is not None
                left = frame.delivery_count + frame.link_credit
        assert max(left, limit) > sent


@pytest.mark.spec("amqp-1.0", "2.6.7")
@pytest.mark.parametrize("start", [0, LAST - 3], ids=["from 0", "over the end"])
def test_more_than_was_allowed(session: PeerSession10, node: str, start: int) -> None:
    _, allowed = session.sends(node, 0, initial_delivery_count=start)
    assert (allowed.delivery_count, allowed.echo) == (start, False)
    assert allowed.link_credit is not None
    session.flow(0, delivery_count=start + allowed.link_credit & LAST)  # all is used up
    flow = session.expect(Flow)  # so there is more
    assert (flow.handle, flow.link_credit) == (0, allowed.link_credit)
    assert flow.delivery_count == start + allowed.link_credit & LAST


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_a_sender_that_counts_backwards_gets_no_more_by_that(session: PeerSession10, node: str) -> None:
    _, allowed = session.sends(node)
    assert allowed.link_credit is not None
    session.flow(0, delivery_count=-100_000 & LAST, echo=True)
    flow = session.expect(Flow)
    assert (flow.handle, flow.link_credit) == (0, allowed.link_credit)


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_deliveries_beyond_the_credit(session: PeerSession10, node: str) -> None:
    """Unsettled deliveries count: a sender that wants to settle last never settles."""
    _, allowed = session.sends(node, 0, rcv_settle_mode=1)
    assert allowed.link_credit is not None
    for number in range(allowed.link_credit + 1):
        session.transfer(0, None, number)
    while True:
        frame, _ = session.read()
        assert not isinstance(frame, Transfer)
        if not isinstance(frame, Flow | Disposition):
            break
    assert frame.error is not None  # type: ignore[attr-defined]
    assert frame.error.condition == "amqp:link:transfer-limit-exceeded"  # type: ignore[attr-defined]
