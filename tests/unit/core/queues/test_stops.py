"""Queues of which enqueue or dequeue is switched off."""

import pytest

from broker.core.errors import PreconditionFailed, QueueStopped, StoreFailed
from broker.core.message import Message
from broker.core.publishing.publisher import ROUTED
from broker.core.queues.attach import attach, get_one
from broker.core.queues.consumer import INTERESTED, NOT_INTERESTED, NOTIFIED, QueueConsumer
from broker.core.queues.queue import Queue
from broker.core.queues.returns import release_entries
from broker.core.queues.stops import DEQUEUE, ENQUEUE, stopped
from broker.core.transactions.transaction import HeldPublish, Transaction
from broker.core.vhosts.alteration import stop_queue
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.topology import (
    KeepingTarget,
    RecordingStore,
    add_exchange,
    add_queue,
    consume,
    content_of,
    definitions_of,
    new_broker,
    new_vhost,
    publish,
    pull,
    rebuilt,
)


def dead_lettering(vhost: VirtualHost, name: str, to: str) -> Queue:
    """A queue whose dead letters go to the queue `to`."""
    arguments: dict[str, object] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": to}
    return vhost.declarations.declare_queue(name, False, None, False, arguments)


def getter(queue: Queue) -> QueueConsumer:
    """Return a consumer for basic.get."""
    return QueueConsumer(KeepingTarget(), queue)


def test_a_route_that_was_known_before_leads_no_further() -> None:
    vhost = new_vhost()
    queue, other = add_queue(vhost, "q"), add_queue(vhost, "other")
    add_exchange(vhost, "x", "fanout")
    for name in ("q", "other"):
        vhost.declarations.bind_queue(name, "x", "", {})
    route = vhost.publisher.route("x", "")
    message = Message(route.address, content_of(), 0, False, 0)
    assert vhost.publisher.publish(route, message) is ROUTED
    stop_queue(vhost.topology, queue, [ENQUEUE])
    for immediate in (False, True):
        with pytest.raises(QueueStopped, match="queue 'q' in vhost '/' is stopped"):
            vhost.publisher.publish(route, message, immediate=immediate)
    assert (queue.ready, other.ready) == (1, 1)  # none of its queues gets what one refuses
    stop_queue(vhost.topology, queue, [])
    assert vhost.publisher.publish(route, message) is ROUTED
    assert not route.careful


def test_publishes_through_exchanges_that_route_by_message_are_refused_too() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    add_exchange(vhost, "x", "headers")
    vhost.declarations.bind_queue("q", "x", "", {"x-match": "all"})
    stop_queue(vhost.topology, queue, [ENQUEUE])
    with pytest.raises(QueueStopped):
        publish(vhost, "x")


def test_a_refused_transaction_names_its_refused_publish() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    transaction = Transaction(vhost.publisher)
    route = vhost.publisher.route("", "q")
    transaction.publishes = [HeldPublish(route, Message(route.address, content_of(), 0, False, 0), [], False)]
    stop_queue(vhost.topology, queue, [ENQUEUE])
    with pytest.raises(
        PreconditionFailed, match=r"publish 1 of 1 in the transaction: queue 'q' .* is stopped"
    ):
        transaction.commit()
    assert queue.ready == 0


def test_a_stopped_queue_accepts_dead_letters_and_returned_messages() -> None:
    vhost = new_vhost()
    queue, dead = dead_lettering(vhost, "q", "dead"), add_queue(vhost, "dead")
    for _ in range(2):
        publish(vhost, "", "q")
    for stopped_queue in (queue, dead):
        stop_queue(vhost.topology, stopped_queue, [ENQUEUE])
    consumer = getter(queue)
    first, second = get_one(queue, consumer), get_one(queue, consumer)
    assert first is not None
    assert second is not None
    queue.discard(first)
    release_entries(queue, [second], consumer)
    assert (queue.ready, dead.ready) == (1, 1)


def test_consumers_of_a_stopped_queue_get_no_message_until_its_start() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    _, before = consume(queue)
    stop_queue(vhost.topology, queue, [DEQUEUE])
    _, after = consume(queue)
    publish(vhost, "", "q")
    assert {before.state, after.state} == {NOT_INTERESTED}
    assert pull(before) == pull(after) == 0
    with pytest.raises(QueueStopped, match="queue 'q' in vhost '/' is stopped: it gives out no messages"):
        get_one(queue, getter(queue))
    assert queue.consumer_count == 2
    stop_queue(vhost.topology, queue, [])
    assert sorted([before.state, after.state]) == [INTERESTED, NOTIFIED]  # a message wakes a consumer
    assert pull(before) + pull(after) == 1


