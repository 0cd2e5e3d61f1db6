"""AMQP 1.0: thousands of frames at once, and peers that ask on and on and do not read the answers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.amqp10.composites import Accepted, Released, Source, Target
from protocol.amqp10.performatives import Attach, Begin, Detach, Disposition, End, Flow
from tests.conformance.conftest import Bystander
from tests.conformance.test_slow_readers import resident_bytes
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import Meet, Peer10, amqp
from tests.support.amqp10.peer_session import PeerSession10, receiver, sender
from tests.support.daemon.daemon import Daemon, DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

MANY = 6_000
MIB = 1 << 20
MEMORY = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")


@contextmanager
def written(peer: Peer10, frames: list[bytes]) -> Iterator[threading.Thread]:
    """Write all of it at once, while answers are taken."""
    writing = threading.Thread(target=peer.send, args=(b"".join(frames),), daemon=True)
    writing.start()
    yield writing
    writing.join()


@pytest.mark.spec("amqp-1.0", "2.6.3")
@pytest.mark.parametrize("role", [False, True], ids=["sender", "receiver"])
def test_links_come_and_go(session: PeerSession10, bystander: Bystander, node: str, role: bool) -> None:
    frames = []
    for number in range(MANY):
        attach = receiver(node) if role else sender(node)
        attach.name = f"{number}"
        frames += [session.encode(attach), session.encode(Detach(handle=0, closed=True))]
    with written(session.peer, frames):
        for number in range(MANY):
            assert session.expect(Attach).name == f"{number}"
            if not role:
                assert session.expect(Flow).handle == 0
            assert session.expect(Detach).error is None
    bystander.expect_progress()


@pytest.mark.spec("amqp-1.0", "2.5.1")
def test_sessions_come_and_go(meet: Meet, bystander: Bystander) -> None:
    peer = meet()
    peer.open()
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    with written(peer, [amqp(begin, 3), amqp(End(), 3)] * MANY):
        for _ in range(MANY):
            assert peer.expect(Begin, 3).remote_channel == 3
            assert peer.expect(End, 3).error is None
    bystander.expect_progress()


@pytest.mark.spec("amqp-1.0", "2.5.6")
def test_every_flow_with_echo_is_answered(session: PeerSession10, bystander: Bystander) -> None:
    asked = Flow(next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1, echo=True)
    with written(session.peer, [session.encode(asked)] * MANY):
        for _ in range(MANY):
            assert session.expect(Flow).handle is None
    bystander.expect_progress()


@pytest.mark.spec("amqp-1.0", "2.6.3")
def test_each_of_many_refused_attaches_is_answered(session: PeerSession10, bystander: Bystander) -> None:
    frames = [session.encode(sender("none")), session.encode(Detach(handle=0, closed=True))]
    with written(session.peer, frames * MANY):
        for _ in range(MANY):
            assert session.expect(Attach).target is None
            assert session.expect(Detach).error is not None
    bystander.expect_progress()


@pytest.mark.spec("amqp-1.0", "2.7.6")
def test_deliveries_are_settled_one_by_one(
    session: PeerSession10, bystander: Bystander, channel: PeerChannel, node: str
) -> None:
    for number in range(2000):
        channel.publish(b"%d" % number, node)
    session.receives(node, 0, 2000)
    ids = [session.delivery().id for _ in range(2000)]
    states = (Accepted(), Released())
    frames = [
        session.encode(Disposition(role=True, first=each, settled=True, state=states[each % 2]))
        for each in ids
    ]
    session.allow(0, 0, 2000)
    with written(session.peer, frames):
        session.expect_silence()
    assert channel.counts(node)[0] == 1000
    assert channel.take(node).body == b"1"
    bystander.expect_progress()


@pytest.mark.spec("amqp-1.0", "2.6.14")
def test_a_message_in_very_many_transfers(
    session: PeerSession10, bystander: Bystander, channel: PeerChannel, node: str
) -> None:
    session.sends(node)
    body = bytes(range(250)) * (100 * MANY // 250)
    whole = bare10(body=b"\0Su\xb0" + len(body).to_bytes(4, "big") + body)
    parts = [whole[at : at + 100] for at in range(0, len(whole), 100)]
    sent = 0
    while sent < len(parts):  # as far as the window goes
        room = session.begun.incoming_window if sent == 0 else 64
        chosen = parts[sent : sent + room]
        last = sent + len(chosen) == len(parts)
        frames = [
            session.encode_transfer(0, part, 0, more=not (last and part is chosen[-1])) for part in chosen
        ]
        session.peer.send(b"".join(frames))
        sent += len(chosen)
        while not last and session.expect(Flow).next_incoming_id != sent:
            pass
    while not isinstance(frame := session.read()[0], Disposition):
        assert isinstance(frame, Flow)
    assert frame.state == Accepted()
    assert channel.take(node).body == body
    bystander.expect_progress()


# ---- clients that do not read


@MEMORY
@pytest.mark.spec("amqp-1.0", "2.6.3")
def test_a_peer_that_asks_and_does_not_read_is_not_listened_to(
    start_daemon: DaemonStarter, connect: Connector, meet: Meet
) -> None:
    daemon = start_daemon()
    other = connect(daemon.address).channel()
    other.declare("q")
    peer = meet(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    target = Target(address="x" * 30_000)  # the answers repeat the address
    frames = []
    for number in range(2500):
        frame = Attach(name=f"{number}", handle=0, role=True, source=Source(address="q"), target=target)
        frames += [session.encode(frame), session.encode(Detach(handle=0, closed=True))]
    before = resident_bytes(daemon)
    with written(peer, frames) as writing:
        for _ in range(200):
            other.round_trip()
        assert writing.is_alive(), "the broker has read what it cannot answer"
        assert resident_bytes(daemon) - before < 48 * MIB
        for number in range(2500):  # requests are answered all the same, in order
            answer = session.expect(Attach)
            assert (answer.name, answer.target) == (f"{number}", target)
            assert session.expect(Detach).error is None


@MEMORY
@pytest.mark.spec("amqp-1.0", "2.6.12")
@pytest.mark.parametrize("size", [MIB, 3 * MIB], ids=["whole", "in pieces"])
@pytest.mark.parametrize("frame_max", [65536, 0xFFFFFFFF], ids=["small", "large"])
def test_a_receiver_that_does_not_read_takes_little_memory(
    start_daemon: DaemonStarter, connect: Connector, meet: Meet, size: int, frame_max: int
) -> None:
    daemon = start_daemon("--memory-budget", "1MiB")
    channel = connect(daemon.address).channel()
    channel.declare("backlog", durable=True)
    count = 96 * MIB // size
    for _ in range(count):
        channel.publish(bytes(size), "backlog")
    channel.round_trip()
    session = slow_receiver(meet, daemon, frame_max)
    before = resident_bytes(daemon)
    session.allow(0, count)
    for _ in range(50):
        channel.round_trip()
    assert resident_bytes(daemon) - before < 32 * MIB
    for number in range(count):
        assert session.delivery().id == number


def slow_receiver(meet: Meet, daemon: Daemon, frame_max: int) -> PeerSession10:
    """A session whose window is for everything, with a link that is allowed nothing yet."""
    peer = meet(daemon.address)
    peer.open(max_frame_size=frame_max)
    session = PeerSession10(peer, incoming_window=1 << 20)
    session.receives("backlog")
    return session
