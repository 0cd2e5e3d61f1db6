"""AMQP 1.0: receiving links that resume their unsettled deliveries. [amqp-1.0 2.6.13]"""

import time

import pytest
from pamqp.commands import Queue

from protocol.amqp10.composites import (
    Accepted,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    TransactionalState,
)
from protocol.amqp10.performatives import Attach, Detach, Flow, Transfer
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import Begins, PeerSession10, begins, receiver
from tests.support.amqp10.unsettled_maps import (
    MINUTE,
    attach_receiver,
    expect_concluded,
    expect_resumed,
    suspend,
    unsettled,
    unsettled_map_of,
)
from tests.support.daemon.daemon import PATIENCE_S

pytestmark = pytest.mark.amqpd_only("no other broker resumes links")


@pytest.fixture
def sent(session: PeerSession10, channel: PeerChannel, node: str) -> list[bytes]:
    """The tags of three deliveries that are not settled on a link that is suspended."""
    for number in range(3):
        channel.publish(b"%d" % number, node)
    attach_receiver(session, node, credit=3)
    tags = [session.delivery().tag for _ in range(3)]
    suspend(session)
    return tags


@pytest.mark.spec("amqp-1.0", "2.6.13")
def test_deliveries_of_a_suspended_link_are_not_given_to_others(
    channel: PeerChannel, node: str, sent: list[bytes]
) -> None:
    assert len(set(sent)) == 3
    assert channel.counts(node) == (0, 0)


@pytest.mark.spec("amqp-1.0", "2.6.13")
def test_a_delivery_without_an_outcome_is_sent_again_with_its_tag(
    session: PeerSession10, channel: PeerChannel, node: str, sent: list[bytes]
) -> None:
    answer = attach_receiver(session, node, dict.fromkeys(sent), credit=10)
    assert unsettled_map_of(answer) == dict.fromkeys(sent)
    assert answer.incomplete_unsettled is False
    channel.publish(b"new", node)
    deliveries = [expect_resumed(session, tag) for tag in sent]
    assert [delivery.payload[-1:] for delivery in deliveries] == [b"0", b"1", b"2"]
    assert deliveries[0].transfer.state == Received(section_number=0, section_offset=0)
    new = session.delivery()
    assert new.transfer.resume is False
    assert new.tag not in sent
    session.settle(deliveries[0].id, new.id)
    session.detach()
    assert channel.counts(node) == (0, 0)


@pytest.mark.spec("amqp-1.0", "2.6.13")
@pytest.mark.spec("amqp-1.0", "3.4.6")
def test_a_delivery_with_an_outcome_gets_the_outcome(
    session: PeerSession10, channel: PeerChannel, node: str, sent: list[bytes]
) -> None:
    states: list[DeliveryState] = [Accepted(), Released(), Rejected()]
    attach_receiver(session, node, dict(zip(sent, states, strict=True)))
    session.expect_silence()  # before it is allowed to say so
    session.allow(0, 3)
    for tag, state in zip(sent, states, strict=True):
        expect_concluded(session, tag, state)
    session.detach()
    got = channel.take(node)
    assert (got.body, got.redelivered) == (b"1", True)
    assert channel.counts(node) == (0, 0)


@pytest.mark.spec("amqp-1.0", "3.4.5")
def test_a_delivery_that_failed_counts(
    session: PeerSession10, channel: PeerChannel, node: str, sent: list[bytes]
) -> None:
    failed = Modified(delivery_failed=True)
    attach_receiver(session, node, {sent[0]: failed, sent[1]: Accepted(), sent[2]: Accepted()}, credit=4)
    for tag, state in zip(sent, [failed, Accepted(), Accepted()], strict=True):
        expect_concluded(session, tag, state)
    again = session.delivery()
    assert (again.payload[-1:], again.transfer.resume) == (b"0", False)
    assert again.tag not in sent


@pytest.mark.spec("amqp-1.0", "4.4.2")
def test_an_outcome_of_an_unknown_transaction_does_not_settle_the_delivery(
    session: PeerSession10, node: str, sent: list[bytes]
) -> None:
    state = TransactionalState(txn_id=b"gone", outcome=Accepted())
    attach_receiver(session, node, dict.fromkeys(sent, state), credit=3)
    for tag in sent:
        expect_resumed(session, tag)


