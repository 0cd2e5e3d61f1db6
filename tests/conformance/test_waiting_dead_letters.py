"""Dead letters that cannot arrive: they wait, or are dropped and told of. [RabbitMQ dead-letter-strategy]"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from pamqp.commands import Basic, Exchange, Queue, Tx
from pamqp.common import FieldTable

from protocol.amqp10.composites import Modified, Rejected
from tests.api import Api
from tests.controller10 import Controller, within
from tests.daemon import PATIENCE_S, Daemon, DaemonStarter
from tests.endings import Ending, both_endings
from tests.peer import Connector
from tests.peer_channel import PeerChannel
from tests.peer_session10 import PeerSession10

pytestmark = [
    pytest.mark.spec("rabbitmq-extensions", "x-dead-letter-strategy"),
    pytest.mark.amqpd_only("RabbitMQ tries again after three minutes"),
]

COUNT = 3
PERSISTENT = Basic.Properties(delivery_mode=2)


def declare_narrow(channel: PeerChannel, queue: str) -> None:
    """A queue with room for one message, which it has."""
    arguments: FieldTable = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.declare(queue, durable=True, arguments=arguments)
    channel.publish(b"occupies", queue, properties=PERSISTENT)


def declare_source(channel: PeerChannel, queue: str, to: str, **arguments: object) -> None:
    """A quorum queue that refuses publishers when it is full, whose dead letters go to the queue `to`."""
    held: FieldTable = {
        "x-queue-type": "quorum",
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": to,
    }
    for name, value in arguments.items():
        held[f"x-{name.replace('_', '-')}"] = value  # type: ignore[assignment]
    channel.declare(queue, durable=True, arguments=held)


def fill(channel: PeerChannel, queue: str) -> None:
    """Publish COUNT persistent messages."""
    for number in range(COUNT):
        channel.publish(b"%d" % number, queue, properties=PERSISTENT)


def waits(api: Api, queue: str, count: int) -> dict[str, Any]:
    """The queue as the API shows it, once that many of its messages wait."""
    end = time.monotonic() + PATIENCE_S
    while True:
        shown: dict[str, Any] = api.get("queues", "/", queue)
        if shown["messages_dlx"] == count and shown["messages"] == count:
            return shown
        assert time.monotonic() < end, shown
        time.sleep(0.01)


def comes(channel: PeerChannel, queue: str, count: int) -> list[bytes]:
    """The next messages of a queue, one after the other as there is room."""
    channel.qos(1)
    channel.consume(queue, "arrivals")
    found = []
    for _ in range(count):
        message = channel.delivery()
        found.append(message.body)
        channel.ack(message.tag)
    channel.cancel("arrivals")
    return found


# ---- ways of dying


def reject(channel: PeerChannel, queue: str, session: PeerSession10) -> None:
    for _ in range(COUNT):
        channel.reject(channel.take(queue).tag, requeue=False)


def nack_all(channel: PeerChannel, queue: str, session: PeerSession10) -> None:
    tags = [channel.take(queue).tag for _ in range(COUNT)]
    channel.nack(tags[-1], multiple=True, requeue=False)


def return_too_often(channel: PeerChannel, queue: str, session: PeerSession10) -> None:
    tags = [channel.take(queue).tag for _ in range(COUNT)]
    channel.nack(tags[-1], multiple=True, requeue=True)


def settle_too_late(channel: PeerChannel, queue: str, session: PeerSession10) -> None:
    channel.consume(queue, "slow", arguments={"x-consumer-timeout": 100})
    channel.deliveries(COUNT)
    end = time.monotonic() + PATIENCE_S
    while channel.counts(queue) != (0, 1) and time.monotonic() < end:
        time.sleep(0.01)


def reject_in_transaction(channel: PeerChannel, queue: str, session: PeerSession10) -> None:
    channel = channel.peer.channel(2)
    channel.call(Tx.Select(), Tx.SelectOk)
    for _ in range(COUNT):
        channel.reject(channel.take(queue).tag, requeue=False)
    channel.call(Tx.Commit(), Tx.CommitOk)


def refuse10(channel: PeerChannel, queue: str, session: PeerSession10) -> None:
    session.receives(f"/queues/{queue}", 1, COUNT)
    for _ in range(COUNT):
        session.settle(session.delivery(1).id, state=Rejected())


def fail10(channel: PeerChannel, queue: str, session: PeerSession10) -> None:
    session.receives(f"/queues/{queue}", 1, COUNT)
    for _ in range(COUNT):
        session.settle(session.delivery(1).id, state=Modified(delivery_failed=True))


def refuse_in_transaction10(channel: PeerChannel, queue: str, session: PeerSession10) -> None:
    controller = Controller(session)
    session.receives(f"/queues/{queue}", 1, COUNT)
    deliveries = [session.delivery(1) for _ in range(COUNT)]
    txn_id = controller.declare()
    for delivery in deliveries:
        session.settle(delivery.id, state=within(txn_id, Rejected()))
    controller.commit(txn_id)


WAYS: dict[str, Callable[[PeerChannel, str, PeerSession10], None]] = {
    "reject": reject,
    "nack": nack_all,
    "delivery limit": return_too_often,
    "consumer time-out": settle_too_late,
    "tx": reject_in_transaction,
    "rejected": refuse10,
    "modified": fail10,
    "transactional rejected": refuse_in_transaction10,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_dies_waits_until_there_is_room(
    way: str, channel: PeerChannel, session: PeerSession10, api: Api, name: str
) -> None:
    dead = f"{name}.dead"
    declare_narrow(channel, dead)
    declare_source(channel, name, dead, delivery_limit=0)
    fill(channel, name)
    WAYS[way](channel, name, session)
    shown = waits(api, name, COUNT)
    assert (shown["messages_ready"], shown["messages_unacknowledged"]) == (0, 0)
    assert shown["message_bytes_dlx"] == shown["message_bytes"] == COUNT
    assert shown["dead_letter_strategy"] == "at-least-once"
    assert comes(channel, dead, COUNT + 1) == [b"occupies", *[b"%d" % number for number in range(COUNT)]]
    waits(api, name, 0)
    for queue in (name, dead):
        channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


@both_endings
def test_what_waits_for_its_exchange_waits_over_a_restart(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    declare_source(channel, "work", "dead", dead_letter_exchange="later", message_ttl=1)
    channel.confirm_select()
    fill(channel, "work")
    channel.expect_confirms(COUNT)
    api = Api(daemon.load_api().admin)
    waits(api, "work", COUNT)
    channel.declare("other", durable=True)
    channel.publish(b"synced later than that", "other", properties=PERSISTENT)
    channel.expect_confirms(COUNT + 1, COUNT + 1)
    api.close()
    told = (
        "messages that wait to be dead-lettered: 1; the last was expired, and exchange 'later' does not exist"
    )
    daemon.log.wait_for(f"queue 'work' in vhost '/': {told}")
    end(daemon, channel.peer)

    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    api = Api(daemon.load_api().admin)
    waits(api, "work", COUNT)
    channel.call(Exchange.Declare(exchange="later", exchange_type="fanout"), Exchange.DeclareOk)
    channel.declare("dead", durable=True)
    channel.call(Queue.Bind(queue="dead", exchange="later", routing_key=""), Queue.BindOk)
    assert comes(channel, "dead", COUNT) == [b"%d" % number for number in range(COUNT)]
    waits(api, "work", 0)
    api.close()


def test_a_queue_full_of_what_waits_refuses_publishers(channel: PeerChannel, api: Api, name: str) -> None:
    dead = f"{name}.dead"
    declare_source(channel, name, dead, max_length=COUNT)
    fill(channel, name)
    reject_all = [channel.take(name).tag for _ in range(COUNT)]
    channel.nack(reject_all[-1], multiple=True, requeue=False)
    waits(api, name, COUNT)
    channel.confirm_select()
    channel.publish(b"one too many", name, properties=PERSISTENT)
    assert channel.expect(Basic.Nack).delivery_tag == 1
    channel.declare(dead, durable=True)
    assert comes(channel, dead, COUNT) == [b"%d" % number for number in range(COUNT)]
    channel.publish(b"room", name, properties=PERSISTENT)
    channel.expect_confirms(2, 2)
    for queue in (name, dead):
        channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_a_policy_makes_at_least_once_the_default(channel: PeerChannel, api: Api, vhost: str) -> None:
    definition = {"dead-letter-strategy": "at-least-once", "dead-letter-exchange": "none"}
    api.put("queues", vhost, "q")
    api.put("policies", vhost, "sure", pattern="", definition=definition | {"overflow": "reject-publish"})
    assert api.get("queues", vhost, "q")["dead_letter_strategy"] == "at-least-once"
    api.put("policies", vhost, "sure", status=204, pattern="", definition=definition)
    shown = api.get("queues", vhost, "q")
    assert shown["dead_letter_strategy"] == "at-most-once"
    (warning,) = shown["warnings"]
    assert "'at-least-once' has no effect with x-overflow 'drop-head'" in warning


def test_drop_head_is_at_most_once_which_is_warned_of_counted_and_logged(
    channel: PeerChannel, daemon: Daemon, name: str
) -> None:
    sample = 'amqpd_dead_letters_dropped_total{cause="no_exchange",reason="rejected"}'
    before = daemon.metric(sample)
    declare_source(channel, name, "", overflow="drop-head", dead_letter_strategy="at-least-once")
    channel.call(Queue.Delete(queue=name), Queue.DeleteOk)
    daemon.log.wait_for(f"queue '{name}' in vhost '/': x-dead-letter-strategy 'at-least-once' has no effect")
    arguments: FieldTable = {"x-dead-letter-exchange": "none"}
    channel.declare(name, exclusive=True, arguments=arguments)
    fill(channel, name)
    for _ in range(COUNT):
        channel.reject(channel.take(name).tag, requeue=False)
    channel.round_trip()
    assert daemon.metric(sample) == before + COUNT
    line = f"queue '{name}' in vhost '/': dead letters dropped: 1; the last was rejected"
    daemon.log.wait_for(line)
    assert daemon.log.text().count(f"queue '{name}' in vhost '/': dead letters dropped") == 1, "once a minute"
