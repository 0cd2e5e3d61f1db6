"""Messages of AMQP 0-9-1 for clients of AMQP 1.0, large ones by the piece, and both ways."""

import pytest
from pamqp.commands import Basic, Queue

from broker.adapters.formats.either import content_for10, pieces_of
from broker.core.message import Message
from broker.core.ports import MessageStore
from protocol.amqp091 import properties as basic
from protocol.amqp091.content import body
from protocol.amqp091.properties import Properties
from protocol.amqp10.sections import scan
from protocol.conversion.to10 import content10
from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.adapters.queued_messages10 import put, put_large
from tests.support.amqp091.frames import body_frames, header_bytes, method_bytes
from tests.support.conversion.contents import ANNOTATIONS, DATA, PROPERTIES, content, sections, short_string

PAYLOAD = bytes(range(256)) * 20_000


@pytest.fixture
def client(bench: BrokerBench) -> Client091:
    """The client that has declared the queue."""
    client = bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    client.frames()
    return client


def given(message: Message, store: MessageStore) -> list[bytes]:
    """Return the message as sections: the front, and a large body in pieces."""
    front = content_for10(message, kept(message))
    return [front] if message.body is None else [front, *pieces_of(message.body, kept(message), store)]


def published(
    bench: BrokerBench, client: Client091, payload: bytes, frame_max: int, **fields: object
) -> Message:
    """Return the stored message of a client's publish."""
    properties = Basic.Properties(**fields)  # type: ignore[arg-type]
    stream = method_bytes(Basic.Publish(routing_key="q"), 1) + header_bytes(len(payload), properties, 1)
    client.connection.receive(stream + b"".join(body_frames(payload, 1, frame_max)))
    [entry] = bench.broker.vhosts["/"].topology.queues["q"].entries
    return entry.message


def kept(message: Message) -> bytes:
    assert message.content is not None
    return message.content


def test_a_message_is_its_sections(bench: BrokerBench, client: Client091) -> None:
    message = published(bench, client, b"hello", 4096, message_id="m", headers={"x-own": 1, "a": "b"})
    made = content_for10(message, kept(message))
    assert made == content10(kept(message), "", "q")
    content_sections = sections(made)
    assert content_sections[ANNOTATIONS] == {"x-exchange": "", "x-routing-key": "q", "x-own": 1}
    assert content_sections[DATA] == b"hello"
    assert (given(message, MessageStore())) == [made]


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_a_large_body_is_one_data_section_that_comes_piece_by_piece(
    bench: BrokerBench, client: Client091, frame_max: int, on_disk: bool
) -> None:
    message = published(bench, client, PAYLOAD, frame_max, message_id="m")
    assert message.body is not None
    if on_disk:
        for number, piece in enumerate(message.body.pieces, 1):
            piece.sequence = number
            bench.store.contents[number] = kept(piece)
            piece.content = None
    front, *pieces = given(message, bench.store)
    assert front == content_for10(message, kept(message))
    assert len(pieces) == len(message.body.pieces)
    assert b"".join(pieces) == PAYLOAD
    whole = front + b"".join(pieces)
    content_sections = sections(whole)
    assert content_sections[DATA] == PAYLOAD
    listed = content_sections[PROPERTIES]
    assert isinstance(listed, list)
    assert listed[0] == "m"
    assert whole == content10(content({basic.MESSAGE_ID: short_string(b"m")}, None, PAYLOAD), "", "q")


def test_a_large_body_of_type_amqp_1_0_is_sent_as_a_data_section(
    bench: BrokerBench, client: Client091
) -> None:
    message = published(bench, client, PAYLOAD, 131072, message_type="amqp-1.0")
    whole = b"".join(given(message, bench.store))
    layout = scan(whole, 0, len(whole))
    assert (layout.body_code, layout.body_count, layout.body_end) == (DATA, 1, len(whole))
    assert sections(whole)[ANNOTATIONS] == {
        "x-exchange": "",
        "x-routing-key": "q",
        "x-basic-type": "amqp-1.0",
    }


@pytest.mark.parametrize("payload", [b"", b"hello", PAYLOAD])
def test_a_message_from_amqp_091_returns_there_unchanged(
    bench: BrokerBench, client: Client091, payload: bytes
) -> None:
    message = published(bench, client, payload, 131072, delivery_mode=1, headers={"x-own": 1, "a": "b"})
    parts = given(message, bench.store)
    client.send(Queue.Purge(queue="q"), 1)
    client.frames()
    if message.body is None:
        put(bench, parts[0])
    else:
        layout = scan(parts[0] + bytes(len(PAYLOAD)), 0, len(parts[0]) + len(PAYLOAD))
        put_large(bench, parts[0][layout.body :] + b"".join(parts[1:]), parts[0][: layout.body])
    client.send(Basic.Get(queue="q"), 1)
    bench.turns.run()
    [(_, got)] = client.contents()
    properties = Properties(got)
    assert properties.headers() == {"x-own": 1, "a": "b"}
    assert properties.number(basic.DELIVERY_MODE) == 1
    assert body(got) == payload
