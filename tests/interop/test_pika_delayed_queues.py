"""Messages that wait for their date at an ordinary queue, as pika's users meet them."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_connection import connected
from tests.support.admin.api import Api
from tests.support.daemon.daemon import PATIENCE_S, DaemonStarter


@pytest.fixture
def queue(channel: BlockingChannel, name: str, api: Api) -> Iterator[str]:
    """A durable queue."""
    channel.queue_declare(name, durable=True)
    yield name
    api.delete("queues", "/", name)


def publish(channel: BlockingChannel, queue: str, body: bytes, **headers: Any) -> None:
    """Publish a persistent message to the default exchange."""
    channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2, headers=headers))


def today() -> int:
    """The time of day as the broker counts it: in whole milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def taken(channel: BlockingChannel, queue: str, count: int) -> list[tuple[bytes, dict[str, Any], int]]:
    """The next messages, each with its headers and when it came."""
    came: list[tuple[bytes, dict[str, Any], int]] = []
    for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=PATIENCE_S):
        assert method is not None, "nothing more came"
        came.append((body, properties.headers or {}, today()))
        if len(came) == count:
            break
    channel.cancel()
    return came


def delayed(api: Api, queue: str, **query: str) -> list[dict[str, Any]]:
    """Return the delayed messages that the API lists."""
    items = api.get("queues", "/", queue, "delayed", **query)["items"]
    assert isinstance(items, list)
    return items


def test_messages_come_when_they_are_due(channel: BlockingChannel, queue: str) -> None:
    began = today()
    publish(channel, queue, b"2000", **{"x-delay": 2000})
    publish(channel, queue, b"0")
    publish(channel, queue, b"1000", **{"x-delivery-time": began + 1000})
    assert channel.queue_declare(queue, passive=True).method.message_count == 1
    came = taken(channel, queue, 3)
    assert [body for body, _, _ in came] == [b"0", b"1000", b"2000"]
    assert [at >= began + int(body) for body, _, at in came] == [True] * 3, "never too early"
    assert came[2][1]["x-delay"] == -2000


def test_a_timestamp_will_do(channel: BlockingChannel, queue: str) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    publish(channel, queue, b"later", **{"x-delivery-time": due})
    [(_, _, at)] = taken(channel, queue, 1)
    assert 0 <= at - due.timestamp() * 1000 < 1000


def test_an_invalid_date_ends_the_channel(channel: BlockingChannel, queue: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"x-delivery-time.*'soon'") as refusal:
        publish(channel, queue, b"", **{"x-delivery-time": "soon"})
    assert refusal.value.reply_code == 406


def test_transactions_and_fanouts_delay_too(channel: BlockingChannel, queue: str, name: str) -> None:
    channel.exchange_declare(f"{name}.x", "fanout", auto_delete=True)
    channel.queue_bind(queue, f"{name}.x")
    other = channel.connection.channel()
    other.tx_select()
    properties = pika.BasicProperties(headers={"x-delay": 1000})
    other.basic_publish(f"{name}.x", "", b"delayed", properties)
    other.tx_commit()
    publish(channel, queue, b"now")
    assert [body for body, _, _ in taken(channel, queue, 2)] == [b"now", b"delayed"]


def test_delayed_messages_are_listed_cancelled_and_moved(
    channel: BlockingChannel, queue: str, api: Api
) -> None:
    for seconds in (30, 10, 20):
        publish(channel, queue, b"%d" % seconds, **{"x-delay": seconds * 1000})
    assert api.get("queues", "/", queue)["messages_delayed"] == 3
    first, second, third = delayed(api, queue)
    assert [each["payload_bytes"] for each in (first, second, third)] == [2, 2, 2]
    assert first["delivery_time"] < second["delivery_time"] < third["delivery_time"]
    assert delayed(api, queue, page="2", page_size="2") == [third]
    api.delete("queues", "/", queue, "delayed", first["id"])
    api.refused(404, "DELETE", "queues", "/", queue, "delayed", first["id"])
    answer = api.ask("PUT", "queues", "/", queue, "delayed", third["id"], body={"delay": 100})
    assert answer.status_code == 200
    assert abs(answer.json()["delivery_time"] - today()) < 5000
    assert [body for body, _, _ in taken(channel, queue, 1)] == [b"30"]
    assert [each["id"] for each in delayed(api, queue)] == [second["id"]]
    for body in ({}, {"delay": 1, "delivery_time": 1}, {"delivery_time": 0}, {"delay": 400_000_000_000}):
        api.refused(400, "PUT", "queues", "/", queue, "delayed", second["id"], body=body)
    api.refused(404, "GET", "queues", "/", "nobody's", "delayed")
    api.refused(400, "GET", "queues", "/", queue, "delayed", page="2")
    own = channel.queue_declare("", exclusive=True).method.queue
    assert "locked" in api.refused(400, "GET", "queues", "/", own, "delayed")["reason"]


def test_delayed_messages_and_their_changes_survive_kill_9(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    connection = connected(daemon.address)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True)
    began = today()
    for body, delay in ((b"past", 50), (b"moved", 50_000), (b"gone", 60_000), (b"coming", 4_000)):
        publish(channel, "q", body, **{"x-delay": delay})
    publish(channel, "q", b"ready")
    moved, gone = [each["id"] for each in delayed(api, "q")][-2:]
    answer = api.ask("PUT", "queues", "/", "q", "delayed", moved, body={"delay": 4_500})
    assert answer.status_code == 200
    api.delete("queues", "/", "q", "delayed", gone)
    daemon.kill()
    api.close()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events(time_limit=PATIENCE_S)
    daemon = start_daemon()
    api = Api(daemon.admin)
    connection = connected(daemon.address)
    channel = connection.channel()
    came = taken(channel, "q", 4)
    assert sorted(body for body, _, _ in came[:2]) == [b"past", b"ready"]
    assert [body for body, _, _ in came[2:]] == [b"coming", b"moved"]
    assert came[2][2] >= began + 4_000
    assert came[3][2] < began + 50_000, "moved"
    assert delayed(api, "q") == []
    api.close()
    connection.close()
