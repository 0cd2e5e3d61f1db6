"""Deletion of large queues, exchanges and virtual hosts: immediate for clients, unlinked in steps."""

import gc
from typing import Any, Final

import pytest

from broker.core.arguments.queue import NACK
from broker.core.broker import Broker
from broker.core.errors import NotFound
from broker.core.message import DELAYED, Message
from broker.core.publishing.delay import count_delayed
from broker.core.publishing.publisher import ROUTED, Outcome
from broker.core.publishing.receipts import PreparedReceipts
from broker.core.queues.attach import detach
from broker.core.queues.group import Group
from broker.core.queues.purge import CLEARING_SLICE, dispose
from broker.core.queues.queue import Queue
from broker.core.queues.returns import release_entries
from broker.core.queues.source import PUBLISHED
from broker.core.routing.bindings import SLICE as BINDINGS
from broker.core.routing.graph import Exchange
from broker.core.transactions.transaction import SETTLE, HeldPublish, HeldSettlement, Transaction
from broker.core.vhosts.deletion import DISPOSAL_SLICE, QUEUE, SLICE, Dependent
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.delayed_exchange import DelayBench
from tests.support.core.group_bench import GroupBench
from tests.support.core.hand_clock import HandClock
from tests.support.core.policies import set_policy
from tests.support.core.timed_vhost import VhostBench, entry_of, numbers
from tests.support.core.topology import (
    RecordingStore,
    add_exchange,
    consume,
    definitions_of,
    new_broker,
    new_vhost,
    publish,
    rebuilt,
    routed,
)

MANY = int(CLEARING_SLICE) * 2 + 500


def groups_alive() -> int:
    return sum(isinstance(each, Group) for each in gc.get_objects())


@pytest.mark.parametrize("limits", [{}, {"message_ttl": 60_000}, {"max_priority": 2}], ids=str)
def test_entries_of_a_deleted_queue_leave_in_slices(limits: dict[str, Any]) -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    queue = bench.queue(durable=True, **limits)
    client = bench.client(queue)
    bench.publish(count=MANY, persistent=True)
    bench.run()
    client.close()
    last = entry_of(queue, MANY)
    others = client.held[:-1]
    release_entries(queue, others, client.consumer)
    bench.clock.advance(0)
    assert (queue.ready, queue.unacked) == (MANY - 1, 1)
    client.held = [last]
    bench.vhost.declarations.delete_queue("q", False, False)
    assert (client.removed, len(client.cancelled)) == ([], 1)
    assert (queue.ready, queue.unacked, queue.ready_bytes) == (0, 0, 0)
    assert "q" not in bench.vhost.topology.queues
    assert len(store.forgotten) == CLEARING_SLICE
    again = bench.queue(**limits)
    bench.publish(persistent=True)
    for _ in range(2):
        bench.clock.advance(0)
    assert len(store.forgotten) == MANY
    assert (client.removed, client.consumer.inflight, list(queue.entries)) == ([last], 0, [])
    assert numbers(again) == [MANY + 1]
    bench.clock.advance(60_000)
    assert len(store.forgotten) == MANY, "no timer of it runs any more"


@pytest.mark.parametrize("way", ["settled", "released", "discarded", "lost", "kept"])
def test_acquired_entries_are_taken_from_clients_in_slices(way: str) -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    queue = bench.queue(durable=True, delivery_limit=0, dead_letter_exchange="", dead_letter_routing_key="d")
    dead = bench.queue("d")
    client = bench.client(queue)
    bench.publish(count=MANY, persistent=True)
    bench.run()
    held = list(client.held)
    bench.vhost.declarations.delete_queue("q", False, False)
    assert (client.consumer.inflight, len(client.removed)) == (MANY - CLEARING_SLICE, CLEARING_SLICE)
    assert (queue.ready, queue.unacked, queue.unacked_bytes) == (0, 0, 0)
    for entry in held if way in ("settled", "discarded") else ():
        (queue.settle if way == "settled" else queue.discard)(entry)
    if way == "released":
        release_entries(queue, list(held), client.consumer)
    elif way == "lost":
        detach(queue, client.consumer, list(held))
    assert (len(store.settled), dead.ready, bench.died()) == (0, 0, {})
    assert (queue.ready, queue.unacked, queue.acked) == (0, 0, 0)
    left = []
    for _ in range(2):
        bench.clock.advance(0)
        left.append(int(client.consumer.inflight))
    assert left == [0, 0]
    assert (client.removed, len(store.forgotten), list(queue.entries)) == (held, MANY, [])
    assert len({id(message) for message in store.forgotten}) == MANY, "each of them once"


