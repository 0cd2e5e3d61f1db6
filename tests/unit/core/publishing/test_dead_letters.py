"""Dead letters: reasons, destinations, and rounds within a single step."""

from typing import Any

import pytest

from broker.adapters.formats.either import view_of
from broker.core.entries.entry import AVAILABLE
from broker.core.publishing.dead_letters import REPORT_MS
from broker.core.publishing.publisher import REFUSED, ROUTED
from broker.core.queues.hooks import EXHAUSTED
from broker.core.queues.queue import Queue, dead_letter, dead_letter_exhausted
from tests.support.core.hand_clock import HandClock
from tests.support.core.queue_bench import Client, HandScheduler
from tests.support.core.timed_vhost import VhostBench, entry_of, numbers
from tests.support.core.topology import RecordingStore, new_vhost, publish


def dead_lettering(bench: VhostBench, name: str = "q", to: str = "dead", **arguments: Any) -> None:
    """A queue whose dead letters go to the queue `to`, by way of the default exchange."""
    bench.queue(name, dead_letter_exchange="", dead_letter_routing_key=to, **arguments)


def test_expired_messages_go_to_the_exchange_with_the_key() -> None:
    bench = VhostBench()
    dead_lettering(bench, message_ttl=10)
    dead = bench.queue("dead")
    bench.publish(count=2, priority=3)
    bench.clock.advance(10)
    assert numbers(dead) == [1, 2]
    address = next(iter(dead.entries)).message.address
    assert (address.exchange, address.routing_key) == ("", "dead")
    assert next(iter(dead.entries)).message.priority == 3
    assert bench.counters.dead_lettered == [0, 2, 0, 0, 0, 0]


def test_a_dead_letter_keeps_its_routing_key_without_a_dead_letter_routing_key() -> None:
    bench = VhostBench()
    bench.queue(dead_letter_exchange="amq.direct", max_length=0)
    bench.vhost.declarations.bind_queue("q", "amq.direct", "k", {})
    dead = bench.queue("dead")
    bench.vhost.declarations.bind_queue("dead", "amq.direct", "q", {})
    bench.publish()
    assert numbers(dead) == [1]
    address = next(iter(dead.entries)).message.address
    assert (address.exchange, address.routing_key) == ("amq.direct", "q")


def test_rejected_messages_are_dead_lettered_and_requeued_ones_are_not() -> None:
    bench = VhostBench()
    dead_lettering(bench)
    dead = bench.queue("dead")
    queue = bench.vhost.topology.queues["q"]
    client = bench.client(queue, prefetch=3)
    bench.publish(count=3)
    bench.run()
    client.reject(2)
    client.close()
    client.nack(1)
    client.ack(3)
    assert numbers(dead) == [2]
    assert numbers(queue) == [1]
    assert (queue.unacked, queue.ready) == (0, 1)
    assert bench.died() == {"rejected": 1}


@pytest.mark.parametrize("acquired", [True, False])
def test_messages_beyond_the_delivery_limit_are_dead_lettered(acquired: bool) -> None:
    bench = VhostBench()
    dead_lettering(bench)
    dead = bench.queue("dead")
    queue = bench.vhost.topology.queues["q"]
    client = bench.client(queue, prefetch=1)
    bench.publish(count=2)
    bench.run()
    dead_letter(queue, entry_of(queue, 1 if acquired else 2), EXHAUSTED)
    assert numbers(dead) == [1 if acquired else 2]
    assert client.consumer.inflight == (0 if acquired else 1)
    assert bench.died() == {"delivery_limit": 1}


def test_the_oldest_messages_beyond_the_length_limit_are_dead_lettered() -> None:
    bench = VhostBench()
    dead_lettering(bench, max_length=1)
    dead = bench.queue("dead")
    bench.publish(count=3)
    assert numbers(dead) == [1, 2]
    assert bench.died() == {"maxlen": 2}


def test_purging_and_deleting_dead_letters_nothing() -> None:
    bench = VhostBench()
    dead_lettering(bench)
    dead = bench.queue("dead")
    bench.publish(count=2)
    bench.vhost.declarations.purge_queue("q")
    bench.publish(count=2)
    bench.vhost.declarations.delete_queue("q", False, False)
    assert numbers(dead) == []
    assert bench.died() == {}


def test_a_missing_dead_letter_exchange_drops_dead_letters() -> None:
    bench = VhostBench()
    queue = bench.queue(dead_letter_exchange="later", message_ttl=10)
    bench.publish()
    bench.clock.advance(10)
    assert numbers(queue) == []
    assert bench.counters.discarded == [0, 0, 0, 0, 0, 0]
    assert bench.dropped() == {"expired, no_exchange": 1}
    bench.vhost.declarations.declare_exchange("later", "fanout", False, False, True, {})
    dead = bench.queue("dead")
    bench.vhost.declarations.bind_queue("dead", "later", "", {})
    bench.publish()
    bench.clock.advance(10)
    assert numbers(dead) == [2], "the exchange is found when it is needed, and may be internal"
    bench.vhost.declarations.delete_exchange("later", False)
    bench.publish()
    bench.clock.advance(10)
    assert bench.counters.dead_lettered == [0, 1, 0, 0, 0, 0]
    assert bench.dropped() == {"expired, no_exchange": 2}


