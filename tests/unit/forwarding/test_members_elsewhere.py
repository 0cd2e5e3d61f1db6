"""Partitioned queues with members in another broker, between two brokers in memory."""

import json
from random import Random
from typing import Any

import pytest
from pamqp.commands import Basic, Confirm, Queue

from broker.adapters.peers.server import IDENTITY
from broker.admin.shapes import show_mapping
from broker.core.errors import AccessRefused, PreconditionFailed
from broker.core.partitions.partitioned import LOOK_MS, Partitioned, partitions_of, totals_of
from broker.core.queues.queue import Queue as CoreQueue
from broker.core.remotes.consumption import GRACE_MS
from broker.core.remotes.remote import remote_of
from broker.core.vhosts.alteration import alter_queue
from broker.core.vhosts.members import change_mapping
from broker.forwarding.remote_queues import RUNNING, WAITING, link_of
from protocol.amqp091.content import body
from tests.support.adapters.connection_without_socket import Client091
from tests.support.amqp091.frames import publish_bytes
from tests.support.forwarding import Sites

SECRET = "s3cret"
FAR = "amqp://guest:guest@other/%2F/far"
SHOWN = "amqp://other/%2F/far"
BACKING = "front@other:5672/%2F/far"


class Keys:
    """The partitioned queue `front` with the members `near` here and `far` there, and its clients."""

    def __init__(self, *members: object, **arguments: object) -> None:
        self.sites = Sites()
        self.sites.queue("far", "other", dedup_producers=10)
        self.sites.queue("near")
        given = list(members) or ["near", FAR]
        kind: Any = {"queue_kind": "partitioned", "partition_by": "key", "partition_members": given}
        self.sites.queue("front", **(kind | arguments))
        self.sites.run()
        self.publisher = self.sites.here.open()
        self.publisher.send(Confirm.Select(), 1)
        self.publisher.frames()
        self.count = 0
        self.consumed: list[tuple[str, int]] = []

    @property
    def front(self) -> CoreQueue:
        return self.queue("front")

    @property
    def partitions(self) -> Partitioned:
        found = partitions_of(self.front)
        assert found is not None
        return found

    def queue(self, name: str) -> CoreQueue:
        return self.sites.vhost().topology.queues[name]

    def key_for(self, name: str, number: int = 0) -> str:
        """A key of the member with this name."""
        slots = self.partitions.mapping
        found = []
        for count in range(1000):
            place = slots._find_key(f"k{count}")
            if place.member >= 0 and slots.members[place.member].name == name:
                found.append(f"k{count}")
        return found[number]

    def publish(self, key: str, count: int = 1) -> None:
        """Publish messages with the next numbers."""
        for _ in range(count):
            self.count += 1
            properties = Basic.Properties(headers={"key": key}, delivery_mode=2)
            data = publish_bytes("front", b"%d" % self.count, properties=properties)
            self.publisher.connection.receive(data)
        self.sites.run()

    def change(self, *members: object, **pins: str) -> None:
        change_mapping(self.sites.vhost().topology, self.front, list(members), dict(pins))
        self.sites.run()

    def consume(self, prefetch: int = 10, **arguments: Any) -> Client091:
        client = self.sites.here.open()
        client.send(Basic.Qos(0, prefetch, False), 1)
        client.send(Basic.Consume(0, "front", "c", arguments=arguments), 1)
        self.sites.run()
        return client

    def there(self) -> list[bytes]:
        """The bodies in the queue of the other broker."""
        return self.sites.bodies("far", "other")


def taken(client: Client091) -> list[tuple[int, bytes]]:
    return [
        (int(frame.delivery_tag or 0), body(content))
        for frame, content in client.contents()
        if isinstance(frame, Basic.Deliver)
    ]


def acknowledge(keys: Keys, client: Client091, *tags: int) -> None:
    for tag in tags:
        client.send(Basic.Ack(tag), 1)
    keys.sites.run()


def cut(keys: Keys) -> None:
    """End the connections of the other broker."""
    for connection in list(keys.sites.there.server.connections.all):
        connection.force_close("maintenance")
    keys.sites.run()


