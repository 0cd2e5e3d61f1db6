"""exchange.* and bindings: declaring, redeclaring, deleting, binding and unbinding."""

import struct

import pytest
from pamqp.commands import Exchange, Queue
from pamqp.common import FieldTable

from tests.support.amqp091.field_bytes import FIELDS, field, long_string
from tests.support.amqp091.frames import METHOD, frame_bytes, several_lines
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp091.topology_commands import bind_exchange, bind_queue, declare_exchange, drain


@pytest.mark.spec("amqp-0-9-1", "3.1.3")
@pytest.mark.parametrize(
    ("exchange", "kind"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ],
)
def test_predeclared_exchanges(channel: PeerChannel, exchange: str, kind: str) -> None:
    command = Exchange.Declare(exchange=exchange, exchange_type=kind, durable=True)
    channel.call(command, Exchange.DeclareOk)
    channel.call(Exchange.Declare(exchange=exchange, passive=True), Exchange.DeclareOk)
    assert channel.refused(Exchange.Delete(exchange=exchange), 403).startswith("ACCESS_REFUSED - ")


@pytest.mark.spec("amqp-0-9-1", "exchange.declare#exchange")
@pytest.mark.parametrize(
    "command",
    [
        Exchange.Declare(exchange="", exchange_type="direct"),
        Exchange.Delete(exchange=""),
        Queue.Bind(queue="q", exchange="", routing_key="k"),
        Queue.Unbind(queue="q", exchange="", routing_key="k"),
        Exchange.Bind(source="", destination="amq.fanout"),
        Exchange.Bind(source="amq.fanout", destination=""),
    ],
    ids=["declare", "delete", "bind", "unbind", "bind-from", "bind-to"],
)
def test_the_default_exchange_cannot_be_touched(
    channel: PeerChannel,
    command: Exchange.Declare | Exchange.Delete | Exchange.Bind | Queue.Bind | Queue.Unbind,
) -> None:
    if isinstance(command, (Queue.Bind, Queue.Unbind)):
        command.queue = channel.declare(exclusive=True)
    text = channel.refused(command, 403)
    assert text == "ACCESS_REFUSED - operation not permitted on the default exchange"


@pytest.mark.spec("amqp-0-9-1", "exchange.declare#exchange")
def test_reserved_names(channel: PeerChannel) -> None:
    text = channel.refused(Exchange.Declare(exchange="amq.mine", exchange_type="direct"), 403)
    assert text == "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"


@pytest.mark.spec("amqp-0-9-1", "exchange.declare#exchange")
def test_line_breaks_are_removed_from_exchange_names(channel: PeerChannel, exchange: str) -> None:
    name = f"##{exchange}##"
    channel.peer.send(several_lines(Exchange.Declare(exchange=name, exchange_type="fanout"), channel.number))
    channel.expect(Exchange.DeclareOk)
    channel.peer.send(several_lines(Exchange.Declare(exchange=name, passive=True), channel.number))
    channel.expect(Exchange.DeclareOk)
    channel.call(Exchange.Declare(exchange=exchange, passive=True), Exchange.DeclareOk)
    channel.peer.send(several_lines(Exchange.Delete(exchange=name), channel.number))
    channel.expect(Exchange.DeleteOk)
    channel.refused(Exchange.Declare(exchange=exchange, passive=True), 404)


@pytest.mark.spec("amqp-0-9-1", "exchange.declare#type")
def test_an_unknown_type_closes_the_channel(channel: PeerChannel, name: str) -> None:
    """RabbitMQ 4 does the same; 3.x closes the connection with 503."""
    text = channel.refused(Exchange.Declare(exchange=name, exchange_type="zzz"), 406)
    assert text == "PRECONDITION_FAILED - unknown exchange type 'zzz'"


@pytest.mark.spec("amqp-0-9-1", "exchange.declare")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"exchange_type": "fanout"},
            "inequivalent arg 'type' for exchange '{}' in vhost '/': "
            "received 'fanout' but current is 'direct'",
        ),
        (
            {"durable": True},
            "inequivalent arg 'durable' for exchange '{}' in vhost '/': "
            "received 'true' but current is 'false'",
        ),
        (
            {"auto_delete": True},
            "inequivalent arg 'auto_delete' for exchange '{}' in vhost '/': "
            "received 'true' but current is 'false'",
        ),
        (
            {"internal": True},
            "inequivalent arg 'internal' for exchange '{}' in vhost '/': "
            "received 'true' but current is 'false'",
        ),
    ],
    ids=["type", "durable", "auto-delete", "internal"],
)
def test_redeclaring_differently(channel: PeerChannel, exchange: str, change: FieldTable, text: str) -> None:
    declare_exchange(channel, exchange)
    declare_exchange(channel, exchange)
    command = Exchange.Declare(**{"exchange": exchange, "exchange_type": "direct"} | change)  # type: ignore[arg-type]
    assert channel.refused(command, 406) == "PRECONDITION_FAILED - " + text.format(exchange)


@pytest.mark.spec("amqp-0-9-1", "exchange.declare#passive")
def test_passive_declare_of_a_missing_exchange_closes_the_channel_with_404(
    channel: PeerChannel, name: str
) -> None:
    text = channel.refused(Exchange.Declare(exchange=name, passive=True), 404)
    assert text == f"NOT_FOUND - no exchange '{name}' in vhost '/'"


