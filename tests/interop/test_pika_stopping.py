"""Queues that are stopped and started over HTTP, as pika's users meet them."""

from collections.abc import Iterator

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.admin.api import Api
from tests.support.daemon.daemon import PATIENCE_S, DaemonStarter

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def queue(connection: pika.BlockingConnection, name: str) -> Iterator[str]:
    """A queue."""
    connection.channel().queue_declare(name, durable=True)
    yield name
    connection.channel().queue_delete(name)


def act(api: Api, queue: str, action: str) -> None:
    """Switch something of a queue off or on."""
    api.post("queues", "/", queue, "actions", status=204, body={"action": action})


def ready(channel: BlockingChannel, queue: str) -> int:
    """Return the number of ready messages."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_a_publish_with_confirms_is_nacked_and_with_mandatory_given_back(
    api: Api, connection: pika.BlockingConnection, queue: str
) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    act(api, queue, "stop-enqueue")
    with pytest.raises(pika.exceptions.NackError) as nacked:
        channel.basic_publish("", queue, b"1", PERSISTENT)
    assert nacked.value.messages == []
    with pytest.raises(pika.exceptions.NackError) as nacked:
        channel.basic_publish("", queue, b"2", PERSISTENT, mandatory=True)
    (returned,) = nacked.value.messages
    assert returned.body == b"2"
    assert returned.method.reply_code == 406
    assert f"queue '{queue}' in vhost '/' is stopped" in returned.method.reply_text
    assert ready(channel, queue) == 0
    act(api, queue, "start-enqueue")
    channel.basic_publish("", queue, b"3", PERSISTENT)
    assert ready(channel, queue) == 1


def test_a_publish_to_a_stopped_queue_is_returned_or_closes_the_channel(
    api: Api, connection: pika.BlockingConnection, queue: str
) -> None:
    act(api, queue, "stop-enqueue")
    channel = connection.channel()
    returned: list[tuple[int, bytes]] = []
    channel.add_on_return_callback(lambda _, method, __, body: returned.append((method.reply_code, body)))
    channel.basic_publish("", queue, b"back", mandatory=True)
    assert ready(channel, queue) == 0
    connection.process_data_events()
    assert returned == [(406, b"back")]
    channel.basic_publish("", queue, b"lost otherwise")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=f"queue '{queue}'.* is stopped") as ended:
        ready(channel, queue)
    assert ended.value.reply_code == 406


def test_a_commit_to_a_stopped_queue_closes_the_channel_with_406(
    api: Api, connection: pika.BlockingConnection, queue: str
) -> None:
    channel = connection.channel()
    channel.tx_select()
    channel.basic_publish("", queue, b"1")
    act(api, queue, "stop-enqueue")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"publish 1 of 1.* is stopped") as failed:
        channel.tx_commit()
    assert failed.value.reply_code == 406


def test_consumers_wait_and_get_is_refused(api: Api, connection: pika.BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    got: list[bytes] = []
    channel.basic_consume(queue, lambda _, __, ___, body: got.append(body), auto_ack=True)
    act(api, queue, "stop-dequeue")
    publisher = connection.channel()
    publisher.confirm_delivery()
    for number in range(3):
        publisher.basic_publish("", queue, b"%d" % number)
    assert ready(publisher, queue) == 3
    connection.process_data_events(0)
    assert got == []
    with pytest.raises(
        pika.exceptions.ChannelClosedByBroker, match=f"queue '{queue}'.* is stopped"
    ) as refused:
        connection.channel().basic_get(queue)
    assert refused.value.reply_code == 406
    assert api.get("queues", "/", queue)["consumers"] == 1
    act(api, queue, "start-dequeue")
    while len(got) < 3:
        connection.process_data_events(PATIENCE_S)
    assert got == [b"0", b"1", b"2"]


def test_a_durable_queue_is_still_stopped_after_a_crash(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    api.put("queues", "/", "q", durable=True)
    act(api, "q", "stop-enqueue")
    act(api, "q", "stop-dequeue")
    act(api, "q", "start-enqueue")
    act(api, "q", "stop-enqueue")
    definitions = api.get("definitions")
    daemon.kill()
    api.close()
    api = Api(start_daemon().admin)
    assert api.get("queues", "/", "q")["stopped"] == ["enqueue", "dequeue"]
    api.refused(400, "POST", "queues", "/", "q", "get", body={"count": 1, "ackmode": "ack_requeue_false"})
    api.delete("queues", "/", "q")
    api.post("definitions", status=204, body=definitions)
    assert api.get("queues", "/", "q")["stopped"] == ["enqueue", "dequeue"]
    api.close()


def test_a_user_without_configure_permission_may_not_stop_a_queue(api: Api, queue: str) -> None:
    refusal = api.refused(400, "POST", "queues", "/", queue, "actions", body={"action": "sync"})
    assert "unknown action: sync" in refusal["reason"]
    api.put("users", "looker", password="x", tags="management")
    api.put("permissions", "/", "looker", configure="", write=".*", read=".*")
    looker = Api(api.base, "looker", "x")
    refusal = looker.refused(401, "POST", "queues", "/", queue, "actions", body={"action": "stop-enqueue"})
    assert f"configure access to queue '{queue}'" in refusal["reason"]
    looker.close()
    api.delete("users", "looker")