def go_down(keys: Keys) -> None:
    keys.sites.down["other"] = "connection refused"
    cut(keys)


def come_up(keys: Keys) -> None:
    keys.sites.down.clear()
    keys.sites.run(20_000)


@pytest.fixture
def keys() -> Keys:
    return Keys()


def test_messages_go_to_the_other_broker_and_are_confirmed_there(keys: Keys) -> None:
    keys.sites.syncs["other"] = False
    keys.publish(keys.key_for(BACKING))
    assert keys.there() == [b"1"]
    assert keys.publisher.confirms() == []
    keys.publish(keys.key_for("near"))
    assert keys.publisher.confirms() == [("Ack", 2, False)]
    keys.sites.syncs["other"] = True
    keys.sites.run()
    assert keys.publisher.confirms() == [("Ack", 1, False)]
    assert keys.sites.bodies("near") == [b"2"]


def test_consumers_get_the_messages_of_both_members(keys: Keys) -> None:
    keys.publish(keys.key_for(BACKING), 3)
    keys.publish(keys.key_for("near"), 3)
    client = keys.consume()
    found = taken(client)
    assert sorted(each for _, each in found) == [b"%d" % number for number in range(1, 7)]
    acknowledge(keys, client, *(tag for tag, _ in found))
    assert keys.there() == keys.sites.bodies("near") == []


def test_a_key_that_leaves_the_other_broker_waits_until_its_messages_there_are_consumed(keys: Keys) -> None:
    key = keys.key_for(BACKING)
    keys.publish(key, 2)
    keys.change("near")
    keys.publish(key, 2)
    near = keys.queue("near")
    assert (near.ready, near.held) == (0, 2)
    client = keys.consume()
    first = taken(client)
    assert [each for _, each in first] == [b"1", b"2"]
    acknowledge(keys, client, first[0][0])
    assert taken(client) == []
    acknowledge(keys, client, first[1][0])
    keys.sites.run(LOOK_MS)
    assert [each for _, each in taken(client)] == [b"3", b"4"]
    assert BACKING not in keys.sites.vhost().topology.queues
    assert keys.there() == []
    assert keys.partitions.leaving == []
    assert len(keys.partitions.history) == 0


def test_a_key_that_moves_to_the_other_broker_waits_here(keys: Keys) -> None:
    keys.change("near")
    keys.sites.run(2 * LOOK_MS)
    key = next(f"k{number}" for number in range(100))
    keys.publish(key, 2)
    keys.publisher.frames()
    keys.change(FAR)
    keys.publish(key, 2)
    assert keys.queue(BACKING).held == 2
    assert keys.there() == []
    assert keys.publisher.confirms() == []
    client = keys.consume(prefetch=1)
    for number in range(1, 5):
        keys.sites.run(LOOK_MS)
        ((tag, each),) = taken(client)
        assert each == b"%d" % number
        acknowledge(keys, client, tag)
    assert keys.there() == []


def test_publishes_wait_while_the_link_is_down_and_follow_in_order(keys: Keys) -> None:
    key = keys.key_for(BACKING)
    go_down(keys)
    keys.publish(key, 3)
    assert keys.publisher.confirms() == []
    come_up(keys)
    assert len(keys.publisher.confirms()) > 0
    assert keys.there() == [b"1", b"2", b"3"]


def test_a_member_is_removed_while_messages_wait_here_for_its_broker(keys: Keys) -> None:
    key = keys.key_for(BACKING)
    keys.publish(key)
    go_down(keys)
    keys.publish(key, 2)
    keys.change("near")
    keys.publish(key)
    client = keys.consume()
    keys.sites.run(2 * LOOK_MS)
    assert taken(client) == []
    assert keys.partitions.leaving_names == [BACKING]
    come_up(keys)
    numbers = []
    for _ in range(40):
        keys.sites.run(LOOK_MS)
        found = taken(client)
        numbers += [each for _, each in found]
        acknowledge(keys, client, *(tag for tag, _ in found))
    assert numbers == [b"1", b"2", b"3", b"4"]
    assert BACKING not in keys.sites.vhost().topology.queues


