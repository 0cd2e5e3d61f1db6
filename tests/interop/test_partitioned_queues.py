"""Partitioned queues as users of pika and of the HTTP API see them."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Address, Daemon, DaemonStarter

MEMBERS = ["m1", "m2", "m3"]
KEYS = [f"key {number}" for number in range(8)]


def arguments(*members: object, by: str = "key", **more: object) -> dict[str, object]:
    given = {
        "x-queue-kind": "partitioned",
        "x-partition-by": by,
        "x-partition-members": list(members) or MEMBERS,
    }
    return given | {"x-" + name.replace("_", "-"): value for name, value in more.items()}


def declare(channel: BlockingChannel, **more: object) -> None:
    for member in MEMBERS:
        channel.queue_declare(member, durable=True)
    channel.queue_declare("front", durable=True, arguments=arguments(**more))  # type: ignore[arg-type]


def publish(channel: BlockingChannel, key: str, body: int) -> None:
    properties = pika.BasicProperties(headers={"key": key}, delivery_mode=2)
    channel.basic_publish("", "front", b"%d" % body, properties, mandatory=True)


class Consumer:
    """A consumer of the partitioned queue that keeps its deliveries unacknowledged."""

    def __init__(self, channel: BlockingChannel, prefetch: int = 0, queue: str = "front") -> None:
        self.channel = channel
        self.held: list[tuple[int, str, int]] = []  # delivery tag, key, body
        channel.basic_qos(prefetch)
        self.tag = channel.basic_consume(queue, self._take)

    def _take(self, _channel: object, method: object, properties: pika.BasicProperties, body: bytes) -> None:
        self.held.append((method.delivery_tag, properties.headers["key"], int(body)))  # type: ignore[attr-defined]

    def wait_for(self, count: int) -> list[int]:
        """Wait for so many deliveries; return the bodies."""
        while len(self.held) < count:
            self.channel.connection.process_data_events(PATIENCE_S)
        return [body for _, _, body in self.held]

    def acknowledge(self) -> None:
        """Acknowledge all deliveries."""
        self.channel.basic_ack(0, multiple=True)
        self.held.clear()

    def fence(self) -> None:
        """Wait until the broker has handled what the channel has sent, and what it delivers for that."""
        self.channel.basic_qos(0)
        self.channel.connection.process_data_events(0)


@pytest.fixture
def partitioned(address: Address, vhost: str) -> Iterator[BlockingChannel]:
    """A channel of a virtual host with the queue `front`."""
    with amqp(address, vhost) as channel:
        declare(channel)
        yield channel


def test_keys_are_spread_and_keep_their_order(partitioned: BlockingChannel, api: Api, vhost: str) -> None:
    for number in range(80):
        publish(partitioned, KEYS[number % 8], number)
    shown = api.get("queues", vhost, "front")
    assert (shown["messages"], shown["messages_ready"], shown["consumers"]) == (80, 80, 0)
    counts = {member["name"]: member["messages"] for member in shown["members"]}
    assert sum(counts.values()) == 80
    assert len([count for count in counts.values() if count]) > 1
    assert partitioned.queue_declare("front", passive=True).method.message_count == 80
    assert api.get("queues", vhost, "m1")["partitioned_queue"] == "front"
    consumer = Consumer(partitioned)
    consumer.wait_for(80)
    by_key: dict[str, list[int]] = defaultdict(list)
    for _, key, body in consumer.held:
        by_key[key].append(body)
    assert all(bodies == sorted(bodies) for bodies in by_key.values())
    assert api.get("queues", vhost, "front")["messages_unacknowledged"] == 80
    consumer.acknowledge()
    assert partitioned.queue_declare("front", passive=True).method.message_count == 0
    partitioned.basic_cancel(consumer.tag)
    shown = api.get("queues", vhost, "front")
    stats = shown["message_stats"]
    assert (shown["messages"], stats["publish"], stats["ack"]) == (0, 80, 80)


def test_a_consumer_counts_once(partitioned: BlockingChannel, api: Api, vhost: str) -> None:
    before = api.get("overview")
    consumer = Consumer(partitioned)
    for number in range(24):
        publish(partitioned, KEYS[number % 8], number)
    consumer.wait_for(24)
    after = api.get("overview")
    assert after["object_totals"]["consumers"] - before["object_totals"]["consumers"] == 1
    (shown,) = api.get("consumers", vhost)
    assert (shown["queue"]["name"], shown["messages_unacknowledged"]) == ("front", 24)
    assert len(consumers_of(api, vhost, "m1")) == 1


def test_get_purge_and_deletion(partitioned: BlockingChannel, api: Api, vhost: str) -> None:
    for number in range(20):
        publish(partitioned, KEYS[number % 8], number)
    got = [int(partitioned.basic_get("front", auto_ack=True)[2]) for _ in range(5)]
    assert len(set(got)) == 5
    assert partitioned.queue_purge("front").method.message_count == 15
    assert partitioned.basic_get("front") == (None, None, None)
    publish(partitioned, "k", 1)
    assert partitioned.queue_delete("front").method.message_count == 0
    assert sum(api.get("queues", vhost, member)["messages"] for member in MEMBERS) == 1
    partitioned.queue_delete("m1")


def test_a_waiting_get_takes_from_any_member(address: Address, vhost: str) -> None:
    with amqp(address, vhost) as channel, amqp(address, vhost) as publisher:
        declare(channel, get_wait=60_000)
        got: list[bytes] = []
        implementation = channel._impl
        implementation.basic_get("front", lambda *delivery: got.append(delivery[3]), auto_ack=True)
        publish(publisher, "k", 7)
        while not got:
            channel.connection.process_data_events(0.1)
        assert got == [b"7"]


def test_refusals(partitioned: BlockingChannel, address: Address, vhost: str) -> None:
    for given, why in (
        (arguments("none"), "PRECONDITION_FAILED.*queue 'none' cannot be a member of queue 'p'"),
        (arguments("amqps://b"), "the partitioned queue is not durable"),
        (arguments("m1", partitions=2), "x-partitions"),
        (arguments("m1"), "is a member of queue 'front' already"),
    ):
        with amqp(address, vhost) as channel:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=why) as refused:
                channel.queue_declare("p", arguments=given)
            assert refused.value.reply_code == 406
    with amqp(address, vhost) as channel:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.queue_delete("m1")
        assert refused.value.reply_code == 406
    with amqp(address, vhost) as channel:
        names = "name one of its members: m1, m2"
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=names):
            channel.basic_consume("front", lambda *_: None, arguments={"x-get-position": 1})


def test_members_are_shared_out_and_handed_over(address: Address, vhost: str, api: Api) -> None:
    with amqp(address, vhost) as one, amqp(address, vhost) as other, amqp(address, vhost) as publisher:
        declare(publisher, single_active_consumer=True)
        first = Consumer(one)
        for number in range(24):
            publish(publisher, KEYS[number % 8], number)
        first.wait_for(24)
        second = Consumer(other)
        active = [each["active"] for member in MEMBERS for each in consumers_of(api, vhost, member)]
        assert active.count(True) == 2, "a member waits until its deliveries are settled"
        for number in range(24, 48):
            publish(publisher, KEYS[number % 8], number)
        second.fence()
        assert second.held == []
        first.channel.basic_ack(24, multiple=True)
        wait_for_all(48, first, second)
        keys = [{key for _, key, body in consumer.held if body >= 24} for consumer in (first, second)]
        assert keys[0] & keys[1] == set()
        assert keys[0] | keys[1] == set(KEYS)
        again = [body for _, _, body in first.held if body >= 24]
        one.connection.close()
        for number in range(48, 56):
            publish(publisher, KEYS[number % 8], number)
        second.wait_for(24 + 8)
        assert {body for _, _, body in second.held} == {*range(24, 56)}
        for key in KEYS:
            of_key = [body for _, each, body in second.held if each == key]
            assert of_key == sorted(of_key), (key, again)


def wait_for_all(count: int, *consumers: Consumer) -> None:
    """Wait for so many deliveries of all consumers together."""
    while sum(len(consumer.held) for consumer in consumers) < count:
        for consumer in consumers:
            consumer.channel.connection.process_data_events(0.05)


def consumers_of(api: Api, vhost: str, queue: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = api.get("queues", vhost, queue)["consumer_details"]
    return found


def test_the_mapping_changes_in_use(
    partitioned: BlockingChannel, api: Api, vhost: str, address: Address
) -> None:
    with amqp(address, vhost) as channel:
        consumer = Consumer(channel)
        publish(partitioned, "k", 0)
        consumer.wait_for(1)
        shown = api.get("partitioned", vhost, "front")
        old = next(each["name"] for each in shown["members"] if each["messages"])
        new = next(member for member in MEMBERS if member != old)
        members = [new, {"to": old, "weight": 2}]
        api.put("partitioned", vhost, "front", status=204, members=members, pins={"k": new})
        publish(partitioned, "k", 1)
        shown = api.get("partitioned", vhost, "front")
        assert (shown["messages_moving"], shown["keys_moving"], shown["by"]) == (1, 1, "key")
        mapped = [each for each in shown["members"] if not each["leaving"]]
        facts = {each["name"]: (each["weight"], each["pins"]) for each in mapped}
        assert facts == {new: (1, ["k"]), old: (2, [])}
        consumer.fence()
        assert len(consumer.held) == 1
        consumer.channel.basic_ack(0, multiple=True)
        assert consumer.wait_for(2) == [0, 1]
    assert api.get("partitioned", vhost) == [api.get("partitioned", vhost, "front")]
    for body, status, why in (
        ({}, 400, "members"),
        ({"members": ["none"]}, 400, "queue 'none' cannot be a member"),
        ({"members": [new], "pins": {"k": old}}, 400, "which is no member"),
        ({"members": "m1"}, 400, "is not a list of 1 to 256"),
    ):
        assert why in api.refused(status, "PUT", "partitioned", vhost, "front", body=body)["reason"]
    api.refused(404, "PUT", "partitioned", vhost, "m1", body={"members": ["m2"]})
    api.refused(404, "GET", "partitioned", vhost, "none")


def test_the_members_need_permissions_only_for_whoever_maps(
    partitioned: BlockingChannel, api: Api, vhost: str, name: str, address: Address
) -> None:
    api.put("users", name, password="x", tags="management")
    api.put("permissions", vhost, name, configure="^f", write="^(f|amq.default)", read="^f")
    user = Api(api.base, name, "x")
    refusal = user.refused(401, "PUT", "queues", vhost, "f2", body={"arguments": arguments("m1")})
    assert "read access to queue 'm1'" in refusal["reason"]
    partitioned.queue_declare("m4", durable=True)
    refusal = user.refused(401, "PUT", "partitioned", vhost, "front", body={"members": ["m1", "m4"]})
    assert "read access to queue 'm4'" in refusal["reason"]
    user.put("partitioned", vhost, "front", status=204, members=["m1", "m2"])
    with amqp(address, vhost, name, "x") as channel:
        consumer = Consumer(channel)
        publish(channel, "k", 1)
        assert consumer.wait_for(1) == [1]
        api.put("permissions", vhost, name, configure="", write="", read="^f", status=204)
        publish(partitioned, "k", 2)
        assert consumer.wait_for(2) == [1, 2], "the right to read the partitioned queue is enough"
    user.close()


def test_definitions_have_the_mapping(partitioned: BlockingChannel, api: Api, vhost: str) -> None:
    api.put("partitioned", vhost, "front", status=204, members=["m2", "m1"], pins={"k": "m1"})
    document = api.get("definitions", vhost)
    document["queues"].sort(key=lambda queue: queue["name"])  # the partitioned queue comes first
    for queue in ("front", *MEMBERS):
        api.delete("queues", vhost, queue)
    api.post("definitions", vhost, status=204, body=document)
    shown = api.get("partitioned", vhost, "front")
    assert [(each["name"], each["pins"]) for each in shown["members"]] == [("m2", []), ("m1", ["k"])]


@pytest.mark.amqpd_only("RabbitMQ has no partitioned queues")
def test_an_unfinished_move_survives_a_kill(start_daemon: DaemonStarter) -> None:
    daemon: Daemon = start_daemon()
    with amqp(daemon.address, "/") as channel:
        declare(channel)
        for number in range(50):
            publish(channel, KEYS[number % 8], number)
        api = Api(daemon.admin)
        api.put("partitioned", "/", "front", status=204, members=["m2"])
        for number in range(50, 100):
            publish(channel, KEYS[number % 8], number)
        moving = api.get("partitioned", "/", "front")["messages_moving"]
        assert moving > 0
        api.close()
    daemon.kill()
    daemon = start_daemon()
    api = Api(daemon.admin)
    shown = api.get("partitioned", "/", "front")
    assert shown["messages_moving"] == moving
    assert {each["name"] for each in shown["members"] if each["leaving"]} <= {"m1", "m3"}
    api.close()
    with amqp(daemon.address, "/") as channel:
        channel.queue_declare("front", durable=True, arguments=arguments())
        consumer = Consumer(channel)
        seen: dict[str, list[int]] = defaultdict(list)
        count = 0
        while count < 100:
            consumer.wait_for(1)
            for _, key, body in consumer.held:
                seen[key].append(body)
            count += len(consumer.held)
            consumer.acknowledge()
        assert all(bodies == sorted(bodies) for bodies in seen.values())
        assert sorted(body for bodies in seen.values() for body in bodies) == list(range(100))


ODD_KEYS: list[object] = [
    None,
    True,
    False,
    0,
    -1,
    2**62,
    -(2**63),
    "",
    "\x00",
    "x" * 10000,
    b"\xff\xfe",
    "1",
    b"1",
    [],
    {},
    [1, [2, ["a"]]],
    {"a": {"b": [1, None]}},
    Decimal("1.25"),
    datetime(2020, 1, 1, tzinfo=UTC),
]


def test_odd_keys_have_one_member_each(partitioned: BlockingChannel, address: Address, vhost: str) -> None:
    partitioned.confirm_delivery()
    for number, key in enumerate(ODD_KEYS * 2):
        properties = pika.BasicProperties(headers={"key": key}, delivery_mode=2)
        partitioned.basic_publish("", "front", b"%d" % number, properties, mandatory=True)
    places: dict[int, set[str]] = defaultdict(set)
    for member in MEMBERS:
        while (got := partitioned.basic_get(member, auto_ack=True))[0] is not None:
            places[int(got[2] or b"") % len(ODD_KEYS)].add(member)
    assert len(places) == len(ODD_KEYS)
    assert all(len(members) == 1 for members in places.values())


ODD_MAPPINGS: list[tuple[dict[str, object], str]] = [
    ({}, "'members' is missing"),
    ({"members": None}, "is not a list of 1 to 256 names or tables"),
    ({"members": [None]}, "is not a list of 1 to 256 names or tables"),
    ({"members": [["m1"]]}, "is not a list of 1 to 256 names or tables"),
    ({"members": [f"m{number}" for number in range(300)]}, "is not a list of 1 to 256 names or tables"),
    ({"members": [{"to": 5}]}, "has no name of a queue as 'to'"),
    ({"members": [{"to": "m1", "weight": True}]}, "has 'true' as 'weight'"),
    ({"members": [{"to": "m1", "weight": 2**70}]}, "does not fit into 64 bits"),
    ({"members": [{"to": "m1", "": 1}]}, "has a name of not 1 to 255 bytes"),
    ({"members": ["m1\x00"]}, "it does not exist"),
    ({"members": ["front"]}, "it is the partitioned queue itself"),
    ({"members": ["amqp://[::1"]}, "its host or its port is malformed"),
    ({"members": ["m1"], "pins": 5}, "'pins' is not an object"),
    ({"members": ["m1"], "pins": {"a": "m2"}}, "pins 'a' to 'm2', which is no member"),
    ({"members": ["m1"], "pins": {"x" * 300: "m1"}}, "has a name of not 1 to 255 bytes"),
    ({"members": ["m1"], "pin": {"a": "m1"}}, "unknown field 'pin', known: members, pins, name, vhost"),
]


def test_an_odd_mapping_is_refused_and_changes_nothing(
    partitioned: BlockingChannel, api: Api, vhost: str
) -> None:
    before = api.get("partitioned", vhost, "front")
    for body, why in ODD_MAPPINGS:
        answer = api.ask("PUT", "partitioned", vhost, "front", body=body)
        assert (answer.status_code, why in answer.text) == (400, True), answer.text
    assert api.get("partitioned", vhost, "front") == before