@pytest.mark.spec("amqp-1.0", "2.6.13")
def test_deliveries_unknown_to_the_receiver_return(
    session: PeerSession10, channel: PeerChannel, node: str, sent: list[bytes]
) -> None:
    answer = attach_receiver(session, node, {sent[1]: None, b"unknown": Accepted()})
    assert unsettled_map_of(answer) == dict.fromkeys(sent)
    assert channel.counts(node)[0] == 2
    session.allow(0, 1)
    expect_resumed(session, sent[1])
    assert [channel.take(node).body for _ in range(2)] == [b"0", b"2"]


@pytest.mark.spec("amqp-1.0", "2.6.13")
def test_a_receiver_with_an_empty_unsettled_map_resumes_its_link(
    session: PeerSession10, channel: PeerChannel, node: str, sent: list[bytes]
) -> None:
    assert unsettled_map_of(attach_receiver(session, node, {})) == dict.fromkeys(sent)
    assert channel.counts(node)[0] == 3


@pytest.mark.spec("amqp-1.0", "2.7.3")
def test_a_receiver_without_an_unsettled_map_gets_its_deliveries_anew(
    session: PeerSession10, channel: PeerChannel, node: str, sent: list[bytes]
) -> None:
    assert unsettled_map_of(attach_receiver(session, node, credit=3)) is None
    deliveries = [session.delivery() for _ in range(3)]
    assert [delivery.payload[-1:] for delivery in deliveries] == [b"0", b"1", b"2"]
    assert not set(sent) & {delivery.tag for delivery in deliveries}
    assert not any(delivery.transfer.resume for delivery in deliveries)


@pytest.mark.spec("amqp-1.0", "2.6.13")
@pytest.mark.parametrize("ending", ["end", "socket", "stolen"])
def test_another_session_resumes_the_delivery_of_a_receiver(
    meet: Meet, begin: Begins, channel: PeerChannel, node: str, ending: str
) -> None:
    first = begins(meet)()
    channel.publish(b"x", node)
    attach_receiver(first, node, credit=1)
    tag = first.delivery().tag
    if ending == "end":
        first.end()
    elif ending == "socket":
        first.peer.socket.close()
    second = begin()
    deadline = time.monotonic() + PATIENCE_S
    while unsettled_map_of(attach_receiver(second, node, {tag: None}, credit=1)) is None:
        second.detach()  # the broker has not seen yet that the first connection is closed
        assert time.monotonic() < deadline
    delivery = expect_resumed(second, tag)
    if ending == "stolen":
        first.expect_detach(0, "amqp:link:stolen")
        first.end()
    second.settle(delivery.id)
    second.detach()
    assert channel.counts(node) == (0, 0)


@pytest.mark.spec("amqp-1.0", "2.6.13")
def test_a_delivery_is_resumed_more_than_once(
    session: PeerSession10, channel: PeerChannel, node: str, sent: list[bytes]
) -> None:
    attach_receiver(session, node, dict.fromkeys(sent), credit=2)
    channel.publish(b"new", node)
    assert [session.delivery().tag for _ in range(2)] == sent[:2]
    suspend(session)  # with one that has not even been sent again
    assert unsettled_map_of(attach_receiver(session, node, dict.fromkeys(sent), credit=9)) == dict.fromkeys(
        sent
    )
    deliveries = [expect_resumed(session, tag) for tag in sent]
    new = session.delivery()
    session.settle(deliveries[1].id)
    suspend(session)
    answer = attach_receiver(session, node, {sent[0]: Accepted(), sent[2]: None, new.tag: None}, credit=9)
    assert unsettled_map_of(answer) == dict.fromkeys([sent[0], sent[2], new.tag])
    expect_concluded(session, sent[0], Accepted())
    last = [expect_resumed(session, tag) for tag in (sent[2], new.tag)]
    assert [delivery.payload[-1:] for delivery in last] == [b"2", b"w"]
    session.settle(last[0].id, last[1].id)
    session.detach()
    assert channel.counts(node) == (0, 0)


