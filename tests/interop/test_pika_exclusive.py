"""Exclusive consumers as a pika user sees them."""

import json
from collections.abc import Callable, Iterator

import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_connection import Dial
from tests.interop.pika_worker import Worker
from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter

pytestmark = pytest.mark.amqpd_only("ActiveMQ's exclusive consumers are not in RabbitMQ")


@pytest.fixture
def publisher(pika_dial: Dial, name: str) -> Iterator[BlockingChannel]:
    """A channel with confirms, and the queue `name`."""
    channel = pika_dial().channel()
    channel.confirm_delivery()
    channel.queue_declare(name)
    yield channel
    channel.queue_delete(name)


def publish(channel: BlockingChannel, queue: str, *numbers: int) -> None:
    for number in numbers:
        channel.basic_publish("", queue, b"%d" % number)


def exclusive(pika_dial: Dial, queue: str, prefetch: int = 5, **arguments: object) -> Worker:
    return Worker(pika_dial, queue, prefetch, exclusive_consumer=True, **arguments)


def disconnect(api: Api, queue: str, worker: Worker) -> None:
    """Have the broker end its connection: pika would cancel the consumer first."""
    details = {each["consumer_tag"]: each for each in api.get("queues", "/", queue)["consumer_details"]}
    api.delete("connections", details[worker.tag]["channel_details"]["connection_name"])
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        worker.connection.process_data_events(time_limit=PATIENCE_S)


def numbers(received: list[tuple[int, bool, int]]) -> list[int]:
    return [number for _, _, number in received]


def test_an_exclusive_consumer_takes_over_and_its_successor_gets_its_deliveries(
    pika_dial: Dial, publisher: BlockingChannel, name: str, api: Api
) -> None:
    ordinary = Worker(pika_dial, name, 2)
    publish(publisher, name, 0, 1, 2, 3)
    held = ordinary.receive(2)
    first = exclusive(pika_dial, name, 2)
    assert numbers(first.receive(2)) == [2, 3]
    second = exclusive(pika_dial, name)
    ordinary.channel.basic_ack(held[0][0])
    ordinary.look()
    publish(publisher, name, 4)
    assert (ordinary.look(), second.look()) == (0, 0)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="exclusive consumer") as locked:
        pika_dial().channel().basic_get(name)
    assert locked.value.reply_code == 405
    disconnect(api, name, first)
    assert [(again, n) for _, again, n in second.receive(3)] == [(True, 2), (True, 3), (False, 4)]
    ordinary.channel.basic_nack(held[1][0])
    assert numbers(second.receive(1)) == [1]
    disconnect(api, name, second)
    assert numbers(ordinary.receive(1)) == [1]


def test_priorities(pika_dial: Dial, publisher: BlockingChannel, name: str) -> None:
    low = exclusive(pika_dial, name)
    high = exclusive(pika_dial, name, priority=127)
    publish(publisher, name, 1)
    assert numbers(high.receive(1)) == [1]
    highest = exclusive(pika_dial, name, priority=127)
    publish(publisher, name, 2)
    assert numbers(highest.receive(1)) == [2]
    assert (low.look(), high.look()) == (0, 0)


def test_a_queue_whose_consumers_are_all_exclusive_and_drain(pika_dial: Dial, name: str, api: Api) -> None:
    channel = pika_dial().channel()
    arguments = {"x-all-consumers-exclusive": True, "x-exclusive-takeover": "drain"}
    channel.queue_declare(name, arguments=arguments)
    low = Worker(pika_dial, name, 1)
    publish(channel, name, 1, 2)
    ((tag, _, _),) = low.receive(1)
    high = Worker(pika_dial, name, priority=1)
    assert high.look() == 0
    shown = {each["consumer_tag"]: each for each in api.get("queues", "/", name)["consumer_details"]}
    assert [shown[worker.tag]["activity_status"] for worker in (low, high)] == ["draining", "waiting"]
    assert [shown[worker.tag]["active"] for worker in (low, high)] == [False, False]
    low.channel.basic_ack(tag)
    low.look()
    assert numbers(high.receive(1)) == [2]
    assert api.get("queues", "/", name)["arguments"] == arguments
    channel.queue_delete(name)


