"""Dead letters without a destination wait, or are dropped with a log line. [RabbitMQ dead-letter-strategy]"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from pamqp.commands import Basic, Exchange, Queue, Tx
from pamqp.common import FieldTable

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import Header, Modified, Rejected
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.controller import Controller, within
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.amqpctl import Amqpctl
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter
from tests.support.daemon.endings import Ending, both_endings

pytestmark = [
    pytest.mark.spec("rabbitmq-extensions", "x-dead-letter-strategy"),
    pytest.mark.amqpd_only("RabbitMQ tries again after three minutes"),
]

COUNT = 3
PERSISTENT = Basic.Properties(delivery_mode=2)


def declare_narrow(channel: PeerChannel, queue: str) -> None:
    """Declare a queue with room for a single message, and fill it."""
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
    """Return the next messages of a queue, taken one by one as there is room."""
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
def test_dead_letters_wait_until_there_is_room(
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
def test_dead_letters_that_wait_for_an_exchange_wait_over_a_restart(
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
    expected_events = (
        "messages that wait to be dead-lettered: 1; the last was expired, and exchange 'later' does not exist"
    )
    daemon.log.wait_for(f"queue 'work' in vhost '/': {expected_events}")
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


# ---- operators and waiting dead letters


def listed(api: Api, queue: str, **query: str) -> list[dict[str, Any]]:
    """The messages of a queue, as the API lists them."""
    found: list[dict[str, Any]] = api.get("queues", "/", queue, "messages", **query)["messages"]
    return found


def operate(api: Api, queue: str, what: str, **fields: Any) -> dict[str, Any]:
    """Do something to messages of a queue."""
    answer = api.post("queues", "/", queue, "messages", what, status=200, body=fields)
    assert isinstance(answer, dict)
    return answer


def wait_in(channel: PeerChannel, api: Api, queue: str, dead: str) -> None:
    """Let COUNT rejected messages wait in a queue for room in another queue, which is full."""
    declare_narrow(channel, dead)
    declare_source(channel, queue, dead)
    for number in range(COUNT):
        properties = Basic.Properties(delivery_mode=2, headers={"n": number})
        channel.publish(b"%d" % number, queue, properties=properties)
    tags = [channel.take(queue).tag for _ in range(COUNT)]
    channel.nack(tags[-1], multiple=True, requeue=False)
    waits(api, queue, COUNT)


def test_waiting_dead_letters_are_listed_with_reason_and_target(
    channel: PeerChannel, api: Api, name: str
) -> None:
    dead = f"{name}.dead"
    wait_in(channel, api, name, dead)
    channel.publish(b"alive", name)
    channel.round_trip()
    shown = listed(api, name)
    assert [(each["place"], each["state"], each["payload"]) for each in shown] == [
        (0, "ready", "alive"),
        (1, "dead-letter", "0"),
        (2, "dead-letter", "1"),
        (3, "dead-letter", "2"),
    ]
    assert shown[1] == {
        "place": 1,
        "id": shown[1]["id"],
        "state": "dead-letter",
        "delivery_count": 1,
        "dead_letter": {
            "reason": "rejected",
            "exchange": "",
            "routing_key": dead,
            "waits_for": f"queue '{dead}' is full",
        },
        "payload_bytes": 1,
        "redelivered": True,
        "exchange": "",
        "routing_key": name,
        "protocol": "amqp-0-9-1",
        "properties": {"delivery_mode": 2, "headers": {"n": 0}},
        "payload": "0",
        "payload_encoding": "string",
    }
    found = api.get("queues", "/", name, "messages", shown[2]["id"])
    assert found == {key: value for key, value in shown[2].items() if key != "place"}
    only = listed(api, name, state="dead-letter", selector="n > 0")
    assert [(each["place"], each["payload"]) for each in only] == [(0, "1"), (1, "2")]
    assert [each["payload"] for each in listed(api, name, **{"from": "2"})] == ["1", "2"]
    assert [each["payload"] for each in listed(api, name, state="dead-letter", **{"from": "1"})] == ["1", "2"]
    assert [each["payload"] for each in listed(api, name, state="ready,unacknowledged")] == ["alive"]
    counted = api.get("queues", "/", name, "messages", "count", state="dead-letter")
    assert counted == {"count": COUNT, "empty": False}
    selected = api.get("queues", "/", name, "messages", "count", state="dead-letter", selector="n = 1")
    assert selected == {"count": 1, "empty": False}
    assert api.get("queues", "/", name, "messages", "count")["count"] == 1
    refusal = api.refused(400, "GET", "queues", "/", name, "messages", "count", state="waiting")
    assert refusal["reason"] == "state 'waiting' is not known here, allowed: ready, dead-letter"
    for queue in (name, dead):
        channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_a_scan_shows_every_message_that_goes_on_waiting(channel: PeerChannel, api: Api, name: str) -> None:
    dead = f"{name}.dead"
    wait_in(channel, api, name, dead)
    pages: list[str] = []
    following: str | None = "0"
    for _ in range(COUNT):
        page = api.get("queues", "/", name, "messages", count="1", **{"from": following or ""})
        pages += [each["payload"] for each in page["messages"]]
        following = page["next"]
        assert (following is None) == (len(pages) == COUNT)
        if pages == ["0"]:
            operate(api, name, "delete", ids=[page["messages"][0]["id"]])
    assert pages == ["0", "1", "2"]
    refusal = api.refused(400, "GET", "queues", "/", name, "messages", **{"from": "after:1:died x"})
    assert refusal["reason"] == "from 'after:1:died x' is neither a position nor the 'next' of a list"
    for queue in (name, dead):
        channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_waiting_dead_letters_are_deleted_moved_copied_and_edited(
    channel: PeerChannel, api: Api, name: str
) -> None:
    dead, aside = f"{name}.dead", f"{name}.aside"
    wait_in(channel, api, name, dead)
    channel.declare(aside, durable=True)
    first, second, third = (each["id"] for each in listed(api, name))
    assert operate(api, name, "delete", all=True)["done"] == 0, "none is ready"
    copied = operate(api, name, "copy", state="dead-letter", selector="n = 2", to={"queue": aside})
    assert copied == {"done": 1, "more": False}
    assert operate(api, name, "delete", ids=[first, "log-1"]) == {
        "done": 1,
        "more": False,
        "missing": ["log-1"],
    }
    assert operate(api, name, "move", state="dead-letter", all=True, limit=1, to={"queue": aside}) == {
        "done": 1,
        "more": True,
    }
    waits(api, name, 1)
    assert operate(api, name, "edit", ids=[third], payload="mended")["done"] == 1
    assert operate(api, name, "delete", ids=[second, third])["missing"] == sorted([second, third])
    assert [(each["state"], each["payload"]) for each in listed(api, name)] == [("ready", "mended")]
    assert [each["payload"] for each in listed(api, aside)] == ["2", "1"]
    body = {"ids": [first], "state": "dead-letter"}
    refusal = api.refused(400, "POST", "queues", "/", name, "messages", "delete", body=body)
    assert "'state' and 'ids' do not go together" in refusal["reason"]
    assert comes(channel, dead, 1) == [b"occupies"]
    waits(api, dead, 0)
    for queue in (name, dead, aside):
        channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


@pytest.mark.parametrize("way", ["move", "copy", "edit"])
def test_an_expired_message_does_not_expire_again_in_its_new_queue(
    channel: PeerChannel, session: PeerSession10, api: Api, name: str, way: str
) -> None:
    dead, aside = f"{name}.dead", f"{name}.aside"
    declare_narrow(channel, dead)
    declare_source(channel, name, dead)
    channel.declare(aside, durable=True)
    channel.publish(b"of 0-9-1", name, properties=Basic.Properties(delivery_mode=2, expiration="1"))
    session.sends(f"/queues/{name}")
    limited = encode_composite(Header(durable=True, ttl=1)) + bare10()
    session.peer.send(session.encode_transfer(0, limited, 0))
    session.outcome(0)
    waits(api, name, 2)
    where = {"payload": "edited"} if way == "edit" else {"to": {"queue": aside}}
    assert operate(api, name, way, state="dead-letter", all=True, **where)["done"] == 2
    time.sleep(0.1)  # for what would expire at once
    put = listed(api, name if way == "edit" else aside)
    assert [each["state"] for each in put if each["state"] == "ready"] == ["ready"] * 2
    assert not any("expiration" in each["properties"] for each in put if each["state"] == "ready")
    for queue in (name, dead, aside):
        channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_a_passive_declaration_does_not_keep_a_queue_that_is_deleted(
    channel: PeerChannel, api: Api, name: str
) -> None:
    dead = f"{name}.dead"
    declare_narrow(channel, dead)
    declare_source(channel, name, dead, dead_letter_reasons="queue_deleted")
    fill(channel, name)
    channel.call(Queue.Delete(queue=name), Queue.DeleteOk)
    waits(api, name, COUNT)
    channel.counts(name)
    assert comes(channel, dead, COUNT + 1)[0] == b"occupies"
    end = time.monotonic() + PATIENCE_S
    while any(queue["name"] == name for queue in api.get("queues", "/")):
        assert time.monotonic() < end, "it stays"
        time.sleep(0.1)
    channel.call(Queue.Delete(queue=dead), Queue.DeleteOk)


def test_a_letter_waits_for_the_full_queue_that_it_is_passed_on_to(
    channel: PeerChannel, connect: Connector, api: Api, name: str
) -> None:
    target, last = f"{name}.target", f"{name}.last"
    declare_narrow(channel, last)
    passing: FieldTable = {
        "x-max-length": 0,
        "x-overflow": "reject-publish-dlx",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": last,
    }
    channel.declare(target, durable=True, arguments=passing)
    declare_source(channel, name, target)
    channel.publish(b"letter", name, properties=PERSISTENT)
    channel.reject(channel.take(name).tag, requeue=False)
    waits(api, name, 1)
    time.sleep(2.5)  # the dead letter is tried again meanwhile
    (shown,) = listed(api, name)
    assert shown["dead_letter"]["waits_for"] == f"queue '{last}' is full"

    publisher = connect().channel()
    publisher.confirm_select()
    publisher.publish(b"later", last, properties=PERSISTENT)
    publisher.expect(Basic.Nack)
    assert channel.take(last).body == b"occupies"
    publisher.publish(b"later", last, properties=PERSISTENT)
    publisher.expect(Basic.Nack)
    assert comes(channel, last, 1) == [b"letter"]
    waits(api, name, 0)
    publisher.peer.drop()
    for queue in (name, target, last):
        channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_a_dead_letter_that_cannot_be_moved_continues_to_wait(
    channel: PeerChannel, api: Api, name: str
) -> None:
    dead, aside = f"{name}.dead", f"{name}.aside"
    wait_in(channel, api, name, dead)
    channel.declare(aside, durable=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    body = {"state": "dead-letter", "all": True, "to": {"queue": aside}}
    refusal = api.refused(400, "POST", "queues", "/", name, "messages", "move", body=body)
    assert refusal["reason"].startswith("message 3 of 3: ")
    waits(api, name, COUNT)
    assert listed(api, aside) == []
    assert comes(channel, dead, COUNT + 1) == [b"occupies", *[b"%d" % number for number in range(COUNT)]]
    waits(api, name, 0)
    for queue in (name, dead, aside):
        channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_dead_letters_that_died_again_are_redriven(channel: PeerChannel, api: Api, name: str) -> None:
    """Dead letters wait in their queue, because the next queue is full, and return to the first queue."""
    dead, last = f"{name}.dead", f"{name}.last"
    declare_narrow(channel, last)
    declare_source(channel, dead, last)
    declare_source(channel, name, dead)
    fill(channel, name)
    for queue in (name, dead):
        for _ in range(COUNT):
            channel.reject(channel.take(queue).tag, requeue=False)
    waits(api, dead, COUNT)
    assert operate(api, dead, "redrive", all=True)["done"] == 0
    assert operate(api, dead, "redrive", state="dead-letter", all=True)["done"] == COUNT
    waits(api, dead, 0)
    assert comes(channel, name, COUNT) == [b"%d" % number for number in range(COUNT)]
    for queue in (name, dead, last):
        channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_a_removed_dead_letter_does_not_wait_after_a_crash(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    daemon = start_daemon()
    api = Api(daemon.load_api().admin)
    channel = connect(daemon.address).channel()
    channel.confirm_select()
    declare_source(channel, "work", "dead", message_ttl=1)
    channel.declare("aside", durable=True)
    fill(channel, "work")
    channel.expect_confirms(COUNT)
    waits(api, "work", COUNT)
    ids = [each["id"] for each in listed(api, "work")]
    assert operate(api, "work", "delete", ids=ids[:1])["done"] == 1
    assert operate(api, "work", "move", ids=ids[1:2], to={"queue": "aside"})["done"] == 1
    api.close()
    daemon.kill()

    daemon = start_daemon()
    api = Api(daemon.load_api().admin)
    waits(api, "work", 1)
    (left,) = listed(api, "work")
    assert (left["id"], left["payload"]) == (ids[2], "2")
    assert left["dead_letter"]["reason"] == "expired"
    assert [each["payload"] for each in listed(api, "aside")] == ["1"]
    api.close()


def test_a_redrive_to_a_full_queue_loses_nothing(channel: PeerChannel, api: Api, name: str) -> None:
    """A redrive is complete or refused; the room that the queue's own letters wait for stays theirs."""
    dead = f"{name}.dead"
    channel.declare(dead, durable=True)
    declare_source(channel, name, dead, max_length=COUNT)
    fill(channel, name)
    for _ in range(COUNT):
        channel.reject(channel.take(name).tag, requeue=False)
    channel.publish(b"in the way", name, properties=PERSISTENT)
    channel.round_trip()
    body = {"all": True}
    refusal = api.refused(400, "POST", "queues", "/", dead, "messages", "redrive", body=body)
    assert refusal["reason"] == f"message {COUNT} of {COUNT}: queue '{name}' in vhost '/' is full"
    letters = [b"%d" % number for number in range(COUNT)]
    assert [each["payload"].encode() for each in listed(api, dead)] == letters
    assert [each["payload"] for each in listed(api, name)] == ["in the way"]
    assert operate(api, dead, "redrive", all=True, limit=COUNT - 1) == {"done": COUNT - 1, "more": True}
    refusal = api.refused(400, "POST", "queues", "/", dead, "messages", "redrive", body=body)
    assert comes(channel, name, COUNT) == [b"in the way", *letters[:-1]]
    assert operate(api, dead, "redrive", all=True)["done"] == 1
    assert comes(channel, name, 1) == letters[-1:]
    assert [listed(api, queue) for queue in (name, dead)] == [[], []]
    for queue in (name, dead):
        channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_amqpctl_lists_and_operates_on_what_waits(channel: PeerChannel, api: Api, name: str) -> None:
    control = Amqpctl(api.base)
    dead, aside = f"{name}.dead", f"{name}.aside"
    wait_in(channel, api, name, dead)
    channel.declare(aside, durable=True)
    document = control.json("list_messages", name, "--state", "dead-letter")
    assert [(each["state"], each["dead_letter"]["routing_key"]) for each in document] == [
        ("dead-letter", dead)
    ] * COUNT
    table = control("list_messages", name).stdout.splitlines()
    assert [("dead-letter" in line, f"queue '{dead}' is full" in line) for line in table[1:]] == [
        (True, True)
    ] * COUNT
    assert control("count_messages", name).stdout == "0\n"
    assert control("count_messages", name, "--dead-letter").stdout == f"{COUNT}\n"
    assert control("delete_messages", name, "--id", document[0]["id"]).stdout == "1\n"
    assert control("move_messages", name, "--queue", aside, "--all").stdout == "0\n"
    assert control("move_messages", name, "--queue", aside, "--all", "--dead-letter").stdout == "2\n"
    assert [each["payload"] for each in listed(api, aside)] == ["1", "2"]
    for queue in (name, dead, aside):
        channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)
