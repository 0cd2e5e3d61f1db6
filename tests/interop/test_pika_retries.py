"""Messages that wait for a retry, and the headers of those beyond the limit, with pika."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_connection import connected
from tests.support.admin.api import Api
from tests.support.daemon.daemon import PATIENCE_S, DaemonStarter

PERSISTENT = pika.BasicProperties(delivery_mode=2)
Came = tuple[Any, pika.BasicProperties, bytes, float]


@pytest.fixture
def dead(channel: BlockingChannel, name: str) -> str:
    """A queue for dead letters."""
    channel.queue_declare(f"{name}.dead", exclusive=True)
    return f"{name}.dead"


def declare(channel: BlockingChannel, queue: str, **arguments: object) -> str:
    """A queue of this connection; `retry_min=1` is its x-retry-min."""
    held = {f"x-{argument.replace('_', '-')}": value for argument, value in arguments.items()}
    channel.queue_declare(queue, exclusive=True, arguments=held)
    return queue


def deliveries(channel: BlockingChannel, queue: str) -> Iterator[Came]:
    """Yield the deliveries with their times."""
    for method, properties, body in channel.consume(queue, inactivity_timeout=PATIENCE_S):
        assert method is not None, "nothing more came"
        yield method, properties, body, time.monotonic()


def test_a_message_that_fails_is_tried_again_later_and_later(channel: BlockingChannel, name: str) -> None:
    queue = declare(channel, name, retry_min=100, retry_max=300)
    channel.basic_publish("", queue, b"poison")
    channel.basic_publish("", queue, b"good")
    tries: list[float] = []
    good = 0.0
    for method, _, body, at in deliveries(channel, queue):
        if body == b"good":
            good = at
            channel.basic_ack(method.delivery_tag)
            continue
        tries.append(at)
        assert method.redelivered == (len(tries) > 1)
        if len(tries) == 4:
            channel.basic_ack(method.delivery_tag)
            break
        channel.basic_nack(method.delivery_tag, requeue=True)
    waits = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert [wait >= least for wait, least in zip(waits, (0.1, 0.2, 0.3), strict=True)] == [True] * 3
    assert good < tries[1], "others pass"


def test_delayed_entries_are_counted_and_purged(channel: BlockingChannel, name: str, api: Api) -> None:
    queue = declare(channel, name, retry_min=60_000)
    channel.basic_publish("", queue, b"12345")
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=True)
    assert channel.basic_get(queue) == (None, None, None)
    shown = api.get("queues", "/", queue)
    assert (shown["messages"], shown["messages_ready"], shown["messages_held"]) == (1, 0, 1)
    assert (shown["message_bytes"], shown["message_bytes_held"]) == (5, 5)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="not empty"):
        channel.queue_delete(queue, if_empty=True)
    other = channel.connection.channel()
    assert other.queue_purge(queue).method.message_count == 1
    assert api.get("queues", "/", queue)["messages"] == 0


def test_the_channel_that_is_lost_waits_too(channel: BlockingChannel, name: str) -> None:
    queue = declare(channel, name, retry_min=300)
    channel.basic_publish("", queue, b"")
    other = channel.connection.channel()
    other.basic_get(queue)
    began = time.monotonic()
    other.close()
    _, _, _, at = next(deliveries(channel, queue))
    assert at - began >= 0.3


def test_uncounted_returns_never_end_and_the_dead_letter_has_both_counts(
    channel: BlockingChannel, name: str, dead: str
) -> None:
    queue = declare(
        channel,
        name,
        delivery_limit=1,
        delivery_count_on="reject",
        dead_letter_exchange="",
        dead_letter_routing_key=dead,
    )
    channel.basic_publish("", queue, b"poison")
    counts: list[object] = []
    for number, (method, properties, _, _) in enumerate(deliveries(channel, queue)):
        counts.append((properties.headers or {}).get("x-delivery-count"))
        if number < 5:
            channel.basic_nack(method.delivery_tag, requeue=True)
        else:
            channel.basic_reject(method.delivery_tag, requeue=True)
        if number == 6:
            break
    channel.cancel()
    assert counts == [None, 0, 0, 0, 0, 0, 1]
    _, properties, _, _ = next(deliveries(channel, dead))
    headers = properties.headers or {}
    [death] = headers["x-death"]
    assert (death["reason"], death["queue"], death["count"]) == ("delivery_limit", queue, 1)
    assert abs(death["time"].timestamp() - time.time()) < 60
    assert (headers["x-acquired-count"], headers["x-delivery-count"]) == (7, 2)


def test_letters_tell_whose_time_was_over(channel: BlockingChannel, name: str, dead: str) -> None:
    queue = declare(
        channel,
        name,
        message_ttl=200,
        retry_min=60_000,
        dead_letter_exchange="",
        dead_letter_routing_key=dead,
    )
    channel.basic_publish("", queue, b"held")
    method, _, _ = channel.basic_get(queue)
    channel.basic_nack(method.delivery_tag, requeue=True)
    channel.basic_publish("", queue, b"queue")
    channel.basic_publish("", queue, b"message", pika.BasicProperties(expiration="100"))
    counts: dict[bytes, tuple[object, object]] = {}
    for _, properties, body, _ in deliveries(channel, dead):
        headers = properties.headers or {}
        counts[body] = headers["x-expired-by"], headers["x-expired-while"]
        if len(counts) == 3:
            break
    assert counts == {
        b"message": ("message", "ready"),
        b"queue": ("queue", "ready"),
        b"held": ("queue", "held"),
    }


def test_only_some_deaths_make_letters(channel: BlockingChannel, name: str, dead: str) -> None:
    queue = declare(
        channel,
        name,
        max_length=1,
        dead_letter_exchange="",
        dead_letter_routing_key=dead,
        dead_letter_reasons="rejected",
    )
    for body in (b"too old", b"refused"):
        channel.basic_publish("", queue, body)
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert next(deliveries(channel, dead))[2] == b"refused"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"x-retry-max": 5}, "x-retry-max.*needs x-retry-min"),
        ({"x-retry-min": 1, "x-retry-jitter": 2}, "x-retry-jitter.*'2'.*from 0 to 1"),
        ({"x-delivery-count-on": "nack,bad"}, "x-delivery-count-on.*'nack,bad'"),
    ],
)
def test_refusals(channel: BlockingChannel, name: str, arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=why) as refusal:
        channel.queue_declare(name, arguments=arguments)
    assert refusal.value.reply_code == 406


def test_after_kill_9_unacknowledged_messages_are_ready_with_their_delivery_counts(
    start_daemon: DaemonStarter,
) -> None:
    daemon = start_daemon()
    connection = connected(daemon.address)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True, arguments={"x-retry-min": 60_000, "x-delivery-count-on": "nack"})
    for body in (b"nacked", b"out"):
        channel.basic_publish("", "q", body, PERSISTENT)
    method, _, _ = channel.basic_get("q")
    channel.basic_nack(method.delivery_tag, requeue=True)
    channel.basic_get("q")
    channel.queue_declare("fence", durable=True)  # the answer waits for the disk and for earlier requests
    daemon.kill()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events(time_limit=PATIENCE_S)
    connection = connected(start_daemon().address)
    channel = connection.channel()
    counts: dict[bytes, object] = {}
    for _, properties, body, _ in deliveries(channel, "q"):
        counts[body] = (properties.headers or {}).get("x-delivery-count")
        if len(counts) == 2:
            break
    assert counts == {b"nacked": 1, b"out": None}, "a crash was not to count"
    connection.close()
