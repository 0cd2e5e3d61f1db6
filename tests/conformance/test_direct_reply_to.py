"""Requests and their replies without a queue: from channel to channel. [RabbitMQ direct reply-to]"""

import pytest
from pamqp.commands import Basic, Channel, Queue, Tx
from pamqp.common import FieldTable

from tests.support.amqp091.frames import Message
from tests.support.amqp091.peer import Connector, PeerChannel

REPLY_TO = "amq.rabbitmq.reply-to"
REQUEST = Basic.Properties(reply_to=REPLY_TO, correlation_id="7")


@pytest.fixture
def requester(channel: PeerChannel) -> PeerChannel:
    """A channel that takes replies."""
    channel.consume(REPLY_TO, "replies", no_ack=True)
    return channel


@pytest.fixture
def responder(connect: Connector) -> PeerChannel:
    """A channel of another connection."""
    return connect().channel()


@pytest.fixture
def requests(responder: PeerChannel) -> str:
    """The queue that the responder serves."""
    queue = responder.declare(exclusive=True)
    responder.consume(queue, "requests", no_ack=True)
    return queue


def address(request: Message) -> str:
    """Return the reply-to address of a request."""
    assert request.properties.reply_to is not None
    return request.properties.reply_to


def ask(requester: PeerChannel, responder: PeerChannel, requests: str) -> str:
    """Send a request; returns where its reply is to go."""
    requester.publish(b"?", requests, properties=REQUEST)
    return address(responder.delivery())


def test_a_request_and_its_reply(requester: PeerChannel, responder: PeerChannel, requests: str) -> None:
    headers: FieldTable = {"a": REPLY_TO, "b": {"c": [1, "x"]}}
    asked = Basic.Properties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers=headers,
        delivery_mode=1,
        priority=3,
        correlation_id="7",
        reply_to=REPLY_TO,
        message_id="m",
        app_id="app",
    )
    requester.publish(b"what is it?", requests, properties=asked)
    request = responder.delivery()
    name = address(request)
    assert name.startswith(REPLY_TO + ".")
    assert len(name) >= len(REPLY_TO) + 20
    asked.reply_to = name
    assert request.properties == asked
    assert request.body == b"what is it?"
    responder.publish(b"this", name, properties=Basic.Properties(correlation_id="7"), mandatory=True)
    reply = requester.delivery()
    assert isinstance(reply.method, Basic.Deliver)
    assert (reply.consumer_tag, reply.tag, reply.redelivered) == ("replies", 1, False)
    assert (reply.method.exchange, reply.method.routing_key) == ("", name)
    assert (reply.properties.correlation_id, reply.body) == ("7", b"this")
    responder.expect_silence()


def test_many_requests_in_flight(requester: PeerChannel, responder: PeerChannel, requests: str) -> None:
    count = 500
    for number in range(count):
        properties = Basic.Properties(reply_to=REPLY_TO, correlation_id=str(number))
        requester.publish(b"%d" % number, requests, properties=properties)
    names = set()
    for request in responder.deliveries(count):
        names.add(address(request))
        correlation = Basic.Properties(correlation_id=request.properties.correlation_id)
        responder.publish(request.body * 2, address(request), properties=correlation)
    assert len(names) == 1
    replies = requester.deliveries(count)
    assert [reply.properties.correlation_id for reply in replies] == [str(n) for n in range(count)]
    assert [reply.body for reply in replies] == [b"%d" % n * 2 for n in range(count)]
    assert [reply.tag for reply in replies] == list(range(1, count + 1))


def test_large_replies_to_a_client_with_small_frames(
    connect: Connector, responder: PeerChannel, requests: str
) -> None:
    requester = connect(frame_max=4096).channel(7)
    requester.consume(REPLY_TO, no_ack=True)
    name = ask(requester, responder, requests)
    body = bytes(range(256)) * 1000
    responder.publish(body, name)
    assert requester.delivery().body == body


def test_a_requester_may_reply_to_itself_on_one_channel(requester: PeerChannel) -> None:
    queue = requester.declare(exclusive=True)
    requester.publish(b"?", queue, properties=REQUEST)
    request = requester.take(queue)
    requester.publish(b"!", address(request))
    assert requester.delivery().body == b"!"


def test_the_consumer_must_not_acknowledge(channel: PeerChannel) -> None:
    text = channel.refused(Basic.Consume(queue=REPLY_TO, no_ack=False), 406)
    assert text == "PRECONDITION_FAILED - reply consumer cannot acknowledge"


def test_a_single_consumer_for_each_channel(requester: PeerChannel) -> None:
    other = requester.peer.channel(2)
    other.consume(REPLY_TO, "replies", no_ack=True)
    text = requester.refused(Basic.Consume(queue=REPLY_TO, no_ack=True), 406)
    assert text == "PRECONDITION_FAILED - reply consumer already set"


@pytest.mark.parametrize("queue", [REPLY_TO, "another"])
def test_the_consumer_tag_is_in_use(requester: PeerChannel, queue: str) -> None:
    if queue != REPLY_TO:
        requester.declare(queue, exclusive=True)
    requester.write(Basic.Consume(queue=queue, consumer_tag="replies", no_ack=True))
    text = requester.peer.expect_close(530)
    assert text == "NOT_ALLOWED - attempt to reuse consumer tag 'replies'"