def test_a_transaction_settles_nothing_of_a_deleted_queue() -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    queue = bench.queue(durable=True)
    client = bench.client(queue)
    bench.publish(count=MANY, persistent=True)
    bench.run()
    settlement = HeldSettlement(client.consumer, SETTLE, NACK)
    settlement.entries.append(client.held[-1])
    assert settlement.valid_entries() == client.held[-1:]
    bench.vhost.declarations.delete_queue("q", False, False)
    assert client.consumer.inflight == MANY - CLEARING_SLICE
    assert settlement.valid_entries() == []
    assert not settlement.append(bench.vhost, PreparedReceipts(bench.vhost.receipts))
    settlement.put(store, bench.vhost.dead_letters, PUBLISHED)
    assert store.settled == []


def test_no_group_is_left_to_the_garbage_collector() -> None:
    """The collector rarely looks at old objects, and a parked entry keeps its message."""
    bench = GroupBench()
    before = groups_alive()
    gc.disable()
    try:
        client = bench.client(2)
        bench.send("a", "b")
        bench.run()
        other = bench.client()
        bench.send("a", "b", "c")
        bench.run()
        assert (client.numbers, other.numbers) == ([1, 2], [5])
        client.cancel()
        assert groups_alive() == before + 3
        dispose(bench.queue, bench.clock.schedule)
        del bench.groups, client.consumer
        client.deliveries.clear()
        bench.clients.clear()
        client.held.clear()
        assert groups_alive() == before
    finally:
        gc.enable()


def test_delayed_messages_of_an_exchange_leave_in_slices_too() -> None:
    bench = DelayBench(durable=True)
    for _ in range(MANY):
        bench.publish(100, persistent=True)
    bench.vhost.declarations.delete_exchange("x", False)
    assert len(bench.store.forgotten) == CLEARING_SLICE
    for _ in range(2):
        bench.clock.advance(0)
    assert len(bench.store.forgotten) == MANY
    bench.clock.advance(1000)
    assert len(bench.store.forgotten) == MANY, "nothing of it is released"


def test_a_history_goes_in_slices_as_well() -> None:
    clock, store = HandClock(), RecordingStore()
    vhost = new_vhost(store, clock)
    add_exchange(vhost, "x", "x-recent-history", durable=True, x_recent_history_length=MANY)
    for _ in range(MANY):
        publish(vhost, "x", "k", persistent=True)
    vhost.declarations.delete_exchange("x", False)
    assert len(store.forgotten) == CLEARING_SLICE
    for _ in range(2):
        clock.advance(0)
    assert len(store.forgotten) == MANY


