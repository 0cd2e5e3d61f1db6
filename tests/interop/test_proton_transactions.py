"""Local transactions of python-qpid-proton: all work of a transaction happens, or none."""

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
    handlers,
    proton,
    take,
)
from tests.support.daemon.daemon import Address

SETTLING = pytest.mark.parametrize("settled_before", [False, True], ids=["with it", "before it"])
"""When proton settles what it accepts: with the end of the transaction or before it."""


@pytest.fixture
def dial(address: Address) -> Iterator[ProtonDial]:
    """Open connections."""
    yield from dialling(address)


@pytest.fixture
def queue(channel: BlockingChannel, name: str) -> Iterator[str]:
    """A durable queue."""
    channel.queue_declare(name, durable=True)
    yield name
    channel.queue_delete(name)


def ready(channel: BlockingChannel, queue: str) -> int:
    """Return the number of ready messages."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def fill(dial: ProtonDial, queue: str, count: int) -> None:
    """Send so many numbers."""
    messages = [proton.Message(body=number, durable=True) for number in range(count)]
    assert Sender(dial(), f"/queues/{queue}").send(*messages) == [ACCEPTED] * count


class Transaction(handlers.TransactionHandler):  # type: ignore[misc]
    """A transaction on a connection. proton calls `on_...`."""

    def __init__(self, connection: Any, settled_before: bool = False) -> None:
        self._connection = connection
        self._said = ""
        container = connection.container
        self._transaction = container.declare_transaction(connection.conn, self, settled_before)
        self._wait_for("declared")

    def send(self, address: str, *numbers: int) -> None:
        """Send numbers, and wait until the broker has answered for each."""
        link = self._connection.create_sender(address).link
        self._connection.wait(lambda: link.credit >= len(numbers), msg="waiting for credit")
        durable = [proton.Message(body=number, durable=True) for number in numbers]
        sent = [self._transaction.send(link, message) for message in durable]
        self._connection.wait(lambda: all(delivery.settled for delivery in sent), msg="waiting for outcomes")
        link.close()

    def accept(self, delivery: Any) -> None:
        """Accept a message that was received."""
        self._transaction.accept(delivery)

    def commit(self) -> None:
        """Have it happen."""
        self._transaction.commit()
        self._wait_for("committed")

    def abort(self) -> None:
        """Have nothing of it happen."""
        self._transaction.abort()
        self._wait_for("aborted")

    def fail(self) -> None:
        """Try an impossible commit."""
        self._transaction.commit()
        self._wait_for("failed")

    def _wait_for(self, expected: str) -> None:
        self._connection.wait(lambda: self._said, msg=f"waiting until it is {expected}")
        assert self._said == expected
        self._said = ""

    def on_transaction_declared(self, event: Any) -> None:
        """Record that the transaction has begun."""
        self._said = "declared"

    def on_transaction_committed(self, event: Any) -> None:
        """Record the commit."""
        self._said = "committed"

    def on_transaction_aborted(self, event: Any) -> None:
        """Record the rollback."""
        self._said = "aborted"

    def on_transaction_commit_failed(self, event: Any) -> None:
        """Record the failed commit."""
        self._said = "failed"


def test_posted_messages_are_enqueued_at_the_commit(
    dial: ProtonDial, channel: BlockingChannel, queue: str
) -> None:
    connection = dial()
    transaction = Transaction(connection)
    transaction.send(f"/queues/{queue}", *range(20))
    fill(dial, queue, 1)
    assert ready(channel, queue) == 1
    transaction.commit()
    assert ready(channel, queue) == 21
    assert bodies(drain(connection.create_receiver(f"/queues/{queue}"), 100)) == [0, *range(20)]


def test_posted_messages_are_dropped_at_the_rollback(dial: ProtonDial, queue: str) -> None:
    connection = dial()
    aborted = Transaction(connection)
    aborted.send(f"/queues/{queue}", 1, 2)
    aborted.abort()
    after = Transaction(connection)
    after.send(f"/queues/{queue}", 3)
    after.commit()
    assert bodies(drain(connection.create_receiver(f"/queues/{queue}"), 10)) == [3]


def test_transactions_of_one_connection_do_not_mix(dial: ProtonDial, queue: str) -> None:
    connection = dial()
    one, two, three = (Transaction(connection) for _ in range(3))
    for number in (0, 3):
        for offset, transaction in enumerate((one, two, three)):
            transaction.send(f"/queues/{queue}", number + offset)
    three.commit()
    two.abort()
    one.commit()
    assert bodies(drain(connection.create_receiver(f"/queues/{queue}"), 10)) == [2, 5, 0, 3]


@SETTLING
def test_accepted_messages_leave_at_the_commit(dial: ProtonDial, queue: str, settled_before: bool) -> None:
    fill(dial, queue, 5)
    connection = dial()
    receiver = connection.create_receiver(f"/queues/{queue}")
    take(receiver, 5)
    transaction = Transaction(connection, settled_before)
    for delivery in deliveries(receiver)[:3]:
        transaction.accept(delivery)
    transaction.commit()
    connection.close()
    again = drain(dial().create_receiver(f"/queues/{queue}"), 10)
    assert bodies(again) == [3, 4]


@SETTLING
def test_accepted_messages_return_at_the_rollback(dial: ProtonDial, queue: str, settled_before: bool) -> None:
    fill(dial, queue, 3)
    connection = dial()
    receiver = connection.create_receiver(f"/queues/{queue}")
    take(receiver, 3)
    transaction = Transaction(connection, settled_before)
    for delivery in deliveries(receiver)[:2]:
        transaction.accept(delivery)
    transaction.abort()
    again = take(receiver, 2)
    assert bodies(again) == [0, 1]
    assert not any(message.first_acquirer for message in again)


def test_a_message_moved_in_a_transaction_is_in_exactly_one_queue(
    dial: ProtonDial, channel: BlockingChannel, queue: str, name: str
) -> None:
    done = f"{name}.done"
    channel.queue_declare(done, durable=True)
    fill(dial, queue, 2)
    connection = dial()
    receiver = connection.create_receiver(f"/queues/{queue}")
    for commit in (False, True):
        (message,) = take(receiver, 1)
        transaction = Transaction(connection, settled_before=True)
        transaction.accept(deliveries(receiver)[0])
        transaction.send(f"/queues/{done}", message.body + 100)
        if commit:
            transaction.commit()
        else:
            transaction.abort()
        receiver.fetcher.unsettled.clear()
    connection.close()
    assert bodies(drain(dial().create_receiver(f"/queues/{queue}"), 10)) == [1]
    assert bodies(drain(dial().create_receiver(f"/queues/{done}"), 10)) == [100]
    channel.queue_delete(done)


def test_closing_the_connection_rolls_the_transaction_back(dial: ProtonDial, queue: str) -> None:
    fill(dial, queue, 1)
    connection = dial()
    receiver = connection.create_receiver(f"/queues/{queue}")
    take(receiver, 1)
    transaction = Transaction(connection)
    transaction.accept(deliveries(receiver)[0])
    transaction.send(f"/queues/{queue}", 1, 2)
    connection.close()
    assert bodies(drain(dial().create_receiver(f"/queues/{queue}"), 10)) == [0]


def test_a_commit_to_a_full_queue_fails_and_has_no_effect(
    dial: ProtonDial, channel: BlockingChannel, queue: str, name: str
) -> None:
    full = f"{name}.full"
    channel.queue_declare(full, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    connection = dial()
    transaction = Transaction(connection)
    transaction.send(f"/queues/{queue}", 1)
    transaction.send(f"/queues/{full}", 1, 2)
    transaction.fail()
    assert (ready(channel, queue), ready(channel, full)) == (0, 0)
    channel.queue_delete(full)
