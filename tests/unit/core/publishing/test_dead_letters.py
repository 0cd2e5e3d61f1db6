"""Dead letters: reasons, destinations, and rounds within a single step."""

from typing import Any

import pytest

from broker.adapters.formats.either import view_of
from broker.core.entries.entry import AVAILABLE
from broker.core.publishing.dead_letters import REPORT_MS
from broker.core.publishing.passage import REFUSED
from broker.core.queues.hooks import EXHAUSTED
from broker.core.queues.queue import Queue, dead_letter, give_up_exhausted
from tests.support.core.hand_clock import HandClock
from tests.support.core.queue_bench import Client, HandScheduler
from tests.support.core.timed_vhost import VhostBench, entry_of, numbers
from tests.support.core.topology import RecordingStore, new_vhost, publish


def dead_lettering(yard: VhostBench, name: str = "q", to: str = "dead", **arguments: Any) -> None:
    """A queue whose dead letters go to the queue `to`, by way of the default exchange."""
    yard.queue(name, dead_letter_exchange="", dead_letter_routing_key=to, **arguments)


def test_expired_messages_go_to_the_exchange_with_the_key() -> None:
    yard = VhostBench()
    dead_lettering(yard, message_ttl=10)
    dead = yard.queue("dead")
    yard.publish(count=2, priority=3)
    yard.clock.advance(10)
    assert numbers(dead) == [1, 2]
    address = next(iter(dead.entries)).message.address
    assert (address.exchange, address.routing_key) == ("", "dead")
    assert next(iter(dead.entries)).message.priority == 3
    assert yard.counters.dead_lettered == [0, 2, 0, 0, 0, 0]


def test_without_a_key_of_its_own_a_message_keeps_the_one_that_it_has() -> None:
    yard = VhostBench()
    yard.queue(dead_letter_exchange="amq.direct", max_length=0)
    yard.vhost.bind_queue("q", "amq.direct", "k", {})
    dead = yard.queue("dead")
    yard.vhost.bind_queue("dead", "amq.direct", "q", {})
    yard.publish()
    assert numbers(dead) == [1]
    address = next(iter(dead.entries)).message.address
    assert (address.exchange, address.routing_key) == ("amq.direct", "q")


def test_rejected_messages_are_dead_lettered_and_requeued_ones_are_not() -> None:
    yard = VhostBench()
    dead_lettering(yard)
    dead = yard.queue("dead")
    queue = yard.vhost.queues["q"]
    client = yard.client(queue, prefetch=3)
    yard.publish(count=3)
    yard.run()
    client.reject(2)
    client.close()
    client.nack(1)
    client.ack(3)
    assert numbers(dead) == [2]
    assert numbers(queue) == [1]
    assert (queue.unacked, queue.ready) == (0, 1)
    assert yard.died() == {"rejected": 1}


@pytest.mark.parametrize("acquired", [True, False])
def test_messages_beyond_the_delivery_limit_are_dead_lettered(acquired: bool) -> None:
    yard = VhostBench()
    dead_lettering(yard)
    dead = yard.queue("dead")
    queue = yard.vhost.queues["q"]
    client = yard.client(queue, prefetch=1)
    yard.publish(count=2)
    yard.run()
    dead_letter(queue, entry_of(queue, 1 if acquired else 2), EXHAUSTED)
    assert numbers(dead) == [1 if acquired else 2]
    assert client.consumer.inflight == (0 if acquired else 1)
    assert yard.died() == {"delivery_limit": 1}


def test_the_oldest_messages_beyond_the_length_limit_are_dead_lettered() -> None:
    yard = VhostBench()
    dead_lettering(yard, max_length=1)
    dead = yard.queue("dead")
    yard.publish(count=3)
    assert numbers(dead) == [1, 2]
    assert yard.died() == {"maxlen": 2}


def test_purging_and_deleting_dead_letters_nothing() -> None:
    yard = VhostBench()
    dead_lettering(yard)
    dead = yard.queue("dead")
    yard.publish(count=2)
    yard.vhost.purge_queue("q")
    yard.publish(count=2)
    yard.vhost.delete_queue("q", False, False)
    assert numbers(dead) == []
    assert yard.died() == {}