def test_a_dead_letter_that_leads_nowhere_is_gone() -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    dead_lettering(bench, durable=True, message_ttl=10)
    bench.publish(persistent=True)
    bench.clock.advance(10)
    assert [message.content for message, _ in store.settled] == [b"1"]
    assert len(store.enqueued) == 1


def test_removal_and_arrival_are_one_append() -> None:
    class Store(RecordingStore):
        def __init__(self) -> None:
            super().__init__()
            self.deaths: list[tuple[object, list[str], object, str]] = []

        def append_death(self, letter, queues, message, queue) -> None:  # type: ignore[no-untyped-def]
            self.deaths.append((letter.content, [q.name for q in queues], message.content, queue.name))
            letter.sequence = -7

    store = Store()
    bench = VhostBench(store)
    dead_lettering(bench, durable=True, message_ttl=10)
    dead = bench.queue("dead", durable=True)
    bench.publish(persistent=True)
    bench.publish()
    bench.clock.advance(10)
    assert store.deaths == [(b"1", ["dead"], b"1", "q")]
    assert (len(store.enqueued), store.settled) == (1, [])
    assert numbers(dead) == [1, 2]
    assert [(entry.message.died, entry.message.date) for entry in dead.entries] == [
        (True, bench.clock.date())
    ] * 2


def test_a_persistent_message_becomes_durable_where_the_queue_is() -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    dead_lettering(bench, message_ttl=10)
    bench.queue("dead", durable=True)
    bench.publish(persistent=True)
    bench.clock.advance(10)
    assert [queues for _, queues in store.enqueued] == [["dead"]]


def test_a_durable_message_in_a_transient_queue_is_let_go_by_the_log() -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    dead_lettering(bench, durable=True, message_ttl=10)
    dead = bench.queue("dead")
    bench.publish(persistent=True)
    bench.clock.advance(10)
    assert [name for _, name in store.settled] == ["q"]
    assert numbers(dead) == [1]


def test_a_long_row_of_queues_that_are_too_short() -> None:
    bench = VhostBench()
    for number in range(3000):
        dead_lettering(bench, f"q{number}", to=f"q{number + 1}", max_length=0)
    last = bench.queue("q3000")
    bench.publish("q0")
    assert numbers(last) == [1]
    assert bench.died() == {"maxlen": 3000}


def test_a_full_queue_refuses_dead_letters_too() -> None:
    bench = VhostBench()
    dead_lettering(bench, message_ttl=10)
    dead = bench.queue("dead", max_length=1, overflow="reject-publish")
    bench.publish(count=3)
    bench.clock.advance(10)
    assert numbers(dead) == [1]
    assert bench.counters.dead_lettered == [0, 1, 0, 0, 0, 0]
    assert bench.dropped() == {"expired, full": 2}


def test_reject_publish_dlx_refuses_and_dead_letters() -> None:
    bench = VhostBench()
    dead_lettering(bench, max_length=1, overflow="reject-publish-dlx")
    dead = bench.queue("dead")
    assert [bench.publish() for _ in range(3)] == [ROUTED, REFUSED, REFUSED]
    assert numbers(bench.vhost.topology.queues["q"]) == [1]
    assert numbers(dead) == [2, 3]


def test_a_dead_letter_that_a_full_queue_sends_on() -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    dead_lettering(bench, durable=True, message_ttl=10)
    dead_lettering(bench, "dead", to="last", durable=True, max_length=0, overflow="reject-publish-dlx")
    last = bench.queue("last", durable=True)
    bench.publish(persistent=True)
    bench.clock.advance(10)
    assert numbers(last) == [1]
    assert [queues for _, queues in store.enqueued] == [["q"], ["last"]]
    assert [name for _, name in store.settled] == ["q"]


def test_an_unreadable_message_does_not_prevent_other_dead_letters() -> None:
    store = Unreadable()
    bench = VhostBench(store)
    dead_lettering(bench, durable=True, message_ttl=10)
    dead = bench.queue("dead", durable=True)
    bench.publish(count=3, persistent=True)
    store.enqueued[1][0].content = None
    bench.clock.advance(10)
    assert numbers(dead) == [1, 3]
    assert [message.content for message, _ in store.settled] == [b"1", b"3"], "the log goes on holding it"
    assert bench.counters.dead_letters_failed == 1
    why = "OSError: the disk does not give it back"
    assert bench.troubles == [f"dead letters failed: 1, the last one of queue 'q' in vhost '/': {why}"]


