"""Messages whose content header is longer than the frames that a client takes: a header cannot be split."""

import re

import pytest
from pamqp.commands import Basic

from tests.conformance.test_amqp10_annotating import add, modified, put
from tests.conformance.test_dead_letters import dead_lettering, headers_of
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.contents import content10
from tests.support.amqp10.peer_session import PeerSession10

pytestmark = [
    pytest.mark.spec("amqp-0-9-1", "4.2.6.1"),
    pytest.mark.amqpd_only("RabbitMQ sends the header whole, which its clients take for a broken frame"),
]


def with_header(size: int) -> Basic.Properties:
    """Return properties with a header of `size` bytes."""
    return Basic.Properties(headers={"h": "v" * size}, delivery_mode=2)


def refused(channel: PeerChannel, queue: str) -> None:
    """Expect that the channel ends, because a message does not fit into its frames."""
    text = channel.expect_close(406)
    expected = (
        rf"message in queue '{re.escape(queue)}' in vhost '/' has a content header of 60\d\d bytes, "
        r"the negotiated frame_max is 4096"
    )
    assert re.search(expected, text), text


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_header_beyond_frame_max_closes_the_consumer_channel_and_keeps_the_message(
    connect: Connector, channel: PeerChannel, durable_queue: str, no_ack: bool
) -> None:
    channel.publish(b"short", durable_queue)
    channel.publish(b"long", durable_queue, properties=with_header(6000))
    channel.publish(b"last", durable_queue)
    small = connect(frame_max=4096)
    beside = small.channel(2)
    narrow = small.channel(1)
    narrow.consume(durable_queue, no_ack=no_ack)
    assert narrow.delivery().body == b"short"
    refused(narrow, durable_queue)
    beside.round_trip()
    channel.consume(durable_queue)
    expected = [(b"long", True), (b"last", False)] if no_ack else [(b"short", True), (b"long", True)]
    messages = channel.deliveries(2)
    assert [(message.body, message.redelivered) for message in messages] == expected
    assert headers_of(messages[0 if no_ack else 1]) == {"h": "v" * 6000}


def test_a_browser_without_room(connect: Connector, channel: PeerChannel, durable_queue: str) -> None:
    channel.publish(b"long", durable_queue, properties=with_header(6000))
    narrow = connect(frame_max=4096).channel()
    narrow.consume(durable_queue, no_ack=True, arguments={"x-browse": True})
    refused(narrow, durable_queue)
    assert not channel.take(durable_queue).redelivered


def test_basic_get_without_room(connect: Connector, channel: PeerChannel, durable_queue: str) -> None:
    channel.publish(b"long", durable_queue, properties=with_header(6000))
    narrow = connect(frame_max=4096).channel()
    narrow.write(Basic.Get(queue=durable_queue))
    refused(narrow, durable_queue)
    assert channel.take(durable_queue).body == b"long"


def test_an_immediate_message_to_a_consumer_without_room(connect: Connector, channel: PeerChannel) -> None:
    queue = channel.declare(arguments={"x-message-ttl": 0})
    narrow = connect(frame_max=4096).channel()
    narrow.consume(queue, no_ack=True)
    channel.publish(b"long", queue, properties=with_header(6000))
    refused(narrow, queue)
    channel.round_trip()


def died_often(channel: PeerChannel, size: int, times: int) -> str:
    """A queue with a message that has a header of `size` bytes and was rejected in `times` queues before."""
    last = channel.declare(exclusive=False)
    queues = [last]
    for _ in range(times):
        queues.append(dead_lettering(channel, queues[-1]))
    channel.publish(b"letter", queues[-1], properties=with_header(size))
    for queue in reversed(queues[1:]):
        channel.reject(channel.take(queue).tag, requeue=False)
    return last


@pytest.mark.parametrize(
    ("size", "times", "left"), [(1000, 8, 8), (3000, 8, range(1, 8)), (3700, 1, 0), (3900, 1, 0)]
)
def test_x_death_entries_beyond_frame_max_are_left_out(
    connect: Connector, channel: PeerChannel, size: int, times: int, left: int | range
) -> None:
    queue = died_often(channel, size, times)
    narrow = connect(frame_max=4096).channel()
    short = headers_of(narrow.take(queue))
    narrow.close()
    long = headers_of(channel.take(queue))
    assert (len(str(short["h"])), len(str(long["h"]))) == (size, size)
    assert isinstance(long["x-death"], list)
    assert len(long["x-death"]) == times
    kept = short.get("x-death", [])
    assert isinstance(kept, list)
    assert kept == long["x-death"][: len(kept)], "the latest"
    assert len(kept) == left if isinstance(left, int) else len(kept) in left
    if not kept:
        assert list(short) == ["h"]


def test_a_reply_for_which_the_requester_has_no_room(connect: Connector, channel: PeerChannel) -> None:
    queue = channel.declare()
    requester = connect(frame_max=4096).channel()
    requester.consume("amq.rabbitmq.reply-to", no_ack=True)
    requester.publish(b"?", queue, properties=Basic.Properties(reply_to="amq.rabbitmq.reply-to"))
    name = channel.take(queue).properties.reply_to
    assert name is not None
    channel.publish(b"long", name, properties=with_header(6000))
    channel.publish(b"short", name)
    assert requester.delivery().body == b"short"


def test_a_request_that_has_no_room_for_the_name_to_reply_to(
    connect: Connector, channel: PeerChannel
) -> None:
    queue = channel.declare()
    requester = connect(frame_max=4096).channel()
    requester.consume("amq.rabbitmq.reply-to", no_ack=True)
    properties = Basic.Properties(headers={"h": "v" * 4020}, reply_to="amq.rabbitmq.reply-to")
    requester.publish(b"?", queue, properties=properties)
    assert "bytes with the reply address, the negotiated frame_max is 4096" in requester.expect_close(406)
    assert channel.counts(queue) == (0, 0)


def test_a_message_over_http_that_no_client_has_room_for(api: Api, vhost: str) -> None:
    body = {
        "properties": {"headers": {"h": "v" * 131072}},
        "routing_key": "q",
        "payload": "",
        "payload_encoding": "string",
    }
    answer = api.post("exchanges", vhost, "amq.default", "publish", status=400, body=body)
    assert isinstance(answer, dict)
    assert re.search(r"a content header of 1311\d\d bytes, frame_max is 131072", str(answer["reason"]))


@pytest.mark.spec("amqp-1.0", "3.4.5")
@pytest.mark.parametrize("converted", [False, True], ids=["1.0", "0-9-1"])
def test_annotations_of_consumers_are_left_out_for_a_client_without_room(
    session: PeerSession10, channel: PeerChannel, connect: Connector, node: str, converted: bool
) -> None:
    """Otherwise a consumer could keep a message from others."""
    if converted:
        channel.publish(b"x", node, properties=Basic.Properties(headers={"mine": 1}))
        channel.round_trip()
    else:
        put(session, node, content10({}, {"mine": 1}))
    add(session, node, modified(x_opt_much="m" * 5000))
    narrow = connect(frame_max=4096).channel()
    got = narrow.get(node, no_ack=False)
    assert got is not None
    assert got.properties.headers == {"mine": 1}
    narrow.nack(1)
    narrow.consume(node, "tag")
    assert narrow.delivery().properties.headers == {"mine": 1}
    narrow.nack(2, requeue=False)
    assert channel.counts(node)[0] == 0
