"""AMQP 1.0: kept, added and removed parts of a message, section by section. [amqp-1.0 3.2]"""

from uuid import UUID

import pytest

from protocol.amqp10.composing import decode_composite
from protocol.amqp10.composites import Header, Source
from protocol.amqp10.decoding import decode, decode_typed
from protocol.amqp10.encoding import encode
from protocol.amqp10.sections import Sections, scan
from protocol.amqp10.types import Byte, Char, Map, Short, Symbol, Timestamp, Ubyte, Uint, Ulong
from tests.support.amqp10.contents import BODY, bare10
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.amqp10.reference_codec import compound, described, message, sized

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

SIMPLE: dict[object, object] = {
    "null": None,
    "boolean": True,
    "ubyte": Ubyte(1),
    "short": Short(-2),
    "byte": Byte(-3),
    "char": Char("\U0001f600"),
    "float": 1.5,
    "timestamp": Timestamp(-5),
    "uuid": UUID(int=7),
    "binary": b"\x00\xff",
    "string": "\u00fc",
    "symbol": Symbol("s"),
}


def passed(session: PeerSession10, node: str, payload: bytes) -> bytes:
    """Send a message through the node, and return the received payload."""
    session.sends(node, 1)
    session.publish(1, 1, payload)
    session.receives(node, 0, 1)
    return session.delivery().payload


def codes(payload: bytes) -> list[int]:
    """The sections of a message."""
    sections, found = Sections(payload, 0, len(payload)), []
    while sections.advance():
        found.append(int(sections.code))
    return found


@pytest.mark.spec("amqp-1.0", "3.2.1")
def test_a_header_is_delivered_with_the_ttl_and_delivery_count_of_the_broker(
    session: PeerSession10, node: str
) -> None:
    header = compound(0xC0, [b"\x41", encode(Ubyte(7)), encode(Uint(3_600_000)), b"\x42", encode(Uint(5))])
    sent = passed(session, node, described(0x70, header) + BODY)
    found, _ = decode_composite(sent)
    assert isinstance(found, Header)
    assert (found.durable, found.priority) == (True, 7)
    assert found.ttl is not None
    assert 0 < found.ttl <= 3_600_000
    assert (found.first_acquirer, found.delivery_count) == (True, 0)


@pytest.mark.spec("amqp-1.0", "3.2.2")
@pytest.mark.spec("amqp-1.0", "3.2.3")
def test_message_annotations_are_passed_on_and_delivery_annotations_are_not(
    session: PeerSession10, node: str
) -> None:
    hop = described(0x71, encode(Map([(Symbol("x-hop"), True)])))
    own = described(0x72, encode(Map([(Symbol("x-own"), Short(3)), (Symbol("x-opt-own"), ["a", None])])))
    sent = passed(session, node, hop + own + BODY)
    assert codes(sent) == [0x70, 0x72, 0x75]
    layout = scan(sent, 0, len(sent))
    found, _ = decode_typed(sent, layout.annotations, layout.annotations_end)
    assert isinstance(found, Map)
    assert (Symbol("x-own"), Short(3)) in found.pairs
    assert (Symbol("x-opt-own"), ["a", None]) in found.pairs


@pytest.mark.spec("amqp-1.0", "1.1.2")
@pytest.mark.spec("amqp-1.0", "3.2.3")
def test_annotations_that_are_named_by_a_symbol_are_the_messages_too(
    session: PeerSession10, node: str
) -> None:
    own = b"\0" + sized(0xA3, b"amqp:message-annotations:map") + encode(Map([(Symbol("x-own"), True)]))
    sent = passed(session, node, own + BODY)
    assert codes(sent) == [0x70, 0x72, 0x75]
    layout = scan(sent, 0, len(sent))
    found, _ = decode(sent, layout.annotations, layout.annotations_end)
    assert isinstance(found, dict)
    assert found["x-own"] is True


@pytest.mark.spec("amqp-1.0", "3.2.10")
@pytest.mark.parametrize("key", [encode("x-string"), b"\x53\x05"], ids=["string", "ulong"])
def test_annotations_have_symbols_for_keys(session: PeerSession10, node: str, key: bytes) -> None:
    session.sends(node)
    session.transfer(0, described(0x72, compound(0xC1, [key, b"\x41"])) + BODY)
    session.expect_detach(0, "amqp:decode-error")


@pytest.mark.spec("amqp-1.0", "3.2.4")
@pytest.mark.spec("amqp-1.0", "3.2.11")
@pytest.mark.spec("amqp-1.0", "3.2.12")
@pytest.mark.spec("amqp-1.0", "3.2.13")
@pytest.mark.spec("amqp-1.0", "3.2.14")
@pytest.mark.parametrize("each", [Ulong(2**64 - 1), Ulong(0), UUID(int=3), b"\x00id", "id"], ids=str)
def test_a_message_id_may_be_of_four_types(session: PeerSession10, node: str, each: object) -> None:
    bare = bare10(message_id=each, correlation_id=each)
    assert passed(session, node, bare).endswith(bare)


@pytest.mark.spec("amqp-1.0", "3.2.4")
@pytest.mark.spec("amqp-1.0", "3.2.15")
@pytest.mark.parametrize(
    "fields",
    [{"message_id": Symbol("s")}, {"to": b"q"}, {"creation_time": Ulong(5)}, {"group_sequence": 1.5}],
)
def test_properties_of_wrong_types_are_refused(
    session: PeerSession10, node: str, fields: dict[str, object]
) -> None:
    session.sends(node)
    session.transfer(0, bare10(**fields))  # type: ignore[arg-type]
    session.expect_detach(0, "amqp:decode-error", next(iter(fields)).replace("_", "-"))


@pytest.mark.spec("amqp-1.0", "3.2.5")
def test_application_properties_are_passed_on_as_they_are(session: PeerSession10, node: str) -> None:
    bare = described(0x74, encode(SIMPLE)) + BODY
    assert passed(session, node, bare).endswith(bare)


@pytest.mark.spec("amqp-1.0", "3.2")
@pytest.mark.parametrize("sent", [described(0x70, b"\x45"), message((0x78, b"\xc1\x01\x00"))])
def test_a_message_may_have_no_body(session: PeerSession10, node: str, sent: bytes) -> None:
    found = passed(session, node, sent)
    assert set(codes(found)) <= {0x70, 0x72, 0x78}
    session.settle(0)
    session.publish(1, 1, first=1)
    session.allow(0, 1, 1)
    assert session.delivery().payload.endswith(BODY), "those behind it come"


@pytest.mark.spec("amqp-1.0", "3.5.2")
@pytest.mark.spec("amqp-1.0", "3.5.7")
@pytest.mark.spec("amqp-1.0", "3.3.1")
def test_a_copy_leaves_the_message_where_it_is(session: PeerSession10, node: str) -> None:
    session.sends(node, 2)
    session.publish(2, 2)
    answer = session.receives(None, 0, 5, source=Source(address=node, distribution_mode="copy"))
    assert answer.source is not None
    assert answer.source.distribution_mode == "copy"
    copies = [session.delivery() for _ in range(2)]
    for copy in copies:
        if not copy.settled:
            session.settle(copy.id)
    session.receives(node, 1, 5)
    assert [len(session.delivery(1).payload) for _ in range(2)] == [len(copy.payload) for copy in copies]