class Unreadable(RecordingStore):
    def load(self, message: object) -> bytes:
        raise OSError("the disk does not give it back")


def test_an_unreadable_message_still_makes_room_for_a_new_message() -> None:
    store = Unreadable()
    bench = VhostBench(store)
    for name in ("a", "b", "c"):
        dead_lettering(bench, name, durable=True, max_length=1)
        bench.vhost.declarations.bind_queue(name, "amq.fanout", "", {})
    bench.publish(exchange="amq.fanout", persistent=True)
    store.enqueued[0][0].content = None
    assert bench.publish(exchange="amq.fanout", persistent=True) is ROUTED
    assert [numbers(bench.vhost.topology.queues[name]) for name in ("a", "b", "c")] == [[2], [2], [2]]
    assert bench.counters.dead_letters_failed == 3
    assert len(bench.troubles) == 1, "it is told once in a while"
    bench.clock.advance(REPORT_MS)
    store.enqueued[1][0].content = None
    bench.publish(exchange="amq.fanout", persistent=True)
    assert bench.troubles[1].startswith("dead letters failed: 3, the last one of queue 'a' in")


def test_an_unreadable_message_does_not_prevent_the_requeue_of_other_messages() -> None:
    store = Unreadable()
    bench = VhostBench(store)
    dead_lettering(bench, durable=True, delivery_limit=0)
    queue = bench.vhost.topology.queues["q"]
    client = bench.client(queue)
    bench.publish(count=3, persistent=True)
    bench.run()
    queue.delivery_limit = 1
    entry_of(queue, 2).delivery_count = 2
    store.enqueued[1][0].content = None
    client.vanish()
    assert (numbers(queue), queue.ready, queue.unacked) == ([1, 3], 2, 0)


class Round:
    """Two queues with room for a message each, which send each other their dead letters."""

    def __init__(self, **arguments: object) -> None:
        self.clock = HandClock()
        self.vhost = new_vhost(clock=self.clock)
        self.queue = self.declare("q", "r", **arguments)
        self.other = self.declare("r", "q")
        self.client = Client(self.queue, HandScheduler())

    def declare(self, name: str, to: str, **arguments: object) -> Queue:
        held: dict[str, object] = {
            "x-max-length": 1,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": to,
        }
        held |= {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.vhost.declarations.declare_queue(name, False, None, False, held)

    def deliver(self, *names: str) -> None:
        """Publish messages that the client has, then."""
        for name in names:
            publish(self.vhost, "", "q", message_id=name)
        while self.queue.deliver_single_message(self.client.consumer):
            pass

    def names(self, queue: Queue) -> list[object]:
        """Return the names of the queue's messages; all must be ready and counted."""
        entries = list(queue.entries)
        assert all(entry.state == AVAILABLE for entry in entries)
        assert (queue.ready, queue.unacked) == (len(entries), 0)
        assert queue.ready_bytes == sum(entry.message.size for entry in entries)
        return [view_of(entry.message, self.vhost.store).property("message_id") for entry in entries]


@pytest.mark.parametrize("exhausted", ["a", "b", "c"])
def test_a_released_entry_has_reached_the_delivery_limit(exhausted: str) -> None:
    bench = Round(delivery_limit=1)
    publish(bench.vhost, "", "r", message_id="old")
    bench.deliver("a", "b", "c")
    for entry in bench.client.held:
        if view_of(entry.message, bench.vhost.store).property("message_id") == exhausted:
            entry.delivery_count = 2
    bench.client.vanish()
    assert len(bench.names(bench.queue)) == 1
    assert len(bench.names(bench.other)) == 1
    late = Client(bench.queue, HandScheduler())
    assert bench.queue.deliver_single_message(late.consumer), "it is where consumers look"


def test_released_messages_beyond_their_ttl_are_dead_lettered() -> None:
    bench = Round(message_ttl=100)
    publish(bench.vhost, "", "r", message_id="old")
    bench.deliver("a", "b")
    bench.clock.now += 100
    bench.deliver("c")
    bench.client.vanish()
    bench.clock.advance(0)
    assert len(bench.names(bench.queue)) <= 1
    assert len(bench.names(bench.other)) == 1
    bench.clock.advance(100)
    assert bench.names(bench.queue) == []


def test_a_message_beyond_the_delivery_limit_after_a_crash_is_dropped_for_the_one_before() -> None:
    bench = Round(delivery_limit=1)
    publish(bench.vhost, "", "r", message_id="old")
    limits = bench.queue.limits
    assert limits is not None
    limits.max_length = 3
    for name in ("a", "b", "c"):
        bench.client.close()
        publish(bench.vhost, "", "q", message_id=name)
    for entry in bench.queue.entries:
        entry.delivery_count = 2
    limits.max_length = 1
    dead_letter_exhausted(bench.queue)
    assert len(bench.names(bench.queue)) <= 1
    assert len(bench.names(bench.other)) == 1
