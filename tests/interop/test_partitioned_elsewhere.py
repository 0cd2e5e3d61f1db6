"""Partitioned queues with a member in another broker process: restarts, cut links, and changes under load."""

import random
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.interop.test_partitioned_load import Checker, Consumer, Publisher
from tests.interop.test_remote_queues import SECRET, Sites
from tests.support.admin.api import Api
from tests.support.daemon.daemon import PATIENCE_S, DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ has no partitioned queues")

MEMBERS = ["m0", "m1"]


class Front:
    """The partitioned queue `front` with members in `near` and the queue `far` of the other broker."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        with sites.there() as channel:
            channel.queue_declare("far", durable=True, arguments={"x-dedup-producers": 10})
        with sites.here() as channel:
            for name in MEMBERS:
                channel.queue_declare(name, durable=True)
            self.declare(channel, [*MEMBERS, sites.uri])

    def declare(self, channel: BlockingChannel, members: list[Any]) -> None:
        arguments: Any = {
            "x-queue-kind": "partitioned",
            "x-partition-by": "key",
            "x-partition-members": members,
        }
        channel.queue_declare("front", durable=True, arguments=arguments)

    @property
    def backing(self) -> str:
        """The remote queue here for the queue there."""
        return f"front@127.0.0.1:{self.sites.wire.port}/%2F/far"

    def change(self, *members: Any, **pins: str) -> None:
        self.sites.api.put("partitioned", "/", "front", status=204, members=list(members), pins=pins)

    def shown(self) -> Any:
        return self.sites.api.get("partitioned", "/", "front")

    def member(self, name: str) -> Any:
        (found,) = [each for each in self.shown()["members"] if each["name"] == name]
        return found

    def await_state(self, state: str) -> None:
        while self.member(self.backing)["remote"]["state"] != state:
            pass


@pytest.fixture
def front(start_daemon: DaemonStarter, tmp_path: Path) -> Any:
    sites = Sites(start_daemon, tmp_path)
    yield Front(sites)
    sites.api.close()
    sites.wire.end()


def publish(channel: BlockingChannel, key: str, *numbers: int) -> None:
    for number in numbers:
        properties = pika.BasicProperties(headers={"key": key}, delivery_mode=2)
        channel.basic_publish("", "front", b"%d" % number, properties)


def take(channel: BlockingChannel, count: int) -> list[tuple[int, bytes]]:
    """Take messages of the partitioned queue without an acknowledgement."""
    found: list[tuple[int, bytes]] = []
    for method, _, body in channel.consume("front", inactivity_timeout=PATIENCE_S):
        assert method is not None, found
        found.append((method.delivery_tag, body))
        if len(found) == count:
            break
    return found


@pytest.mark.nightly
def test_a_move_from_the_other_broker_survives_kills_of_both(
    front: Front, start_daemon: DaemonStarter, tmp_path: Path
) -> None:
    """Messages there, and messages here that wait for them, are delivered in order after both crashes."""
    sites = front.sites
    front.change({"to": sites.uri})
    with sites.here() as channel:
        channel.confirm_delivery()
        publish(channel, "k", *range(20))
        publish(channel, "other", 100)
    front.change("m0")
    with sites.here() as channel:
        channel.confirm_delivery()
        publish(channel, "k", *range(20, 40))
    assert front.shown()["messages_moving"] == 20
    port = sites.near.address.port
    sites.near.kill()
    sites.far.kill()
    sites.near = start_daemon(data_dir=tmp_path / "near", port=port)
    sites.api.close()
    sites.api = Api(sites.near.load_api().admin)
    assert front.shown()["messages_moving"] == 20, "the other broker is away, and has earlier messages"
    assert SECRET not in str(front.shown())
    sites.restart_far()
    front.await_state("running")
    with sites.here() as channel:
        channel.basic_qos(prefetch_count=100)
        before = take(channel, 21)
        assert [body for _, body in before] == [b"%d" % number for number in range(20)] + [b"100"]
        channel.basic_ack(before[-1][0], multiple=True)
        channel.connection.process_data_events(0)
        after = take(channel, 20)
        assert [body for _, body in after] == [b"%d" % number for number in range(20, 40)]
        channel.basic_ack(after[-1][0], multiple=True)
    while sites.api.ask("GET", "queues", "/", front.backing).status_code == 200:
        pass
    assert [each["name"] for each in front.shown()["members"]] == ["m0"]


def test_definitions_carry_the_member_and_the_api_shows_no_log_in(
    front: Front, start_daemon: DaemonStarter, tmp_path: Path
) -> None:
    sites = front.sites
    uri = f"amqp://guest:{SECRET}@127.0.0.1:{sites.wire.port}/%2F/secret"
    front.change("m0", uri, k=uri)
    shown = sites.api.get("queues", "/"), front.shown(), sites.api.get("partitioned")
    assert SECRET not in str(shown)
    whole = sites.api.get("definitions")
    assert SECRET in str(whole), "an import must be able to log in"
    names = [queue["name"] for queue in whole["queues"]]
    assert sorted(names) == ["front", "m0", "m1"]
    other = start_daemon(data_dir=tmp_path / "other")
    api = Api(other.load_api().admin)
    api.post("definitions", status=204, body=whole)
    api.post("definitions", status=204, body=whole)
    members = api.get("partitioned", "/", "front")["members"]
    assert [each["name"] for each in members] == ["m0", f"front@127.0.0.1:{sites.wire.port}/%2F/secret"]
    assert members[1]["pins"] == ["k"]
    api.close()


def test_what_cannot_be_a_member_is_refused(front: Front) -> None:
    sites = front.sites
    absent = sites.uri.replace("/far", "/absent")
    front.change("m0", absent)
    while "404 NOT_FOUND" not in str(front.shown()):
        pass
    refused = sites.api.ask("PUT", "partitioned", "/", "front", body={"members": ["m0", absent]})
    assert (refused.status_code, "there is no queue 'absent'" in refused.text) == (400, True)
    own = f"amqp://guest:guest@127.0.0.1:{sites.near.address.port}/%2F/front"
    front.change("m0", own)
    while "it is the partitioned queue itself" not in str(front.shown()):
        pass
    sites.api.put("users", "ann", password="ann", tags="management")
    sites.api.put("permissions", "/", "ann", configure=".*", write=".*", read=".*")
    credentials = pika.PlainCredentials("ann", "ann")
    address = sites.near.address
    parameters = pika.ConnectionParameters(address.host, address.port, credentials=credentials)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        arguments: Any = {
            "x-queue-kind": "partitioned",
            "x-partition-by": "k",
            "x-partition-members": [sites.uri],
        }
        with pytest.raises(ChannelClosedByBroker, match="policymaker"):
            channel.queue_declare("mine", durable=True, arguments=arguments)


@pytest.mark.parametrize("changes", [6, pytest.param(60, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("how", ["shared", "single active"])
def test_changes_between_brokers_keep_the_order_of_each_key(front: Front, how: str, changes: int) -> None:
    sites = front.sites
    chance = random.Random(changes)
    if how == "single active":
        with sites.here() as channel:
            channel.queue_delete("front")
            alone: Any = {"x-single-active-consumer": True, "x-queue-kind": "partitioned"}
            given: Any = {"x-partition-by": "key", "x-partition-members": [*MEMBERS, sites.uri]}
            channel.queue_declare("front", durable=True, arguments=alone | given)
    front.await_state("running")
    checker = Checker()
    address = sites.near.address
    consumers = [Consumer(address, checker, [1, 2, 4], {})]
    if how == "single active":
        consumers = [Consumer(address, checker, [prefetch], {}) for prefetch in (1, 10)]
    publishers = [Publisher(address, checker, number) for number in range(2)]
    for client in [*consumers, *publishers]:
        client.start()
        assert client.ready.wait(PATIENCE_S)
    moving = 0
    for number in range(changes):
        before = checker.processed
        checker.wait_until(lambda before=before: checker.processed > before + 30)  # type: ignore[misc]
        names = chance.sample([*MEMBERS, sites.uri], chance.randrange(1, 4))
        front.change(*[{"to": name, "weight": chance.randrange(1, 5)} for name in names])
        moving += front.shown()["messages_moving"]
        if number % 5 == 4:
            sites.wire.cut()
    for publisher in publishers:
        publisher.end()
    checker.wait_until(lambda: checker.processed == checker.published)
    for consumer in consumers:
        consumer.end()
    assert checker.wrong == []
    front.change("m0")
    while sites.api.ask("GET", "queues", "/", front.backing).status_code == 200:
        pass
    shown = sites.api.get("queues", "/", "front")
    assert (shown["messages"], shown["messages_moving"], shown["keys_moving"]) == (0, 0, 0)
    assert shown["message_stats"]["publish"] == checker.published
