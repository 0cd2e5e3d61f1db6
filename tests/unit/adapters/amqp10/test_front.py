"""A sent message of AMQP 1.0: a header and annotations of the delivery, and the bare message."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.adapters.amqp10.assembly import stored_header
from broker.adapters.amqp10.target import DeliverySections
from broker.core.entries.entry import ACQUIRED, QueueEntry
from broker.core.message import Message
from broker.core.queues.queue import Queue
from protocol.amqp10.composing import decode_composite
from protocol.amqp10.composites import Header
from protocol.amqp10.constructors import NONE
from protocol.amqp10.decoding import decode
from protocol.amqp10.sections import scan
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.adapters.queued_messages10 import data, put, put_large
from tests.support.amqp091.frames import body_frames, header_bytes
from tests.support.amqp10.contents import bare10, content10
from tests.support.amqp10.reference_codec import compound, sized

BARE = bare10(subject="s")
X_OWN = sized(0xA3, b"x-own")


@pytest.fixture
def queue(bench: BrokerBench) -> Queue:
    return bench.broker.vhosts["/"].declarations.declare_queue("q", False, None, False, {})


def read(bench: BrokerBench, queue: Queue, front: DeliverySections, at: int = -1) -> tuple[QueueEntry, bytes]:
    """Take up the message at this place of the queue; all of it that is not further."""
    entry = list(queue.entries)[at]
    front.read(entry.message, entry, bench.store, queue)
    return entry, front.header + front.annotations + front.rest


def annotations(sent: bytes) -> dict[str, object]:
    layout = scan(sent, 0, len(sent))
    found, _ = decode(sent, layout.annotations, layout.annotations_end)
    assert isinstance(found, dict)
    return {str(name): value for name, value in found.items()}


def header(sent: bytes) -> Header:
    found, _ = decode_composite(sent)
    assert isinstance(found, Header)
    return found


def front_of(bench: BrokerBench) -> DeliverySections:
    return DeliverySections(bench.broker.vhosts["/"])


def test_a_first_delivery_is_sent_as_stored(bench: BrokerBench, queue: Queue) -> None:
    front = front_of(bench)
    kept = content10(durable=True, priority=5, subject="s")
    put(bench, kept)
    _, sent = read(bench, queue, front)

    assert kept.startswith(front.header)
    assert front.rest == BARE
    assert front.size == len(sent)
    assert front.further is None
    assert annotations(sent) == {"x-exchange": "", "x-routing-key": "q"}


def test_annotations_of_the_sender_stay_except_those_of_the_broker(bench: BrokerBench, queue: Queue) -> None:
    front = front_of(bench)
    put(bench, content10({"x-own": 1, "x-exchange": "forged", "x-opt-a": "b"}, subject="s"))
    _, sent = read(bench, queue, front)

    assert annotations(sent) == {"x-own": 1, "x-opt-a": "b", "x-exchange": "", "x-routing-key": "q"}
    assert sent.endswith(BARE)
    put(bench, content10(subject="s"))
    _, sent = read(bench, queue, front)
    assert annotations(sent) == {"x-exchange": "", "x-routing-key": "q"}, "nothing is left of the one before"


@pytest.mark.parametrize(
    "descriptor", [sized(0xA3, b"amqp:message-annotations:map"), b"\x80" + bytes(7) + b"r"]
)
def test_annotations_may_be_named_in_any_way(bench: BrokerBench, queue: Queue, descriptor: bytes) -> None:
    front = front_of(bench)
    put(bench, stored_header(True, NONE, NONE) + b"\0" + descriptor + compound(0xC1, [X_OWN, b"\x41"]) + BARE)
    _, sent = read(bench, queue, front)

    assert annotations(sent) == {"x-own": True, "x-exchange": "", "x-routing-key": "q"}
    assert front.rest == BARE


@pytest.mark.parametrize("descriptor", [sized(0xA3, b"amqp:data:binary"), b"\x80" + bytes(7) + b"u"])
def test_without_annotations_the_first_section_may_be_named_in_any_way(
    bench: BrokerBench, queue: Queue, descriptor: bytes
) -> None:
    front = front_of(bench)
    bare = b"\0" + descriptor + b"\xa0\x01x"
    put(bench, stored_header(True, NONE, NONE) + bare)
    _, sent = read(bench, queue, front)

    assert annotations(sent) == {"x-exchange": "", "x-routing-key": "q"}
    assert front.rest == bare


def test_a_message_may_have_only_a_header_section(bench: BrokerBench, queue: Queue) -> None:
    front = front_of(bench)
    put(bench, stored_header(True, NONE, NONE))
    _, sent = read(bench, queue, front)
    assert front.rest == b""
    assert annotations(sent) == {"x-exchange": "", "x-routing-key": "q"}
    put_large(bench, data(b"x" * 99), stored_header(True, NONE, NONE))
    _, sent = read(bench, queue, front)

    assert front.further is not None
    assert front.rest + b"".join(front.further) == data(b"x" * 99)


def test_each_address_is_told(bench: BrokerBench, queue: Queue) -> None:
    front = front_of(bench)
    vhost = bench.broker.vhosts["/"]
    vhost.declarations.declare_queue("other", False, None, False, {})
    for name in ("q", "other", "q"):
        put(bench, content10(), name)
        entry = list(vhost.topology.queues[name].entries)[-1]
        front.read(entry.message, entry, bench.store, queue)
        sent = front.header + front.annotations + front.rest
        assert annotations(sent)["x-routing-key"] == name


@pytest.mark.parametrize(
    ("deliveries", "uncounted", "redelivered", "failed"),
    [(1, 0, False, 0), (1, 0, True, 0), (2, 0, True, 1), (2, 1, True, 0), (5, 1, True, 3), (3, 3, True, 0)],
)
@pytest.mark.parametrize("under_way", [True, False])
def test_the_header_has_first_acquirer_and_delivery_count(
    bench: BrokerBench,
    queue: Queue,
    deliveries: int,
    uncounted: int,
    redelivered: bool,
    failed: int,
    under_way: bool,
) -> None:
    """A browser gets the same failure count as a consumer."""
    front = front_of(bench)
    put(bench, stored_header(True, 7, NONE) + bare10())
    [entry] = queue.entries
    entry.delivery_count, entry.uncounted, entry.redelivered = deliveries, uncounted, redelivered
    if under_way:
        entry.state = ACQUIRED
    else:
        entry.delivery_count -= 1
    _, sent = read(bench, queue, front)

    sent_header = header(sent)
    assert (sent_header.durable, sent_header.priority, sent_header.ttl) == (True, 7, None)
    assert (sent_header.first_acquirer, sent_header.delivery_count) == (not redelivered, failed)
    assert front.size == len(sent)


def test_the_remaining_time_to_live_is_sent(bench: BrokerBench, queue: Queue) -> None:
    front = front_of(bench)
    put(bench, content10(ttl=1000), expiration=1000)
    assert header(read(bench, queue, front)[1]).ttl == 1000
    bench.clock.advance(400)

    assert header(read(bench, queue, front)[1]).ttl == 600


def test_content_on_disk_is_read(bench: BrokerBench, queue: Queue) -> None:
    front = front_of(bench)
    message: Message = put(bench, content10(subject="s"))
    assert message.content is not None
    bench.store.contents[message.sequence] = message.content
    message.content = None
    _, sent = read(bench, queue, front)
    assert sent.endswith(BARE)
    bench.store.unreadable = True

    with pytest.raises(OSError, match="the disk"):
        read(bench, queue, front)


def test_an_amqp_0_9_1_message_is_sent_as_a_data_section(bench: BrokerBench, queue: Queue) -> None:
    front = front_of(bench)
    content = header_bytes(5, None, 0) + b"".join(body_frames(b"hello", 0, 131072))
    put(bench, content, size=5)
    _, sent = read(bench, queue, front)

    layout = scan(sent, 0, len(sent))
    assert sent[layout.body :] == b"\x00\x53\x75\xa0\x05hello"
    assert annotations(sent) == {"x-exchange": "", "x-routing-key": "q"}


@settings(deadline=None, max_examples=30)
@given(st.binary(min_size=1, max_size=3000), st.integers(1, 900), st.booleans())
def test_a_large_body_follows_piece_by_piece(payload: bytes, piece_bytes: int, on_disk: bool) -> None:
    bench = BrokerBench()
    queue = bench.broker.vhosts["/"].declarations.declare_queue("q", False, None, False, {})
    front = front_of(bench)
    sections = data(payload)
    put_large(bench, sections, content10(body=b"", subject="s"), piece_bytes=piece_bytes, on_disk=on_disk)
    _, sent = read(bench, queue, front)

    assert front.further is not None
    pieces = list(front.further)
    assert {len(piece) for piece in pieces[:-1]} <= {piece_bytes}
    assert sent.endswith(bare10(body=b"", subject="s"))
    assert b"".join(pieces) == sections
    assert front.size == len(sent) + len(sections)
