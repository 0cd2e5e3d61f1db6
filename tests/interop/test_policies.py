"""Policies for queues that pika declared without arguments: effective at once, also while in use."""

import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import Address, DaemonStarter


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    """Get all messages of a queue."""
    found: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        assert isinstance(body, bytes)
        found.append(body)


def depth(channel: BlockingChannel, queue: str) -> int:
    """Return the number of ready messages."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def wait_for_depth(channel: BlockingChannel, queue: str, count: int) -> None:
    """Wait until so many are ready: they come or go by themselves."""
    while depth(channel, queue) != count:
        channel.connection.process_data_events(0.01)


def test_max_length_dead_letters_messages_beyond_the_limit(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.queue_declare("q", durable=True)
        channel.queue_declare("dead", durable=True)
        for number in range(5):
            channel.basic_publish("", "q", b"%d" % number)
        dead = {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
        api.put("policies", vhost, "dead", pattern="^q$", definition=dead)
        api.put("policies", vhost, "short", pattern="^q$", definition={"max-length": 3})
        wait_for_depth(channel, "dead", 2)
        assert bodies(channel, "q") == [b"2", b"3", b"4"]
        assert bodies(channel, "dead") == [b"0", b"1"]
        api.delete("policies", vhost, "short")
        for number in range(5):
            channel.basic_publish("", "q", b"%d" % number)
        assert depth(channel, "q") == 5


def test_overflow_refuses_publishers_until_the_policy_goes(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        full = {"max-length": 1, "overflow": "reject-publish"}
        api.put("policies", vhost, "full", pattern="^q$", definition=full)
        channel.basic_publish("", "q", b"0")
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("", "q", b"1")
        refusal = api.refused(
            400,
            "POST",
            "exchanges",
            vhost,
            "amq.default",
            "publish",
            body={"properties": {}, "routing_key": "q", "payload": "1", "payload_encoding": "string"},
        )
        assert "full" in refusal["reason"]
        api.put("policies", vhost, "full", status=204, pattern="^q$", definition=full | {"max-length": 2})
        channel.basic_publish("", "q", b"1")
        assert bodies(channel, "q") == [b"0", b"1"]


def test_message_ttl_applies_to_messages_published_after_the_policy(
    api: Api, vhost: str, address: Address
) -> None:
    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"before")
        api.put("policies", vhost, "ttl", pattern="^q$", definition={"message-ttl": 50})
        channel.basic_publish("", "q", b"after")
        wait_for_depth(channel, "q", 1)
        assert bodies(channel, "q") == [b"before"]
        api.delete("policies", vhost, "ttl")
        channel.basic_publish("", "q", b"for ever")
        assert api.get("queues", vhost, "q", "effective") == {}


def test_expires_deletes_unused_queues(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.queue_declare("unused")
        channel.queue_declare("used")
        channel.basic_consume("used", lambda *_: None)
        api.put("policies", vhost, "expire", pattern="^(un)?used$", definition={"expires": 100})
        while {queue["name"] for queue in api.get("queues", vhost)} != {"used"}:
            channel.connection.process_data_events(0.01)


def test_an_operator_policy_caps_what_a_client_asks_for(api: Api, vhost: str, address: Address) -> None:
    api.put("operator-policies", vhost, "cap", pattern="", definition={"max-length": 2})
    with amqp(address, vhost) as channel:
        channel.queue_declare("q", arguments={"x-max-length": 1000})
        for number in range(4):
            channel.basic_publish("", "q", b"%d" % number)
        assert bodies(channel, "q") == [b"2", b"3"]
        channel.queue_declare("q", arguments={"x-max-length": 1000})  # still what the client says it is


def test_a_policy_holds_after_a_kill(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    with amqp(daemon.address, "/") as channel:
        channel.queue_declare("q", durable=True)
        persistent = pika.BasicProperties(delivery_mode=2)
        for number in range(3):
            channel.basic_publish("", "q", b"%d" % number, persistent)
        api.put("policies", "/", "p", pattern="", definition={"max-length": 2})
    daemon.kill()
    api.close()
    again = start_daemon()
    with amqp(again.address, "/") as channel:
        wait_for_depth(channel, "q", 2)
        assert bodies(channel, "q") == [b"1", b"2"]
        for number in range(3):
            channel.basic_publish("", "q", b"%d" % number)
        assert depth(channel, "q") == 2
