"""AMQP 1.0: the windows of sessions, and messages in many frames. [amqp-1.0 2.5.6, 2.6.14]"""

import pytest
from pamqp.commands import Queue

from protocol.amqp10.performatives import Detach, Disposition, Flow, Transfer
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.peer_session import LAST, Begins, PeerSession10

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

BIG = bytes(range(256)) * 40


@pytest.mark.spec("amqp-1.0", "2.5.6")
def test_the_peer_says_which_transfer_is_its_next(session: PeerSession10, node: str) -> None:
    """The peer may skip transfer-ids. RabbitMQ's Python client 2.0 counts messages, not transfers."""
    session.sends(node)
    session.flow(next_outgoing_id=1000)
    session.transfer(0, b"", more=True)
    session.transfer(0, b"", delivery_id=None, more=True)
    session.transfer(0, delivery_id=None)
    session.outcome(0)
    session.flow(echo=True, next_outgoing_id=1001)
    assert session.expect(Flow).next_incoming_id == 1003
    session.transfer(0, delivery_id=1)
    session.outcome(1)


@pytest.mark.spec("amqp-1.0", "2.5.6")
def test_a_window_that_is_shut(begin: Begins, channel: PeerChannel, node: str) -> None:
    session = begin(incoming_window=0)
    channel.publish(b"0", node)
    session.receives(node, 0, 10)
    session.expect_silence()
    session.window = 1
    session.flow()
    assert session.delivery().id == 0
    channel.publish(b"1", node)
    session.expect_silence(incoming_window=0)
    session.flow()
    assert session.delivery().id == 1


@pytest.mark.spec("amqp-1.0", "2.5.6")
def test_a_window_that_is_shut_later(session: PeerSession10, channel: PeerChannel, node: str) -> None:
    session.receives(node, 0, 10)
    channel.publish(b"0", node)
    session.delivery()
    session.window = 0
    session.flow()
    session.expect_silence()
    channel.publish(b"1", node)
    session.expect_silence()
    session.window = 10
    session.flow()
    session.delivery()


@pytest.mark.spec("amqp-1.0", "2.5.6")
@pytest.mark.parametrize("window", [1, 3])
def test_a_small_window_and_many_messages(
    begin: Begins, channel: PeerChannel, node: str, window: int
) -> None:
    session = begin(incoming_window=window)
    for number in range(10):
        channel.publish(b"%d" % number, node)
    session.receives(node, 0, 100)
    for number in range(10):
        assert session.delivery().payload[-1:] == b"%d" % number
        if session.received % window == 0:
            session.expect_silence(incoming_window=0)
            session.flow()


@pytest.mark.spec("amqp-1.0", "2.5.6")
@pytest.mark.parametrize("behind", [1, 5, LAST - 5], ids=str)
def test_a_window_that_is_counted_from_an_earlier_transfer(
    begin: Begins, channel: PeerChannel, node: str, behind: int
) -> None:
    session = begin(incoming_window=5)
    for number in range(20):
        channel.publish(b"%d" % number, node)
    session.receives(node, 0, 100)
    for _ in range(5):
        session.delivery()
    session.flow(next_incoming_id=5 - behind & LAST, incoming_window=behind + 2 & LAST)
    if behind > 5:
        session.expect_end("amqp:session:window-violation", "next-incoming-id is 11")
        return
    assert [session.delivery().id for _ in range(2)] == [5, 6]
    session.expect_silence(incoming_window=0)
    session.flow(next_incoming_id=0, incoming_window=3)  # all of which has been used
    session.expect_silence(incoming_window=0)


@pytest.mark.spec("amqp-1.0", "2.6.14")
@pytest.mark.parametrize("frame", [512, 513, 1024, 4096])
@pytest.mark.parametrize("window", [1, 4, 1000])
def test_messages_in_many_frames(
    begin: Begins, channel: PeerChannel, node: str, frame: int, window: int
) -> None:
    session = begin(frame=frame, incoming_window=window)
    channel.publish(BIG, node)
    channel.publish(b"small", node)
    session.receives(node, 0, 2)
    parts = []
    while True:
        transfer, payload = session.read()
        assert isinstance(transfer, Transfer)
        assert (transfer.delivery_id, transfer.aborted) == (0, False)
        parts.append(payload)
        if session.received % window == 0:
            session.expect_silence(incoming_window=0)
            session.flow()
        if not transfer.more:
            break
    whole = b"".join(parts)
    assert whole.endswith(BIG)
    assert len(parts) >= len(whole) // frame + 1
    assert all(len(part) == len(parts[0]) for part in parts[:-1])
    assert session.delivery().payload.endswith(b"small")


@pytest.mark.spec("amqp-1.0", "2.6.14")
def test_large_frames_hold_much(begin: Begins, channel: PeerChannel, node: str) -> None:
    session = begin(frame=LAST)
    channel.publish(b"x" * 900_000, node)
    session.receives(node, 0, 1)
    assert session.delivery().frames == 1