def test_an_exchange_that_is_not_there_drops_them() -> None:
    yard = VhostBench()
    queue = yard.queue(dead_letter_exchange="later", message_ttl=10)
    yard.publish()
    yard.clock.advance(10)
    assert numbers(queue) == []
    assert yard.counters.discarded == [0, 0, 0, 0, 0, 0]
    assert yard.dropped() == {"expired, no_exchange": 1}
    yard.vhost.declare_exchange("later", "fanout", False, False, True, {})
    dead = yard.queue("dead")
    yard.vhost.bind_queue("dead", "later", "", {})
    yard.publish()
    yard.clock.advance(10)
    assert numbers(dead) == [2], "the exchange is found when it is needed, and may be internal"
    yard.vhost.delete_exchange("later", False)
    yard.publish()
    yard.clock.advance(10)
    assert yard.counters.dead_lettered == [0, 1, 0, 0, 0, 0]
    assert yard.dropped() == {"expired, no_exchange": 2}


def test_a_dead_letter_that_leads_nowhere_is_gone() -> None:
    store = RecordingStore()
    yard = VhostBench(store)
    dead_lettering(yard, durable=True, message_ttl=10)
    yard.publish(persistent=True)
    yard.clock.advance(10)
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
    yard = VhostBench(store)
    dead_lettering(yard, durable=True, message_ttl=10)
    dead = yard.queue("dead", durable=True)
    yard.publish(persistent=True)
    yard.publish()
    yard.clock.advance(10)
    assert store.deaths == [(b"1", ["dead"], b"1", "q")]
    assert (len(store.enqueued), store.settled) == (1, [])
    assert numbers(dead) == [1, 2]
    assert [(entry.message.died, entry.message.date) for entry in dead.entries] == [
        (True, yard.clock.date())
    ] * 2


def test_a_persistent_message_becomes_durable_where_the_queue_is() -> None:
    store = RecordingStore()
    yard = VhostBench(store)
    dead_lettering(yard, message_ttl=10)
    yard.queue("dead", durable=True)
    yard.publish(persistent=True)
    yard.clock.advance(10)
    assert [queues for _, queues in store.enqueued] == [["dead"]]


def test_a_durable_message_in_a_transient_queue_is_let_go_by_the_log() -> None:
    store = RecordingStore()
    yard = VhostBench(store)
    dead_lettering(yard, durable=True, message_ttl=10)
    dead = yard.queue("dead")
    yard.publish(persistent=True)
    yard.clock.advance(10)
    assert [name for _, name in store.settled] == ["q"]
    assert numbers(dead) == [1]


def test_a_long_row_of_queues_that_are_too_short() -> None:
    yard = VhostBench()
    for number in range(3000):
        dead_lettering(yard, f"q{number}", to=f"q{number + 1}", max_length=0)
    last = yard.queue("q3000")
    yard.publish("q0")
    assert numbers(last) == [1]
    assert yard.died() == {"maxlen": 3000}


def test_a_full_queue_refuses_dead_letters_too() -> None:
    yard = VhostBench()
    dead_lettering(yard, message_ttl=10)
    dead = yard.queue("dead", max_length=1, overflow="reject-publish")
    yard.publish(count=3)
    yard.clock.advance(10)
    assert numbers(dead) == [1]
    assert yard.counters.dead_lettered == [0, 1, 0, 0, 0, 0]
    assert yard.dropped() == {"expired, full": 2}


def test_reject_publish_dlx_refuses_and_dead_letters() -> None:
    yard = VhostBench()
    dead_lettering(yard, max_length=1, overflow="reject-publish-dlx")
    dead = yard.queue("dead")
    assert [yard.publish() for _ in range(3)] == [1, REFUSED, REFUSED]
    assert numbers(yard.vhost.queues["q"]) == [1]
    assert numbers(dead) == [2, 3]


def test_a_dead_letter_that_a_full_queue_sends_on() -> None:
    store = RecordingStore()
    yard = VhostBench(store)
    dead_lettering(yard, durable=True, message_ttl=10)
    dead_lettering(yard, "dead", to="last", durable=True, max_length=0, overflow="reject-publish-dlx")
    last = yard.queue("last", durable=True)
    yard.publish(persistent=True)
    yard.clock.advance(10)
    assert numbers(last) == [1]
    assert [queues for _, queues in store.enqueued] == [["q"], ["last"]]
    assert [name for _, name in store.settled] == ["q"]


