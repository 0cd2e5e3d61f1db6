"""Windows of sessions and credit of links, also where serial numbers wrap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.amqp10.conditions import TRANSFER_LIMIT_EXCEEDED, WINDOW_VIOLATION, PeerError
from protocol.amqp10.serials import forward
from protocol.amqp10.windows import IncomingWindow, LinkCredit, OutgoingWindow

LAST = 0xFFFFFFFF
serials = st.integers(0, LAST)
starts = pytest.mark.parametrize("start", [0, 7, LAST - 1, LAST], ids=str)


@starts
def test_transfers_are_counted_and_a_flow_is_due_at_half_the_window(start: int) -> None:
    window = IncomingWindow(start, 4)
    assert [window.count_transfer() for _ in range(4)] == [False, True, True, True]
    with pytest.raises(PeerError, match=f"transfer {forward(start, 4)} is beyond") as raised:
        window.count_transfer()
    assert raised.value.condition == WINDOW_VIOLATION
    assert window.open() == 4
    assert (window.next_id, window.left) == (forward(start, 4), 4)
    assert not window.count_transfer()


def test_a_closed_window_takes_transfers_that_are_in_flight() -> None:
    window = IncomingWindow(0, 4)
    window.count_transfer()
    window.is_shut = True
    assert window.open() == 0
    assert [window.count_transfer() for _ in range(3)] == [False] * 3
    with pytest.raises(PeerError, match="transfer 4 is beyond"):
        window.count_transfer()
    window.is_shut = False
    assert window.open() == 4


@starts
def test_the_peer_is_not_before_the_first_transfer(start: int) -> None:
    """The peer may be behind: its other threads have sent transfers, or it counts deliveries."""
    window = IncomingWindow(start, 4)
    with pytest.raises(PeerError, match=f"next-outgoing-id is {forward(start, -1)}"):
        window.follow(forward(start, -1))
    window.count_transfer()
    window.count_transfer()
    for delivery_id in (forward(start, 2), start, forward(start, 1)):
        window.follow(delivery_id)
        assert window.next_id == forward(start, 2)
    window.follow(forward(start, 5))
    window.follow(forward(start, 1))
    assert window.next_id == forward(start, 5)
    with pytest.raises(PeerError):
        window.follow(forward(start, -1))


def test_transfers_that_the_peer_counts_as_sent_are_accepted() -> None:
    window = IncomingWindow(LAST, 4)
    window.follow(3)
    assert window.next_id == 3


def test_the_peer_says_how_much_it_takes_from_where_on() -> None:
    window = OutgoingWindow(3)
    for _ in range(3):
        window.count_transfer()
    assert (window.next_id, window.left) == (3, 0)
    window.update(1, 5)
    assert window.left == 3
    window.update(-1, 5)
    assert window.left == 2, "it has not seen the first one yet"
    window.update(0, 1)
    assert window.left == 0
    with pytest.raises(PeerError, match="next-incoming-id is 4") as raised:
        window.update(4, 10)
    assert raised.value.condition == WINDOW_VIOLATION


@given(serials, st.integers(0, 1000), st.integers(0, 1000), st.integers(0, LAST))
def test_credit_is_the_granted_credit_less_the_deliveries_in_flight(
    start: int, seen: int, unseen: int, granted: int
) -> None:
    sender = LinkCredit(start)
    sender.grant(-1, seen + unseen)
    for _ in range(seen + unseen):
        sender.use()
    assert sender.left == 0
    sender.grant(forward(start, seen), granted)
    assert sender.left == max(granted - unseen, 0)


def test_credit_is_set_and_not_added() -> None:
    sender = LinkCredit(0)
    for granted in (10, 10, 3, 0):
        sender.grant(0, granted)
        assert sender.left == granted
    with pytest.raises(PeerError, match="without credit") as raised:
        sender.use()
    assert raised.value.condition == TRANSFER_LIMIT_EXCEEDED


@given(serials, st.integers(0, 100), st.integers(0, 100))
def test_both_ends_agree_after_a_drain(start: int, used: int, left: int) -> None:
    sender, receiver = LinkCredit(start), LinkCredit(start)
    for end in (sender, receiver):
        end.grant(-1, used + left)
        for _ in range(used):
            end.use()
    sender.drain()
    receiver.follow(sender.delivery_count)
    assert (receiver.delivery_count, receiver.left) == (sender.delivery_count, sender.left)
    assert (sender.delivery_count, sender.left) == (forward(start, used + left), 0)
