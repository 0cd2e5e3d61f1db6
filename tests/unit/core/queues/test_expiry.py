"""Time to live of messages and of unused queues. [RabbitMQ x-expires]"""

from broker.core.message import NEVER, Message
from broker.core.queues.attach import detach, get_one
from broker.core.queues.immediate import enqueue_immediate
from broker.core.queues.limits import SLICE, touch
from broker.core.vhosts.definitions import restore_message
from tests.support.core.purge import purge
from tests.support.core.queue_bench import ADDRESS
from tests.support.core.timed_vhost import VhostBench, delivered_bench, numbers
from tests.support.core.topology import RecordingStore


def test_a_message_is_gone_when_its_time_is_over() -> None:
    bench = VhostBench()
    queue = bench.queue(message_ttl=100)
    bench.publish()
    bench.clock.advance(99)
    assert numbers(queue) == [1]
    bench.clock.advance(1)
    assert numbers(queue) == []
    assert (queue.ready, queue.ready_bytes) == (0, 0)
    assert bench.died() == {"expired": 1}


def test_the_smaller_of_queue_and_message_ttl_applies() -> None:
    bench = VhostBench()
    queue = bench.queue(message_ttl=100)
    bench.publish(expiration=50)
    bench.publish(expiration=200)
    bench.clock.advance(50)
    assert numbers(queue) == [2]
    bench.clock.advance(50)
    assert numbers(queue) == []


def test_messages_expire_anywhere_in_the_queue() -> None:
    bench = VhostBench()
    queue = bench.queue()
    for expiration in (NEVER, 3_600_000, 30, 10, NEVER, 20):
        bench.publish(expiration=expiration)
    found = []
    for _ in range(3):
        bench.clock.advance(10)
        found.append(numbers(queue))
    assert found == [[1, 2, 3, 5, 6], [1, 2, 3, 5], [1, 2, 5]]


def test_expired_messages_are_not_delivered_despite_a_late_alarm() -> None:
    bench = VhostBench()
    queue = bench.queue()
    for expiration in (NEVER, 10, 20, 10, NEVER):
        bench.publish(expiration=expiration)
    client = bench.client(queue, prefetch=1)
    bench.run()
    bench.clock.now += 15  # and no alarm has rung
    client.ack()
    bench.run()
    bench.clock.now += 10
    client.ack()
    bench.run()
    assert client.numbers == [1, 3, 5]
    assert bench.died() == {"expired": 2}


def test_expired_messages_are_not_browsed_despite_a_late_alarm() -> None:
    bench = VhostBench()
    queue = bench.queue(message_ttl=10)
    bench.publish(count=2)
    bench.clock.now += 10
    bench.publish()
    browser = bench.client(queue, acquires=False)
    bench.run()
    assert browser.numbers == [3]


def test_basic_get_gets_no_expired_message_despite_a_late_alarm() -> None:
    bench = VhostBench()
    queue = bench.queue()
    bench.publish(count=3, expiration=10)
    bench.publish()
    bench.clock.now += 10
    getter = bench.client(queue, acquires=False).consumer
    entry = get_one(queue, getter)
    assert entry is not None
    assert entry.message.content == b"4"


def test_an_acquired_entry_expires_when_it_returns() -> None:
    bench, queue, client = delivered_bench(count=3, prefetch=2, message_ttl=100)
    bench.clock.advance(150)
    assert numbers(queue) == [1, 2], "only the third was still to be had"
    client.ack(1)
    client.close()
    client.nack()
    assert numbers(queue) == []
    assert bench.died() == {"expired": 2}


def test_an_entry_that_returns_in_time_keeps_its_expiration() -> None:
    bench, queue, client = delivered_bench(prefetch=1, message_ttl=100)
    bench.clock.advance(60)
    client.close()
    client.nack()
    bench.clock.advance(39)
    assert numbers(queue) == [1]
    bench.clock.advance(1)
    assert numbers(queue) == []


def test_a_settled_message_never_expires() -> None:
    bench, queue, client = delivered_bench(count=2, message_ttl=100)
    client.ack()
    assert queue.limits is not None
    assert queue.limits.timers.count == 0
    bench.clock.advance(200)
    assert bench.died() == {}


