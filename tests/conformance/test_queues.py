"""queue.*: declaring, redeclaring, exclusive and server-named queues, purging and deleting."""

from collections.abc import Callable

import pytest
from pamqp import base
from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable

from tests.peer import Connector
from tests.peer_channel import PeerChannel

Maker = Callable[[str], base.Frame]


def delete(channel: PeerChannel, queue: str) -> int | None:
    """Delete a queue; returns how many messages went with it."""
    return channel.call(Queue.Delete(queue=queue), Queue.DeleteOk).message_count


def locked(queue: str) -> str:
    """What everybody but its owner is told about an exclusive queue; a short string may cut the end off."""
    text = (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'. "
        "It could be originally declared on another connection or the exclusive property value "
        "does not match that of the original declaration."
    )
    return text[:240]


@pytest.mark.spec("amqp-0-9-1", "queue.declare")
def test_declare_says_name_and_counts(connect: Connector, channel: PeerChannel, name: str) -> None:
    channel.declare(name)
    for _ in range(3):
        channel.publish(b"", name)
    channel.take(name)
    reply = channel.call(Queue.Declare(queue=name), Queue.DeclareOk)
    assert (reply.queue, reply.message_count, reply.consumer_count) == (name, 2, 0)
    delete(channel, name)


@pytest.mark.spec("amqp-0-9-1", "queue.declare#queue")
def test_names_chosen_by_the_broker(channel: PeerChannel) -> None:
    names = {channel.declare(exclusive=True) for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("amq.gen-") for name in names)


@pytest.mark.spec("amqp-0-9-1", "queue.bind#queue")
def test_an_empty_name_means_the_queue_declared_last_on_this_channel(channel: PeerChannel) -> None:
    channel.declare(exclusive=True)
    last = channel.declare(exclusive=True)
    channel.call(Queue.Bind(exchange="amq.direct", routing_key=last), Queue.BindOk)
    channel.publish(b"bound", last, "amq.direct")
    message = channel.get()
    assert message is not None
    assert message.body == b"bound"
    channel.consume()
    channel.publish(b"consumed", last)
    assert channel.delivery().body == b"consumed"
    assert channel.call(Queue.Purge(), Queue.PurgeOk).message_count == 0
    channel.call(Queue.Unbind(exchange="amq.direct", routing_key=last), Queue.UnbindOk)
    channel.call(Queue.Delete(), Queue.DeleteOk)


@pytest.mark.spec("amqp-0-9-1", "queue.bind#queue")
@pytest.mark.parametrize(
    "command",
    [Queue.Bind(exchange="amq.direct", routing_key="k"), Basic.Consume(), Basic.Get(), Queue.Purge()],
    ids=["bind", "consume", "get", "purge"],
)
def test_an_empty_name_before_any_declaration(channel: PeerChannel, command: base.Frame) -> None:
    assert channel.refused(command, 404).startswith("NOT_FOUND - ")


@pytest.mark.spec("amqp-0-9-1", "queue.declare#passive")
def test_passive_declares(connect: Connector, channel: PeerChannel, name: str) -> None:
    channel.declare(name, durable=True)
    channel.publish(b"", name)
    reply = channel.call(Queue.Declare(queue=name, passive=True), Queue.DeclareOk)
    assert (reply.queue, reply.message_count, reply.consumer_count) == (name, 1, 0)
    delete(channel, name)
    text = channel.refused(Queue.Declare(queue=name, passive=True), 404)
    assert text == f"NOT_FOUND - no queue '{name}' in vhost '/'"


@pytest.mark.spec("amqp-0-9-1", "queue.declare#passive")
@pytest.mark.parametrize(
    "make",
    [
        lambda queue: Queue.Bind(queue=queue, exchange="amq.direct", routing_key="k"),
        lambda queue: Queue.Purge(queue=queue),
        lambda queue: Basic.Get(queue=queue),
    ],
    ids=["bind", "purge", "get"],
)
def test_a_queue_that_is_not_there(channel: PeerChannel, name: str, make: Maker) -> None:
    assert channel.refused(make(name), 404) == f"NOT_FOUND - no queue '{name}' in vhost '/'"


