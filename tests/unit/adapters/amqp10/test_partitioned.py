"""Partitioned queues over AMQP 1.0."""

import pytest

from broker.core.partitions.partitioned import LOOK_MS, totals_of
from broker.core.queues.queue import Queue
from broker.core.vhosts.members import change_mapping
from protocol.amqp10.composites import Accepted, Source
from protocol.amqp10.performatives import Attach, Detach, Disposition, Flow, Transfer
from protocol.amqp10.types import Symbol
from tests.support.adapters.connection10_without_socket import Client10
from tests.support.adapters.connection_without_socket import BrokerBench

MEMBERS = ["a", "b"]


@pytest.fixture
def front(bench: BrokerBench) -> Queue:
    declarations = bench.broker.vhosts["/"].declarations
    for member in MEMBERS:
        declarations.declare_queue(member, False, None, False, {})
    arguments: dict[str, object] = {
        "x-partition-by": "property:message-id",
        "x-partition-members": list(MEMBERS),
        "x-partition-pins": {"": "b"},
    }
    return declarations.declare_queue("front", False, None, False, arguments)


@pytest.fixture
def client(bench: BrokerBench, front: Queue) -> Client10:
    return Client10(bench)


def test_a_sender_and_a_receiver(bench: BrokerBench, client: Client10, front: Queue) -> None:
    client.sends("front")
    client.publish(0, 1, 2)
    client.written()
    assert totals_of(front).ready == 3
    assert bench.broker.vhosts["/"].topology.queues["b"].ready == 3
    client.receives("front", handle=1)
    transfers = [frame for frame in client.written() if isinstance(frame.performative, Transfer)]
    assert len(transfers) == 3
    assert totals_of(front).unacked == 3
    client.send(Disposition(role=True, first=0, last=2, settled=True, state=Accepted()))
    bench.clock.advance(0)
    assert (totals_of(front).unacked, totals_of(front).acked) == (0, 3)
    client.send(Detach(handle=1, closed=True))
    assert front.consumer_count == 0


def test_a_lost_link_returns_its_messages(bench: BrokerBench, client: Client10, front: Queue) -> None:
    client.sends("front")
    client.publish(0, 1)
    client.written()
    client.receives("front", handle=1)
    assert totals_of(front).unacked == 2
    client.connection.on_lost("the socket closed")
    assert (totals_of(front).ready, front.consumer_count) == (2, 0)


def test_a_drain_ends_when_no_member_has_a_message(
    bench: BrokerBench, client: Client10, front: Queue
) -> None:
    client.sends("front")
    client.publish(0)
    client.written()
    client.receives("front", handle=1, credit=0)
    client.written()
    flow = Flow(next_incoming_id=0, incoming_window=100, next_outgoing_id=3, outgoing_window=100)
    flow.handle, flow.delivery_count, flow.link_credit, flow.drain = 1, 0, 10, True
    client.send(flow)
    bench.turns.run()
    bench.clock.advance(0)
    written = [frame.performative for frame in client.written()]
    assert [type(each) for each in written] == [Transfer, Flow]
    assert isinstance(written[1], Flow)
    assert written[1].link_credit == 0


def test_the_deletion_of_the_queue_ends_the_link(bench: BrokerBench, client: Client10, front: Queue) -> None:
    client.receives("front")
    client.written()
    bench.broker.vhosts["/"].declarations.delete_queue("front", False, False)
    bench.clock.advance(0)
    bench.turns.run()
    ended = [frame.performative for frame in client.written() if isinstance(frame.performative, Detach)]
    assert len(ended) == 1
    assert "queue 'front' in vhost '/' was deleted" in str(ended[0].error.description)  # type: ignore[union-attr]


def test_a_browser_sees_all_members(bench: BrokerBench, client: Client10, front: Queue) -> None:
    client.sends("front")
    client.publish(0, 1)
    client.written()
    source = Source(address="/queues/front", distribution_mode="copy")
    client.send(Attach(name="browser", handle=2, role=True, source=source, target=None))
    flow = Flow(next_incoming_id=0, incoming_window=100, next_outgoing_id=3, outgoing_window=100)
    flow.handle, flow.delivery_count, flow.link_credit = 2, 0, 10
    client.send(flow)
    bench.turns.run()
    assert len([frame for frame in client.written() if isinstance(frame.performative, Transfer)]) == 2
    assert totals_of(front).ready == 2


def test_a_snapshot_ends_when_the_last_member_of_the_snapshot_leaves(
    bench: BrokerBench, client: Client10, front: Queue
) -> None:
    topology = bench.broker.vhosts["/"].topology
    change_mapping(topology, front, ["b"], {})
    bench.clock.advance(2 * LOOK_MS)
    client.sends("front")
    client.publish(0, 1)
    source = Source(address="/queues/front", distribution_mode="copy")
    properties: dict[str, object] = {Symbol("x-browse"): "snapshot"}
    client.send(Attach(name="b", handle=2, role=True, source=source, target=None, properties=properties))
    flow = Flow(next_incoming_id=0, incoming_window=100, next_outgoing_id=2, outgoing_window=100)
    flow.handle, flow.delivery_count, flow.link_credit = 2, 0, 1
    client.send(flow)
    bench.turns.run()
    client.written()
    change_mapping(topology, front, ["a"], {})
    bench.broker.vhosts["/"].declarations.purge_queue("b")
    bench.clock.advance(2 * LOOK_MS)
    bench.turns.run()
    ended = [each.performative for each in client.written() if isinstance(each.performative, Detach)]
    assert [each.error for each in ended] == [None]
    assert front.consumer_count == 0