def test_a_requeued_message_there_still_comes_before_those_of_the_new_member(keys: Keys) -> None:
    key = keys.key_for(BACKING)
    keys.publish(key, 2)
    client = keys.consume()
    first, second = taken(client)
    keys.change("near")
    keys.publish(key)
    client.send(Basic.Reject(first[0], True), 1)
    acknowledge(keys, client, second[0])
    ((tag, each),) = taken(client)
    assert each == b"1"
    keys.sites.run(LOOK_MS)
    assert taken(client) == []
    acknowledge(keys, client, tag)
    keys.sites.run(LOOK_MS)
    assert [each for _, each in taken(client)] == [b"3"]


def test_deliveries_of_a_broken_link_come_again_before_those_of_the_new_member(keys: Keys) -> None:
    key = keys.key_for(BACKING)
    keys.publish(key, 2)
    client = keys.consume()
    assert len(taken(client)) == 2
    keys.change("near")
    keys.publish(key)
    cut(keys)
    keys.sites.run(LOOK_MS)
    again = taken(client)
    assert [each for _, each in again] == [b"1", b"2"]
    acknowledge(keys, client, *(tag for tag, _ in again))
    keys.sites.run(LOOK_MS)
    assert [each for _, each in taken(client)] == [b"3"]


def test_deliveries_that_a_broken_link_has_lost_are_awaited_for_a_time(keys: Keys) -> None:
    """The other broker has seen an acknowledgement whose effect this broker has not seen."""
    key = keys.key_for(BACKING)
    keys.publish(key, 1)
    client = keys.consume()
    assert len(taken(client)) == 1
    keys.change("near")
    keys.publish(key)
    go_down(keys)
    keys.sites.empty("far", "other")
    come_up(keys)
    assert taken(client) == []
    keys.sites.run(GRACE_MS)
    assert [each for _, each in taken(client)] == [b"2"]


def test_lost_deliveries_are_awaited_for_three_heartbeats_of_the_link() -> None:
    """The other broker requeues the deliveries of a broken connection when it has missed heartbeats."""
    keys = Keys("near", f"{FAR}?heartbeat=60")
    key = keys.key_for(BACKING)
    keys.publish(key, 1)
    client = keys.consume()
    assert len(taken(client)) == 1
    keys.change("near")
    keys.publish(key)
    go_down(keys)
    keys.sites.empty("far", "other")
    come_up(keys)
    keys.sites.run(GRACE_MS + LOOK_MS)
    assert taken(client) == []
    keys.sites.run(180_000)
    assert [each for _, each in taken(client)] == [b"2"]


def test_messages_that_vanish_there_do_not_hold_up_their_key(keys: Keys) -> None:
    key = keys.key_for(BACKING)
    keys.publish(key, 3)
    keys.change("near")
    keys.publish(key)
    keys.sites.empty("far", "other")
    client = keys.consume()
    keys.sites.run(2 * LOOK_MS)
    assert [each for _, each in taken(client)] == [b"4"]


def test_another_publisher_there_does_not_hold_up_a_moved_key(keys: Keys) -> None:
    key = keys.key_for(BACKING)
    keys.publish(key)
    keys.change("near")
    keys.publish(key)
    keys.sites.publish("far", [b"other"] * 3, "other")
    client = keys.consume(prefetch=2)
    found = taken(client)
    assert [each for _, each in found] == [b"1", b"other"]
    acknowledge(keys, client, found[0][0])
    keys.sites.publish("far", [b"other"] * 3, "other")
    assert [each for _, each in taken(client)] == [b"2"]


def test_counts_are_those_of_all_members(keys: Keys) -> None:
    keys.publish(keys.key_for(BACKING), 3)
    keys.publish(keys.key_for("near"), 2)
    keys.sites.run(6000)
    totals = totals_of(keys.front)
    assert (totals.ready, totals.unacked, totals.held, totals.published) == (5, 0, 0, 5)
    client = keys.consume()
    found = taken(client)
    keys.sites.run(6000)
    totals = totals_of(keys.front)
    assert (totals.ready, totals.unacked) == (0, 5)
    acknowledge(keys, client, *(tag for tag, _ in found))
    assert totals_of(keys.front).acked == 5
    keys.change("near")
    keys.sites.run(6000)
    totals = totals_of(keys.front)
    assert (totals.ready, totals.unacked, totals.acked, totals.published) == (0, 0, 5, 5)


