"""An unmodified python-qpid-proton sends over AMQP 1.0."""

import uuid
from collections.abc import Iterator, Mapping

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.proton_connection import (
    ACCEPTED,
    RELEASED,
    Outcome,
    ProtonDial,
    Sender,
    bodies,
    dialling,
    drain,
    proton,
    reactor,
    take,
    utils,
)
from tests.support.daemon.daemon import Address

LARGE_BYTES = 900_000


@pytest.fixture
def dial(address: Address) -> Iterator[ProtonDial]:
    """Open connections."""
    yield from dialling(address)


@pytest.fixture
def queue(channel: BlockingChannel, name: str) -> Iterator[str]:
    """A durable queue."""
    channel.queue_declare(name, durable=True)
    yield name
    channel.queue_delete(name)


def ready(channel: BlockingChannel, queue: str) -> int:
    """Return the number of ready messages."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_each_of_many_messages_is_accepted_and_stays_in_order(
    dial: ProtonDial, channel: BlockingChannel, queue: str
) -> None:
    messages = [proton.Message(body=number, durable=True) for number in range(3000)]
    assert Sender(dial(), f"/queues/{queue}").send(*messages) == [ACCEPTED] * 3000
    assert ready(channel, queue) == 3000
    receiver = dial().create_receiver(f"/queues/{queue}")
    assert bodies(take(receiver, 3000)) == list(range(3000))


def test_settled_messages_have_arrived_when_the_connection_is_closed(
    dial: ProtonDial, channel: BlockingChannel, queue: str
) -> None:
    connection = dial()
    sender = connection.create_sender(f"/queues/{queue}", options=reactor.AtMostOnce())
    for number in range(100):
        sender.send(proton.Message(body=number, durable=True))
    connection.close()
    assert ready(channel, queue) == 100


def test_a_large_message_arrives_whole(dial: ProtonDial, queue: str) -> None:
    body = bytes(range(256)) * (LARGE_BYTES // 256)
    message = proton.Message(body=body, durable=True, inferred=True)
    assert Sender(dial(), f"/queues/{queue}").send(*[message] * 5) == [ACCEPTED] * 5
    receiver = dial(max_frame_size=4096).create_receiver(f"/queues/{queue}")
    assert all(taken == body for taken in bodies(take(receiver, 5)))


BODIES = {
    "none": None,
    "text": "\u00e9\u20ac\U0001f600",
    "bytes": b"\x00\xff",
    "negative": -1,
    "ulong": proton.ulong(2**64 - 1),
    "float": 0.5,
    "truth": True,
    "uuid": uuid.UUID(int=7),
    "list": [1, "two", None, [b"three"]],
    "map": {"a": {"b": [1]}, proton.symbol("c"): proton.timestamp(1)},
    "described": proton.Described(proton.symbol("of"), "some kind"),
    "array": proton.Array(proton.UNDESCRIBED, proton.Data.INT, 1, 2, 3),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_of_any_type_arrives_as_it_was_sent(dial: ProtonDial, queue: str, body: object) -> None:
    connection = dial()
    connection.create_sender(f"/queues/{queue}").send(proton.Message(body=body))
    (message,) = take(connection.create_receiver(f"/queues/{queue}"), 1)
    assert bodies([message]) == [body]
    assert type(message.body) is (memoryview if isinstance(body, bytes) else type(body))


IDENTIFIERS = {"text": "one", "ulong": 1, "uuid": uuid.UUID(int=1), "bytes": b"\x01"}


@pytest.mark.parametrize("identifier", IDENTIFIERS.values(), ids=IDENTIFIERS)
def test_all_that_a_message_says_of_itself_arrives(dial: ProtonDial, queue: str, identifier: object) -> None:
    fields: Mapping[str, object] = {
        "id": identifier,
        "correlation_id": identifier,
        "user_id": b"guest",
        "address": "/queues/elsewhere",
        "subject": "subject",
        "reply_to": "/queues/replies",
        "content_type": proton.symbol("text/plain"),
        "content_encoding": proton.symbol("identity"),
        "expiry_time": 4102444800,
        "creation_time": 1000,
        "group_id": "group",
        "group_sequence": 7,
        "reply_to_group_id": "replies",
        "durable": True,
        "priority": 6,
        "properties": {"text": "a", "number": 1, "truth": False, "none": None},
    }
    connection = dial()
    sent = proton.Message(body="body", annotations={proton.symbol("x-opt-mine"): [1]}, **fields)
    sent.instructions = {proton.symbol("hop"): "this one"}
    connection.create_sender(f"/queues/{queue}").send(sent)
    (message,) = take(connection.create_receiver(f"/queues/{queue}"), 1)
    assert {name: getattr(message, name) for name in fields} == fields
    assert message.annotations["x-opt-mine"] == [1]
    assert not message.instructions  # delivery annotations were for the way to the broker


def test_a_full_queue_rejects_and_says_why(dial: ProtonDial, channel: BlockingChannel, name: str) -> None:
    full = {"x-max-length": 2, "x-overflow": "reject-publish"}
    channel.queue_declare(name, arguments=full)
    outcomes = Sender(dial(), f"/queues/{name}").send(*[proton.Message(body=number) for number in range(3)])
    channel.queue_delete(name)
    assert outcomes[:2] == [ACCEPTED, ACCEPTED]
    text = f"a queue to which key '{name}' routes is full"
    assert outcomes[2] == Outcome("rejected", "amqp:resource-limit-exceeded", text)


def test_an_exchange_routes_by_the_key_of_the_address_and_releases_the_rest(
    dial: ProtonDial, channel: BlockingChannel, queue: str
) -> None:
    channel.queue_bind(queue, "amq.topic", "stocks.*")
    connection = dial()
    stocks = Sender(connection, "/exchanges/amq.topic/stocks.se")
    news = Sender(connection, "/exchanges/amq.topic/news")
    assert stocks.send(proton.Message(body="se")) == [ACCEPTED]
    assert news.send(proton.Message(body="none")) == [RELEASED]
    (message,) = drain(connection.create_receiver(f"/queues/{queue}"), 10)
    assert message.body == "se"
    assert message.annotations["x-exchange"] == "amq.topic"
    assert message.annotations["x-routing-key"] == "stocks.se"


def test_a_sender_to_anywhere_sends_where_each_message_says(
    dial: ProtonDial, channel: BlockingChannel, queue: str
) -> None:
    sender = Sender(dial(), None)
    here = proton.Message(address=f"/queues/{queue}", body="here")
    nowhere = proton.Message(address="/queues/nowhere", body="nowhere")
    accepted, rejected = sender.send(here, nowhere)
    assert accepted == ACCEPTED
    assert rejected == Outcome("rejected", "amqp:not-found", "no queue 'nowhere' in vhost '/'")
    assert ready(channel, queue) == 1


def test_a_link_to_a_missing_node_is_detached_with_an_error(dial: ProtonDial) -> None:
    connection = dial()
    with pytest.raises(utils.LinkDetached) as refused:
        connection.create_sender("/queues/nowhere")
    assert refused.value.condition == "amqp:not-found"
    with pytest.raises(utils.LinkDetached) as refused:
        connection.create_receiver("/queues/nowhere")
    assert refused.value.condition == "amqp:not-found"


def test_a_wrong_password_is_refused(address: Address) -> None:
    with pytest.raises(proton.ConnectionException, match="amqp:unauthorized-access"):
        utils.BlockingConnection(f"amqp://guest:wrong@{address.host}:{address.port}")


def test_proton_reads_messages_from_0_9_1(dial: ProtonDial, channel: BlockingChannel, queue: str) -> None:
    properties = pika.BasicProperties(
        message_id="one", content_type="text/plain", delivery_mode=2, priority=3, headers={"number": 1}
    )
    channel.basic_publish("", queue, b"from pika", properties)
    (message,) = take(dial().create_receiver(f"/queues/{queue}"), 1)
    assert bodies([message]) == [b"from pika"]
    assert (message.id, message.content_type, message.durable, message.priority) == (
        "one",
        "text/plain",
        True,
        3,
    )
    assert message.properties == {"number": 1}
