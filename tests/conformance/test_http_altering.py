"""Queues that are altered over HTTP and with amqpctl."""

import pika
import pika.exceptions
import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Address, DaemonStarter


def patch(api: Api, vhost: str, queue: str, **fields: object) -> None:
    """Alter a queue."""
    answer = api.ask("PATCH", "queues", vhost, queue, body=fields)
    assert answer.status_code == 204, answer.text


def test_arguments_and_name_change_under_a_consumer(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q", durable=True, arguments={"x-message-ttl": 600_000})
    with amqp(address, vhost) as channel:
        got: list[bytes] = []
        channel.basic_consume("q", lambda _, __, ___, body: got.append(body), auto_ack=True)
        arguments = {"x-max-length": 3, "x-overflow": "reject-publish", "x-message-ttl": None}
        patch(api, vhost, "q", name="r/1", arguments=arguments)
        shown = api.get("queues", vhost, "r/1")
        assert shown["arguments"] == {"x-max-length": 3, "x-overflow": "reject-publish"}
        assert shown["consumers"] == 1
        channel.queue_declare("r/1", durable=True, arguments=shown["arguments"])
        channel.basic_publish("", "r/1", b"1")
        channel.basic_publish("amq.direct", "unbound", b"2")
        while not got:
            channel.connection.process_data_events(PATIENCE_S)
        assert got == [b"1"]
    api.refused(404, "GET", "queues", vhost, "q")


def test_refusals_name_what_is_wrong_and_change_nothing(api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q")
    api.put("queues", vhost, "other")
    for body, why in (
        ({"arguments": {"x-max-priority": 3}}, "arg 'x-max-priority' of queue 'q'"),
        ({"arguments": {"x-max-length": "3"}, "name": "r"}, "invalid arg 'x-max-length'"),
        ({"arguments": {"x-max-length": 3}, "name": "other"}, "cannot be called 'other'"),
        ({"name": ""}, "a queue needs a name"),
        ({"exclusive": True}, "cannot become exclusive"),
        ({"arguments": 3}, "'arguments' is not an object"),
    ):
        assert why in api.refused(400, "PATCH", "queues", vhost, "q", body=body)["reason"]
    assert api.get("queues", vhost, "q")["arguments"] == {}
    api.refused(404, "PATCH", "queues", vhost, "none", body={})


def test_altering_and_consuming_take_permissions_on_both_names(
    api: Api, vhost: str, name: str, address: Address
) -> None:
    api.put("queues", vhost, "q-1")
    api.put("users", name, password="x", tags="management")
    api.put("permissions", vhost, name, configure="^q", write="^q", read="^q")
    user = Api(api.base, name, "x")
    refusal = user.refused(401, "PATCH", "queues", vhost, "q-1", body={"name": "r"})
    assert "configure access to queue 'r'" in refusal["reason"]
    dead = {"arguments": {"x-dead-letter-exchange": "dead"}}
    refusal = user.refused(401, "PATCH", "queues", vhost, "q-1", body=dead)
    assert "write access to exchange 'dead'" in refusal["reason"]
    with amqp(address, vhost, name, "x") as channel:
        cancelled: list[str] = []
        channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
        channel.basic_consume("q-1", lambda *_: None, consumer_tag="t")
        patch(user, vhost, "q-1", name="q-2")
        assert api.get("queues", vhost, "q-2")["consumers"] == 1
        patch(api, vhost, "q-2", name="r")
        while not cancelled:
            channel.connection.process_data_events(PATIENCE_S)
        assert cancelled == ["t"]
    user.close()
    api.delete("users", name)


def test_an_exclusive_queue_becomes_everybodys(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel, amqp(address, vhost) as other:
        channel.queue_declare("q", exclusive=True)
        channel.basic_publish("", "q", b"kept")
        patch(api, vhost, "q", exclusive=False)
        assert other.queue_declare("q", passive=True).method.message_count == 1
    with amqp(address, vhost) as channel:
        assert channel.basic_get("q", auto_ack=True)[2] == b"kept"


def test_answered_changes_survive_a_crash(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    api.put("queues", "/", "old", durable=True)
    api.post("bindings", "/", "e", "amq.direct", "q", "old", status=201, body={"routing_key": "k"})
    persistent = pika.BasicProperties(delivery_mode=2)
    with amqp(daemon.address, "/") as channel:
        channel.basic_publish("amq.direct", "k", b"before", persistent)
        patch(api, "/", "old", name="new", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
        channel.basic_publish("amq.direct", "k", b"after", persistent)
    daemon.kill()
    api.close()
    daemon = start_daemon()
    with amqp(daemon.address, "/") as channel:
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("amq.direct", "k", b"too much", persistent)
        bodies = [channel.basic_get("new", auto_ack=True)[2] for _ in range(3)]
        assert bodies == [b"before", b"after", None]
    api = Api(daemon.admin)
    api.refused(404, "GET", "queues", "/", "old")
    api.close()
