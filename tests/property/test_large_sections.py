"""Bodies that are kept in pieces against the same messages kept whole: clients get the same of both."""

from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp.commands import Basic, Queue

from broker.admin.api.message_shapes import show_message
from protocol.amqp091 import properties as basic
from protocol.amqp091.content import body
from protocol.amqp091.properties import Properties
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.sections import scan
from protocol.conversion.to091 import content091
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.adapters.queued_messages10 import data, put_large
from tests.support.amqp10.contents import content10
from tests.support.amqp10.reference_codec import described, sized

LONG = content10({"x-own": "a", "x-basic-type": "t"}, {"n": 1}, True, 3, message_id="m", body=b"")
FRONTS = st.sampled_from([content10(body=b""), LONG])
SHORT = st.binary(max_size=255).map(lambda raw: described(0x75, sized(0xA0, raw)))
DATA = st.lists(st.binary(max_size=9000).map(data) | SHORT, min_size=1, max_size=6).map(b"".join)
SEQUENCES = st.lists(st.just(described(0x76, b"\xc0\x02\x01\x40")), min_size=1, max_size=50).map(b"".join)
VALUES = st.binary(max_size=9000).map(lambda raw: described(0x77, data(raw)[3:]))
FOOT = st.sampled_from([b"", described(0x78, b"\xc1\x01\x00")])
RESTS = st.just(b"") | st.binary(max_size=40)


@given(FRONTS, DATA | SEQUENCES | VALUES, FOOT, RESTS, st.integers(1, 8000), st.sampled_from([4096, 131072]))
@settings(deadline=None)
def test_a_body_in_pieces_is_what_it_would_be_as_a_whole(
    front: bytes, sections: bytes, foot: bytes, rest: bytes, piece_bytes: int, frame_max: int
) -> None:
    sections += foot + rest
    whole = content091(front + sections)
    if rest:  # behind the end of what matters nothing is looked at
        try:
            scan(front + sections, 0, len(front + sections))
        except DecodeError:
            whole = b""
    bench = BrokerBench()
    client = bench.open()
    client.connection.frame_max = frame_max
    client.send(Queue.Declare(queue="q"), 1)
    client.frames()
    put_large(bench, sections, front, piece_bytes=piece_bytes)
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    [entry] = queue.entries
    shown = show_message(bench.server, queue, entry, 0, "base64", None)
    client.send(Basic.Get(queue="q"), 1)
    bench.turns.run()
    [(_, content)] = client.contents()
    if whole:
        assert body(content) == body(whole)
        expected, delivered = Properties(whole), Properties(content)
        assert delivered.fields() == expected.fields()
        assert [delivered.octets(place) for place in range(14)] == [
            expected.octets(place) for place in range(14)
        ]
        assert shown["properties"].get("type", "") == expected.text(basic.TYPE)
    else:
        assert body(content) in (front + sections, sections, body(content091(front + sections[: -len(rest)])))
