"""An unmodified python-qpid-proton receives over AMQP 1.0 and settles."""

from collections.abc import Iterator
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.proton_connection import (
    ACCEPTED,
    ProtonDial,
    Sender,
    bodies,
    deliveries,
    dialling,
    drain,
    proton,
    reactor,
    take,
    utils,
)
from tests.support.daemon.daemon import PATIENCE_S, Address


@pytest.fixture
def dial(address: Address) -> Iterator[ProtonDial]:
    """Open connections."""
    yield from dialling(address)


@pytest.fixture
def queue(channel: BlockingChannel, name: str) -> Iterator[str]:
    """A durable queue whose dead letters go to another queue, named after it."""
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
    channel.queue_declare(f"{name}.dead", durable=True)
    channel.queue_declare(name, durable=True, arguments=letters)
    yield name
    channel.queue_delete(name)
    channel.queue_delete(f"{name}.dead")


def fill(dial: ProtonDial, queue: str, count: int) -> None:
    """Send so many numbers."""
    messages = [proton.Message(body=number, durable=True) for number in range(count)]
    assert Sender(dial(), f"/queues/{queue}").send(*messages) == [ACCEPTED] * count


def receiver_of(dial: ProtonDial, queue: str, *options: Any) -> Any:
    """A receiver, on a connection of its own, that is sent nothing before it asks."""
    return dial().create_receiver(f"/queues/{queue}", options=list(options))


def ready(channel: BlockingChannel, queue: str) -> int:
    """Return the number of ready messages."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def deaths(letter: Any) -> list[tuple[str, str]]:
    """Return the queues and reasons of a message's deaths, the latest first."""
    return [(death["queue"], death["reason"]) for death in letter.annotations["x-opt-deaths"].elements]


def test_accepted_messages_leave_the_queue(dial: ProtonDial, channel: BlockingChannel, queue: str) -> None:
    fill(dial, queue, 300)
    receiver = receiver_of(dial, queue)
    assert bodies(take(receiver, 300)) == list(range(300))
    for _ in range(200):
        receiver.accept()
    receiver.connection.close()
    assert ready(channel, queue) == 100
    again = take(receiver_of(dial, queue), 100)
    assert bodies(again) == list(range(200, 300))
    assert {message.delivery_count for message in again} == {1}


def test_released_messages_return_in_order_as_not_tried(dial: ProtonDial, queue: str) -> None:
    fill(dial, queue, 3)
    receiver = receiver_of(dial, queue)
    first = take(receiver, 3)
    assert all(message.first_acquirer for message in first)
    for _ in range(3):
        receiver.release(delivered=False)
    again = take(receiver, 3)
    assert bodies(again) == [0, 1, 2]
    assert {(message.delivery_count, message.first_acquirer) for message in again} == {(0, False)}


def test_modified_messages_return_as_tried_if_delivery_failed(dial: ProtonDial, queue: str) -> None:
    fill(dial, queue, 2)
    receiver = receiver_of(dial, queue)
    take(receiver, 2)
    deliveries(receiver)[0].local.failed = True
    receiver.release()
    receiver.release()
    again = take(receiver, 2)
    assert [(message.body, message.delivery_count) for message in again] == [(0, 1), (1, 0)]


def test_rejected_messages_are_dead_lettered(dial: ProtonDial, channel: BlockingChannel, queue: str) -> None:
    fill(dial, queue, 2)
    receiver = receiver_of(dial, queue)
    take(receiver, 2)
    receiver.reject()
    receiver.accept()
    receiver.connection.close()
    (letter,) = drain(receiver_of(dial, f"{queue}.dead"), 10)
    assert letter.body == 0
    assert deaths(letter) == [(queue, "rejected")]
    assert ready(channel, queue) == 0


def test_deliveries_are_settled_in_any_order(dial: ProtonDial, channel: BlockingChannel, queue: str) -> None:
    fill(dial, queue, 10)
    receiver = receiver_of(dial, queue)
    take(receiver, 10)
    for number, delivery in reversed(list(enumerate(deliveries(receiver)))):
        delivery.update(proton.Delivery.ACCEPTED if number % 2 else proton.Delivery.RELEASED)
        delivery.settle()
    again = take(receiver, 5)
    assert bodies(again) == [0, 2, 4, 6, 8]
    receiver.connection.close()
    assert ready(channel, queue) == 5


def test_unsettled_messages_return_when_the_link_ends(dial: ProtonDial, queue: str) -> None:
    fill(dial, queue, 3)
    connection = dial()
    receiver = connection.create_receiver(f"/queues/{queue}", name="first")
    take(receiver, 2)
    receiver.close()
    again = take(connection.create_receiver(f"/queues/{queue}", name="second"), 3)
    counts = [(message.body, message.delivery_count, message.first_acquirer) for message in again]
    assert counts == [(0, 1, False), (1, 1, False), (2, 0, True)]


