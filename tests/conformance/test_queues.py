"""queue.*: declaring, redeclaring, exclusive and server-named queues, purging and deleting."""

from collections.abc import Callable

import pytest
from pamqp import base
from pamqp.commands import Basic, Queue

from tests.support.amqp091.frames import several_lines
from tests.support.amqp091.peer import Connector, PeerChannel

Maker = Callable[[str], base.Frame]


def delete(channel: PeerChannel, queue: str) -> int | None:
    """Delete a queue; returns how many messages went with it."""
    return channel.call(Queue.Delete(queue=queue), Queue.DeleteOk).message_count


def locked(queue: str) -> str:
    """Return the reply text for other users of an exclusive queue; a short string may cut its end off."""
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
def test_a_method_on_a_missing_queue_closes_the_channel_with_404(
    channel: PeerChannel, name: str, make: Maker
) -> None:
    assert channel.refused(make(name), 404) == f"NOT_FOUND - no queue '{name}' in vhost '/'"


@pytest.mark.spec("amqp-0-9-1", "queue.declare#queue")
def test_reserved_names(channel: PeerChannel) -> None:
    text = channel.refused(Queue.Declare(queue="amq.mine"), 403)
    assert text == "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"


@pytest.mark.spec("amqp-0-9-1", "queue.declare#queue")
def test_line_breaks_are_removed_from_queue_names(channel: PeerChannel, name: str) -> None:
    def ask(command: base.Frame) -> None:
        channel.peer.send(several_lines(command, channel.number))

    ask(Queue.Declare(queue=f"##{name}.##log##", exclusive=True))
    assert channel.expect(Queue.DeclareOk).queue == f"{name}.log"
    channel.publish(b"found", f"{name}.log")
    ask(Queue.Declare(queue=f"{name}##.log", passive=True))
    assert channel.expect(Queue.DeclareOk).message_count == 1
    ask(Queue.Delete(queue=f"{name}.log##"))
    assert channel.expect(Queue.DeleteOk).message_count == 1
    ask(Queue.Declare(queue="##", exclusive=True))
    assert str(channel.expect(Queue.DeclareOk).queue).startswith("amq.gen-")
    ask(Queue.Declare(queue="##amq.mine"))
    channel.expect_close(403)


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
def test_an_exclusive_queue_is_locked_for_other_connections(
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
def test_other_connections_may_publish_to_an_exclusive_queue(
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
def test_purge_counts_ready_messages_and_spares_unacknowledged_messages(channel: PeerChannel) -> None:
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
def test_delete_counts_ready_messages(channel: PeerChannel, name: str) -> None:
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
