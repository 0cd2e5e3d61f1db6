"""AMQP 1.0: links that come back while other things are under way. [amqp-1.0 2.6.13]"""

import pytest

from protocol.amqp10.composites import Accepted, Modified
from protocol.amqp10.performatives import Attach, Transfer
from protocol.amqp10.types import Symbol
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.controller import Controller, within
from tests.support.amqp10.peer_session import LAST, Begins, PeerSession10
from tests.support.amqp10.unsettled_maps import attach_receiver, expect_resumed, suspend, unsettled_map_of

pytestmark = pytest.mark.amqpd_only("no other broker resumes links")

KEPT = 5000  # deliveries of one link


@pytest.mark.spec("amqp-1.0", "4.4.2")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same session", "another session"])
def test_a_delivery_retired_before_returns_after_a_rollback(
    session: PeerSession10, channel: PeerChannel, node: str, elsewhere: bool
) -> None:
    """The delivery was the earlier link's, and the resuming link does not know it."""
    for number in range(3):
        channel.publish(b"%d" % number, node)
    controller = Controller(session)
    attach_receiver(session, node, credit=3)
    deliveries = [session.delivery() for _ in range(3)]
    txn_id = controller.declare()
    session.settle(deliveries[0].id, state=within(txn_id, Accepted()), settled=False)
    suspend(session)
    again = PeerSession10(session.peer, 1) if elsewhere else session
    tags = [delivery.tag for delivery in deliveries[1:]]
    attach_receiver(again, node, dict.fromkeys(tags), credit=2)
    last = [expect_resumed(again, tag) for tag in tags]
    controller.roll_back(txn_id)
    assert channel.counts(node)[0] == 1
    again.settle(last[0].id, last[1].id)
    again.detach()
    assert channel.take(node).body == b"0"
    assert channel.counts(node)[0] == 0


@pytest.mark.spec("amqp-1.0", "2.6.13")
@pytest.mark.parametrize("known", [1, 3])
def test_too_large_annotations_in_the_map_end_the_resuming_link(
    session: PeerSession10, channel: PeerChannel, node: str, known: int
) -> None:
    """The attach is answered before, and the link name is free afterwards."""
    for number in range(3):
        channel.publish(b"%d" % number, node)
    attach_receiver(session, node, credit=3)
    tags = [session.delivery().tag for _ in range(3)]
    suspend(session)
    too_much = Modified(message_annotations={Symbol("x-opt-much"): "m" * 9000})
    states = {tag: too_much if number == 0 else None for number, tag in enumerate(tags[:known])}
    assert unsettled_map_of(attach_receiver(session, node, states)) == dict.fromkeys(tags)
    session.expect_detach(0, "amqp:resource-limit-exceeded", node)
    assert channel.counts(node)[0] == 3
    attach_receiver(session, node, {}, credit=3)
    assert [session.delivery().payload[-1:] for _ in range(3)] == [b"0", b"1", b"2"]
    session.detach()


def in_doubt(session: PeerSession10, queue: str) -> bytes:
    """The tag of a message that was accepted, on a link that is back and resumes it."""
    sends(session, queue, None)
    session.transfer(0, delivery_id=0, delivery_tag=b"once")
    assert session.outcome(0, settled=False) == Accepted()
    suspend(session)
    sends(session, queue, b"once")
    session.transfer(0, bare10()[:4], delivery_id=1, delivery_tag=b"once", resume=True, more=True)
    return b"once"


def sends(session: PeerSession10, queue: str, tag: bytes | None) -> Attach:
    """Attach a link whose receiver settles second, and perhaps resume a delivery."""
    return session.sends(queue, rcv_settle_mode=1, unsettled=None if tag is None else {tag: None})[0]


@pytest.mark.spec("amqp-1.0", "2.7.5")
@pytest.mark.parametrize("ending", ["settled", "aborted"])
def test_a_resumed_delivery_may_be_settled_by_its_last_transfer(
    session: PeerSession10, channel: PeerChannel, node: str, ending: str
) -> None:
    tag = in_doubt(session, node)
    session.transfer(0, bare10()[4:], delivery_id=None, resume=True, **{ending: True})
    session.expect_silence()
    session.transfer(0, delivery_id=2, delivery_tag=tag)  # the tag is free again
    assert session.outcome(2, settled=False) == Accepted()
    assert channel.counts(node)[0] == 2


@pytest.mark.spec("amqp-1.0", "2.6.13")
def test_a_partially_resumed_delivery_is_still_known(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    tag = in_doubt(session, node)
    suspend(session)
    assert unsettled_map_of(sends(session, node, tag)) == {tag: Accepted()}
    session.transfer(0, delivery_id=2, delivery_tag=tag, resume=True)
    assert session.outcome(2, settled=False) == Accepted()
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "2.6.13")
def test_as_many_as_are_kept_are_resumed_at_once(begin: Begins, channel: PeerChannel, node: str) -> None:
    """Further deliveries have returned to the queue."""
    session = begin(incoming_window=LAST)
    channel.peer.send(b"".join(channel.encode_publish(b"x", node) for _ in range(KEPT + 10)))
    attach_receiver(session, node, credit=KEPT + 10)
    tags = [session.delivery().tag for _ in range(KEPT + 10)][:KEPT]
    suspend(session)
    assert channel.counts(node)[0] == 10
    states = {tag: Accepted() if number % 2 else None for number, tag in enumerate(tags)}
    answer = attach_receiver(session, node, states, credit=KEPT)
    assert unsettled_map_of(answer) == dict.fromkeys(tags)
    assert answer.incomplete_unsettled is False
    again = set()
    for _ in tags:
        frame, _ = session.read()
        assert isinstance(frame, Transfer)
        assert frame.resume
        assert frame.delivery_tag is not None
        assert frame.settled == (states[frame.delivery_tag] is not None)
        again.add(frame.delivery_tag)
    assert again == set(tags)
    session.settle(KEPT + 10, 2 * KEPT + 9)
    session.detach()
    assert channel.counts(node) == (10, 0)