def test_a_notified_consumer_gets_nothing_when_the_queue_stops() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    taker, consumer = consume(queue)
    publish(vhost, "", "q")
    assert consumer.state == NOTIFIED
    stop_queue(vhost.topology, queue, [DEQUEUE])
    assert pull(consumer) == 0
    assert taker.taken == []


def test_a_stop_takes_nothing_from_clients_and_what_they_return_waits() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    taker, consumer = consume(queue)
    for _ in range(2):
        publish(vhost, "", "q")
    assert pull(consumer) == 2
    stop_queue(vhost.topology, queue, [DEQUEUE])
    queue.settle(taker.taken[0])
    release_entries(queue, [taker.taken[1]], consumer)
    assert (queue.ready, queue.unacked) == (1, 0)
    assert pull(consumer) == 0
    stop_queue(vhost.topology, queue, [])
    assert pull(consumer) == 1


def test_browsers_go_on_looking() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    stop_queue(vhost.topology, queue, [DEQUEUE])
    browser = QueueConsumer(KeepingTarget(), queue, acquires=False)
    attach(queue, browser)
    publish(vhost, "", "q")
    assert pull(browser) == 1


def test_a_get_that_waits_where_nothing_is_consumed_is_a_browser() -> None:
    vhost = new_vhost()
    queue = vhost.declarations.declare_queue("q", False, None, False, {"x-non-destructive": True})
    waiting = QueueConsumer(KeepingTarget(), queue, acquires=False)
    waiting.getting = True
    attach(queue, waiting)
    for names in ([DEQUEUE], []):
        stop_queue(vhost.topology, queue, names)
        publish(vhost, "", "q")
        assert pull(waiting) == 1


def test_other_reasons_to_wait_outlast_a_start() -> None:
    vhost = new_vhost()
    queue = vhost.declarations.declare_queue("q", False, None, False, {"x-single-active-consumer": True})
    stop_queue(vhost.topology, queue, [DEQUEUE])
    (_, first), (_, second) = consume(queue), consume(queue)
    publish(vhost, "", "q")
    stop_queue(vhost.topology, queue, [])
    assert (first.state, second.state) == (NOTIFIED, NOT_INTERESTED)


def test_a_start_serves_the_higher_priority_first() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    stop_queue(vhost.topology, queue, [DEQUEUE])
    low = QueueConsumer(KeepingTarget(), queue, priority=1)
    high = QueueConsumer(KeepingTarget(), queue, priority=2)
    for consumer in (low, high):
        attach(queue, consumer)
    publish(vhost, "", "q")
    stop_queue(vhost.topology, queue, [])
    assert (low.state, high.state) == (INTERESTED, NOTIFIED)


def test_switches_of_durable_queues_are_logged_and_recovered() -> None:
    store = RecordingStore()
    vhost = new_broker(store).declare_vhost("/")
    durable, transient = add_queue(vhost, "d", durable=True), add_queue(vhost, "t")
    stop_queue(vhost.topology, transient, [ENQUEUE])
    assert store.kinds() == ["vhost", "queue"]
    stop_queue(vhost.topology, durable, [ENQUEUE, DEQUEUE])
    stop_queue(vhost.topology, durable, [ENQUEUE, DEQUEUE])
    assert store.kinds() == ["vhost", "queue", "queue"]
    replayed = rebuilt(store.changes)
    assert stopped(replayed.vhosts["/"].topology.queues["d"]) == [ENQUEUE, DEQUEUE]
    assert stopped(rebuilt(definitions_of(replayed)).vhosts["/"].topology.queues["d"]) == [ENQUEUE, DEQUEUE]
    stop_queue(vhost.topology, durable, [])
    assert stopped(rebuilt(store.changes).vhosts["/"].topology.queues["d"]) == []


def test_a_switch_that_cannot_be_logged_is_not_made() -> None:
    store = RecordingStore()
    vhost = new_broker(store).declare_vhost("/")
    queue = add_queue(vhost, "d", durable=True)
    store.failure = "test"
    with pytest.raises(StoreFailed):
        stop_queue(vhost.topology, queue, [ENQUEUE])
    assert stopped(queue) == []
