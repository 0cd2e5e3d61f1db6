"""AMQP 1.0: returned deliveries of several connections, and after a restart.

[amqp-1.0 2.6.5, 3.2.1, 3.4]
"""

import time
from collections.abc import Callable

import pytest
from pamqp.commands import Queue

from protocol.amqp10.composing import decode_composite, encode_composite
from protocol.amqp10.composites import Accepted, DeliveryState, Header, Modified, Rejected, Released
from protocol.amqp10.performatives import Close, Detach
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import Begins, Delivery, PeerSession10
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter
from tests.support.daemon.endings import Ending, both_endings, stop

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

COUNT = 10


def close(session: PeerSession10) -> None:
    """Close the connection."""
    session.peer.write(Close())
    session.peer.expect(Close)


WAYS: dict[str, Callable[[PeerSession10], None]] = {
    "the link is closed": PeerSession10.detach,
    "the link is detached": lambda session: session.detach(closed=False),
    "the session ends": PeerSession10.end,
    "the connection is closed": close,
    "the connection is lost": lambda session: session.peer.socket.close(),
}
by_all_ways = pytest.mark.parametrize("leave", WAYS.values(), ids=WAYS.keys())


def number_of(delivery: Delivery) -> int:
    """Return the number of a message, its only digit."""
    return int(delivery.payload[-1:])


def tried(delivery: Delivery) -> tuple[int, bool, int]:
    """The number of a message, whether it was acquired for the first time, and how many times it failed."""
    header, _ = decode_composite(delivery.payload)
    assert isinstance(header, Header)
    return number_of(delivery), header.first_acquirer or False, header.delivery_count or 0


def fill(channel: PeerChannel, queue: str) -> None:
    """Publish the numbers."""
    for number in range(COUNT):
        channel.publish(b"%d" % number, queue)
    assert channel.counts(queue)[0] == COUNT


