"""A single consumer for several queues, with pika."""

from collections.abc import Callable

import pika.exceptions
import pytest

from tests.interop.pika_connection import Dial
from tests.interop.pika_worker import Worker
from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Daemon

pytestmark = pytest.mark.amqpd_only("amqpd's own argument")


def test_messages_are_delivered_from_all_queues_in_turn(pika_dial: Dial, name: str, api: Api) -> None:
    channel = pika_dial().channel()
    channel.confirm_delivery()
    queues = [f"{name}.{n}" for n in range(3)]
    for queue in queues:
        channel.queue_declare(queue)
    for number in range(30):
        channel.basic_publish("", queues[number // 10], b"%d" % number)
    worker = Worker(pika_dial, queues[0], 30, also_consume=queues[1:])
    received = worker.receive(30)
    assert [number // 10 for _, _, number in received] == [0, 1, 2] * 10
    for queue in queues:
        (shown,) = api.get("queues", "/", queue)["consumer_details"]
        assert (shown["consumer_tag"], shown["active"]) == (worker.tag, True)
        assert shown["arguments"]["x-also-consume"] == [other for other in queues if other != queue]
        assert shown["messages_unacknowledged"] == 10
    worker.channel.basic_ack(received[-1][0], multiple=True)
    channel.queue_delete(queues[0])
    channel.basic_publish("", queues[2], b"30")
    assert [number for _, _, number in worker.receive(1)] == [30]
    for queue in queues[1:]:
        channel.queue_delete(queue)
    assert worker.look() == 0
    assert worker.channel.consumer_tags == [], "it was cancelled with the last one"


def test_a_user_who_may_not_read_one_of_the_queues_reads_none(
    vhost: str, user: Callable[..., Api], api: Api, daemon: Daemon
) -> None:
    for queue in ("mine", "theirs"):
        api.put("queues", vhost, queue)
    user("", read="^mine$")
    with amqp(daemon.address, vhost, f"{vhost}.0", "secret") as channel:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="queue 'theirs'") as refused:
            channel.basic_consume("mine", lambda *_: None, arguments={"x-also-consume": ["theirs"]})
        assert refused.value.reply_code == 403


def test_a_queue_whose_read_permission_is_revoked_is_left_out(
    vhost: str, user: Callable[..., Api], api: Api, daemon: Daemon
) -> None:
    for queue in ("mine", "theirs"):
        api.put("queues", vhost, queue)
    user("")
    with amqp(daemon.address, vhost, f"{vhost}.0", "secret") as channel:
        received: list[bytes] = []
        channel.basic_consume(
            "mine",
            lambda _, method, properties, body: received.append(body),
            auto_ack=True,
            arguments={"x-also-consume": ["theirs"]},
        )
        api.put("permissions", vhost, f"{vhost}.0", configure=".*", write=".*", read="^mine$", status=204)
        for queue in ("theirs", "mine"):
            channel.basic_publish("", queue, queue.encode())
        channel.connection.process_data_events(PATIENCE_S)
        assert received == [b"mine"]
        assert api.get("queues", vhost, "theirs")["consumers"] == 0
