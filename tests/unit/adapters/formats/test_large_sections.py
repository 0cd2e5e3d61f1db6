"""Large bodies of AMQP 1.0 for clients of AMQP 0-9-1: piece by piece, whatever they are cut like."""

import pytest
from pamqp.commands import Basic, Channel, Connection, Queue

from broker.adapters.amqp091.large import STEP_BYTES
from broker.core.message import Message
from protocol.amqp091 import properties as basic
from protocol.amqp091.content import body
from protocol.amqp091.incoming import WHOLE_BYTES_MAX
from protocol.amqp091.properties import Properties
from protocol.amqp10.sections import SECTIONS_MAX
from tests.support.adapters.connection_without_socket import CAPABILITIES, BrokerBench, Client091
from tests.support.adapters.queued_messages10 import ON_DISK, PIECE_BYTES, data, put_large
from tests.support.amqp10.contents import content10
from tests.support.amqp10.reference_codec import described
from tests.support.conversion.contents import DATA, FOOTER, SEQUENCE, VALUE

PAYLOAD = bytes(range(256)) * 8192
FOOT = described(FOOTER, b"\xc1\x01\x00")


MANY = b"".join(data(PAYLOAD[p : p + 5000]) for p in range(0, len(PAYLOAD), 5000))


def open_client(bench: BrokerBench, frame_max: int = 131072) -> Client091:
    client = bench.connect()
    client.send(Connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", "\0guest\0guest"))
    client.send(Connection.TuneOk(2047, frame_max, 0))
    client.send(Connection.Open("/"))
    client.send(Channel.Open(), 1)
    client.send(Queue.Declare(queue="q"), 1)
    client.frames()
    return client


def got(client: Client091) -> tuple[Properties, bytes]:
    """The next message of the queue, and that the channel goes on after it."""
    client.send(Basic.Get(queue="q", no_ack=True), 1)
    client.send(Basic.Get(queue="q"), 1)
    client.bench.turns.run()
    [(_, content)], frames = client.contents(), client.frames()
    assert frames == []
    return Properties(content), body(content)


@pytest.mark.parametrize("frame_max", [4096, 131072])
@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    ("sections", "piece"),
    [
        (data(PAYLOAD), PIECE_BYTES),
        (data(PAYLOAD) + FOOT, PIECE_BYTES),
        (data(PAYLOAD), len(PAYLOAD) + 8),
        (data(PAYLOAD) + FOOT, len(PAYLOAD) + 8),
        (MANY + FOOT, PIECE_BYTES),
        (MANY, 4999),
        (described(DATA, b"\xa0\x00") + data(PAYLOAD[:7]) + data(PAYLOAD[7:]), PIECE_BYTES),
    ],
)
def test_the_content_of_data_sections_is_the_body(
    bench: BrokerBench, sections: bytes, piece: int, on_disk: bool, frame_max: int
) -> None:
    client = open_client(bench, frame_max)
    front = content10({"x-own": "a"}, body=b"", message_id="m")
    put_large(bench, sections, front, piece_bytes=piece, on_disk=on_disk)
    properties, payload = got(client)
    assert payload == PAYLOAD
    assert properties.headers() == {"x-own": "a"}
    assert properties.octets(basic.TYPE) is None
    assert properties.text(basic.MESSAGE_ID) == "m"