def test_consuming_again_after_a_cancel_gives_a_new_reply_address(
    requester: PeerChannel, responder: PeerChannel, requests: str
) -> None:
    before = ask(requester, responder, requests)
    requester.cancel("replies")
    requester.consume(REPLY_TO, "replies", no_ack=True)
    after = ask(requester, responder, requests)
    assert before != after
    responder.publish(b"late", before, mandatory=True)
    responder.publish(b"in time", after, mandatory=True)
    assert requester.delivery().body == b"in time"
    requester.expect_silence()


def test_a_request_without_a_consumer(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.publish(b"?", queue, properties=REQUEST)
    assert channel.expect_close(406) == "PRECONDITION_FAILED - fast reply consumer does not exist"


@pytest.mark.parametrize("end", ["cancel", "channel", "error", "connection", "socket"])
def test_a_requester_that_is_gone(
    connect: Connector, responder: PeerChannel, requests: str, end: str
) -> None:
    requester = connect().channel()
    requester.consume(REPLY_TO, "replies", no_ack=True)
    name = ask(requester, responder, requests)
    assert responder.counts(name) == (0, 1)
    responder.publish(b"1", name)
    assert requester.delivery().body == b"1"
    if end == "cancel":
        requester.cancel("replies")
    elif end == "channel":
        requester.close()
    elif end == "error":
        requester.refused(Queue.Declare(queue="no such queue", passive=True), 404)
    elif end == "connection":
        requester.peer.close()
    else:
        requester.peer.drop()
    responder.confirm_select()
    tag = 0
    while True:  # a socket's end takes a moment to be noticed
        tag += 1
        responder.publish(b"late", name, mandatory=True)
        responder.expect_confirms(tag, tag)
        probe = responder.peer.channel(9)
        probe.write(Queue.Declare(queue=name, passive=True))
        answer = probe.peer.expect_any((Queue.DeclareOk, Channel.Close), 9)
        if isinstance(answer, Channel.Close):
            break
        probe.close()
    assert answer.reply_code == 404
    assert answer.reply_text == f"NOT_FOUND - no queue '{name}' in vhost '/'"


@pytest.mark.parametrize("passive", [True, False])
def test_declaring_a_reply_queue_succeeds_only_if_its_requester_consumes(
    requester: PeerChannel, responder: PeerChannel, requests: str, passive: bool
) -> None:
    name = ask(requester, responder, requests)
    for queue in (name, REPLY_TO):
        answer = responder.call(Queue.Declare(queue=queue, passive=passive), Queue.DeclareOk)
        assert (answer.queue, answer.message_count, answer.consumer_count) == (queue, 0, 1)
    text = responder.refused(Queue.Declare(queue=REPLY_TO + ".guess", passive=passive), 404)
    assert text == f"NOT_FOUND - no queue '{REPLY_TO}.guess' in vhost '/'"


def test_a_name_is_no_queue(requester: PeerChannel, responder: PeerChannel, requests: str) -> None:
    name = ask(requester, responder, requests)
    others = responder.peer.channel(2)
    assert others.refused(Basic.Consume(queue=name, no_ack=True), 404).endswith("in vhost '/'")
    others = responder.peer.channel(3)
    others.refused(Basic.Get(queue=name), 404)
    others = responder.peer.channel(4)
    others.refused(Queue.Bind(queue=name, exchange="amq.direct", routing_key="k"), 404)
    responder.publish(b"elsewhere", name, exchange="amq.direct", mandatory=True)
    assert responder.returned().body == b"elsewhere"
    requester.expect_silence()


def test_a_request_and_a_reply_in_transactions(
    requester: PeerChannel, responder: PeerChannel, requests: str
) -> None:
    requester.call(Tx.Select(), Tx.SelectOk)
    requester.publish(b"?", requests, properties=REQUEST)
    requester.call(Tx.Commit(), Tx.CommitOk)
    name = address(responder.delivery())
    responder.call(Tx.Select(), Tx.SelectOk)
    responder.publish(b"never", name)
    responder.call(Tx.Rollback(), Tx.RollbackOk)
    responder.publish(b"!", name)
    requester.expect_silence()
    responder.call(Tx.Commit(), Tx.CommitOk)
    assert requester.delivery().body == b"!"


def test_a_reply_waits_while_the_client_has_stopped_deliveries(
    requester: PeerChannel, responder: PeerChannel, requests: str
) -> None:
    name = ask(requester, responder, requests)
    requester.call(Channel.Flow(False), Channel.FlowOk)
    responder.confirm_select()
    responder.publish(b"1", name)
    responder.publish(b"2", name)
    responder.expect_confirms(2)
    for _ in range(3):
        assert requester.counts(REPLY_TO) == (0, 1)
    assert not requester.peer.kept(requester.number)
    requester.call(Channel.Flow(True), Channel.FlowOk)
    assert [reply.body for reply in requester.deliveries(2)] == [b"1", b"2"]


def test_another_reply_to_is_left_alone(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    for name in (REPLY_TO + ".mine", "amq.rabbitmq.reply-t", "elsewhere"):
        channel.publish(b"", queue, properties=Basic.Properties(reply_to=name))
        assert channel.take(queue).properties.reply_to == name


def test_a_client_without_a_tag_or_an_answer(channel: PeerChannel) -> None:
    channel.write(Basic.Consume(queue=REPLY_TO, no_ack=True, nowait=True))
    queue = channel.declare(exclusive=True)
    channel.publish(b"?", queue, properties=REQUEST)
    channel.publish(b"!", address(channel.take(queue)))
    assert channel.delivery().body == b"!"