@pytest.mark.spec("amqp-0-9-1", "queue.declare")
@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (
            {"durable": False},
            {"durable": True},
            "inequivalent arg 'durable' for queue '{}' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            {"durable": True},
            {"durable": False},
            "inequivalent arg 'durable' for queue '{}' in vhost '/': received 'false' but current is 'true'",
        ),
        (
            {"auto_delete": False},
            {"auto_delete": True},
            "inequivalent arg 'auto_delete' for queue '{}' in vhost '/': "
            "received 'true' but current is 'false'",
        ),
        (
            {},
            {"arguments": {"x-max-priority": 5}},
            "inequivalent arg 'x-max-priority' for queue '{}' in vhost '/': "
            "received the value '5' of type 'byte' but current is none",
        ),
        (
            {"arguments": {"x-max-priority": 5}},
            {},
            "inequivalent arg 'x-max-priority' for queue '{}' in vhost '/': "
            "received none but current is the value '5' of type 'byte'",
        ),
        (
            {"arguments": {"x-max-priority": 5}},
            {"arguments": {"x-max-priority": 70000}},
            "",
        ),
        (
            {"arguments": {"x-max-priority": 5}},
            {"arguments": {"x-max-priority": 200}},
            "inequivalent arg 'x-max-priority' for queue '{}' in vhost '/': "
            "received '200' but current is '5'",
        ),
    ],
    ids=[
        "durable",
        "not-durable",
        "auto-delete",
        "argument-more",
        "argument-less",
        "bad-argument",
        "argument",
    ],
)
def test_redeclaring_differently(
    connect: Connector, channel: PeerChannel, name: str, first: FieldTable, second: FieldTable, text: str
) -> None:
    channel.declare(name, **first)  # type: ignore[arg-type]
    channel.declare(name, **first)  # type: ignore[arg-type]
    said = channel.refused(Queue.Declare(queue=name, **second), 406)  # type: ignore[arg-type]
    if text:
        assert said == "PRECONDITION_FAILED - " + text.format(name)
    delete(channel.peer.channel(1), name)


@pytest.mark.spec("rabbitmq-extensions", "x-max-priority")
@pytest.mark.parametrize("value", ["5", -1, 256, True, None, 1.5, {}], ids=repr)
def test_arguments_of_the_wrong_type_or_range(channel: PeerChannel, name: str, value: object) -> None:
    command = Queue.Declare(queue=name, arguments={"x-max-priority": value})  # type: ignore[dict-item]
    text = channel.refused(command, 406)
    assert text.startswith(
        f"PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue '{name}' in vhost '/'"
    )


@pytest.mark.spec("amqp-0-9-1", "queue.declare#arguments")
def test_the_width_of_an_integer_makes_no_difference(channel: PeerChannel, name: str) -> None:
    for code, width in zip("bBsuIil", (1, 1, 2, 2, 4, 4, 8), strict=True):
        value = code.encode() + (5).to_bytes(width, "big")
        channel.peer.send(declare_bytes(name, b"\x0ex-max-priority" + value))
        channel.expect(Queue.DeclareOk)
    delete(channel, name)


def declare_bytes(queue: str, table: bytes) -> bytes:
    """queue.declare on channel 1 with arguments in bytes of the test's choice."""
    payload = b"\x00\x32\x00\x0a\x00\x00" + bytes([len(queue)]) + queue.encode() + b"\x00"
    payload += len(table).to_bytes(4, "big") + table
    return b"\x01\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"


@pytest.mark.spec("amqp-0-9-1", "queue.declare#queue")
def test_reserved_names(channel: PeerChannel) -> None:
    text = channel.refused(Queue.Declare(queue="amq.mine"), 403)
    assert text == "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"


@pytest.mark.spec("amqp-0-9-1", "queue.declare#exclusive")
@pytest.mark.parametrize(
    "make",
    [
        lambda queue: Queue.Declare(queue=queue),
        lambda queue: Queue.Declare(queue=queue, exclusive=True),
        lambda queue: Queue.Declare(queue=queue, passive=True),
        lambda queue: Queue.Bind(queue=queue, exchange="amq.direct", routing_key="k"),
        lambda queue: Queue.Purge(queue=queue),
        lambda queue: Queue.Delete(queue=queue),
        lambda queue: Basic.Consume(queue=queue),
        lambda queue: Basic.Get(queue=queue),
    ],
    ids=["declare", "exclusive", "passive", "bind", "purge", "delete", "consume", "get"],
)
def test_an_exclusive_queue_is_locked_for_others(
    connect: Connector, channel: PeerChannel, name: str, make: Maker
) -> None:
    channel.declare(name, exclusive=True)
    other = connect().channel()
    assert other.refused(make(name), 405).startswith(locked(name))
    channel.peer.channel(2).declare(name, exclusive=True)  # another channel of the owner


@pytest.mark.spec("amqp-0-9-1", "queue.declare#exclusive")
def test_a_shared_queue_cannot_become_exclusive(channel: PeerChannel, name: str) -> None:
    channel.declare(name)
    assert channel.refused(Queue.Declare(queue=name, exclusive=True), 405).startswith(locked(name))
    delete(channel.peer.channel(1), name)


