"""AMQP 1.0: the bare message is the same, byte for byte, wherever it has been. [amqp-1.0 3.2]"""

import pytest

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import Accepted, DeliveryState, Header, Modified, Rejected, Released
from protocol.amqp10.encoding import encode
from protocol.amqp10.sections import scan
from protocol.amqp10.types import Map, Symbol
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.controller import Controller, within
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import Delivery, PeerSession10
from tests.support.amqp10.reference_codec import compound, described
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.endings import Ending, both_endings

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")


def annotations(code: int, name: str) -> bytes:
    """Return a section of annotations with a single entry."""
    return described(code, encode(Map([(Symbol(name), "value")])))


def data(size: int) -> bytes:
    """A section of data."""
    return described(0x75, b"\xb0" + size.to_bytes(4, "big") + b"d" * size)


FRONT = (
    encode_composite(Header(durable=True, priority=6))
    + annotations(0x71, "x-opt-dropped")
    + annotations(0x72, "x-opt-kept")
)
DATA = described(0x75, b"\xa0\x01x")
ID, A, Z = b"\xa1\x02id", b"\xa1\x01a", b"\xa1\x01z"
NULL, ONE = b"\x40", b"\x54\x01"
BARE = {
    "nothing": b"",
    "data": DATA,
    "a list of 32 bits": described(0x73, compound(0xD0, [ID])) + DATA,
    "a list without fields": described(0x73, b"\x45") + DATA,
    "an empty list of 8 bits": described(0x73, compound(0xC0, [])) + DATA,
    "nulls at the end": described(0x73, compound(0xC0, [ID, *[NULL] * 12])) + DATA,
    "an id that is a uuid": described(0x73, compound(0xC0, [b"\x98" + bytes(range(16))])) + DATA,
    "an id that is a long number": described(0x73, compound(0xC0, [b"\x80" + bytes(7) + b"\1"])) + DATA,
    "an id that is the number zero": described(0x73, compound(0xC0, [b"\x44"])) + DATA,
    "a long string": described(0x73, compound(0xD0, [NULL, NULL, NULL, b"\xb1\0\0\0\1s"])) + DATA,
    "a map of 32 bits": described(0x74, compound(0xD1, [A, b"\x70\0\0\0\1"])) + DATA,
    "properties in their order": described(0x74, compound(0xC1, [Z, ONE, A, b"\x41"])) + DATA,
    "an empty map": described(0x74, compound(0xC1, [])) + DATA,
    "a descriptor by name": b"\0\xa3\x10amqp:data:binary\xa0\1x",
    "a long name": b"\0\xb3\0\0\0\x10amqp:data:binary\xa0\1x",
    "a long descriptor": b"\0\x80" + bytes(7) + b"\x75\xa0\1x",
    "a long binary": described(0x75, b"\xb0\0\0\0\1x"),
    "an empty binary": described(0x75, b"\xa0\0") + described(0x75, b"\xb0" + bytes(4)),
    "several data": DATA * 3,
    "several sequences": described(0x76, b"\x45") * 2 + described(0x76, compound(0xD0, [ONE])),
    "null": described(0x77, NULL),
    "true in two bytes": described(0x77, b"\x56\1"),
    "a long number": described(0x77, b"\x80" + bytes(7) + b"\1"),
    "a decimal": described(0x77, b"\x74\x22\x50\0\1"),
    "not a number": described(0x77, b"\x72\x7f\xc0\0\1"),
    "a value that is described": described(0x77, b"\0" + A + b"\0" + Z + ONE),
    "an array of nothing": described(0x77, b"\xe0\2\0\x40"),
    "a map with a key twice": described(0x77, compound(0xC1, [ONE, ONE, ONE, NULL])),
    "a footer": DATA + described(0x78, compound(0xC1, [])),
    "a footer with contents": DATA + described(0x78, compound(0xD1, [b"\xb3\0\0\0\1a", b"\xa0\1b"])),
    "much": described(0x73, b"\x45")
    + described(0x75, b"\xb0" + (300_000).to_bytes(4, "big") + b"m" * 300_000),
    "very much": (described(0x75, b"\xb0" + (500_000).to_bytes(4, "big") + b"v" * 500_000) + DATA) * 4,
}