def test_a_receiver_gets_as_many_as_it_allows(dial: ProtonDial, channel: BlockingChannel, queue: str) -> None:
    fill(dial, queue, 10)
    receiver = receiver_of(dial, queue)
    assert bodies(take(receiver, 4)) == [0, 1, 2, 3]
    assert ready(channel, queue) == 6
    for _ in range(4):
        receiver.accept()  # accepting gives no more credit
    connection = receiver.connection
    assert bodies(take(connection.create_receiver(f"/queues/{queue}", name="other"), 1)) == [4]
    assert receiver.fetcher.has_message == 0
    assert bodies(take(receiver, 2)) == [5, 6]
    assert ready(channel, queue) == 3


def test_a_drain_ends_when_there_is_nothing_more(dial: ProtonDial, queue: str) -> None:
    receiver = receiver_of(dial, queue)
    assert drain(receiver, 10) == []
    fill(dial, queue, 5)
    assert bodies(drain(receiver, 3)) == [0, 1, 2]
    assert bodies(drain(receiver, 100)) == [3, 4]
    assert drain(receiver, 1) == []
    fill(dial, queue, 1)
    assert receiver.link.credit == 0
    assert bodies(take(receiver, 1)) == [0]


def test_a_browser_gets_all_messages_and_leaves_them_ready(
    dial: ProtonDial, channel: BlockingChannel, queue: str
) -> None:
    fill(dial, queue, 20)
    one, two = (receiver_of(dial, queue, reactor.Copy()) for _ in range(2))
    assert bodies(drain(one, 100)) == list(range(20))
    assert bodies(take(two, 5)) == [0, 1, 2, 3, 4]
    for _ in range(20):
        one.accept()  # the acceptance says that the receiver has seen them
    two.reject()
    assert bodies(drain(two, 100)) == list(range(5, 20))
    fill(dial, queue, 1)
    assert bodies(drain(one, 100)) == [0]
    one.connection.close()
    two.connection.close()
    assert ready(channel, queue) == 21
    assert ready(channel, f"{queue}.dead") == 0


def test_a_receiver_of_settled_deliveries_removes_them_at_once(
    dial: ProtonDial, channel: BlockingChannel, queue: str
) -> None:
    fill(dial, queue, 10)
    receiver = receiver_of(dial, queue, reactor.AtMostOnce())
    assert bodies(take(receiver, 7)) == list(range(7))
    assert deliveries(receiver) == []
    receiver.connection.close()
    assert ready(channel, queue) == 3


def test_receivers_share_a_queue(dial: ProtonDial, queue: str) -> None:
    one, two = receiver_of(dial, queue), receiver_of(dial, queue)
    for receiver in (one, two):
        receiver.flow(50)
        drain(receiver.connection.create_receiver(f"/queues/{queue}.dead"), 1)  # so the broker knows of it
    fill(dial, queue, 100)
    found: list[Any] = []
    for receiver in (one, two):
        receiver.connection.wait(lambda at=receiver: at.fetcher.has_message == 50)
        found.append([receiver.fetcher.pop().body for _ in range(50)])
    assert sorted(found[0] + found[1]) == list(range(100))
    assert all(numbers == sorted(numbers) for numbers in found)


def test_the_more_important_messages_come_first(
    dial: ProtonDial, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, arguments={"x-max-priority": 9})
    messages = [proton.Message(body=number, priority=number % 3 * 3) for number in range(9)]
    assert Sender(dial(), f"/queues/{name}").send(*messages) == [ACCEPTED] * 9
    assert bodies(take(receiver_of(dial, name), 9)) == [2, 5, 8, 1, 4, 7, 0, 3, 6]
    channel.queue_delete(name)


def test_a_message_expires_after_its_ttl(dial: ProtonDial, queue: str) -> None:
    brief = proton.Message(body="brief", ttl=0.05)
    long = proton.Message(body="long", ttl=1000)
    assert Sender(dial(), f"/queues/{queue}").send(brief, long) == [ACCEPTED] * 2
    (letter,) = take(receiver_of(dial, f"{queue}.dead"), 1)
    assert letter.body == "brief"
    assert deaths(letter) == [(queue, "expired")]
    assert not letter.ttl
    (message,) = drain(receiver_of(dial, queue), 10)
    assert message.body == "long"
    assert 1000 - PATIENCE_S < message.ttl <= 1000


def test_a_receiver_of_a_deleted_queue_is_detached_with_an_error(
    dial: ProtonDial, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    receiver = receiver_of(dial, name)
    channel.queue_delete(name)
    with pytest.raises(utils.LinkDetached) as detached:
        take(receiver, 1)
    assert detached.value.condition == "amqp:resource-deleted"


def test_heartbeats_keep_an_idle_connection_open(dial: ProtonDial, queue: str) -> None:
    connection = dial(heartbeat=0.4)  # and hangs up if it hears nothing for that long
    receiver = connection.create_receiver(f"/queues/{queue}")
    with pytest.raises(proton.Timeout):
        receiver.receive(timeout=1.5)
    fill(dial, queue, 1)
    assert receiver.receive().body == 0
