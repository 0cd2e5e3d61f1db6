"""AMQP 1.0: who settles deliveries, when, and how many at once. [amqp-1.0 2.6.12, 2.7.6, 2.8.2, 2.8.3]"""

import pytest

from protocol.amqp10.composites import Accepted, DeliveryState, Modified, Received, Rejected, Released
from protocol.amqp10.performatives import Disposition, Flow
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer_session import LAST, Begins, PeerSession10

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

HALF = 0x80000000


@pytest.fixture
def full(channel: PeerChannel, node: str) -> str:
    """A queue with ten messages."""
    for number in range(10):
        channel.publish(b"%d" % number, node)
    assert channel.counts(node)[0] == 10
    return node


def left(session: PeerSession10, channel: PeerChannel, queue: str) -> int:
    """Detach the link, and return the number of returned messages."""
    session.detach(0)
    return channel.counts(queue)[0]


@pytest.mark.spec("amqp-1.0", "2.8.3")
@pytest.mark.parametrize("mode", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize(
    "state",
    [
        Accepted(),
        Rejected(),
        Released(),
        Modified(),
        Modified(delivery_failed=True),
        Modified(undeliverable_here=True),
    ],
)
def test_a_receiver_that_does_not_settle_gets_the_settlement(
    session: PeerSession10, full: str, mode: int, state: DeliveryState
) -> None:
    session.receives(full, 0, 1, rcv_settle_mode=mode)
    assert session.delivery().settled is False
    session.settle(0, state=state, settled=False)
    disposition = session.expect(Disposition)
    assert (disposition.role, disposition.first, disposition.last, disposition.settled) == (False, 0, 0, True)
    if isinstance(state, Modified):
        assert isinstance(disposition.state, Modified)
        flags = (disposition.state.delivery_failed, disposition.state.undeliverable_here)
        assert flags == (state.delivery_failed or False, state.undeliverable_here or False)
    else:
        assert type(disposition.state) is type(state)
    session.settle(0, state=state)  # the broker knows this state
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.12")
def test_a_receiver_that_settles_gets_no_disposition(
    session: PeerSession10, channel: PeerChannel, full: str
) -> None:
    session.receives(full, 0, 10)
    assert [session.delivery().id for _ in range(10)] == list(range(10))
    session.settle(0, 4)
    session.settle(7)
    session.expect_silence()
    assert left(session, channel, full) == 4


@pytest.mark.spec("amqp-1.0", "3.4.1")
def test_a_non_terminal_state_does_not_settle_the_delivery(
    session: PeerSession10, channel: PeerChannel, full: str
) -> None:
    session.receives(full, 0, 1)
    session.delivery()
    session.settle(0, state=Received(section_number=0, section_offset=0), settled=False)
    session.write(Disposition(role=True, first=0))
    session.expect_silence()
    session.settle(0)
    assert left(session, channel, full) == 9


@pytest.mark.spec("amqp-1.0", "2.8.2")
def test_presettled_deliveries_are_gone_when_sent(
    session: PeerSession10, channel: PeerChannel, full: str
) -> None:
    session.receives(full, 0, 4, snd_settle_mode=1)
    assert all(session.delivery().settled for _ in range(4))
    session.settle(0, 3, Released())
    session.expect_silence()
    assert left(session, channel, full) == 6


@pytest.mark.spec("amqp-1.0", "2.6.12")
def test_settled_without_a_state_is_the_default_outcome(
    session: PeerSession10, channel: PeerChannel, full: str
) -> None:
    session.receives(full, 0, 1)
    session.delivery()
    session.write(Disposition(role=True, first=0, settled=True))
    session.allow(0, 1, 1)
    again = session.delivery()
    assert again.payload[-1:] == b"0"
    assert left(session, channel, full) == 10


@pytest.mark.spec("amqp-1.0", "2.7.6")
@pytest.mark.parametrize(
    ("first", "last"),
    [(1, 0), (5, 4), (LAST, LAST - 1), (0, HALF), (9, 9 + HALF), (HALF, 0)],
    ids=str,
)
def test_a_range_that_ends_before_it_begins(
    session: PeerSession10, channel: PeerChannel, full: str, first: int, last: int
) -> None:
    session.receives(full, 0, 10)
    for _ in range(10):
        session.delivery()
    session.settle(first, last)
    session.expect_end("amqp:invalid-field", f"disposition.last {last} precedes disposition.first {first}")
    assert channel.counts(full)[0] == 10


@pytest.mark.spec("amqp-1.0", "2.7.6")
@pytest.mark.parametrize(
    ("first", "last", "kept"),
    [
        (0, 9, 0),
        (0, HALF - 1, 0),
        (LAST, 9, 0),
        (LAST - 3, 1, 8),
        (8 - HALF & LAST, 7, 2),
        (5, 4 + HALF, 5),
        (10, HALF + 9, 10),
        (HALF, LAST, 10),
        (HALF + 9, 4, 5),
        (LAST, LAST, 10),
        (77, 99, 10),
        (9, 100, 9),
    ],
    ids=str,
)
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
def test_a_disposition_range_may_have_ids_of_no_delivery(
    session: PeerSession10, channel: PeerChannel, full: str, first: int, last: int, kept: int, settled: bool
) -> None:
    session.receives(full, 0, 10)
    for _ in range(10):
        session.delivery()
    session.settle(first, last, settled=settled)
    if not settled and kept < 10:
        disposition = session.expect(Disposition)
        assert (disposition.role, disposition.first, disposition.last, disposition.settled) == (
            False,
            first,
            last,
            True,
        )
    session.settle(first, last, Released(), settled=settled)  # too late
    session.expect_silence()
    assert left(session, channel, full) == kept


@pytest.mark.spec("amqp-1.0", "2.7.6")
def test_a_range_over_several_links(session: PeerSession10, channel: PeerChannel, full: str) -> None:
    session.receives(full, 0, 3)
    for _ in range(3):
        session.delivery()
    session.receives(full, 1, 3)
    for _ in range(3):
        session.delivery(1)
    session.settle(1, 4)
    session.detach(1)
    assert left(session, channel, full) == 6


@pytest.mark.spec("amqp-1.0", "2.7.6")
def test_very_many_deliveries_are_settled_in_any_order(
    begin: Begins, channel: PeerChannel, node: str
) -> None:
    session = begin(incoming_window=LAST)
    count = 6000
    channel.peer.send(b"".join(channel.encode_publish(b"x", node) for _ in range(count)))
    session.receives(node, 0, count)
    for number in range(count):
        assert session.delivery().id == number
    settled_numbers = [number for number in range(count) if number % 1000]
    session.peer.send(
        b"".join(
            session.encode(Disposition(role=True, first=number, settled=True, state=Accepted()))
            for number in reversed(settled_numbers)
        )
    )
    session.allow(0, 10, count)  # more have to come for the oldest to be put aside
    for _ in range(10):
        channel.publish(b"y", node)
        session.delivery()
    session.settle(0)
    session.settle(3000, count - 1)
    assert left(session, channel, node) == 10 + 2


# ---- the peer sends


@pytest.mark.spec("amqp-1.0", "2.8.3")
def test_a_sender_settles_last(session: PeerSession10, channel: PeerChannel, node: str) -> None:
    session.sends(node, rcv_settle_mode=1)
    for number in range(3):
        session.transfer(0, None, number)
        assert session.outcome(number, settled=False) == Accepted()
    session.write(Disposition(role=False, first=0, last=2, settled=True, state=Accepted()))
    session.write(Disposition(role=False, first=0, last=2, settled=True))
    session.expect_silence()
    assert channel.counts(node)[0] == 3


@pytest.mark.spec("amqp-1.0", "2.7.6")
@pytest.mark.parametrize(("first", "last"), [(0, HALF - 1), (LAST, 999), (HALF + 1000, 999)], ids=str)
def test_settling_in_receiver_second_mode_grants_the_sender_credit(
    session: PeerSession10, node: str, first: int, last: int
) -> None:
    _, allowed = session.sends(node, rcv_settle_mode=1)
    count = allowed.link_credit
    assert count == 1000
    for number in range(count):
        session.transfer(0, None, number)
    answered = 0
    while answered < count:
        frame, _ = session.read()
        if isinstance(frame, Disposition):
            assert (frame.first, frame.settled) == (answered, False)
            assert frame.last is not None
            answered = frame.last + 1
    session.expect_silence()
    session.settle(first, last, receiver=False)
    more = session.expect(Flow)
    assert (more.handle, more.delivery_count, more.link_credit) == (0, count, count)


@pytest.mark.spec("amqp-1.0", "2.7.6")
def test_settling_ids_of_no_delivery_changes_nothing(session: PeerSession10, node: str) -> None:
    session.sends(node, rcv_settle_mode=1)
    for first, last in ((0, 0), (5, 100), (0, HALF - 1), (LAST, 7)):
        session.settle(first, last, receiver=False)
    session.expect_silence()
    session.settle(1, 0, receiver=False)
    session.expect_end("amqp:invalid-field", "disposition.last 0 precedes disposition.first 1")


# ---- delivery-tags


@pytest.mark.spec("amqp-1.0", "2.6.12")
def test_deliveries_of_two_links_may_have_the_same_tag(session: PeerSession10, node: str) -> None:
    session.sends(node, 0, rcv_settle_mode=1)
    session.sends(node, 1, rcv_settle_mode=1)
    session.transfer(0, None, 0, delivery_tag=b"t")
    session.transfer(1, None, 1, delivery_tag=b"t")
    session.outcome(0, settled=False)
    session.outcome(1, settled=False)


@pytest.mark.spec("amqp-1.0", "2.6.12")
@pytest.mark.parametrize("mode", [0, 1], ids=["first", "second"])
def test_a_tag_is_used_again_when_its_delivery_is_settled(
    session: PeerSession10, node: str, mode: int
) -> None:
    session.sends(node, rcv_settle_mode=mode)
    for number in range(5):
        session.transfer(0, None, number, delivery_tag=b"t")
        session.outcome(number, settled=mode == 0)
        if mode:
            session.settle(number, receiver=False)
    for number in range(5, 10):
        session.transfer(0, None, number, delivery_tag=b"t", settled=True)
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.12")
@pytest.mark.parametrize("mode", [0, 1], ids=["first", "second"])
def test_a_tag_of_a_delivery_that_is_unsettled(
    session: PeerSession10, channel: PeerChannel, node: str, mode: int
) -> None:
    session.sends(node, rcv_settle_mode=mode)
    session.peer.send(
        session.encode_transfer(0, None, 0, delivery_tag=b"t")
        + session.encode_transfer(0, bare10(), 1, delivery_tag=b"u")
        + session.encode_transfer(0, None, 2, delivery_tag=b"t")
    )
    session.outcome(0, 1, settled=mode == 0)
    session.expect_detach(0, "amqp:illegal-state", "delivery 2 has the delivery-tag")
    assert channel.counts(node)[0] == 2