def test_an_unreadable_message_does_not_keep_the_others() -> None:
    store = Unreadable()
    yard = VhostBench(store)
    dead_lettering(yard, durable=True, message_ttl=10)
    dead = yard.queue("dead", durable=True)
    yard.publish(count=3, persistent=True)
    store.enqueued[1][0].content = None
    yard.clock.advance(10)
    assert numbers(dead) == [1, 3]
    assert [message.content for message, _ in store.settled] == [b"1", b"3"], "the log goes on holding it"
    assert yard.counters.dead_letters_failed == 1
    why = "OSError: the disk does not give it back"
    assert yard.troubles == [f"dead letters failed: 1, the last one of queue 'q' in vhost '/': {why}"]


class Unreadable(RecordingStore):
    def load(self, message: object) -> bytes:
        raise OSError("the disk does not give it back")


def test_an_unreadable_message_does_not_keep_the_message_that_it_makes_room_for() -> None:
    store = Unreadable()
    yard = VhostBench(store)
    for name in ("a", "b", "c"):
        dead_lettering(yard, name, durable=True, max_length=1)
        yard.vhost.bind_queue(name, "amq.fanout", "", {})
    yard.publish(exchange="amq.fanout", persistent=True)
    store.enqueued[0][0].content = None
    assert yard.publish(exchange="amq.fanout", persistent=True) == 3
    assert [numbers(yard.vhost.queues[name]) for name in ("a", "b", "c")] == [[2], [2], [2]]
    assert yard.counters.dead_letters_failed == 3
    assert len(yard.troubles) == 1, "it is told once in a while"
    yard.clock.advance(REPORT_MS)
    store.enqueued[1][0].content = None
    yard.publish(exchange="amq.fanout", persistent=True)
    assert yard.troubles[1].startswith("dead letters failed: 3, the last one of queue 'a' in")


def test_an_unreadable_message_does_not_keep_others_from_returning() -> None:
    store = Unreadable()
    yard = VhostBench(store)
    dead_lettering(yard, durable=True, delivery_limit=0)
    queue = yard.vhost.queues["q"]
    client = yard.client(queue)
    yard.publish(count=3, persistent=True)
    yard.run()
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
        return self.vhost.declare_queue(name, False, None, False, held)

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
    house = Round(delivery_limit=1)
    publish(house.vhost, "", "r", message_id="old")
    house.deliver("a", "b", "c")
    for entry in house.client.held:
        if view_of(entry.message, house.vhost.store).property("message_id") == exhausted:
            entry.delivery_count = 2
    house.client.vanish()
    assert len(house.names(house.queue)) == 1
    assert len(house.names(house.other)) == 1
    late = Client(house.queue, HandScheduler())
    assert house.queue.deliver_single_message(late.consumer), "it is where consumers look"


def test_the_time_of_some_of_those_that_are_released_is_over() -> None:
    house = Round(message_ttl=100)
    publish(house.vhost, "", "r", message_id="old")
    house.deliver("a", "b")
    house.clock.now += 100
    house.deliver("c")
    house.client.vanish()
    house.clock.advance(0)
    assert len(house.names(house.queue)) <= 1
    assert len(house.names(house.other)) == 1
    house.clock.advance(100)
    assert house.names(house.queue) == []


def test_a_message_beyond_the_delivery_limit_after_a_crash_is_dropped_for_the_one_before() -> None:
    house = Round(delivery_limit=1)
    publish(house.vhost, "", "r", message_id="old")
    rules = house.queue.rules
    assert rules is not None
    rules.max_length = 3
    for name in ("a", "b", "c"):
        house.client.close()
        publish(house.vhost, "", "q", message_id=name)
    for entry in house.queue.entries:
        entry.delivery_count = 2
    rules.max_length = 1
    give_up_exhausted(house.queue)
    assert len(house.names(house.queue)) <= 1
    assert len(house.names(house.other)) == 1