@pytest.mark.parametrize("takeover", ["immediate", "drain"])
def test_a_cancelled_consumer_keeps_its_deliveries(pika_dial: Dial, name: str, takeover: str) -> None:
    channel = pika_dial().channel()
    channel.queue_declare(name, arguments={"x-exclusive-takeover": takeover})
    first, second = exclusive(pika_dial, name, 2), exclusive(pika_dial, name)
    publish(channel, name, 0, 1, 2)
    first.receive(2)
    first.channel.basic_cancel(first.tag)
    order = [0, 1, 2]
    if takeover == "immediate":
        assert numbers(second.receive(1)) == [2]
        order = [0, 1]
    assert second.look() == 0
    first.connection.close()
    assert [(again, n) for _, again, n in second.receive(len(order))] == [(n < 2, n) for n in order]
    channel.queue_delete(name)


def consumer_events(channel: BlockingChannel, queue: str, count: int) -> list[tuple[object, ...]]:
    """The next messages about consumers."""
    found: list[tuple[object, ...]] = []
    for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=PATIENCE_S):
        assert method is not None, "nothing more came"
        assert properties.content_type == "application/json"
        assert json.loads(body) == properties.headers
        found.append(tuple(properties.headers[key] for key in ("consumer_tag", "active", "why")))
        if len(found) == count:
            break
    channel.cancel()
    return found


def test_changes_of_the_active_consumer_are_published_to_a_queue(
    pika_dial: Dial, publisher: BlockingChannel, name: str, api: Api
) -> None:
    publisher.queue_declare(name + ".told")
    ordinary = Worker(pika_dial, name, notify_active=name + ".told")
    low = exclusive(pika_dial, name, notify_active=name + ".told")
    high = exclusive(pika_dial, name, priority=1, notify_active=name + ".told")
    high.connection.close()
    assert consumer_events(publisher, name + ".told", 7) == [
        (ordinary.tag, True, "attached"),
        (ordinary.tag, False, "outranked"),
        (low.tag, True, "elected"),
        (low.tag, False, "outranked"),
        (high.tag, True, "elected"),
        (high.tag, False, "detached"),
        (low.tag, True, "elected"),
    ]
    shown = {each["consumer_tag"]: each for each in api.get("queues", "/", name)["consumer_details"]}
    assert shown[low.tag]["arguments"] == {
        "x-exclusive-consumer": True,
        "x-notify-active": name + ".told",
    }
    publisher.queue_delete(name + ".told")
    low.connection.close()
    publish(publisher, name, 1)
    assert numbers(ordinary.receive(1)) == [1]


def test_deleting_the_queue_publishes_the_end_of_the_active_consumer(pika_dial: Dial, name: str) -> None:
    channel = pika_dial().channel()
    channel.queue_declare(name)
    channel.queue_declare(name + ".told")
    worker = Worker(pika_dial, name, notify_active=name + ".told")
    channel.queue_delete(name)
    assert consumer_events(channel, name + ".told", 2) == [
        (worker.tag, True, "attached"),
        (worker.tag, False, "detached"),
    ]
    channel.queue_delete(name + ".told")


def test_a_stopped_queue_gets_notices_of_active_consumers(pika_dial: Dial, name: str, api: Api) -> None:
    channel = pika_dial().channel()
    for queue in (name, name + ".told", name + ".stopped"):
        channel.queue_declare(queue)
    stop = {"action": "stop-enqueue"}
    api.post("queues", "/", name + ".stopped", "actions", status=204, body=stop)
    workers = pika_dial().channel()
    for to in (".stopped", ".told"):
        arguments = {"x-notify-active": name + to}
        workers.basic_consume(name, lambda *_: None, consumer_tag=to, arguments=arguments)
    workers.connection.close()
    for to in (".stopped", ".told"):
        assert consumer_events(channel, name + to, 2) == [(to, True, "attached"), (to, False, "detached")]
        channel.queue_delete(name + to)
    channel.queue_delete(name)


