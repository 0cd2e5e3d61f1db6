"""Partitioned queues over AMQP 0-9-1."""

import pytest
from pamqp import base
from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable

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
