"""Dead letters that come back, within the same step, into the queue that messages are leaving."""

import pytest

from broker.adapters.formats.either import view_of
from broker.core.entries.entry import AVAILABLE
from broker.core.queues.queue import Queue, dead_letter_exhausted
from tests.clock import HandClock
from tests.dispatch import Client, HandScheduler
from tests.topology import new_vhost, publish


class Round:
    """Two queues of one message each, whose dead letters go from the one to the other."""

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
        """What a queue has, if it counts it right and none of it is with anybody."""
        entries = list(queue.entries)
        assert all(entry.state == AVAILABLE for entry in entries)
        assert (queue.ready, queue.unacked) == (len(entries), 0)
        assert queue.ready_bytes == sum(entry.message.size for entry in entries)
        return [view_of(entry.message, self.vhost.store).property("message_id") for entry in entries]


@pytest.mark.parametrize("exhausted", ["a", "b", "c"])
def test_one_of_those_that_are_released_was_given_out_too_often(exhausted: str) -> None:
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


def test_what_was_out_too_often_when_the_broker_died_is_pushed_out_by_the_one_before_it() -> None:
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
    dead_letter_exhausted(house.queue)
    assert len(house.names(house.queue)) <= 1
    assert len(house.names(house.other)) == 1