@pytest.mark.spec("amqp-1.0", "2.7.3")
def test_a_receiver_with_an_incomplete_unsettled_map_gets_no_new_delivery(
    session: PeerSession10, channel: PeerChannel, node: str, sent: list[bytes]
) -> None:
    """Unmentioned deliveries may be unsettled, and no new message is sent before the map is complete."""
    attach_receiver(session, node, {sent[0]: Accepted()}, credit=9, incomplete_unsettled=True)
    channel.publish(b"new", node)
    expect_concluded(session, sent[0], Accepted())
    session.expect_silence()
    suspend(session)
    assert unsettled_map_of(
        attach_receiver(session, node, dict.fromkeys(sent[1:]), credit=9)
    ) == dict.fromkeys(sent[1:])
    for tag in sent[1:]:
        expect_resumed(session, tag)
    assert session.delivery().payload[-1:] == b"w"


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_a_drain_with_an_incomplete_unsettled_map_uses_up_the_credit(
    session: PeerSession10, channel: PeerChannel, node: str, sent: list[bytes]
) -> None:
    attach_receiver(session, node, {sent[0]: Accepted()}, incomplete_unsettled=True)
    channel.publish(b"new", node)
    session.allow(0, 5, drain=True)
    expect_concluded(session, sent[0], Accepted())
    flow = session.expect(Flow)
    assert (flow.drain, flow.link_credit, flow.delivery_count) == (True, 0, 5)


@pytest.mark.spec("amqp-1.0", "2.7.3")
def test_more_than_a_frame_holds(begin: Begins, channel: PeerChannel, node: str) -> None:
    """The broker sends a part of the map, marked as incomplete."""
    session = begin(frame=512)
    for number in range(60):
        channel.publish(b"%d" % number, node)
    attach_receiver(session, node, credit=60)
    tags = [session.delivery().tag for _ in range(60)]
    suspend(session)
    answer = attach_receiver(session, node, {tags[0]: None}, credit=60, incomplete_unsettled=True)
    known = unsettled_map_of(answer)
    assert known is not None
    assert answer.incomplete_unsettled is True
    assert 0 < len(known) < 60
    assert list(known) == tags[: len(known)]
    expect_resumed(session, tags[0])
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.14")
def test_a_large_delivery_is_resumed_in_many_frames(begin: Begins, channel: PeerChannel, node: str) -> None:
    session = begin(frame=4096, incoming_window=5)
    body = bytes(range(256)) * 8192
    channel.publish(body, node)
    attach_receiver(session, node, credit=1)
    first = session.read()[0]
    assert isinstance(first, Transfer)
    assert first.delivery_tag is not None
    tag = first.delivery_tag
    session.write(Detach(handle=0, closed=False))
    while not isinstance(session.read()[0], Detach):
        pass
    attach_receiver(session, node, {tag: Received(section_number=0, section_offset=0)}, credit=1)
    payload = b""
    more = True
    while more:
        session.flow()
        frame, part = session.read()
        assert isinstance(frame, Transfer)
        assert (frame.delivery_tag, frame.resume) == (tag, True)
        payload += part
        more = frame.more
    assert payload.endswith(body)
    session.settle(1)
    session.detach()
    assert channel.counts(node) == (0, 0)


@pytest.mark.spec("amqp-1.0", "2.6.13")
def test_resuming_a_link_of_a_deleted_queue_is_refused_with_not_found(
    session: PeerSession10, channel: PeerChannel, node: str, sent: list[bytes]
) -> None:
    channel.call(Queue.Delete(queue=node), Queue.DeleteOk)
    session.write(receiver(node, unsettled=unsettled(dict.fromkeys(sent))))
    assert session.expect(Attach).source is None
    session.expect_detach(0, "amqp:not-found")
    channel.declare(node)
    channel.publish(b"another", node)
    assert unsettled_map_of(attach_receiver(session, node, dict.fromkeys(sent), credit=1)) is None
    assert session.delivery().payload[-1:] == b"r"


@pytest.mark.spec("amqp-1.0", "2.7.3")
def test_an_invalid_state_in_the_unsettled_map_is_refused(
    session: PeerSession10, channel: PeerChannel, node: str, sent: list[bytes]
) -> None:
    session.write(
        receiver(node, source=Source(address=node, timeout=MINUTE), unsettled={sent[0]: "accepted"})
    )
    assert session.expect(Attach).source is None
    session.expect_detach(0, "amqp:decode-error")
    assert channel.counts(node)[0] == 0
    assert unsettled_map_of(attach_receiver(session, node, {})) == dict.fromkeys(sent)
