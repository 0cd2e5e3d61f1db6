"""A virtual host with very much in it that is deleted: gone at once, and let go of bit by bit."""

import pytest

from broker.core.broker import Broker
from broker.core.errors import NotFound
from broker.core.message import DELAYED, Message
from broker.core.publishing.delay import count_delayed
from broker.core.publishing.outcome import ROUTED, Outcome
from broker.core.queues.attach import detach
from broker.core.queues.returns import release_entries
from broker.core.routing.bindings import SLICE as BINDINGS
from broker.core.transactions.transaction import HeldPublish, Transaction
from broker.core.vhosts.deletion import DISPOSAL_SLICE, QUEUE
from broker.core.vhosts.vhost import VirtualHost
from tests.clock import HandClock
from tests.policies import put
from tests.topology import (
    RecordingStore,
    add_exchange,
    consume,
    definitions_of,
    new_broker,
    publish,
    rebuilt,
    routed,
)

MANY = 3 * int(DISPOSAL_SLICE // QUEUE)  # slices of empty queues
LATER_MS = 3_600_000


class Land:
    """A broker with the virtual host `v`: `first`, the last queue to go, and many others."""

    def __init__(self, arguments: dict[str, object] | None = None) -> None:
        self.clock = HandClock()
        self.store = RecordingStore()
        self.broker = new_broker(self.store, self.clock)
        self.left: list[str] = []
        self.broker.left.append(self.left.append)
        self.vhost = self.broker.declare_vhost("v")
        self.first = self.vhost.declarations.declare_queue("first", True, None, False, arguments or {})
        for number in range(MANY):
            self.vhost.declarations.declare_queue(f"q{number}", number % 2 == 0, None, False, {})

    def delete(self) -> None:
        """Delete it: a first slice has gone, and there is more."""
        self.broker.delete_vhost("v")
        assert self.left == []

    def turn(self) -> None:
        """One turn, much later, so that whatever was to happen by then is due."""
        self.clock.now += LATER_MS
        self.clock.schedule.run()

    def finish(self) -> None:
        """The turns that are left."""
        self.clock.advance(0)
        assert self.left == ["v"]


def kinds(broker: Broker) -> set[object]:
    """What there is to say of a broker."""
    return {change["kind"] for change in definitions_of(broker)}


def test_it_is_gone_at_once_and_let_go_of_in_slices() -> None:
    land = Land()
    add_exchange(land.vhost, "x", durable=True)
    queues = list(land.vhost.topology.queues.values())
    for queue in queues:
        land.vhost.declarations.bind_queue(queue.name, "x", queue.name, {})
    before = len(land.store.changes)
    land.delete()
    assert land.store.changes[before:] == [{"kind": "vhost.delete", "name": "v"}]
    assert (list(land.broker.vhosts), kinds(land.broker)) == ([], {"next_number"})
    assert all(queue.deleted for queue in queues)
    assert (land.vhost.topology.queues, land.vhost.topology.exchanges) == ({}, {})
    numbered = []
    while not land.left:
        numbered.append(sum(land.broker.queue_numbered(n) is not None for n in range(1, MANY // 2 + 2)))
        land.clock.schedule.run()
    assert numbered[0] > numbered[-1] > 0
    assert len(numbered) >= 3, "each of them has turns of its own"
    assert sum(land.broker.queue_numbered(n) is not None for n in range(1, MANY // 2 + 2)) == 0
    land.clock.advance(0)
    assert not land.vhost.topology.bindings.has_deleted()
    assert rebuilt(land.store.changes).vhosts == {}


def test_what_is_in_its_queues_counts() -> None:
    land = Land()
    for number in range(10):
        publish(land.vhost, "", f"q{2 * number}", persistent=True)
    for _ in range(int(DISPOSAL_SLICE)):
        publish(land.vhost, "", "first", persistent=True)
    land.delete()
    land.finish()
    assert len(land.store.forgotten) == DISPOSAL_SLICE + 10
    assert list(land.first.entries) == []


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
def test_nothing_happens_in_a_queue_in_time(arguments: dict[str, object]) -> None:
    land = Land(arguments)
    queue = land.first
    taker, consumer = consume(queue)
    publish(land.vhost, "", "first", persistent=True, message_id="1")
    if "x-retry-min" in arguments:
        entry = next(iter(queue.entries))
        queue.acquire(entry, consumer)
        release_entries(queue, [entry], consumer)
        assert queue.held == 1
    land.delete()
    changes, depth = len(land.store.changes), queue.depth
    land.turn()
    assert (queue.depth, len(land.store.settled), taker.taken) == (depth, 0, [])
    assert len(land.store.changes) == changes
    detach(queue, consumer, [])
    land.vhost.declarations.delete_if_unused(queue)
    land.turn()
    assert land.store.settled == []
    land.finish()
    assert (queue.depth, sum(land.broker.counters.discarded)) == (0, 0)
    assert len(land.store.changes) == changes


def test_what_is_delayed_is_never_sent() -> None:
    land = Land()
    delayed: dict[str, object] = {"x-delayed-type": "direct"}
    land.vhost.declarations.declare_exchange("x", "x-delayed-message", True, False, False, delayed)
    land.vhost.declarations.bind_queue("q0", "x", "k", {})
    for number in range(MANY):
        add_exchange(land.vhost, f"x{number}")  # the last ones go first
    publish(land.vhost, "x", "k", persistent=True, headers={"x-delay": 1000})
    message = Message(land.vhost.publisher.route("", "first").address, b"", 0, True, 0)
    message.marks = DELAYED
    message.date = land.clock.date() + 1000
    land.vhost.publisher.publish_carefully(land.vhost.publisher.route("", "first"), message)
    assert count_delayed(land.first) == 1
    appended = len(land.store.enqueued)
    land.delete()
    land.turn()
    land.finish()
    assert (len(land.store.enqueued), land.store.settled) == (appended, [])
    assert len(land.store.forgotten) == appended


def test_it_is_made_again_under_its_name_meanwhile() -> None:
    land = Land()
    old = land.vhost
    put(old, "limit", "^q", max_length=1)
    land.delete()
    highest = land.broker.next_number
    again = land.broker.declare_vhost("v")
    queues = [again.declarations.declare_queue(f"q{number}", True, None, False, {}) for number in range(2)]
    again.declarations.bind_queue("q0", "amq.fanout", "", {})
    for _ in range(2):
        assert publish(again, "amq.fanout", persistent=True) is ROUTED
    land.finish()
    assert [queue.number for queue in queues] == [highest, highest + 1]
    assert [land.broker.queue_numbered(queue.number) for queue in queues] == queues
    assert (queues[0].ready, routed(again, "amq.fanout"), again.policies.all()) == (2, ["q0"], [])
    assert land.store.forgotten == []
    assert definitions_of(rebuilt(land.store.changes)) == definitions_of(land.broker)
    with pytest.raises(NotFound):
        publish(old, "", "q0")


def test_it_is_deleted_again_before_the_first_one_is_let_go_of() -> None:
    land = Land()
    land.delete()
    again = land.broker.declare_vhost("v")
    queue = again.declarations.declare_queue("q", True, None, False, {})
    land.broker.delete_vhost("v")
    assert (land.left, queue.deleted, land.broker.vhosts) == (["v"], True, {})
    land.clock.advance(0)
    assert land.left == ["v", "v"]


def test_its_bindings_go_in_slices_too() -> None:
    land = Land()
    add_exchange(land.vhost, "x")
    gone = land.vhost.topology.exchanges["x"]
    selected: dict[str, object] = {"x-filter-jms-selector": "TRUE"}
    count = 2 * int(BINDINGS) + 500
    for number in range(count):
        land.vhost.declarations.bind_queue("q0", "x", str(number), selected)
    land.delete()
    left = [int(gone.conditional)]
    while gone.conditional:
        land.clock.schedule.run()
        left.append(int(gone.conditional))
    assert left == [count, count - BINDINGS, count - 2 * BINDINGS, 0]


class Pledge(Transaction):
    """A transaction that is told nothing."""

    def committed(self) -> None:
        pass


class Pledged(HeldPublish):
    """A publish that is told nothing."""

    def report_outcome(self, outcome: Outcome) -> None:
        pass


def promised(vhost: VirtualHost, key: str) -> Pledged:
    """A persistent message that is to be published by a transaction."""
    route = vhost.publisher.route("", key)
    return Pledged(route, Message(route.address, b"", 0, True, 0), [], False)


def test_a_transaction_that_waits_for_the_disk_puts_nothing_into_it() -> None:
    land = Land()
    pledge = Pledge(land.vhost.publisher)
    pledge.publishes.append(promised(land.vhost, "first"))
    waiting: list[object] = []
    land.store.wait = waiting.append  # type: ignore[method-assign,assignment]
    pledge.commit()
    assert waiting == [pledge]
    land.delete()
    pledge.on_durable(1)
    assert (land.first.depth, len(land.store.forgotten)) == (0, 1)
    land.finish()
    assert len(land.store.forgotten) == 1