def bare_of(delivery: Delivery) -> bytes:
    """Return the bytes after the header and the annotations, which the broker sets for each delivery."""
    payload = delivery.payload
    layout = scan(payload, 0, len(payload))
    assert b"x-opt-dropped" not in payload[: layout.bare]
    assert b"x-opt-kept" in payload[: layout.bare]
    return payload[layout.bare :]


def fill(session: PeerSession10, queue: str) -> None:
    """Send all of them."""
    session.sends(queue, 9)
    for number, bare in enumerate(BARE.values()):
        whole = FRONT + bare
        parts = [whole[at : at + 100_000] for at in range(0, len(whole), 100_000)]
        for part in parts:
            session.transfer(9, part, number, more=part is not parts[-1])
        assert session.outcome(number) == Accepted()
    session.detach(9)


def expect_unchanged(session: PeerSession10, queue: str, handle: int = 0) -> list[int]:
    """Receive all of them; returns the ids of the deliveries, which are left unsettled."""
    session.receives(queue, handle, len(BARE))
    deliveries = [session.delivery(handle) for _ in BARE]
    for (name, bare), delivery in zip(BARE.items(), deliveries, strict=True):
        assert bare_of(delivery) == bare, name
    return [delivery.id for delivery in deliveries]


@pytest.mark.spec("amqp-1.0", "3.2")
@pytest.mark.parametrize(
    "state",
    [
        Released(),
        Modified(delivery_failed=True),
        Modified(message_annotations={Symbol("x-opt-kept"): "again", Symbol("x-opt-new"): 1}),
    ],
    ids=["released", "failed", "annotated"],
)
def test_a_returned_message_is_unchanged(session: PeerSession10, node: str, state: DeliveryState) -> None:
    fill(session, node)
    ids = expect_unchanged(session, node)
    session.settle(ids[0], ids[-1], state)
    session.detach()
    expect_unchanged(session, node)


@pytest.mark.spec("amqp-1.0", "3.2")
def test_a_dead_letter_is_unchanged(session: PeerSession10, channel: PeerChannel, node: str) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": node}
    dying = channel.declare(auto_delete=True, arguments=arguments)  # type: ignore[arg-type]
    fill(session, dying)
    ids = expect_unchanged(session, dying, 1)
    session.settle(ids[0], ids[-1], Rejected())
    expect_unchanged(session, node)


@pytest.mark.spec("amqp-1.0", "4.4")
def test_a_message_is_unchanged_after_transactions(session: PeerSession10, node: str) -> None:
    controller = Controller(session)
    session.sends(node, 1)
    txn_id = controller.declare()
    small = {name: bare for name, bare in BARE.items() if len(bare) < 100_000}
    for number, bare in enumerate(small.values()):
        session.transfer(1, FRONT + bare, number, state=within(txn_id))
        assert session.outcome(number) == within(txn_id, Accepted())
    controller.commit(txn_id)
    session.receives(node, 0)
    for _ in range(2):  # the first time it is acquired, and given back
        txn_id = controller.declare()
        session.allow(0, len(small), session.received, properties={Symbol("txn-id"): txn_id})
        assert [bare_of(session.delivery()) for _ in small] == list(small.values())
        controller.roll_back(txn_id)


@both_endings
@pytest.mark.spec("amqp-1.0", "3.2")
def test_a_message_is_unchanged_after_a_restart(
    start_daemon: DaemonStarter, connect: Connector, meet: Meet, end: Ending
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.declare("q", durable=True, arguments=arguments)  # type: ignore[arg-type]
    channel.declare("dead", durable=True)
    peer = meet(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    fill(session, "q")
    ids = expect_unchanged(session, "q")
    session.settle(ids[0], ids[-1], Rejected())
    session.detach()
    fill(session, "q")
    peer.socket.close()
    end(daemon, channel.peer)
    peer = meet(start_daemon().address)
    peer.open()
    session = PeerSession10(peer)
    expect_unchanged(session, "dead", 0)
    expect_unchanged(session, "q", 1)