@pytest.mark.spec("amqp-0-9-1", "queue.declare#exclusive")
def test_anybody_may_publish_to_an_exclusive_queue(
    connect: Connector, channel: PeerChannel, name: str
) -> None:
    channel.declare(name, exclusive=True)
    channel.consume(name)
    connect().channel().publish(b"from outside", name)
    assert channel.delivery().body == b"from outside"


@pytest.mark.spec("amqp-0-9-1", "queue.declare#exclusive")
def test_an_exclusive_queue_goes_with_its_connection_not_its_channel(
    connect: Connector, channel: PeerChannel, name: str
) -> None:
    owner = connect()
    first = owner.channel(1)
    first.declare(name, exclusive=True, durable=True)
    owner.channel(2).call(Queue.Bind(queue=name, exchange="amq.fanout"), Queue.BindOk)
    first.close()
    assert owner.channel(3).counts(name) == (0, 0)
    owner.close()
    text = channel.refused(Queue.Declare(queue=name, passive=True), 404)
    assert text == f"NOT_FOUND - no queue '{name}' in vhost '/'"


@pytest.mark.spec("amqp-0-9-1", "queue.declare#auto-delete")
def test_an_auto_delete_queue_goes_with_its_last_consumer(
    connect: Connector, channel: PeerChannel, name: str
) -> None:
    channel.declare(name, auto_delete=True)
    channel.publish(b"", name)
    assert channel.counts(name) == (1, 0)  # had no consumer yet: stays
    channel.consume(name, "a", no_ack=True)
    channel.delivery()
    other = connect().channel()
    other.consume(name, "b")
    channel.cancel("a")
    assert channel.counts(name) == (0, 1)
    other.cancel("b")
    assert channel.refused(Queue.Declare(queue=name, passive=True), 404).startswith("NOT_FOUND")
    again = channel.peer.channel(1)
    again.declare(name, auto_delete=True)
    leaving = connect()
    leaving.channel().consume(name)
    leaving.close()
    assert again.refused(Queue.Declare(queue=name, passive=True), 404).startswith("NOT_FOUND")


@pytest.mark.spec("amqp-0-9-1", "queue.purge")
def test_purge_counts_and_spares_what_is_unacked(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    for number in range(5):
        channel.publish(b"%d" % number, queue)
    held = [channel.take(queue), channel.take(queue)]
    assert channel.call(Queue.Purge(queue=queue), Queue.PurgeOk).message_count == 3
    assert channel.get(queue) is None
    channel.nack(held[1].tag, multiple=True)
    assert [channel.take(queue).body, channel.take(queue).body] == [b"0", b"1"]
    channel.publish(b"last", queue)
    channel.write(Queue.Purge(queue=queue, nowait=True))
    assert channel.counts(queue) == (0, 0)


@pytest.mark.spec("amqp-0-9-1", "queue.delete")
def test_delete_counts_what_is_ready(channel: PeerChannel, name: str) -> None:
    channel.declare(name)
    for _ in range(4):
        channel.publish(b"", name)
    held = channel.take(name)
    assert delete(channel, name) == 3
    channel.ack(held.tag)
    channel.round_trip()
    assert delete(channel, name) == 0  # not there any more: not an error


@pytest.mark.spec("amqp-0-9-1", "queue.delete#if-unused")
def test_delete_if_unused(channel: PeerChannel, name: str) -> None:
    channel.declare(name)
    channel.consume(name, "user")
    text = channel.refused(Queue.Delete(queue=name, if_unused=True), 406)
    assert text == f"PRECONDITION_FAILED - queue '{name}' in vhost '/' in use"
    again = channel.peer.channel(1)
    again.call(Queue.Delete(queue=name, if_unused=True), Queue.DeleteOk)


@pytest.mark.spec("amqp-0-9-1", "queue.delete#if-empty")
def test_delete_if_empty(channel: PeerChannel, name: str) -> None:
    channel.declare(name)
    channel.publish(b"", name)
    text = channel.refused(Queue.Delete(queue=name, if_empty=True), 406)
    assert text == f"PRECONDITION_FAILED - queue '{name}' in vhost '/' not empty"
    again = channel.peer.channel(1)
    assert again.get(name) is not None
    assert again.call(Queue.Delete(queue=name, if_empty=True), Queue.DeleteOk).message_count == 0


@pytest.mark.spec("amqp-0-9-1", "queue.declare#no-wait")
def test_without_replies(channel: PeerChannel, name: str) -> None:
    channel.write(Queue.Declare(queue=name, nowait=True))
    channel.write(Queue.Bind(queue=name, exchange="amq.direct", routing_key=name, nowait=True))
    channel.publish(b"bound", name, "amq.direct")
    assert channel.take(name).body == b"bound"
    channel.write(Queue.Delete(queue=name, nowait=True))
    channel.expect_silence()
    assert channel.refused(Queue.Declare(queue=name, passive=True), 404).startswith("NOT_FOUND")