@pytest.mark.parametrize(
    "sections",
    [
        described(VALUE, b"\xb0\x00\x20\x00\x00" + PAYLOAD) + FOOT,
        described(SEQUENCE, b"\x45") * (len(PAYLOAD) // 4),
    ],
)
def test_a_body_of_another_kind_is_its_sections(bench: BrokerBench, sections: bytes) -> None:
    client = open_client(bench)
    put_large(bench, sections, content10({"x-own": "a", "x-basic-type": "t"}, body=b""))
    properties, payload = got(client)
    assert payload == sections
    assert properties.headers() == {"x-own": "a"}
    assert properties.text(basic.TYPE) == "amqp-1.0"


@pytest.mark.parametrize(
    "sections",
    [
        data(PAYLOAD)[:-1],
        data(PAYLOAD) + b"\x00\x53",
        data(PAYLOAD) + described(VALUE, b"\x40"),
        PAYLOAD,
        described(DATA, b"\xa0\x00") * SECTIONS_MAX + data(PAYLOAD),
    ],
)
def test_a_body_without_valid_sections_is_kept_whole(bench: BrokerBench, sections: bytes) -> None:
    client = open_client(bench, 4096)
    front = content10({"x-own": "a" * 3000}, {"more": "b" * 900}, durable=True, body=b"")
    put_large(bench, sections, front)
    properties, payload = got(client)
    assert payload == front + sections
    assert properties.headers() == {}
    assert (properties.text(basic.TYPE), properties.number(basic.DELIVERY_MODE)) == ("amqp-1.0", 2)


def test_a_header_that_has_no_room_for_the_type_of_the_body_is_not_sent(bench: BrokerBench) -> None:
    client = open_client(bench, 4096)
    sections = described(VALUE, b"\xb0\x00\x20\x00\x00" + PAYLOAD)
    for room in (True, False):
        headers: dict[str, object] = {"h": "x" * (4053 if room else 4054)}
        front = content10(application=headers, body=b"")
        put_large(bench, sections, front)
        properties, payload = got(client)
        assert properties.headers() == (headers if room else {})
        assert payload == (sections if room else front + sections)


def test_a_body_of_empty_sections_is_empty(bench: BrokerBench) -> None:
    client = open_client(bench)
    put_large(bench, described(DATA, b"\xa0\x00") * 10 + described(FOOTER, b"\xb0\0\x20\0\0" + PAYLOAD))
    assert got(client)[1] == b""


def test_a_large_body_is_delivered_as_often_as_it_comes(bench: BrokerBench) -> None:
    client = open_client(bench)
    client.send(Queue.Declare(queue="limited", arguments={"x-delivery-limit": 5}), 1)
    client.send(Basic.Consume(queue="limited", consumer_tag="c"), 1)
    client.frames()
    put_large(bench, MANY + FOOT, name="limited")
    for count in range(3):
        client.publish("limited", b"behind")
        bench.turns.run()
        (first, content), *others = client.contents()
        assert isinstance(first, Basic.Deliver)
        assert body(content) == PAYLOAD
        counts = {"x-acquired-count": count, "x-delivery-count": count} if count else {}
        assert Properties(content).headers() == counts
        assert [body(other) for _, other in others] == [b"behind"]
        client.send(Basic.Nack(first.delivery_tag or 0), 1)


def test_a_single_section_is_not_read_from_disk_for_its_length(bench: BrokerBench) -> None:
    client = open_client(bench)
    put_large(bench, data(PAYLOAD) + FOOT, on_disk=True)
    read: list[int] = []
    load = bench.store.load

    def counted(message: Message) -> bytes:
        read.append(int(message.sequence) - ON_DISK)
        return load(message)

    bench.store.load = counted  # type: ignore[method-assign]
    assert got(client)[1] == PAYLOAD
    pieces = len(data(PAYLOAD) + FOOT + bytes(PIECE_BYTES - 1)) // PIECE_BYTES
    assert read == [1, pieces, *range(1, pieces + 1)]


def test_many_pieces_are_walked_over_in_many_turns(bench: BrokerBench) -> None:
    client = open_client(bench)
    put_large(bench, MANY, piece_bytes=4999)
    other = open_client(bench)
    client.send(Basic.Get(queue="q", no_ack=True), 1)
    turns = 0
    while bench.turns.waiting:
        bench.turns.waiting.popleft().pump(256)
        turns += 1
    assert turns > 20 > len(MANY) // STEP_BYTES
    [(_, content)] = client.contents()
    assert body(content) == PAYLOAD
    assert other.frames() == []


def test_deliveries_wait_behind_a_body_that_is_measured(bench: BrokerBench) -> None:
    client = open_client(bench)
    put_large(bench, MANY, piece_bytes=4999)
    client.send(Basic.Get(queue="q", no_ack=True), 1)
    client.send(Queue.Declare(queue="other"), 1)
    assert client.edge.written == b""
    bench.turns.run()
    ok, declared = client.frames()
    assert isinstance(ok, Basic.GetOk)
    assert isinstance(declared, Queue.DeclareOk)


def test_a_piece_that_cannot_be_read_ends_the_connection_and_nothing_of_it_was_sent(
    bench: BrokerBench,
) -> None:
    client = open_client(bench)
    put_large(bench, data(PAYLOAD), on_disk=True)
    bench.store.unreadable = True
    client.send(Basic.Get(queue="q"), 1)
    bench.turns.run()
    [closed] = client.frames()
    assert isinstance(closed, Connection.Close)
    assert closed.reply_code == 541
    assert bench.broker.vhosts["/"].topology.queues["q"].ready == 1


def test_sizes_are_those_of_large_messages() -> None:
    assert len(PAYLOAD) > WHOLE_BYTES_MAX