def test_a_consumer_counts_once(keys: Keys) -> None:
    keys.consume()
    assert keys.front.subscription_count == 1
    assert [keys.queue(name).consumer_count for name in ("near", BACKING)] == [1, 1]
    assert [keys.queue(name).subscription_count for name in ("near", BACKING)] == [0, 0]


def test_get_asks_the_members_here_and_then_the_other_broker(keys: Keys) -> None:
    keys.publish(keys.key_for(BACKING))
    keys.publish(keys.key_for("near"))
    client = keys.sites.here.open()
    found = []
    for _ in range(3):
        client.send(Basic.Get(0, "front"), 1)
        keys.sites.run()
        found += [body(content) for _, content in client.contents()] or [b""]
    assert found == [b"2", b"1", b""]
    go_down(keys)
    client.send(Basic.Get(0, "front"), 1)
    keys.sites.run()
    assert [frame.name for frame in client.frames()] == ["Basic.GetEmpty"]


def test_a_purge_empties_all_members_or_none(keys: Keys) -> None:
    keys.publish(keys.key_for(BACKING), 2)
    keys.publish(keys.key_for("near"), 2)
    client = keys.sites.here.open()
    go_down(keys)
    client.send(Queue.Purge(0, "front"), 1)
    keys.sites.run()
    assert keys.queue("near").ready == 2
    come_up(keys)
    client = keys.sites.here.open()
    client.send(Queue.Purge(0, "front"), 1)
    keys.sites.run()
    (answer,) = client.frames()
    assert isinstance(answer, Queue.PurgeOk)
    assert answer.message_count == 4
    assert keys.there() == keys.sites.bodies("near") == []


def test_exclusive_consumers_share_the_members_and_hand_them_over(keys: Keys) -> None:
    keys = Keys(single_active_consumer=True)
    near, far = keys.key_for("near"), keys.key_for(BACKING)
    first = keys.consume()
    second = keys.consume()
    keys.publish(near)
    keys.publish(far)
    one, two = taken(first), taken(second)
    assert sorted(each for _, each in one + two) == [b"1", b"2"]
    assert len(one) == len(two) == 1
    second.connection.on_lost("")
    keys.sites.run()
    assert [each for _, each in taken(first)] == [two[0][1]]


def test_the_gate_of_the_partitioned_queue_holds_for_all_members() -> None:
    keys = Keys(consumers_before_dispatch=2)
    keys.publish(keys.key_for(BACKING))
    client = keys.consume()
    assert taken(client) == []
    other = keys.consume()
    assert len(taken(client) + taken(other)) == 1


def test_the_deletion_of_the_partitioned_queue_deletes_what_it_has_made(keys: Keys) -> None:
    keys.publish(keys.key_for(BACKING))
    keys.sites.vhost().declarations.delete_queue("front", False, False)
    keys.sites.run()
    assert sorted(keys.sites.vhost().topology.queues) == ["near"]
    assert keys.there() == [b"1"]


def test_a_leaving_member_may_be_deleted_and_its_keys_go_on(keys: Keys) -> None:
    key = keys.key_for(BACKING)
    keys.publish(key)
    go_down(keys)
    declarations = keys.sites.vhost().declarations
    with pytest.raises(PreconditionFailed, match="is a member of partitioned queue 'front'"):
        declarations.delete_queue(BACKING, False, False)
    keys.change("near")
    keys.publish(key)
    client = keys.consume()
    assert taken(client) == []
    declarations.delete_queue(BACKING, False, False)
    keys.sites.run(LOOK_MS)
    assert [each for _, each in taken(client)] == [b"2"]
    assert len(keys.partitions.history) == 0


