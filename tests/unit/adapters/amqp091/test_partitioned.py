"""Partitioned queues over AMQP 0-9-1."""

import pytest
from pamqp import base
from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable

from broker.core.partitions.partitioned import LOOK_MS
from broker.core.vhosts.members import change_mapping
from tests.support.adapters.connection_without_socket import Client091
from tests.support.amqp091.frames import publish_bytes
from tests.support.auth.broker_with_users import ALL, UserBench, user_bench

MEMBERS = ["m1", "m2", "m3"]


@pytest.fixture
def bench() -> UserBench:
    """Has the partitioned queue `front` with three members, and `ann`, who may do everything."""
    bench = user_bench()
    declarations = bench.broker.vhosts["/"].declarations
    for member in MEMBERS:
        declarations.declare_queue(member, False, None, False, {})
    arguments: dict[str, object] = {
        "x-partition-by": "property:message-id",
        "x-partition-members": list(MEMBERS),
        "x-partition-pins": {f"id {member}": member for member in MEMBERS},
    }
    declarations.declare_queue("front", False, None, False, arguments)
    bench.users.permit("ann", "/", ALL, ALL, ALL)
    return bench


def frames(client: Client091) -> list[base.Frame]:
    """Return the methods written since the last call, after all waiting turns and alarms."""
    client.bench.clock.advance(0)
    client.bench.turns.run()
    return client.frames()


def names(client: Client091) -> list[str]:
    return [frame.name for frame in frames(client)]


def publish(client: Client091, member: str) -> None:
    properties = Basic.Properties(message_id=f"id {member}")
    client.connection.receive(publish_bytes("front", member.encode(), properties=properties))


@pytest.mark.parametrize("also", [{}, {"x-also-consume": ["q"]}])
def test_a_consumer_without_permission_is_cancelled_once(bench: UserBench, also: FieldTable) -> None:
    ann = bench.enter("ann")
    ann.send(Basic.Consume(queue="front", consumer_tag="c", arguments=also), 1)
    assert names(ann) == ["Basic.ConsumeOk"]
    bench.users.permit("ann", "/", ALL, ALL, "")
    assert names(ann) == ["Basic.Cancel"]
    topology = bench.broker.vhosts["/"].topology
    assert [topology.queues[name].consumer_count for name in ("front", *MEMBERS)] == [0] * 4


def test_the_members_need_no_permission(bench: UserBench) -> None:
    ann = bench.enter("ann")
    ann.send(Basic.Consume(queue="front", consumer_tag="c"), 1)
    assert names(ann) == ["Basic.ConsumeOk"]
    bench.users.permit("ann", "/", ALL, ALL, "^front$")
    publish(ann, "m1")
    assert names(ann) == ["Basic.Deliver"]


def test_a_deletion_cancels_the_consumer_once(bench: UserBench) -> None:
    ann, boss = bench.enter("ann"), bench.enter("boss")
    ann.send(Basic.Consume(queue="front", consumer_tag="c"), 1)
    assert names(ann) == ["Basic.ConsumeOk"]
    boss.send(Queue.Delete(queue="front"), 1)
    assert names(ann) == ["Basic.Cancel"]


def test_a_get_takes_from_each_member(bench: UserBench) -> None:
    ann = bench.enter("ann")
    for member in MEMBERS:
        publish(ann, member)
    for _ in range(4):
        ann.send(Basic.Get(queue="front", no_ack=True), 1)
    assert names(ann) == ["Basic.GetOk"] * 3 + ["Basic.GetEmpty"]


def browse(client: Client091, kind: bool | str) -> None:
    client.send(Basic.Qos(0, 1, False), 1)
    client.send(Basic.Consume(queue="front", consumer_tag="c", arguments={"x-browse": kind}), 1)


def change(bench: UserBench, *members: str) -> None:
    topology = bench.broker.vhosts["/"].topology
    change_mapping(topology, topology.queues["front"], list(members), {})


def test_a_snapshot_is_cancelled_when_the_last_member_of_the_snapshot_leaves(bench: UserBench) -> None:
    ann = bench.enter("ann")
    change(bench, "m1")
    bench.clock.advance(2 * LOOK_MS)
    for _ in range(2):
        publish(ann, "m1")
    browse(ann, "snapshot")
    assert names(ann) == ["Basic.QosOk", "Basic.ConsumeOk", "Basic.Deliver"]
    change(bench, "m2")
    ann.send(Queue.Purge(queue="m1"), 1)
    bench.clock.advance(2 * LOOK_MS)
    assert names(ann) == ["Queue.PurgeOk", "Basic.Cancel"]
    assert bench.broker.vhosts["/"].topology.queues["front"].consumer_count == 0


@pytest.mark.parametrize("kind", [True, "snapshot"])
def test_only_a_snapshot_is_cancelled_when_all_members_are_deleted(
    bench: UserBench, kind: bool | str
) -> None:
    ann = bench.enter("ann")
    declarations = bench.broker.vhosts["/"].declarations
    for member in MEMBERS:
        publish(ann, member)
    browse(ann, kind)
    assert names(ann) == ["Basic.QosOk", "Basic.ConsumeOk", "Basic.Deliver"]
    for member in MEMBERS[:2]:
        declarations.force_delete(bench.broker.vhosts["/"].topology.queues[member])
        assert names(ann) == []
    declarations.force_delete(bench.broker.vhosts["/"].topology.queues[MEMBERS[2]])
    assert names(ann) == (["Basic.Cancel"] if kind == "snapshot" else [])
    if kind is True:
        declarations.declare_queue("m4", False, None, False, {})
        change(bench, "m4")
        ann.send(Basic.Ack(1), 1)
        publish(ann, "m4")
        assert names(ann) == ["Basic.Deliver"]