MANY_QUEUES = 3 * int(DISPOSAL_SLICE // QUEUE)  # slices of empty queues
LATER_MS = 3_600_000


class LargeVhost:
    """A broker with the virtual host `v`: `first`, the last queue to go, and many others."""

    def __init__(self, arguments: dict[str, object] | None = None) -> None:
        self.clock = HandClock()
        self.store = RecordingStore()
        self.broker = new_broker(self.store, self.clock)
        self.left: list[str] = []
        self.broker.left.append(self.left.append)
        self.vhost = self.broker.declare_vhost("v")
        self.first = self.vhost.declarations.declare_queue("first", True, None, False, arguments or {})
        for number in range(MANY_QUEUES):
            self.vhost.declarations.declare_queue(f"q{number}", number % 2 == 0, None, False, {})

    def delete(self) -> None:
        """Delete the virtual host: a first slice is unlinked, and more is left."""
        self.broker.delete_vhost("v")
        assert self.left == []

    def turn(self) -> None:
        """Run the schedule once, so much later that all alarms are due."""
        self.clock.now += LATER_MS
        self.clock.schedule.run()

    def finish(self) -> None:
        """The turns that are left."""
        self.clock.advance(0)
        assert self.left == ["v"]


def kinds(broker: Broker) -> set[object]:
    """Return the kinds of the changes that describe the broker."""
    return {change["kind"] for change in definitions_of(broker)}


def test_a_deleted_vhost_is_invisible_at_once_and_unlinked_in_slices() -> None:
    bench = LargeVhost()
    add_exchange(bench.vhost, "x", durable=True)
    queues = list(bench.vhost.topology.queues.values())
    for queue in queues:
        bench.vhost.declarations.bind_queue(queue.name, "x", queue.name, {})
    before = len(bench.store.changes)
    bench.delete()
    assert bench.store.changes[before:] == [{"kind": "vhost.delete", "name": "v"}]
    assert (list(bench.broker.vhosts), kinds(bench.broker)) == ([], {"next_number"})
    assert all(queue.deleted for queue in queues)
    assert (bench.vhost.topology.queues, bench.vhost.topology.exchanges) == ({}, {})
    numbered = []
    while not bench.left:
        numbered.append(
            sum(bench.broker.queue_numbered(n) is not None for n in range(1, MANY_QUEUES // 2 + 2))
        )
        bench.clock.schedule.run()
    assert numbered[0] > numbered[-1] > 0
    assert len(numbered) >= 3, "each of them has turns of its own"
    assert sum(bench.broker.queue_numbered(n) is not None for n in range(1, MANY_QUEUES // 2 + 2)) == 0
    bench.clock.advance(0)
    assert not bench.vhost.topology.bindings.has_deleted()
    assert rebuilt(bench.store.changes).vhosts == {}


def test_messages_of_the_queues_count_in_the_slices() -> None:
    bench = LargeVhost()
    for number in range(10):
        publish(bench.vhost, "", f"q{2 * number}", persistent=True)
    for _ in range(int(DISPOSAL_SLICE)):
        publish(bench.vhost, "", "first", persistent=True)
    bench.delete()
    bench.finish()
    assert len(bench.store.forgotten) == DISPOSAL_SLICE + 10
    assert list(bench.first.entries) == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q1"},
        {"x-expires": 1000},
        {"x-expires": 10 * LATER_MS, "x-message-ttl": 1000},
        {"x-retry-min": 1000},
        {"x-volatile": True},
        {"x-dedup-window": 1000},
        {"x-consumers-before-dispatch": 2, "x-delay-before-dispatch": 1000},
    ],
    ids=lambda arguments: "-".join(arguments),
)
def test_no_timer_acts_on_a_queue_of_a_deleted_vhost(arguments: dict[str, object]) -> None:
    bench = LargeVhost(arguments)
    queue = bench.first
    taker, consumer = consume(queue)
    publish(bench.vhost, "", "first", persistent=True, message_id="1")
    if "x-retry-min" in arguments:
        entry = next(iter(queue.entries))
        queue.acquire(entry, consumer)
        release_entries(queue, [entry], consumer)
        assert queue.held == 1
    bench.delete()
    changes, depth = len(bench.store.changes), queue.depth
    bench.turn()
    assert (queue.depth, len(bench.store.settled), taker.taken) == (depth, 0, [])
    assert len(bench.store.changes) == changes
    detach(queue, consumer, [])
    bench.vhost.declarations.delete_if_unused(queue)
    bench.turn()
    assert bench.store.settled == []
    bench.finish()
    assert (queue.depth, sum(bench.broker.counters.discarded)) == (0, 0)
    assert len(bench.store.changes) == changes


def test_delayed_messages_are_never_sent() -> None:
    bench = LargeVhost()
    delayed: dict[str, object] = {"x-delayed-type": "direct"}
    bench.vhost.declarations.declare_exchange("x", "x-delayed-message", True, False, False, delayed)
    bench.vhost.declarations.bind_queue("q0", "x", "k", {})
    for number in range(MANY_QUEUES):
        add_exchange(bench.vhost, f"x{number}")  # the last ones go first
    publish(bench.vhost, "x", "k", persistent=True, headers={"x-delay": 1000})
    message = Message(bench.vhost.publisher.route("", "first").address, b"", 0, True, 0)
    message.marks = DELAYED
    message.date = bench.clock.date() + 1000
    bench.vhost.publisher.publish_carefully(bench.vhost.publisher.route("", "first"), message)
    assert count_delayed(bench.first) == 1
    appended = len(bench.store.enqueued)
    bench.delete()
    bench.turn()
    bench.finish()
    assert (len(bench.store.enqueued), bench.store.settled) == (appended, [])
    assert len(bench.store.forgotten) == appended


def test_the_vhost_is_declared_again_during_the_deletion() -> None:
    bench = LargeVhost()
    old = bench.vhost
    set_policy(old, "limit", "^q", max_length=1)
    bench.delete()
    highest = bench.broker.next_number
    again = bench.broker.declare_vhost("v")
    queues = [again.declarations.declare_queue(f"q{number}", True, None, False, {}) for number in range(2)]
    again.declarations.bind_queue("q0", "amq.fanout", "", {})
    for _ in range(2):
        assert publish(again, "amq.fanout", persistent=True) is ROUTED
    bench.finish()
    assert [queue.number for queue in queues] == [highest, highest + 1]
    assert [bench.broker.queue_numbered(queue.number) for queue in queues] == queues
    assert (queues[0].ready, routed(again, "amq.fanout"), again.policies.all()) == (2, ["q0"], [])
    assert bench.store.forgotten == []
    assert definitions_of(rebuilt(bench.store.changes)) == definitions_of(bench.broker)
    with pytest.raises(NotFound):
        publish(old, "", "q0")


def test_the_vhost_is_deleted_again_before_the_first_one_is_unlinked() -> None:
    bench = LargeVhost()
    bench.delete()
    again = bench.broker.declare_vhost("v")
    queue = again.declarations.declare_queue("q", True, None, False, {})
    bench.broker.delete_vhost("v")
    assert (bench.left, queue.deleted, bench.broker.vhosts) == (["v"], True, {})
    bench.clock.advance(0)
    assert bench.left == ["v", "v"]


def test_bindings_are_unlinked_in_slices_too() -> None:
    bench = LargeVhost()
    add_exchange(bench.vhost, "x")
    gone = bench.vhost.topology.exchanges["x"]
    selected: dict[str, object] = {"x-filter-jms-selector": "TRUE"}
    count = 2 * int(BINDINGS) + 500
    for number in range(count):
        bench.vhost.declarations.bind_queue("q0", "x", str(number), selected)
    bench.delete()
    left = [int(gone.conditional)]
    while gone.conditional:
        bench.clock.schedule.run()
        left.append(int(gone.conditional))
    assert left == [count, count - BINDINGS, count - 2 * BINDINGS, 0]


class Pledge(Transaction):
    """A transaction without a waiting client."""

    def on_committed(self) -> None:
        pass


class Pledged(HeldPublish):
    """A publish without a waiting client."""

    def report_outcome(self, outcome: Outcome) -> None:
        pass


def promised(vhost: VirtualHost, key: str) -> Pledged:
    """A persistent message that is to be published by a transaction."""
    route = vhost.publisher.route("", key)
    return Pledged(route, Message(route.address, b"", 0, True, 0), [], False)


def test_a_commit_that_waits_for_its_sync_enqueues_no_message_in_a_deleted_vhost() -> None:
    bench = LargeVhost()
    pledge = Pledge(bench.vhost.publisher)
    pledge.publishes.append(promised(bench.vhost, "first"))
    waiting: list[object] = []
    bench.store.wait = waiting.append  # type: ignore[method-assign,assignment]
    pledge.commit()
    assert waiting == [pledge]
    bench.delete()
    pledge.on_durable(1)
    assert (bench.first.depth, len(bench.store.forgotten)) == (0, 1)
    bench.finish()
    assert len(bench.store.forgotten) == 1


MANY_DEPENDENTS: Final = 3 * int(SLICE) + 1


class Sender(Dependent):
    """A dependent that records its call, and the dependents that it makes leave."""

    def __init__(self, vhost: VirtualHost, node: Queue | Exchange, notified: list["Sender"]) -> None:
        super().__init__(node)
        self.others: list[Sender] = []
        self._vhost = vhost
        self._told = notified
        vhost.dependents.add(self)

    def on_node_deleted(self) -> None:
        """Leave, as every dependent does, and make others leave."""
        self._told.append(self)
        for sender in [self, *self.others]:
            self._vhost.dependents.remove(sender)


class DependentVhost:
    """A virtual host with a queue, an exchange and dependents."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.broker = new_broker(RecordingStore(), self.clock)
        self.vhost = self.broker.declare_vhost("v")
        self.queue = self.vhost.declarations.declare_queue("q", False, None, False, {})
        add_exchange(self.vhost, "x")
        self.exchange = self.vhost.topology.exchanges["x"]
        self.notified: list[Sender] = []

    def senders(self, node: Queue | Exchange, count: int) -> list[Sender]:
        """So many that depend on a node."""
        return [Sender(self.vhost, node, self.notified) for _ in range(count)]

    def slices(self) -> list[int]:
        """Return the number of called dependents in each of the next turns."""
        found: list[int] = []
        while self.vhost.dependents.due:
            before = len(self.notified)
            self.clock.schedule.run()
            found.append(len(self.notified) - before)
        return found


@pytest.fixture
def bench() -> DependentVhost:
    return DependentVhost()


def test_dependents_are_called_in_slices_and_never_from_inside_the_deletion(bench: DependentVhost) -> None:
    senders = bench.senders(bench.queue, MANY_DEPENDENTS)
    bench.vhost.declarations.delete_queue("q", False, False, None)
    assert bench.notified == []
    assert bench.slices() == [SLICE, SLICE, SLICE, 1]
    assert set(bench.notified) == set(senders)
    assert len(bench.notified) == MANY_DEPENDENTS


def test_only_dependents_of_the_deleted_exchange_are_notified(bench: DependentVhost) -> None:
    other = bench.vhost.declarations.declare_queue("other", False, None, False, {})
    bench.senders(other, 2)
    ours = bench.senders(bench.exchange, 2)
    bench.vhost.declarations.delete_queue("q", False, False, None)
    assert bench.slices() == []  # no queue gets a slice
    bench.vhost.declarations.delete_exchange("x", False)
    bench.slices()
    assert set(bench.notified) == set(ours)


def test_a_dependent_that_leaves_before_its_slice_is_not_called(bench: DependentVhost) -> None:
    senders = bench.senders(bench.queue, MANY_DEPENDENTS)
    bench.vhost.declarations.delete_queue("q", False, False, None)
    bench.clock.schedule.run()
    for sender in senders:
        bench.vhost.dependents.remove(sender)
    bench.slices()
    assert len(bench.notified) == SLICE


def test_a_called_dependent_may_remove_others(bench: DependentVhost) -> None:
    first, last = bench.senders(bench.queue, 2)
    first.others, last.others = [last], [first]
    bench.vhost.declarations.delete_queue("q", False, False, None)
    bench.slices()
    assert len(bench.notified) == 1


def test_another_queue_of_the_name_is_another_node(bench: DependentVhost) -> None:
    old = bench.senders(bench.queue, 1)
    bench.vhost.declarations.delete_queue("q", False, False, None)
    new = bench.senders(bench.vhost.declarations.declare_queue("q", False, None, False, {}), 1)
    bench.slices()
    assert bench.notified == old
    bench.vhost.declarations.delete_queue("q", False, False, None)
    bench.slices()
    assert bench.notified == old + new


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_a_virtual_host_that_is_deleted(bench: DependentVhost, kind: str) -> None:
    nodes: list[Queue | Exchange] = []
    name = "q" if kind == "queue" else "x"
    for number in range(MANY_DEPENDENTS):
        bench.vhost.declarations.declare_queue(f"q{number}", False, None, False, {})
        add_exchange(bench.vhost, f"x{number}")
        nodes.append(
            (bench.vhost.topology.queues if kind == "queue" else bench.vhost.topology.exchanges)[
                f"{name}{number}"
            ]
        )
    senders = [sender for node in nodes for sender in bench.senders(node, 1)]
    bench.broker.delete_vhost("v")
    assert bench.notified == []
    notified = []
    while len(bench.notified) < MANY_DEPENDENTS:
        before = len(bench.notified)
        bench.clock.schedule.run()
        notified.append(len(bench.notified) - before)
    assert max(notified) <= SLICE
    assert set(bench.notified) == set(senders)
