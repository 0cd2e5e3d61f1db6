"""AMQP 1.0: sending links that resume their unsettled deliveries. [amqp-1.0 2.6.13]"""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from protocol.amqp10.composites import Accepted, DeliveryState, Received, Rejected, Target
from protocol.amqp10.performatives import Attach, Disposition
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import Begins, PeerSession10, begins
from tests.support.amqp10.unsettled_maps import MINUTE, suspend, unsettled, unsettled_map_of
from tests.support.daemon.daemon import PATIENCE_S

pytestmark = pytest.mark.amqpd_only("no other broker resumes links")

SECOND = 1  # the receiver settles second
NOTHING = Received(section_number=0, section_offset=0)


def sends(
    session: PeerSession10,
    queue: str,
    states: Mapping[bytes, DeliveryState | None] | None = None,
    mode: int = SECOND,
    timeout: int = 0,
    **fields: Any,
) -> Attach:
    """Attach a sender, with the unsettled map of an earlier link."""
    target = Target(address=f"/queues/{queue}", timeout=timeout)
    known = None if states is None else unsettled(states)
    return session.sends(None, target=target, unsettled=known, rcv_settle_mode=mode, **fields)[0]


def answer(session: PeerSession10, delivery_id: int, state: DeliveryState) -> None:
    """Expect the broker's state of a delivery, which this side must settle."""
    disposition = session.expect(Disposition)
    assert (disposition.role, disposition.first, disposition.last, disposition.settled) == (
        True,
        delivery_id,
        delivery_id,
        False,
    )
    assert disposition.state == state


def settle(session: PeerSession10, delivery_id: int) -> None:
    """Settle a sent delivery."""
    session.settle(delivery_id, receiver=False)


@pytest.fixture
def in_doubt(session: PeerSession10, node: str) -> bytes:
    """The tag of a message that has arrived, of a link that is suspended."""
    sends(session, node)
    session.transfer(0, delivery_id=0, delivery_tag=b"once")
    answer(session, 0, Accepted())
    suspend(session)
    return b"once"


@pytest.mark.spec("amqp-1.0", "2.6.13")
@pytest.mark.spec("amqp-1.0", "3.4.6")
def test_a_repeated_resume_is_answered_again(
    session: PeerSession10, channel: PeerChannel, node: str, in_doubt: bytes
) -> None:
    reply = sends(session, node, {in_doubt: None})
    assert (unsettled_map_of(reply), reply.incomplete_unsettled) == ({in_doubt: Accepted()}, False)
    session.transfer(0, delivery_id=1, delivery_tag=in_doubt, resume=True)
    answer(session, 1, Accepted())
    settle(session, 1)
    assert channel.counts(node)[0] == 1
    session.transfer(0, delivery_id=2, delivery_tag=in_doubt)  # the tag is free again
    answer(session, 2, Accepted())
    assert channel.counts(node)[0] == 2


@pytest.mark.spec("amqp-1.0", "2.6.13")
def test_a_sender_that_knows_the_outcome_settles(
    session: PeerSession10, channel: PeerChannel, node: str, in_doubt: bytes
) -> None:
    sends(session, node, {in_doubt: Accepted()})
    session.transfer(
        0, b"", delivery_id=1, delivery_tag=in_doubt, resume=True, settled=True, state=Accepted()
    )
    session.expect_silence()
    suspend(session)
    assert unsettled_map_of(sends(session, node, {in_doubt: None})) is None
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "2.6.13")
def test_deliveries_unknown_to_the_sender_are_settled(
    session: PeerSession10, channel: PeerChannel, node: str, in_doubt: bytes
) -> None:
    assert unsettled_map_of(sends(session, node, {b"another": None})) == {}
    session.transfer(0, delivery_id=1, delivery_tag=in_doubt)
    answer(session, 1, Accepted())
    assert channel.counts(node)[0] == 2


@pytest.mark.spec("amqp-1.0", "2.7.3")
def test_a_sender_without_an_unsettled_map_forgets_earlier_deliveries(
    session: PeerSession10, channel: PeerChannel, node: str, in_doubt: bytes
) -> None:
    assert unsettled_map_of(sends(session, node)) is None
    session.transfer(0, delivery_id=1, delivery_tag=in_doubt)
    answer(session, 1, Accepted())
    assert channel.counts(node)[0] == 2


@pytest.mark.spec("amqp-1.0", "2.6.4")
def test_a_closed_sender_link_forgets_its_unsettled_deliveries(session: PeerSession10, node: str) -> None:
    sends(session, node)
    session.transfer(0, delivery_id=0)
    answer(session, 0, Accepted())
    session.detach(closed=True)
    assert unsettled_map_of(sends(session, node, {b"0": None})) is None