@pytest.mark.spec("amqp-1.0", "2.7.4")
def test_links_of_one_session_take_turns_in_a_small_window(
    begin: Begins, channel: PeerChannel, node: str
) -> None:
    session = begin(frame=512, incoming_window=1)
    session.receives(node, 0, 1)
    session.receives(node, 1, 1)
    channel.publish(BIG, node)
    channel.publish(BIG, node)
    parts: dict[int, bytes] = {}
    whole = 0
    while whole < 2:
        transfer, payload = session.read()
        assert isinstance(transfer, Transfer)
        parts[transfer.handle] = parts.get(transfer.handle, b"") + payload
        whole += not transfer.more
        session.flow()
    assert all(part.endswith(BIG) for part in parts.values())
    assert len(parts) == 2


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_a_drain_does_not_overtake_its_delivery(begin: Begins, channel: PeerChannel, node: str) -> None:
    session = begin(frame=512, incoming_window=3)
    channel.publish(BIG, node)
    session.receives(node)
    session.allow(0, 1, drain=True)
    parts = 0
    while True:
        frame, _ = session.read()
        if isinstance(frame, Flow):
            break
        assert isinstance(frame, Transfer)
        parts += 1
        if session.received % 3 == 0 and frame.more:
            session.allow(0, 1, drain=True)  # repeat the drain
    assert (frame.handle, frame.drain, frame.link_credit, frame.delivery_count) == (0, True, 0, 1)
    assert parts > len(BIG) // 512
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_a_drain_waits_for_the_window(begin: Begins, channel: PeerChannel, node: str) -> None:
    session = begin(incoming_window=0)
    channel.publish(b"0", node)
    session.receives(node)
    session.allow(0, 5, drain=True)
    session.expect_silence()
    session.window = 10
    session.flow()
    session.delivery()
    flow = session.expect(Flow)
    assert (flow.drain, flow.link_credit, flow.delivery_count) == (True, 0, 5)


@pytest.mark.spec("amqp-1.0", "2.6.10")
def test_a_link_is_stopped_while_the_window_is_shut(begin: Begins, channel: PeerChannel, node: str) -> None:
    session = begin(incoming_window=0)
    channel.publish(b"0", node)
    session.receives(node, 0, 5)
    session.allow(0, 0, echo=True)
    assert session.expect(Flow).link_credit == 0
    session.window = 10
    session.flow()
    session.expect_silence()
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "2.6.14")
@pytest.mark.parametrize("shut", [True, False], ids=["shut", "open"])
def test_a_link_ends_while_a_delivery_is_on_its_way(
    begin: Begins, channel: PeerChannel, node: str, shut: bool
) -> None:
    session = begin(frame=512, incoming_window=3)
    channel.publish(BIG, node)
    session.receives(node, 0, 1)
    for _ in range(3):
        assert session.expect(Transfer).more
    if shut:
        session.write(Detach(handle=0, closed=True))
    else:
        allowed = Flow(next_incoming_id=3, incoming_window=2, next_outgoing_id=0, outgoing_window=1)
        session.peer.send(session.encode(allowed) + session.encode(Detach(handle=0, closed=True)))
        frame, payload = session.read()
        assert isinstance(frame, Transfer)
        assert (frame.delivery_id, frame.aborted, frame.more, payload) == (0, True, False, b"")
    detach = session.expect(Detach)
    assert (detach.handle, detach.error) == (0, None)
    assert channel.counts(node)[0] == 1
    session.window = 1000
    session.flow()
    session.expect_silence()
    session.receives(node, 0, 1)
    delivery = session.delivery()
    assert delivery.payload.endswith(BIG)
    assert delivery.id == 1


@pytest.mark.spec("amqp-1.0", "2.6.14")
def test_the_queue_is_deleted_while_a_delivery_is_on_its_way(
    begin: Begins, channel: PeerChannel, name: str
) -> None:
    session = begin(frame=512, incoming_window=3)
    queue = channel.declare(name + ".gone")
    channel.publish(BIG, queue)
    session.receives(queue, 0, 1)
    for _ in range(3):
        session.expect(Transfer)
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)
    session.expect_detach(0, "amqp:resource-deleted", queue)
    session.window = 1000
    session.flow()
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.5.2")
@pytest.mark.parametrize("kind", ["end", "close", "vanish"])
def test_all_ends_while_a_delivery_is_on_its_way(
    begin: Begins, channel: PeerChannel, node: str, kind: str
) -> None:
    session = begin(frame=512, incoming_window=3)
    channel.publish(BIG, node)
    session.receives(node, 0, 1)
    for _ in range(3):
        session.expect(Transfer)
    if kind == "end":
        session.end()
    else:
        session.peer.socket.close()
    other = begin()
    other.receives(node, 0, 1)
    assert other.delivery().payload.endswith(BIG)


@pytest.mark.spec("amqp-1.0", "2.8.10")
@pytest.mark.spec("amqp-1.0", "2.8.8")
@pytest.mark.spec("amqp-1.0", "2.8.9")
@pytest.mark.parametrize("first", [LAST - 5, LAST], ids=["a little", "at once"])
def test_delivery_ids_and_counts_of_the_peer_may_wrap(begin: Begins, node: str, first: int) -> None:
    session = begin(next_outgoing_id=first)
    session.sends(node, 0, initial_delivery_count=first)
    ids = [first + at & LAST for at in range(200)]
    for at in range(0, 200, 10):
        frames = [session.encode_transfer(0, None, number) for number in ids[at : at + 10]]
        session.peer.send(b"".join(frames))
        done = 0
        while done < 10:
            performative, _ = session.read()
            if isinstance(performative, Disposition):
                assert performative.first == ids[at + done]
                assert performative.last is not None
                done += (performative.last - performative.first & LAST) + 1
    session.flow(0, delivery_count=first + 200 & LAST, echo=True)
    said_flow = session.expect(Flow)
    assert said_flow.next_incoming_id == first + 200 & LAST
    assert said_flow.delivery_count == first + 200 & LAST


@pytest.mark.spec("amqp-1.0", "2.5.1")
def test_a_session_that_begins_again_counts_anew(session: PeerSession10, node: str) -> None:
    session.sends(node)
    session.publish(0, 3)
    session.end()
    again = PeerSession10(session.peer, next_outgoing_id=77)
    assert again.begun.next_outgoing_id == 0
    again.sends(node, initial_delivery_count=5)
    again.publish(0, 3, first=3)