def test_time_to_live_of_0_is_delivery_at_once_or_none() -> None:
    bench = VhostBench()
    queue = bench.queue(message_ttl=0)
    bench.publish()
    assert numbers(queue) == []
    client = bench.client(queue, prefetch=2)
    bench.publish(count=3)
    assert client.numbers == [2, 3], "the consumer has had no turn yet"
    assert client.session.connection.scheduled
    assert bench.died() == {"expired": 2}


def test_a_message_with_expiration_0_expires_on_return() -> None:
    bench = VhostBench()
    queue = bench.queue()
    client = bench.client(queue, prefetch=1)
    bench.publish(expiration=0)
    client.nack()
    assert numbers(queue) == []
    assert client.numbers == [1]
    assert bench.died() == {"expired": 1}


def test_expiration_0_comes_after_what_is_before_it() -> None:
    bench = VhostBench()
    queue = bench.queue()
    client = bench.client(queue, prefetch=3)
    bench.publish(count=2)
    bench.publish(expiration=0)
    bench.publish(expiration=0)
    assert client.numbers == [1, 2, 3]
    assert bench.died() == {"expired": 1}
    bench.run()
    assert client.numbers == [1, 2, 3]
    assert queue.unacked == 3


def test_expiration_0_behind_a_backlog_that_nobody_takes_expires() -> None:
    bench = VhostBench()
    queue = bench.queue()
    bench.publish()
    bench.publish(expiration=0)
    assert numbers(queue) == [1]


def test_an_immediate_message_is_not_held_up_by_what_is_over() -> None:
    bench = VhostBench()
    queue = bench.queue()
    bench.publish(expiration=10)
    bench.clock.now += 10
    client = bench.client(queue)
    assert enqueue_immediate(queue, Message(ADDRESS, b"7", 1, False, 0))
    assert client.numbers == [7]


def test_an_immediate_message_that_comes_back_has_its_time() -> None:
    bench = VhostBench()
    queue = bench.queue(message_ttl=50)
    client = bench.client(queue, prefetch=1)
    for number, expiration in ((7, 10), (8, NEVER)):
        message = Message(ADDRESS, b"%d" % number, 1, False, 0)
        message.expiration = expiration
        assert enqueue_immediate(queue, message)
        client.nack()
        bench.clock.advance(9)
        assert numbers(queue) == [number]
        bench.clock.advance(1)
        assert numbers(queue) == ([] if number == 7 else [8])
        bench.clock.advance(40)
        assert numbers(queue) == []
    assert bench.died() == {"expired": 2}


def test_many_entries_due_at_once_expire_in_slices() -> None:
    bench = VhostBench()
    queue = bench.queue(message_ttl=10)
    bench.publish(count=3 * SLICE)
    assert bench.clock.wakes == [bench.clock.now + 10], "one alarm, set once"
    bench.clock.now += 10
    left = []
    while bench.clock.wakes:
        bench.clock.wakes.clear()
        bench.clock.schedule.run()
        left.append(queue.ready)
    assert left[:3] == [2 * SLICE, SLICE, 0]


def test_a_purge_stops_the_timers() -> None:
    bench = VhostBench()
    queue = bench.queue(message_ttl=10)
    bench.publish(count=5)
    assert purge(queue) == 5
    assert queue.limits is not None
    assert queue.limits.timers.count == 0
    bench.clock.advance(20)
    assert bench.died() == {}


def test_a_deleted_queue_rings_no_more() -> None:
    bench = VhostBench()
    queue = bench.queue(message_ttl=10)
    bench.publish(count=5)
    bench.vhost.declarations.delete_queue("q", False, False)
    bench.clock.advance(20)
    assert queue.deleted
    assert bench.died() == {}


def test_messages_are_dated_before_they_are_appended() -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    bench.queue("plain", durable=True)
    bench.queue("brief", durable=True, message_ttl=1000)
    bench.publish("plain", persistent=True)
    bench.publish("plain", persistent=True, expiration=5000)
    bench.publish("brief", persistent=True)
    dates = [message.date for message, _ in store.enqueued]
    assert dates == [0, bench.clock.date(), bench.clock.date()]


