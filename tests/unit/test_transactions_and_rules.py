"""Transactions and queues that limit time and space."""

import struct

import pytest
from pamqp.commands import Basic, Channel, Confirm, Connection, Queue, Tx

from broker.core.message import Message
from broker.core.publishing.outcome import Outcome
from broker.core.queues.queue import Queue as CoreQueue
from broker.core.transactions.transaction import HeldPublish, Transaction
from tests.frames import HEADER, frame_bytes, method_bytes
from tests.wired import House, Wired


def declared(house: House, name: str, durable: bool = False, **arguments: object) -> None:
    held = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    house.broker.vhost("/").declarations.declare_queue(name, durable, None, False, held)


def ready(house: House, name: str) -> int:
    return int(house.broker.vhost("/").topology.queues[name].ready)


def test_a_transaction_that_a_full_queue_would_refuse_is_refused_as_a_whole() -> None:
    house = House()
    declared(house, "q", max_length=2, overflow="reject-publish")
    declared(house, "other")
    client = house.open()
    client.send(Tx.Select(), 1)
    for key in ("q", "other", "q", "q"):
        client.publish(key)
    client.frames()
    client.send(Tx.Commit(), 1)
    close = client.frames()[0]
    assert close.name == "Channel.Close"
    assert "publish 4 of 4 in the transaction: queue 'q' in vhost '/' is full" in close.reply_text  # type: ignore[attr-defined]
    assert (ready(house, "q"), ready(house, "other")) == (0, 0)
    rules = house.broker.vhost("/").topology.queues["q"].rules
    assert rules is not None
    assert (rules.reserved, rules.reserved_bytes) == (0, 0)


class Untold(HeldPublish):
    def report_outcome(self, outcome: Outcome) -> None:
        raise RuntimeError("nobody foresaw it")


def test_room_is_given_back_whatever_goes_wrong() -> None:
    house = House()
    declared(house, "q", max_length=9, overflow="reject-publish")
    vhost = house.broker.vhost("/")
    transaction = Transaction(vhost.publisher)
    for _ in range(2):
        route = vhost.publisher.route("", "q")
        transaction.publishes.append(Untold(route, Message(route.address, b"", 7, False, 0), [], False))
    with pytest.raises(RuntimeError, match="nobody foresaw it"):
        transaction.commit()
    rules = vhost.topology.queues["q"].rules
    assert rules is not None
    assert (rules.reserved, rules.reserved_bytes) == (0, 0)


def test_room_is_kept_until_the_transaction_is_durable() -> None:
    house = House()
    declared(house, "q", durable=True, max_length=2, overflow="reject-publish")
    client, other = house.open(), house.open()
    other.send(Confirm.Select(), 1)
    client.send(Tx.Select(), 1)
    for _ in range(2):
        client.publish("q", persistent=True)
    client.send(Tx.Commit(), 1)
    other.frames()
    other.publish("q")
    assert other.told() == [("Nack", 1, False)]
    client.frames()
    house.store.complete()
    assert [frame.name for frame in client.frames()] == ["Tx.CommitOk"]
    assert ready(house, "q") == 2


@pytest.mark.parametrize("durable", [False, True])
def test_refused_publishes_are_nacked_in_their_turn(durable: bool) -> None:
    house = House()
    declared(house, "q", durable=durable, max_length=2, overflow="reject-publish")
    declared(house, "other")
    client = house.open()
    client.send(Confirm.Select(), 1)
    client.frames()
    client.publish("q", persistent=True)
    client.connection.receive(b"")
    for key in ("q", "q", "q", "other"):
        client.publish(key, persistent=True)
    client.send(Queue.Declare(queue="q", passive=True), 1)
    if durable:
        house.store.complete()
        house.store.complete()
    told = [
        (frame.name, frame.delivery_tag, frame.multiple)  # type: ignore[attr-defined]
        for frame in client.frames()
        if frame.name in ("Basic.Ack", "Basic.Nack")
    ]
    acked: set[int] = set()
    nacked: set[int] = set()
    for name, tag, multiple in told:
        covered = {n for n in range(1, tag + 1) if n not in acked | nacked} if multiple else {tag}
        (acked if name == "Basic.Ack" else nacked).update(covered)
    assert (acked, nacked) == ({1, 2, 5}, {3, 4})


@pytest.fixture
def house() -> House:
    house = House()
    declared(house, "in")
    declared(house, "out", durable=True)
    declared(house, "narrow", max_length=1, overflow="reject-publish")
    return house


def holding(house: House) -> Wired:
    """A client whose transaction has settled a message and fills the narrow queue."""
    client = house.open()
    client.publish("in")
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="in"), 1)
    client.send(Basic.Ack(1), 1)
    client.publish("narrow")
    client.frames()
    return client


def nothing_was_done(house: House) -> bool:
    """Whether the message is in its queue again, and the narrow one takes a message as before."""
    assert (ready(house, "in"), ready(house, "narrow")) == (1, 0)
    other = house.open()
    other.send(Confirm.Select(), 1)
    other.frames()
    other.publish("narrow")
    return other.told() == [("Ack", 1, False)]


def test_headers_that_do_not_decode_are_refused_with_the_commit(house: House) -> None:
    client = holding(house)
    client.connection.receive(
        method_bytes(Basic.Publish(exchange="amq.headers"), 1)
        + frame_bytes(HEADER, 1, struct.pack(">HHQHI", 60, 0, 0, 0x2000, 3) + b"\x01a\xff")
    )
    client.send(Tx.Commit(), 1)
    (close,) = client.frames()
    assert isinstance(close, Channel.Close)
    assert close.reply_code == 406
    assert close.reply_text.startswith("PRECONDITION_FAILED - publish 2 of 2 in the transaction: ")
    assert "headers" in close.reply_text
    assert nothing_was_done(house)


def test_nothing_is_left_of_a_commit_that_fails_for_no_known_reason(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(message: Message, queues: list[CoreQueue]) -> None:
        raise OSError("no reason")

    client = holding(house)
    client.publish("out", persistent=True)
    with monkeypatch.context() as patched:
        patched.setattr(house.store, "append_message", fail)
        client.send(Tx.Commit(), 1)
    (close,) = client.frames()
    assert isinstance(close, Connection.Close)
    assert close.reply_code == 541
    assert nothing_was_done(house)
