"""Sorted, last-value and non-destructive queues as a pika user sees them."""

import contextlib
from decimal import Decimal
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_connection import connected
from tests.support.admin.api import Api
from tests.support.daemon.daemon import PATIENCE_S, DaemonStarter

SORTED = {"x-queue-kind": "sorted", "x-sort-key": "due"}
LAST = {"x-queue-kind": "last-value", "x-last-value-key": "id"}
KEPT = LAST | {"x-non-destructive": True}


def publish(channel: BlockingChannel, queue: str, body: bytes, **headers: Any) -> None:
    channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2, headers=headers))


def got(channel: BlockingChannel, queue: str) -> list[bytes]:
    """Get all messages by basic.get."""
    bodies: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body or b"")


def consumed(channel: BlockingChannel, queue: str, count: int, **options: Any) -> list[bytes]:
    """The next so many messages of a new consumer, acknowledged."""
    bodies: list[bytes] = []
    for method, _, body in channel.consume(queue, inactivity_timeout=PATIENCE_S, **options):
        assert method is not None, f"nothing came after {bodies}"
        channel.basic_ack(method.delivery_tag)
        bodies.append(body)
        if len(bodies) == count:
            break
    channel.cancel()
    return bodies


def test_sorted_by_values_of_any_type(connection: pika.BlockingConnection, name: str) -> None:
    channel = connection.channel()
    channel.queue_declare(name, arguments=SORTED)
    channel.confirm_delivery()
    for number, due in enumerate([3, "b", Decimal("2.5"), True, None, Decimal("2.75"), "a", 3, -1]):
        publish(channel, name, b"%d" % number, due=due)
    publish(channel, name, b"none")
    assert got(channel, name) == [b"4", b"none", b"8", b"2", b"5", b"0", b"7", b"6", b"1", b"3"]
    channel.queue_delete(name)


def test_the_latest_value_is_what_consumers_get(connection: pika.BlockingConnection, name: str) -> None:
    channel = connection.channel()
    channel.queue_declare(name, arguments=LAST)
    channel.confirm_delivery()
    for body, key in ((b"a1", "a"), (b"b1", "b"), (b"a2", "a"), (b"c1", 1), (b"c2", True), (b"b2", "b")):
        publish(channel, name, body, id=key)
    assert channel.queue_declare(name, passive=True).method.message_count == 4
    assert got(channel, name) == [b"a2", b"b2", b"c1", b"c2"]
    channel.queue_delete(name)


def test_replaced_messages_are_counted(connection: pika.BlockingConnection, name: str, api: Api) -> None:
    channel = connection.channel()
    channel.queue_declare(name, arguments=KEPT)
    channel.confirm_delivery()
    for number in range(5):
        publish(channel, name, b"%d" % number, id=number % 2)
    shown = api.get("queues", "/", name)
    assert (shown["message_stats"]["replaced"], shown["messages"]) == (3, 2)
    assert shown["arguments"] == KEPT
    channel.queue_delete(name)


def test_an_older_value_that_is_requeued_is_dropped(connection: pika.BlockingConnection, name: str) -> None:
    channel = connection.channel()
    channel.queue_declare(name, arguments=LAST)
    channel.confirm_delivery()
    publish(channel, name, b"old", id="a")
    method, _, body = channel.basic_get(name)
    assert body == b"old"
    assert method is not None
    publish(channel, name, b"other", id="b")
    publish(channel, name, b"new", id="a")
    channel.basic_nack(method.delivery_tag)
    assert consumed(channel, name, 2) == [b"other", b"new"]
    assert channel.queue_declare(name, passive=True).method.message_count == 0
    channel.queue_delete(name)


@pytest.mark.parametrize("arguments", [KEPT, {"x-non-destructive": True}])
def test_unconsumed_messages_stay(
    connection: pika.BlockingConnection, name: str, arguments: dict[str, Any]
) -> None:
    channel = connection.channel()
    channel.queue_declare(name, arguments=arguments)
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=1)
    for number in range(3):
        publish(channel, name, b"%d" % number, id=number)
    assert consumed(channel, name, 3) == [b"0", b"1", b"2"]
    assert consumed(channel, name, 3, auto_ack=False) == [b"0", b"1", b"2"], "so does the next one"
    for _ in range(2):
        method, _, body = channel.basic_get(name)
        assert (body, method and method.message_count) == (b"0", 2)
        assert method is not None
        channel.basic_reject(method.delivery_tag, requeue=False)
    assert channel.basic_get(name, auto_ack=True)[2] == b"0"
    assert channel.queue_declare(name, passive=True).method.message_count == 3
    assert channel.queue_purge(name).method.message_count == 3
    channel.queue_delete(name)


def test_consumers_of_current_values_see_each_change_once(
    connection: pika.BlockingConnection, name: str
) -> None:
    channel = connection.channel()
    channel.queue_declare(name, arguments=KEPT)
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=1)
    for body, key in ((b"a1", "a"), (b"b1", "b")):
        publish(channel, name, body, id=key)
    seen: list[bytes] = []
    changes = [(b"a2", "a"), (b"c1", "c"), (b"a3", "a")]
    for method, _, body in channel.consume(name, inactivity_timeout=PATIENCE_S):
        assert method is not None, f"nothing came after {seen}"
        seen.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(seen) >= 2 and changes:
            change, key = changes.pop(0)
            publish(channel, name, change, id=key)
        elif len(seen) == 5:
            break
    channel.cancel()
    assert seen == [b"a1", b"b1", b"a2", b"c1", b"a3"]
    assert consumed(channel, name, 3) == [b"a3", b"b1", b"c1"]
    channel.queue_delete(name)


@pytest.mark.parametrize("options", [{"exclusive": True}, {"arguments": {"x-exclusive-consumer": True}}])
def test_exclusive_consumers_of_a_non_destructive_queue_are_refused_with_406(
    connection: pika.BlockingConnection, name: str, options: dict[str, Any]
) -> None:
    connection.channel().queue_declare(name, arguments=KEPT)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="x-non-destructive") as refusal:
        connection.channel().basic_consume(name, print, **options)
    assert refusal.value.reply_code == 406


def test_an_unknown_queue_kind_is_refused_with_406(connection: pika.BlockingConnection, name: str) -> None:
    with pytest.raises(
        pika.exceptions.ChannelClosedByBroker, match="is not one of standard, prio"
    ) as refusal:
        connection.channel().queue_declare(name, arguments={"x-queue-kind": "heap"})
    assert refusal.value.reply_code == 406


@pytest.mark.parametrize("crash", [False, True])
def test_kinds_over_a_restart(start_daemon: DaemonStarter, crash: bool) -> None:
    daemon = start_daemon()
    connection = connected(daemon.address)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("sorted", durable=True, arguments=SORTED)
    channel.queue_declare("last", durable=True, arguments=LAST)
    for number, due in enumerate([5, 1, "x", 3]):
        publish(channel, "sorted", b"%d" % number, due=due)
    publish(channel, "last", b"old", id="a")
    assert channel.basic_get("last")[2] == b"old", "it is with a client when the broker goes"
    for number in range(20):
        publish(channel, "last", b"%d" % number, id=("a", "b", "c")[number % 3])
    if crash:
        daemon.kill()
    else:
        daemon.stop()
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()

    with connected(start_daemon().address) as connection:
        channel = connection.channel()
        channel.queue_declare("last", durable=True, arguments=LAST)
        assert got(channel, "sorted") == [b"1", b"3", b"0", b"2"]
        assert got(channel, "last") == [b"17", b"18", b"19"]