@pytest.mark.spec("amqp-0-9-1", "queue.bind#exchange")
def test_binding_to_a_missing_exchange_closes_the_channel_with_404(channel: PeerChannel, name: str) -> None:
    queue = channel.declare(exclusive=True)
    text = channel.refused(Queue.Bind(queue=queue, exchange=name), 404)
    assert text == f"NOT_FOUND - no exchange '{name}' in vhost '/'"


@pytest.mark.spec("amqp-0-9-1", "queue.unbind")
def test_unbinding_a_missing_binding_is_no_error(channel: PeerChannel, queues: list[str]) -> None:
    command = Queue.Unbind(queue=queues[0], exchange="amq.direct", routing_key="never")
    channel.call(command, Queue.UnbindOk)


@pytest.mark.spec("amqp-0-9-1", "queue.unbind")
@pytest.mark.parametrize("kind", FIELDS)
def test_bindings_differ_by_their_arguments(
    channel: PeerChannel, exchange: str, queues: list[str], kind: str
) -> None:
    declare_exchange(channel, exchange)
    queue = queues[0].encode()
    name = exchange.encode()

    def command(method_id: int, table: bytes) -> bytes:
        payload = struct.pack(">HHHB", 50, method_id, 0, len(queue)) + queue
        payload += bytes([len(name)]) + name + b"\x01k" + (b"\0" if method_id == 20 else b"")
        return frame_bytes(METHOD, 1, payload + long_string(table))

    arguments = field(b"argument", FIELDS[kind])
    channel.peer.send(command(20, arguments))
    channel.expect(Queue.BindOk)
    channel.peer.send(command(50, b""))
    channel.expect(Queue.UnbindOk)
    channel.publish(b"still bound", "k", exchange)
    assert drain(channel, queues[0]) == ["still bound"]
    channel.peer.send(command(50, arguments))
    channel.expect(Queue.UnbindOk)
    channel.publish(b"not any more", "k", exchange)
    assert drain(channel, queues[0]) == []


@pytest.mark.spec("amqp-0-9-1", "exchange.delete#if-unused")
def test_delete_if_unused(channel: PeerChannel, exchange: str, queues: list[str]) -> None:
    declare_exchange(channel, exchange)
    bind_queue(channel, queues[0], exchange)
    text = channel.refused(Exchange.Delete(exchange=exchange, if_unused=True), 406)
    assert text == f"PRECONDITION_FAILED - exchange '{exchange}' in vhost '/' in use"
    again = channel.peer.channel(1)
    again.call(Queue.Unbind(queue=queues[0], exchange=exchange), Queue.UnbindOk)
    again.call(Exchange.Delete(exchange=exchange, if_unused=True), Exchange.DeleteOk)
    again.call(Exchange.Delete(exchange=exchange), Exchange.DeleteOk)  # not there any more: not an error


@pytest.mark.spec("rabbitmq-extensions", "exchange.declare#auto-delete")
def test_an_auto_delete_exchange_goes_with_its_last_binding(
    channel: PeerChannel, name: str, queues: list[str]
) -> None:
    declare_exchange(channel, name, auto_delete=True)
    declare_exchange(channel, name, auto_delete=True)  # had no binding yet: still there
    bind_queue(channel, queues[0], name, "a")
    bind_queue(channel, queues[1], name, "b")
    channel.call(Queue.Delete(queue=queues[0]), Queue.DeleteOk)
    channel.call(Exchange.Declare(exchange=name, passive=True), Exchange.DeclareOk)
    channel.call(Queue.Unbind(queue=queues[1], exchange=name, routing_key="b"), Queue.UnbindOk)
    assert channel.refused(Exchange.Declare(exchange=name, passive=True), 404).startswith("NOT_FOUND")


@pytest.mark.spec("rabbitmq-extensions", "exchange.declare#internal")
def test_internal_exchanges_take_messages_from_exchanges_only(
    channel: PeerChannel, exchange: str, queues: list[str]
) -> None:
    declare_exchange(channel, exchange, "fanout", internal=True)
    bind_queue(channel, queues[0], exchange)
    channel.publish(b"", "", exchange)
    text = channel.expect_close(403)
    assert text == f"ACCESS_REFUSED - cannot publish to internal exchange '{exchange}' in vhost '/'"
    again = channel.peer.channel(1)
    bind_exchange(again, "amq.direct", exchange, exchange)
    again.publish(b"through another", exchange, "amq.direct")
    assert drain(again, queues[0]) == ["through another"]


@pytest.mark.spec("rabbitmq-extensions", "exchange_exchange_bindings")
def test_exchange_bind_with_a_missing_exchange_closes_the_channel_with_404(
    channel: PeerChannel, name: str
) -> None:
    text = channel.refused(Exchange.Bind(destination="amq.fanout", source=name), 404)
    assert text == f"NOT_FOUND - no exchange '{name}' in vhost '/'"
    again = channel.peer.channel(1)
    text = again.refused(Exchange.Bind(destination=name, source="amq.fanout"), 404)
    assert text == f"NOT_FOUND - no exchange '{name}' in vhost '/'"