def test_the_time_goes_on_while_the_broker_does_not() -> None:
    bench = VhostBench()
    queue = bench.queue(message_ttl=1000)
    plain = bench.queue("plain")
    for age, expiration, where in (
        (300, NEVER, queue),
        (2000, NEVER, queue),
        (300, 400, queue),
        (300, 400, plain),
        (-50, NEVER, queue),
    ):
        message = Message(ADDRESS, b"%d" % age, 1, True, 0)
        message.date = bench.clock.date() - age
        message.expiration = expiration
        restore_message(where, message, True)
    undated = Message(ADDRESS, b"9", 1, True, 0)
    restore_message(queue, undated, True)
    ends: list[tuple[int, list[int]]] = []
    for end in (0, 99, 100, 699, 700, 999, 1000):
        bench.clock.advance(max(0, end - (bench.clock.now - 1000)))
        ends.append((end, sorted(numbers(queue) + numbers(plain))))
    assert ends == [
        (0, [-50, 9, 300, 300, 300]),
        (99, [-50, 9, 300, 300, 300]),
        (100, [-50, 9, 300]),
        (699, [-50, 9, 300]),
        (700, [-50, 9]),
        (999, [-50, 9]),
        (1000, []),
    ]


def queue_exists(bench: VhostBench, name: str = "q") -> bool:
    return name in bench.vhost.topology.queues


def test_an_unused_queue_expires() -> None:
    bench = VhostBench()
    bench.queue(expires=100)
    bench.clock.advance(99)
    assert queue_exists(bench)
    bench.clock.advance(1)
    assert not queue_exists(bench)


def test_messages_do_not_prevent_queue_expiry() -> None:
    bench = VhostBench()
    bench.queue(expires=100)
    bench.clock.advance(50)
    bench.publish()
    bench.clock.advance(50)
    assert not queue_exists(bench)


def test_redeclare_and_basic_get_restart_queue_expiry() -> None:
    bench = VhostBench()
    queue = bench.queue(expires=100)
    bench.clock.advance(60)
    bench.queue(expires=100)
    bench.clock.advance(60)
    get_one(queue, bench.client(queue, acquires=False).consumer)
    for client in list(queue.manager.all):
        detach(queue, client, [])
    bench.clock.advance(60)
    touch(queue)  # a passive declaration
    bench.clock.advance(99)
    assert queue_exists(bench)
    bench.clock.advance(1)
    assert not queue_exists(bench)


def test_queue_expiry_begins_when_the_last_consumer_is_cancelled() -> None:
    bench = VhostBench()
    queue = bench.queue(expires=100)
    first, second = bench.client(queue), bench.client(queue)
    bench.clock.advance(500)
    first.cancel()
    bench.clock.advance(500)
    second.vanish()
    bench.clock.advance(99)
    assert queue_exists(bench)
    bench.clock.advance(1)
    assert not queue_exists(bench)


def test_a_durable_queue_is_deleted_in_the_log_too() -> None:
    bench = VhostBench()
    bench.queue(durable=True, expires=100)
    bench.clock.advance(100)
    kinds = [change["kind"] for change in bench.store.changes]  # type: ignore[attr-defined]
    assert kinds[-1] == "queue.delete"


def test_a_queue_deleted_and_declared_again_has_a_new_expiry() -> None:
    bench = VhostBench()
    bench.queue(expires=100)
    bench.clock.advance(50)
    bench.vhost.declarations.delete_queue("q", False, False)
    bench.queue(expires=100)
    bench.clock.advance(99)
    assert queue_exists(bench)
    bench.clock.advance(1)
    assert not queue_exists(bench)


def test_messages_expire_while_the_queue_is_unused() -> None:
    bench = VhostBench()
    queue = bench.queue(expires=100, message_ttl=30)
    bench.publish(count=2)
    bench.clock.advance(30)
    assert queue_exists(bench)
    assert queue.ready == 0
    bench.clock.advance(70)
    assert not queue_exists(bench)