def alternate(first: PeerSession10, second: PeerSession10, queue: str) -> None:
    """Have two links take the numbers in turn, which they do not settle: even ones and odd ones."""
    for session in (first, second):
        session.receives(queue)
    for number in range(COUNT):
        session = (first, second)[number % 2]
        session.allow(0, 1, number // 2)
        assert number_of(session.delivery()) == number


def wait_for(channel: PeerChannel, queue: str, ready: int) -> None:
    """Wait until the queue has `ready` messages: not all ways of leaving are answered."""
    late = time.monotonic() + PATIENCE_S
    while channel.counts(queue)[0] != ready:
        assert time.monotonic() < late, channel.counts(queue)


def receive(session: PeerSession10, queue: str, count: int) -> list[int]:
    """The numbers that come, and leave again."""
    session.receives(queue, 0, count)
    numbers = [number_of(session.delivery()) for _ in range(count)]
    session.detach()
    return numbers


@by_all_ways
@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_deliveries_of_two_connections_return_in_order(
    begin: Begins, channel: PeerChannel, node: str, leave: Callable[[PeerSession10], None]
) -> None:
    first, second, third = begin(), begin(), begin()
    fill(channel, node)
    alternate(first, second, node)
    leave(first)
    second.allow(0, COUNT // 2, COUNT // 2)
    again = [tried(second.delivery()) for _ in range(COUNT // 2)]
    assert again == [(number, False, 1) for number in range(0, COUNT, 2)]
    leave(second)
    wait_for(channel, node, COUNT)
    third.receives(node, 0, COUNT)
    again = [tried(third.delivery()) for _ in range(COUNT)]
    assert again == [(number, False, 1 if number % 2 else 2) for number in range(COUNT)]


@by_all_ways
@pytest.mark.parametrize("order", [1, -1], ids=["in turn", "the other way round"])
@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_deliveries_of_both_protocols_return_in_order(
    begin: Begins, channel: PeerChannel, node: str, leave: Callable[[PeerSession10], None], order: int
) -> None:
    """Returned messages come before messages that no consumer has had."""
    first, second, third = begin(), begin(), begin()
    fill(channel, node)
    alternate(first, second, node)
    channel.publish(b"9", node)
    for session in (first, second)[::order]:
        leave(session)
    wait_for(channel, node, COUNT + 1)
    third.receives(node, 0, COUNT + 1)
    assert [number_of(third.delivery()) for _ in range(COUNT)] == list(range(COUNT))
    assert tried(third.delivery()) == (9, True, 0)


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_deliveries_of_several_links_of_both_protocols_return_in_order(
    begin: Begins, channel: PeerChannel, node: str
) -> None:
    """A connection ends all its links with a single write, not in the order of their attaches."""
    first, second, third = begin(), begin(), begin()
    fill(channel, node)
    for number, (session, handle) in enumerate(
        [(first, 0), (second, 0), (second, 1), (first, 1), (first, 2)]
    ):
        session.receives(node, handle, 2)
        assert [number_of(session.delivery(handle)) for _ in range(2)] == [number * 2, number * 2 + 1]
    detaches = [
        b"".join(session.encode(Detach(handle=handle, closed=True)) for handle in handles)
        for session, handles in ((second, (1, 0)), (first, (2, 0, 1)))
    ]
    for session, data in zip((second, first), detaches, strict=True):
        session.peer.send(data)
    wait_for(channel, node, COUNT)
    assert receive(third, node, COUNT) == list(range(COUNT))


@pytest.mark.parametrize(
    ("state", "back", "left", "dead"),
    [
        (Accepted(), 0, [0, 1, 8, 9], []),
        (Released(), 6, list(range(COUNT)), []),
        (Modified(delivery_failed=True), 6, list(range(COUNT)), []),
        (Modified(undeliverable_here=True), 6, [0, 1, 2, 4, 6, 8, 9], [3, 5, 7]),
        (Rejected(), 0, [0, 1, 8, 9], [3, 5, 7, 2, 4, 6]),
    ],
    ids=["accepted", "released", "failed", "sent away", "rejected"],
)
@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
@pytest.mark.spec("amqp-1.0", "3.4")
def test_the_order_after_an_outcome_of_several(
    begin: Begins,
    channel: PeerChannel,
    node: str,
    name: str,
    state: DeliveryState,
    back: int,
    left: list[int],
    dead: list[int],
    queue_type: str,
) -> None:
    """Dead letters are in the order in which they were rejected.

    A message undeliverable at the second link is dead-lettered when the first link leaves.
    """
    first, second, third = begin(), begin(), begin()
    queue = f"{name}.dying"
    arguments = {
        "x-queue-type": queue_type,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": node,
    }
    channel.declare(queue, durable=True, arguments=arguments)  # type: ignore[arg-type]
    fill(channel, queue)
    alternate(first, second, queue)
    second.settle(1, 3, state)
    wait_for(channel, queue, back // 2)
    first.settle(1, 3, state)
    wait_for(channel, queue, back)
    if back:
        assert receive(third, queue, back) == [2, 3, 4, 5, 6, 7]
    first.detach()
    second.detach()
    wait_for(channel, queue, len(left))
    assert receive(third, queue, len(left)) == left
    assert channel.counts(node)[0] == len(dead)
    if dead:
        assert receive(third, node, len(dead)) == dead
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def begun(meet: Meet, daemon: Daemon) -> PeerSession10:
    """A session with a broker of the test's own."""
    peer = meet(daemon.address)
    peer.open()
    return PeerSession10(peer)


KNOWN = [(0, False, 2), (1, False, 0), (2, False, 1), (3, False, 1), (4, True, 0)]
SEEN = [(0, False, 0), (1, False, 0), (2, False, 0), (3, False, 0), (4, True, 0)]


@both_endings
@pytest.mark.parametrize(
    ("arguments", "known"),
    [({"x-queue-type": "quorum"}, KNOWN), ({"x-delivery-limit": 20}, KNOWN), ({}, SEEN)],
    ids=["quorum", "classic with a limit", "classic"],
)
@pytest.mark.spec("amqp-1.0", "3.2.1")
def test_delivery_counts_after_a_restart(
    start_daemon: DaemonStarter,
    connect: Connector,
    meet: Meet,
    end: Ending,
    arguments: dict[str, object],
    known: list[tuple[int, bool, int]],
) -> None:
    """A queue with a limit counts failed deliveries, also unsettled ones at the end; others keep flags."""
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True, arguments=arguments)  # type: ignore[arg-type]
    channel.declare("fence", durable=True)
    session = begun(meet, daemon)
    durable = encode_composite(Header(durable=True))
    session.sends("q", 1)
    for number in range(5):
        session.publish(1, 1, durable + bare10(body=b"\0Su\xa0\1%d" % number), number)
    session.receives("q", 0, 4)
    assert [tried(session.delivery()) for _ in range(4)] == [(number, True, 0) for number in range(4)]
    session.settle(0, state=Modified(delivery_failed=True))
    session.settle(2, state=Modified(delivery_failed=True))
    session.allow(0, 1, 4)
    assert tried(session.delivery()) == (0, False, 1)
    session.settle(1, state=Released())
    session.settle(4, state=Modified(delivery_failed=True))
    session.sends("fence", 2)
    session.publish(2, 1, durable + bare10(), 5)  # the log has what came before it
    if end is stop:
        session.peer.socket.close()
    end(daemon, channel.peer)

    session = begun(meet, start_daemon())
    session.receives("q", 0, 5)
    expected = known
    if end is not stop:  # nobody knows any more what has been delivered
        expected = [(number, False, count) for number, _, count in known]
    assert [tried(session.delivery()) for _ in range(5)] == expected
