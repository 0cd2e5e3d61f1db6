"""AMQP 1.0: sessions, their windows, and frames on channels without a session. [amqp-1.0 2.5]"""

import pytest

from protocol.amqp10.composites import Source, Target
from protocol.amqp10.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Transfer,
)
from protocol.amqp10.types import Composite
from tests.support.amqp10.peer import Meet, Peer10, amqp

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

LAST = 0xFFFFFFFF


def begin(next_outgoing_id: int = 0, **fields: object) -> Begin:
    values = {"incoming_window": 100, "outgoing_window": 100, **fields}
    return Begin(next_outgoing_id=next_outgoing_id, **values)  # type: ignore[arg-type]


def flow(**fields: object) -> Flow:
    values = {
        "next_incoming_id": 0,
        "incoming_window": 100,
        "next_outgoing_id": 0,
        "outgoing_window": 100,
        **fields,
    }
    return Flow(**values)  # type: ignore[arg-type]


def opened(meet: Meet, channel: int = 0, next_outgoing_id: int = 0) -> tuple[Peer10, Begin]:
    """A peer with a session, and the broker's begin."""
    peer = meet()
    peer.open()
    peer.write(begin(next_outgoing_id), channel)
    return peer, peer.expect(Begin, channel)


def expect_end(peer: Peer10, condition: str, words: str = "", channel: int = 0) -> None:
    """The broker ends the session; answers that."""
    end = peer.expect(End, channel)
    assert end.error is not None
    assert end.error.condition == condition, end
    assert words in (end.error.description or ""), end
    peer.write(End(), channel)


@pytest.mark.spec("amqp-1.0", "2.5.1")
@pytest.mark.parametrize("channel", [0, 1, 255])
def test_a_session_begins_and_ends(meet: Meet, channel: int) -> None:
    peer, answer = opened(meet, channel)
    assert (answer.remote_channel, answer.next_outgoing_id) == (channel, 0)
    assert answer.incoming_window >= 16
    assert answer.handle_max == 255
    peer.write(End(), channel)
    assert peer.expect(End, channel).error is None
    peer.write(begin(), channel)
    peer.expect(Begin, channel)


@pytest.mark.spec("amqp-1.0", "2.5.1")
def test_sessions_are_on_their_own(meet: Meet) -> None:
    peer, _ = opened(meet)
    peer.write(begin(), 7)
    peer.expect(Begin, 7)
    peer.write(flow(handle=3), 7)
    expect_end(peer, "amqp:session:unattached-handle", "handle 3", 7)
    peer.write(flow(echo=True))
    peer.expect(Flow)


@pytest.mark.spec("amqp-1.0", "2.7.1")
def test_a_channel_beyond_the_highest(meet: Meet) -> None:
    peer, _ = opened(meet)
    peer.write(begin(), 256)
    peer.expect_close("amqp:connection:framing-error", "channel 256")


@pytest.mark.spec("amqp-1.0", "2.7.1")
def test_the_peer_may_want_fewer_channels(meet: Meet) -> None:
    peer = meet()
    peer.open(channel_max=3)
    peer.write(begin(), 4)
    peer.expect_close("amqp:connection:framing-error", "channel 4")


@pytest.mark.spec("amqp-1.0", "2.7.2")
@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (bytes.fromhex("0000000c02000000 00531145"), "amqp:decode-error"),
        (amqp(begin(remote_channel=0)), "amqp:not-allowed"),
        (amqp(End()), "amqp:illegal-state"),
        (amqp(flow()), "amqp:illegal-state"),
        (amqp(Transfer(handle=0)), "amqp:illegal-state"),
        (amqp(Disposition(role=False, first=0)), "amqp:illegal-state"),
        (amqp(Detach(handle=0)), "amqp:illegal-state"),
        (amqp(Attach(name="n", handle=0, role=False, initial_delivery_count=0)), "amqp:illegal-state"),
    ],
    ids=["empty", "an answer", "end", "flow", "transfer", "disposition", "detach", "attach"],
)
def test_frames_refused_on_a_channel_without_a_session(meet: Meet, data: bytes, condition: str) -> None:
    peer = meet()
    peer.open()
    peer.send(data)
    peer.expect_close(condition)


@pytest.mark.spec("amqp-1.0", "2.5.1")
@pytest.mark.parametrize(
    ("performative", "condition"),
    [(begin(), "amqp:illegal-state"), (SaslInit(mechanism="PLAIN"), "amqp:illegal-state")],
    ids=["begin", "of SASL"],
)
def test_frames_refused_by_a_session(meet: Meet, performative: Composite, condition: str) -> None:
    peer, _ = opened(meet)
    peer.write(performative)
    peer.expect_close(condition)


