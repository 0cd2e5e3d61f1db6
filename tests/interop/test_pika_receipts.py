"""Receipts as a pika user sees them."""

import json
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_connection import connected
from tests.support.admin.api import Api
from tests.support.daemon.daemon import PATIENCE_S, Address, Daemon, DaemonStarter


def asking(
    to: str, on: str, message_id: str | None = None, correlation_id: str | None = None, mode: int = 2
) -> pika.BasicProperties:
    headers = {"x-receipt-to": to, "x-receipt-on": on}
    return pika.BasicProperties(
        message_id=message_id, correlation_id=correlation_id, delivery_mode=mode, headers=headers
    )


def receipts(channel: BlockingChannel, queue: str, count: int) -> list[tuple[Any, ...]]:
    """Return `count` receipts with their properties, sorted by kind and queue."""
    found: list[tuple[Any, ...]] = []
    for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=PATIENCE_S):
        assert method is not None, f"{len(found)} receipts of {count}"
        document = json.loads(body)
        assert document == properties.headers
        assert document.pop("time") > 1_700_000_000_000
        found.append((document, properties.correlation_id, properties.delivery_mode))
        if len(found) == count:
            break
    channel.cancel()
    return sorted(found, key=lambda each: (each[0]["what"], each[0]["queue"]))


def receipt_of(what: str, queue: str, key: str, message_id: str = "", exchange: str = "") -> dict[str, str]:
    return {
        "what": what,
        "queue": queue,
        "message_id": message_id,
        "exchange": exchange,
        "routing_key": key,
    }


@pytest.mark.parametrize("durable", [True, False])
def test_a_publisher_learns_of_arrival_in_each_queue_and_of_consumption(
    address: Address, name: str, durable: bool
) -> None:
    connection = connected(address)
    channel = connection.channel()
    channel.confirm_delivery()
    one, two, back = f"{name}-1", f"{name}-2", f"{name}-back"
    for queue in (one, two, back):
        channel.queue_declare(queue, durable=durable)
    for queue in (one, two):
        channel.queue_bind(queue, "amq.fanout")
    channel.basic_publish("amq.fanout", "key", b"1", asking(back, "arrival, consumed", "id-1", "other"))
    mode = 2
    assert receipts(channel, back, 2) == [
        (receipt_of("arrival", queue, "key", "id-1", "amq.fanout"), "id-1", mode) for queue in (one, two)
    ]
    method, _, _ = channel.basic_get(one)
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, _ = channel.basic_get(one)
    channel.basic_ack(method.delivery_tag)
    method, _, _ = channel.basic_get(two)
    channel.basic_nack(method.delivery_tag, requeue=False)
    channel.basic_publish("", two, b"2", asking(back, "consumed", None, "other", 1))
    assert channel.basic_get(two, auto_ack=True)[2] == b"2"
    assert receipts(channel, back, 2) == [
        (receipt_of("consumed", one, "key", "id-1", "amq.fanout"), "id-1", mode),
        (receipt_of("consumed", two, two), "other", None),
    ]
    for queue in (one, two, back):
        channel.queue_delete(queue)
    connection.close()


@pytest.mark.parametrize("end", [Daemon.stop, Daemon.kill])
def test_messages_consumed_after_a_restart_have_receipts(
    start_daemon: DaemonStarter, end: Callable[[Daemon], None]
) -> None:
    daemon = start_daemon()
    connection = connected(daemon.address)
    channel = connection.channel()
    channel.confirm_delivery()
    for queue in ("q", "back"):
        channel.queue_declare(queue, durable=True)
    channel.basic_publish("", "q", b"1", asking("back", "consumed", "id-1"))
    connection.close()
    end(daemon)
    daemon = start_daemon()
    connection = connected(daemon.address)
    channel = connection.channel()
    method, _, _ = channel.basic_get("q")
    channel.tx_select()
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    assert receipts(channel, "back", 1) == [(receipt_of("consumed", "q", "q", "id-1"), "id-1", 2)]
    connection.close()


def test_delayed_messages_have_receipts_at_their_date(address: Address, name: str) -> None:
    connection = connected(address)
    channel = connection.channel()
    for queue in (name, f"{name}-back"):
        channel.queue_declare(queue, durable=True)
    properties = asking(f"{name}-back", "arrival")
    properties.headers["x-delay"] = 300
    channel.basic_publish("", name, b"", properties)
    [(found, _, _)] = receipts(channel, f"{name}-back", 1)
    assert found == receipt_of("arrival", name, name)
    assert channel.basic_get(name, auto_ack=True)[2] == b""
    assert channel.queue_declare(f"{name}-back", passive=True).method.message_count == 0
    for queue in (name, f"{name}-back"):
        channel.queue_delete(queue)
    connection.close()


def test_receipts_that_cannot_be_sent_are_dropped_and_counted(daemon: Daemon, name: str) -> None:
    before = daemon.metric("amqpd_receipts_dropped_total")
    connection = connected(daemon.address)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(name)
    channel.basic_publish("", name, b"1", asking("nowhere", "arrival,consumed"))
    assert channel.basic_get(name, auto_ack=True)[2] == b"1"
    channel.queue_delete(name)
    assert daemon.metric("amqpd_receipts_dropped_total") == before + 2
    connection.close()


@pytest.mark.parametrize(
    ("headers", "wrong"),
    [
        ({"x-receipt-to": "q"}, "x-receipt-on"),
        ({"x-receipt-to": "q", "x-receipt-on": "gone"}, "x-receipt-on"),
        ({"x-receipt-to": 7, "x-receipt-on": "arrival"}, "x-receipt-to"),
    ],
)
def test_contradicting_arguments_end_the_channel(
    address: Address, headers: dict[str, Any], wrong: str
) -> None:
    connection = connected(address)
    channel = connection.channel()
    channel.basic_publish("amq.fanout", "", b"", pika.BasicProperties(headers=headers))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare("", exclusive=True)
    assert caught.value.reply_code == 406
    assert f"invalid header '{wrong}' of a message" in caught.value.reply_text
    connection.close()


def test_a_user_without_write_permission_may_not_request_receipts_there(
    daemon: Daemon, api: Api, vhost: str, user: Callable[..., Api]
) -> None:
    user("", write="^amq[.]fanout$")
    connection = connected(
        daemon.address, virtual_host=vhost, credentials=pika.PlainCredentials(f"{vhost}.0", "secret")
    )
    channel = connection.channel()
    channel.basic_publish("amq.fanout", "", b"", asking("back", "arrival"))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare("", exclusive=True)
    assert caught.value.reply_code == 403
    connection.close()
