"""Streams over AMQP 1.0: filters give the first offset, and annotations each message's offset."""

from collections.abc import Iterator

import pytest
from pamqp.commands import Queue

from protocol.amqp10.annotations import decode_map
from protocol.amqp10.composites import Accepted, Released, Source, Target
from protocol.amqp10.decoding import decode
from protocol.amqp10.performatives import Attach
from protocol.amqp10.sections import scan_preamble
from protocol.amqp10.types import Described, Symbol, Timestamp, Ulong
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp091.streams import Publisher, declare_stream, offsets_and_bodies, read
from tests.support.amqp10.contents import content10
from tests.support.amqp10.peer_session import Delivery, PeerSession10

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

NUMBERED = [b"%d" % number for number in range(10)]


@pytest.fixture
def publisher(connect: Connector) -> Publisher:
    return Publisher(connect)


@pytest.fixture
def stream(publisher: Publisher, name: str) -> Iterator[str]:
    """A stream with ten messages of AMQP 0-9-1."""
    stream = declare_stream(publisher.channel, name + ".stream")
    publisher.publish(stream, *NUMBERED)
    yield stream
    publisher.channel.call(Queue.Delete(queue=stream), Queue.DeleteOk)


def reading(session: PeerSession10, stream: str, credit: int = 100, **filters: object) -> Attach:
    """Attach a receiver with filters, as `offset_spec` for rabbitmq:stream-offset-spec; the answer."""
    given: dict[str, object] = {}
    for name, value in filters.items():
        symbol = Symbol("rabbitmq:stream-" + name.replace("_", "-"))
        given[symbol] = Described(symbol, value)
    source = Source(address=f"/queues/{stream}", filter=given)
    session.write(Attach(name="reads", handle=1, role=True, source=source, target=Target()))
    answer = session.expect(Attach)
    if answer.source is not None:
        session.allow(1, credit)
    return answer


def offset_of(delivery: Delivery) -> int:
    """The offset that a delivery says it has, in an annotation."""
    layout = scan_preamble(delivery.payload)
    keys, values = decode_map(delivery.payload[layout.annotations : layout.annotations_end])
    offset = decode(dict(zip(keys, values, strict=True))[b"x-stream-offset"])[0]
    assert isinstance(offset, int)
    return offset


def offsets(session: PeerSession10, count: int) -> list[int]:
    """The offsets of the next deliveries, which are settled."""
    deliveries = [session.delivery(1) for _ in range(count)]
    session.settle(deliveries[0].id, deliveries[-1].id)
    return [offset_of(delivery) for delivery in deliveries]


@pytest.mark.spec("amqp-1.0", "3.5.3")
@pytest.mark.parametrize(
    ("spec", "first"),
    [("first", 0), ("last", 9), (Ulong(7), 7), (3, 3), (Timestamp(0), 0), ("1h", 0)],
    ids=str,
)
def test_a_link_reads_from_its_stream_offset(
    session: PeerSession10, stream: str, spec: object, first: int
) -> None:
    answer = reading(session, stream, offset_spec=spec)
    assert answer.source is not None
    assert answer.source.distribution_mode == "copy"
    assert set(answer.source.filter or {}) == {"rabbitmq:stream-offset-spec"}
    assert offsets(session, 10 - first) == list(range(first, 10))
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_a_link_without_a_stream_offset_reads_new_messages(
    session: PeerSession10, publisher: Publisher, stream: str
) -> None:
    reading(session, stream)
    publisher.publish(stream, b"new")
    assert offsets(session, 1) == [10]


@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_an_offset_that_makes_no_sense_ends_the_link(session: PeerSession10, stream: str) -> None:
    assert reading(session, stream, offset_spec="third").source is None
    session.expect_detach(1, "amqp:precondition-failed", "x-stream-offset")


@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_filters_of_streams_are_not_in_force_for_queues(session: PeerSession10, node: str) -> None:
    answer = reading(session, node, offset_spec="first")
    assert answer.source is not None
    assert not answer.source.filter


@pytest.mark.spec("amqp-1.0", "3.4.4")
def test_settling_deliveries_of_a_stream_removes_no_message(session: PeerSession10, stream: str) -> None:
    reading(session, stream, 2, offset_spec="first")
    for state in (Accepted(), Released()):
        session.settle(session.delivery(1).id, state=state)
    session.detach(1)
    reading(session, stream, offset_spec="first")
    assert offsets(session, 10) == list(range(10))


@pytest.mark.spec("amqp-1.0", "3.2.3")
def test_messages_appended_by_amqp_1_0_are_read_by_both_protocols(
    session: PeerSession10, channel: PeerChannel, stream: str
) -> None:
    session.sends(stream)
    annotations = {"x-stream-filter-value": "chosen", "x-opt-mine": 5}
    payload = content10(annotations, {"n": 1})
    for number, appended in enumerate((payload, content10(None, {"n": 2}))):
        session.transfer(0, appended, number)
        assert session.outcome(number) == Accepted()
    reading(session, stream, offset_spec="first", filter=["chosen", "other"])
    delivery = session.delivery(1)
    assert offset_of(delivery) == 10
    behind = scan_preamble(delivery.payload).bare
    assert delivery.payload.endswith(payload[scan_preamble(payload).bare :])
    assert behind > 0
    session.expect_silence()
    read(channel, stream, 10)
    first, second = channel.deliveries(2)
    assert [offset for offset, _ in offsets_and_bodies([first, second])] == [10, 11]
    assert second.properties.headers == {"n": 2, "x-stream-offset": 11}