@pytest.mark.spec("amqp-1.0", "2.7.4")
def test_a_flow_is_echoed_once(meet: Meet) -> None:
    peer, answer = opened(meet)
    peer.write(flow(echo=True))
    echoed = peer.expect(Flow)
    assert (echoed.handle, echoed.echo) == (None, False)
    assert (echoed.next_incoming_id, echoed.incoming_window) == (0, answer.incoming_window)
    peer.write(flow())
    peer.write(Close())
    peer.expect(Close)


@pytest.mark.spec("amqp-1.0", "2.5.6")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"next_outgoing_id": 4}, "next-outgoing-id is 4"),
        ({"next_incoming_id": 1, "next_outgoing_id": 5}, "next-incoming-id is 1"),
    ],
    ids=["rewound", "ahead"],
)
def test_a_flow_that_cannot_be(meet: Meet, fields: dict[str, int], words: str) -> None:
    peer, _ = opened(meet, next_outgoing_id=5)
    peer.write(flow(**fields))
    expect_end(peer, "amqp:session:window-violation", words)


@pytest.mark.spec("amqp-1.0", "2.5.6")
@pytest.mark.parametrize("first", [0, LAST - 70], ids=["from 0", "over the end"])
def test_the_window_is_opened_again_at_its_half(meet: Meet, first: int) -> None:
    peer, answer = opened(meet, next_outgoing_id=first)
    refused(peer, 0)
    half = answer.incoming_window // 2
    one = amqp(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", settled=True))
    peer.send(one * half)
    flow = peer.expect(Flow)
    assert flow.next_incoming_id == (first + half) & LAST
    assert flow.incoming_window == answer.incoming_window


@pytest.mark.spec("amqp-1.0", "2.7.5")
def test_a_link_that_is_not_there(meet: Meet) -> None:
    for frame in (Transfer(handle=9, delivery_id=0, delivery_tag=b"t"), Detach(handle=9), flow(handle=9)):
        peer, _ = opened(meet)
        peer.write(frame)
        expect_end(peer, "amqp:session:unattached-handle", "handle 9")


def refused(peer: Peer10, handle: int, receives: bool = False) -> Attach:
    """Attach a link, which is refused."""
    peer.write(
        Attach(
            name=f"link {handle}",
            handle=handle,
            role=receives,
            source=Source(address="/queues/there-is-none"),
            target=Target(address="/queues/there-is-none"),
            initial_delivery_count=None if receives else 0,
        )
    )
    answer = peer.expect(Attach)
    detach = peer.expect(Detach)
    assert (detach.handle, detach.closed) == (handle, True)
    assert detach.error is not None
    assert detach.error.condition == "amqp:not-found"
    return answer


@pytest.mark.spec("amqp-1.0", "2.6.3")
@pytest.mark.parametrize("receives", [False, True], ids=["sender", "receiver"])
def test_a_link_is_refused_by_a_terminus_that_is_null(meet: Meet, receives: bool) -> None:
    peer, _ = opened(meet)
    answer = refused(peer, 3, receives)
    assert (answer.name, answer.handle, answer.role) == ("link 3", 3, not receives)
    assert answer.source is None
    assert answer.target is None
    assert answer.initial_delivery_count == (0 if receives else None)
    peer.write(Detach(handle=3, closed=True))
    refused(peer, 3, receives)
    peer.write(End())
    assert peer.expect(End).error is None


@pytest.mark.spec("amqp-1.0", "2.7.2")
def test_a_handle_beyond_the_highest(meet: Meet) -> None:
    peer, _ = opened(meet)
    peer.write(Attach(name="n", handle=256, role=True))
    peer.expect_close("amqp:connection:framing-error", "handle is 256")


@pytest.mark.spec("amqp-1.0", "2.5.4")
def test_frames_behind_an_error_of_the_session_are_ignored(meet: Meet) -> None:
    peer, _ = opened(meet)
    peer.write(Detach(handle=9))
    for invalid in (flow(), flow(handle=1), Disposition(role=False, first=0), Detach(handle=3)):
        peer.write(invalid)
    expect_end(peer, "amqp:session:unattached-handle", "handle 9")
    peer.write(begin())
    peer.expect(Begin)


@pytest.mark.spec("amqp-1.0", "2.5.2")
def test_everything_ends_with_the_connection(meet: Meet) -> None:
    peer, _ = opened(meet)
    peer.write(begin(), 1)
    peer.expect(Begin, 1)
    peer.write(Open(container_id="again"))
    peer.expect_close("amqp:not-allowed")