def test_a_member_that_never_sent_anything_leaves_without_its_broker(keys: Keys) -> None:
    go_down(keys)
    keys.change("near", FAR, "amqp://guest:guest@other/%2F/third")
    assert "front@other:5672/%2F/third" in keys.sites.vhost().topology.queues
    keys.change("near", FAR)
    keys.sites.run(2 * LOOK_MS)
    assert "front@other:5672/%2F/third" not in keys.sites.vhost().topology.queues


def test_a_uri_without_a_queue_names_the_queue_of_the_same_name() -> None:
    keys = Keys("near", "amqp://guest:guest@other/%2F")
    keys.sites.queue("front", "other")
    keys.sites.run(20_000)
    name = "front@other:5672/%2F/front"
    keys.publish(keys.key_for(name))
    assert keys.sites.bodies("front", "other") == [b"1"]


def test_pins_name_members_by_their_uris(keys: Keys) -> None:
    key = keys.key_for("near")
    keys.change("near", FAR, **{key: SHOWN})
    keys.publish(key)
    assert keys.there() == [b"1"]
    assert SECRET not in json.dumps(show_mapping(keys.partitions))


def test_what_the_api_shows_can_be_put_back_and_a_log_in_can_change(keys: Keys) -> None:
    keys.change("near", {"to": SHOWN, "weight": 3})
    remote = remote_of(keys.queue(BACKING))
    assert remote is not None
    assert remote.address == FAR
    running = link_of(remote)
    assert running is not None
    assert running.state == RUNNING
    keys.change("near", BACKING, k=BACKING)
    assert remote.address == FAR
    assert [member.name for member in keys.partitions.mapping.members] == ["near", BACKING]
    other = FAR.replace("guest:guest", f"guest:{SECRET}")
    keys.change("near", {"to": other, "weight": 3})
    link = link_of(remote)
    assert link is not None
    assert link.state == WAITING
    assert SECRET not in link.reason
    keys.change("near", FAR)
    link = link_of(remote)
    assert link is not None
    assert link.state == RUNNING
    keys.publish(keys.key_for(BACKING))
    assert keys.there() == [b"1"]


def test_a_missing_queue_there_is_refused_when_it_is_known(keys: Keys) -> None:
    absent = "amqp://guest:guest@other/%2F/absent"
    keys.change("near", FAR, absent)
    with pytest.raises(PreconditionFailed, match=r"no queue 'absent' at other:5672"):
        keys.change("near", FAR, absent)
    keys.sites.queue("absent", "other")
    keys.sites.run(20_000)
    keys.change("near", FAR, {"to": absent, "weight": 2})


def test_a_member_that_leads_back_to_this_broker_is_refused_when_it_is_known(keys: Keys) -> None:
    keys.sites.here.server.properties[IDENTITY] = "origin"
    keys.sites.hosts["self"] = keys.sites.here
    keys.sites.syncs["self"] = True
    own = "amqp://guest:guest@self/%2F/front"
    keys.change("near", own)
    keys.publish(keys.key_for("front@self:5672/%2F/front"))
    assert keys.front.published == 0
    with pytest.raises(PreconditionFailed, match="it is the partitioned queue itself"):
        keys.change("near", own)


WRONG = [
    (["front2"], "it is the partitioned queue itself"),
    (["amqp://"], "has no host"),
    (["amqp:u:" + SECRET], "is not a valid URI: it does not begin with a scheme"),
    ([f"amqp://u:{SECRET}@h/v/q/r"], "names more than one queue"),
    ([f"amqp://u:{SECRET}@h:x/v"], "its host or its port is malformed"),
    ([f"amqp://u:{SECRET}@h/v/q?what={SECRET}x"], "has the parameter 'what'"),
    ([FAR, SHOWN], "names 'front2@other:5672/%2F/far' twice"),
    ([f"amqp://u:{SECRET}@h/v/" + "q" * 300], "at most 255"),
    ([{"to": f"amqp://u:{SECRET}@h/v/q", "wait": 1}], "has the unknown field 'wait'"),
    ([bytearray(f"amqp://u:{SECRET}@h".encode() + b"\xff")], "is not a list of 1 to 256 names or tables"),
]