@pytest.mark.spec("amqp-1.0", "2.6.12")
def test_a_new_delivery_with_the_tag_of_a_delivery_in_doubt_is_refused(
    session: PeerSession10, channel: PeerChannel, node: str, in_doubt: bytes
) -> None:
    sends(session, node, {in_doubt: None})
    session.transfer(0, delivery_id=1, delivery_tag=in_doubt)
    session.expect_detach(0, "amqp:illegal-state", in_doubt.hex())
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "2.7.5")
def test_deliveries_unknown_to_both_sides_are_not_resumed(
    session: PeerSession10, channel: PeerChannel, node: str, in_doubt: bytes
) -> None:
    """The delivery may also come in several transfers."""
    sends(session, node, {in_doubt: None})
    data = bare10()
    session.transfer(0, data[:4], delivery_id=1, delivery_tag=b"?", resume=True, more=True)
    session.transfer(0, data[4:], delivery_id=1, delivery_tag=b"?")
    session.transfer(0, delivery_id=2, delivery_tag=b"!", resume=True)
    session.expect_silence()
    session.transfer(0, delivery_id=3)
    answer(session, 3, Accepted())
    assert channel.counts(node)[0] == 2


@pytest.mark.spec("amqp-1.0", "2.6.13")
@pytest.mark.parametrize("mode", [0, SECOND], ids=["first", "second"])
def test_a_partial_delivery_is_sent_again(
    session: PeerSession10, channel: PeerChannel, node: str, mode: int
) -> None:
    sends(session, node, mode=mode)
    data = bare10()
    session.transfer(0, data[:4], delivery_id=0, delivery_tag=b"part", more=True)
    suspend(session)
    assert unsettled_map_of(sends(session, node, {b"part": None}, mode)) == {b"part": NOTHING}
    session.transfer(0, data[:2], delivery_id=1, delivery_tag=b"part", resume=True, more=True)
    session.transfer(0, data[2:], delivery_id=None, resume=True)
    disposition = session.expect(Disposition)
    assert (disposition.first, disposition.state, disposition.settled) == (1, Accepted(), mode == 0)
    got = channel.take(node)
    assert got.body == b"body"
    assert channel.counts(node)[0] == 0


@pytest.mark.spec("amqp-1.0", "2.6.14")
def test_a_partial_delivery_may_be_sent_as_a_new_one(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    sends(session, node)
    session.transfer(0, bare10()[:4], delivery_id=0, delivery_tag=b"part", more=True)
    suspend(session)
    sends(session, node, {b"part": None})
    session.transfer(0, delivery_id=1, delivery_tag=b"part")
    answer(session, 1, Accepted())
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "3.4.3")
def test_a_rejected_delivery_is_still_rejected_when_resumed(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    channel.declare(name, exclusive=False, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    sends(session, name)
    session.transfer(0, delivery_id=0, delivery_tag=b"no")
    disposition = session.expect(Disposition)
    assert isinstance(disposition.state, Rejected)
    suspend(session)
    known = unsettled_map_of(sends(session, name, {b"no": None}))
    assert known == {b"no": disposition.state}
    session.transfer(0, delivery_id=1, delivery_tag=b"no", resume=True)
    answer(session, 1, disposition.state)


@pytest.mark.spec("amqp-1.0", "3.5.7")
@pytest.mark.parametrize("ending", ["end", "socket", "stolen"])
def test_another_session_resumes_the_delivery_of_a_sender(
    meet: Meet, begin: Begins, channel: PeerChannel, node: str, ending: str
) -> None:
    first = begins(meet)()
    sends(first, node, timeout=MINUTE)
    first.transfer(0, delivery_id=0, delivery_tag=b"once")
    answer(first, 0, Accepted())
    if ending == "end":
        first.end()
    elif ending == "socket":
        first.peer.socket.close()
    second = begin()
    deadline = time.monotonic() + PATIENCE_S
    while (known := unsettled_map_of(sends(second, node, {b"once": None}, timeout=MINUTE))) is None:
        second.detach()
        assert time.monotonic() < deadline
    assert known == {b"once": Accepted()}
    second.transfer(0, delivery_id=0, delivery_tag=b"once", resume=True)
    answer(second, 0, Accepted())
    settle(second, 0)
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "3.5.6")
def test_a_sender_link_without_a_timeout_is_forgotten_with_its_session(begin: Begins, node: str) -> None:
    session = begin()
    sends(session, node)
    session.transfer(0, delivery_id=0, delivery_tag=b"once")
    answer(session, 0, Accepted())
    session.end()
    assert unsettled_map_of(sends(PeerSession10(session.peer, 1), node, {b"once": None})) is None


@pytest.mark.spec("amqp-1.0", "2.7.3")
def test_more_than_a_frame_holds(begin: Begins, channel: PeerChannel, node: str) -> None:
    """The broker sends a part of the map, and accepts no new delivery before the rest is known."""
    session = begin(frame=512)
    sends(session, node)
    tags = [b"%032d" % number for number in range(40)]
    for number, tag in enumerate(tags):
        session.transfer(0, delivery_id=number, delivery_tag=tag)
    done = 0
    while done < 40:
        disposition = session.expect(Disposition)
        assert (disposition.first, disposition.state) == (done, Accepted())
        assert disposition.last is not None
        done = disposition.last + 1
    suspend(session)
    reply = sends(session, node, dict.fromkeys(tags[:5]), incomplete_unsettled=True)
    known = unsettled_map_of(reply)
    assert known is not None
    assert reply.incomplete_unsettled is True
    assert 0 < len(known) < 40
    session.transfer(0, delivery_id=40, delivery_tag=tags[0], resume=True)
    answer(session, 40, Accepted())
    session.transfer(0, delivery_id=41, delivery_tag=b"new")
    session.expect_detach(0, "amqp:illegal-state")
    assert channel.counts(node)[0] == 40