def test_a_user_without_write_permission_may_not_have_a_queue_notified(
    vhost: str, user: Callable[..., Api], api: Api, daemon: Daemon
) -> None:
    api.put("queues", vhost, "q")
    api.put("queues", vhost, "told")
    user("", write="^told$")
    with amqp(daemon.address, vhost, f"{vhost}.0", "secret") as channel:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"amq\.default") as refused:
            channel.basic_consume("q", lambda *_: None, arguments={"x-notify-active": "told"})
        assert refused.value.reply_code == 403


@pytest.mark.parametrize(
    ("arguments", "exclusive", "other"),
    [
        ({"x-exclusive-consumer": True, "x-browse": True}, False, "x-browse"),
        ({"x-exclusive-consumer": True}, True, "exclusive"),
        ({"x-browse": True}, True, "exclusive"),
        ({"x-exclusive-consumer": "yes"}, False, "a boolean"),
        ({"x-notify-active": "nowhere"}, False, "there is no queue 'nowhere'"),
        ({"x-notify-active": ""}, False, "at least one octet"),
        ({"x-notify-active": "q", "x-browse": True}, False, "x-browse"),
    ],
)
def test_refused_arguments(
    pika_dial: Dial,
    publisher: BlockingChannel,
    name: str,
    arguments: dict[str, object],
    exclusive: bool,
    other: str,
) -> None:
    channel = pika_dial().channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.basic_consume(name, lambda *_: None, exclusive=exclusive, arguments=arguments)
    assert refused.value.reply_code == 406
    assert next(iter(arguments)) in refused.value.reply_text
    assert other in refused.value.reply_text


@pytest.mark.parametrize("all_exclusive", [False, True])
def test_a_client_that_closes_politely_hands_over_in_order(
    pika_dial: Dial, name: str, all_exclusive: bool
) -> None:
    channel = pika_dial().channel()
    channel.queue_declare(name, arguments={"x-all-consumers-exclusive": all_exclusive})
    first, second = exclusive(pika_dial, name, 10), exclusive(pika_dial, name, 50)
    publish(channel, name, *range(40))
    first.receive(10)
    first.connection.close()  # closing cancels the consumer first
    assert [(again, n) for _, again, n in second.receive(40)] == [(n < 10, n) for n in range(40)]
    channel.queue_delete(name)


@pytest.mark.parametrize("takeover", [{}, {"x-exclusive-takeover": "drain"}])
def test_deliveries_of_a_cancelled_consumer_delay_its_successor_only_for_a_limited_time(
    start_daemon: DaemonStarter, name: str, takeover: dict[str, object]
) -> None:
    daemon = start_daemon(environment={"AMQPD_EXCLUSIVE_DRAIN_MS": "200"})
    arguments = {"x-exclusive-consumer": True}
    with amqp(daemon.address, "/") as cancelled, amqp(daemon.address, "/") as channel:
        channel.queue_declare(name, arguments=takeover)
        publish(channel, name, 0, 1)
        cancelled.basic_qos(prefetch_count=1)
        tag = cancelled.basic_consume(name, lambda *_: None, arguments=arguments)
        cancelled.connection.process_data_events(time_limit=0.1)
        following = channel.consume(name, arguments=arguments, inactivity_timeout=PATIENCE_S)
        cancelled.basic_cancel(tag)
        assert next(following)[2] == b"1"
        daemon.log.wait_for(
            rf"\[warning *\] queue '{name}' in vhost '/' serves its next exclusive consumer.*_drain_ms"
        )