@pytest.mark.parametrize(("members", "why"), WRONG, ids=lambda value: str(value)[-30:])
def test_a_wrong_member_is_refused_without_its_password(keys: Keys, members: list[object], why: str) -> None:
    names = list(keys.sites.vhost().topology.queues)
    with pytest.raises(PreconditionFailed, match=why) as refused:
        keys.sites.queue("front2", queue_kind="partitioned", partition_by="key", partition_members=members)
    assert SECRET not in refused.value.text
    assert list(keys.sites.vhost().topology.queues) == names


def test_a_transient_partitioned_queue_has_no_members_elsewhere(keys: Keys) -> None:
    arguments = {"x-queue-kind": "partitioned", "x-partition-by": "k", "x-partition-members": [FAR]}
    with pytest.raises(PreconditionFailed, match="the partitioned queue is not durable"):
        keys.sites.vhost().declarations.declare_queue("t", False, None, False, dict(arguments))
    keys.sites.queue("u@other:5672/%2F/far")
    with pytest.raises(PreconditionFailed, match="'u@other:5672/%2F/far', which exists already"):
        keys.sites.vhost().declarations.declare_queue("u", True, None, False, dict(arguments))


def test_a_queue_with_members_elsewhere_is_not_renamed(keys: Keys) -> None:
    with pytest.raises(PreconditionFailed, match="cannot be renamed: it has members in other brokers"):
        alter_queue(keys.sites.vhost().topology, keys.front, "next", keys.front.arguments, False)


def test_only_policymakers_have_the_broker_connect_to_members(keys: Keys) -> None:
    address = f"amqp://u:{SECRET}@h/v/q"
    rights = keys.sites.here.open().connection.rights
    rights.require_members("front", ["near", address])
    rights.user = "app"
    rights.require_members("front", ["near"])
    with pytest.raises(AccessRefused, match="who needs the tag 'policymaker'") as refused:
        rights.require_members("front", ["near", address])
    assert SECRET not in refused.value.text


def test_a_browser_is_refused_with_a_member_elsewhere(keys: Keys) -> None:
    client = keys.consume(**{"x-browse": True})
    (answer,) = client.frames()[-1:]
    assert getattr(answer, "reply_code", 0) == 406


def test_a_hundred_changes_and_cut_links_keep_the_order_of_each_key() -> None:
    chance = Random(7)
    keys = Keys()
    keys.sites.queue("near2")
    names = [f"k{number}" for number in range(12)]
    sent: dict[str, int] = dict.fromkeys(names, 0)
    done: dict[str, int] = dict.fromkeys(names, 0)
    client = keys.consume(3)

    def work() -> None:
        for frame, content in client.contents():
            if not isinstance(frame, Basic.Deliver):
                continue
            key, _, number = body(content).decode().partition(" ")
            assert int(number) <= done[key], (key, number, done[key])
            assert int(number) == done[key] or frame.redelivered
            done[key] = max(done[key], int(number) + 1)
            client.send(Basic.Ack(frame.delivery_tag or 0), 1)
        keys.sites.run(chance.choice([0, 0, 50, 300]))

    for round_number in range(100):
        for _ in range(chance.randrange(30)):
            key = chance.choice(names)
            properties = Basic.Properties(headers={"key": key}, delivery_mode=2)
            keys.publisher.connection.receive(
                publish_bytes("front", f"{key} {sent[key]}".encode(), properties=properties)
            )
            sent[key] += 1
        if round_number % 3 == 0:
            keys.sites.run()
        weights = {name: chance.choice([0, 1, 1, 5]) for name in ("near", "near2", FAR)}
        members = [{"to": name, "weight": weight} for name, weight in weights.items() if weight]
        if members:
            pinned = chance.choice(names)
            pins = {pinned: str(members[0]["to"])} if chance.random() < 0.3 else {}
            keys.change(*members, **pins)
        if chance.random() < 0.1:
            cut(keys)
        for _ in range(chance.randrange(6)):
            work()
    for _ in range(2000):
        if done == sent:
            break
        work()
    assert done == sent
    keys.change("near")
    for _ in range(200):
        work()
        keys.sites.run(LOOK_MS)
    assert BACKING not in keys.sites.vhost().topology.queues
    assert len(keys.partitions.history) == 0
