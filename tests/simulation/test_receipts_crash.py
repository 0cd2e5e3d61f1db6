"""Receipts, with the power cut or the process killed anywhere on their way, and with the disk full.

After a crash a message is in its queue, or has been consumed and its receipt is there: never neither.
It is the same with what transactions consume and publish.
"""

import itertools
import json
import random
from collections.abc import Callable

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.message import TELLS_ARRIVAL, TELLS_CONSUMED, Message
from broker.core.message_view import MessageView
from broker.core.publishing.publisher import ROUTED, Outcome
from broker.core.queues.queue import queue_of
from broker.core.transactions.transaction import SETTLE, HeldPublish, Transaction
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import PowerLoss, SimDisk

COUNT = 5


class Asking(MessageView):
    """Every message asks for receipts in the queue `back`."""

    def headers(self) -> dict[str, object]:
        return {"x-receipt-to": "back"}


def new_life(disk: SimDisk) -> Life:
    life = Life(disk)
    life.vhost.views = lambda message, store: Asking()
    return life


def prepared(disk: SimDisk) -> Life:
    """A broker with messages that ask for receipts of being consumed, all of it durable."""
    life = new_life(disk)
    for name in ("q", "back", "out"):
        life.declare(name)
    route = life.vhost.publisher.route("", "q")
    for number in range(COUNT):
        message = Message(route.address, b"%d" % number, 1, True, 0)
        message.marks = TELLS_CONSUMED
        life.vhost.publisher.publish_carefully(route, message)
    life.commit()
    life.commit()
    return life


def consume(life: Life) -> None:
    """Consume in several turns, and do the disk's work."""
    consumer, entries = life.take("q")
    for entry in entries:
        queue_of(consumer).settle(entry)
        life.log.commit()
    life.commit()
    life.tidy()
    life.clock.advance(1)


class Publish(HeldPublish):
    """A publish without a confirm."""

    def report_outcome(self, outcome: Outcome) -> None:
        assert outcome is ROUTED


class Job(Transaction):
    """A transaction without an answer."""

    def on_committed(self) -> None:
        """Do nothing: the commit is on disk."""

    def on_commit_failed(self, reason: str) -> None:
        """Do nothing: the commit is not on disk."""


def commit(life: Life) -> None:
    """Consume all and publish as much in a single transaction, and do the disk's work."""
    consumer, entries = life.take("q")
    job = Job(life.vhost.publisher)
    route = life.vhost.publisher.route("", "out")
    for number, entry in enumerate(entries):
        job.hold_settlement(number, entry, consumer, SETTLE)
        message = Message(route.address, b"%d" % number, 1, True, 0)
        message.marks = TELLS_ARRIVAL
        job.publishes.append(Publish(route, message, [], False))
    job.commit()
    life.commit()
    life.tidy()
    life.clock.advance(1)


def receipt_counts(life: Life) -> tuple[int, int]:
    """Return the numbers of consumed receipts and of arrival receipts."""
    whats = [json.loads(body)["what"] for body in life.held()["back"]]
    return whats.count("consumed"), whats.count("arrival")


def places(life: Life) -> tuple[int, int]:
    """Return the numbers of messages and of consumed receipts."""
    consumed, arrived = receipt_counts(life)
    assert arrived == len(life.held()["out"])
    return len(life.held()["q"]), consumed


@pytest.mark.parametrize("lost", [True, False], ids=["power", "killed"])
@pytest.mark.parametrize("work", [consume, commit])
def test_no_settlement_is_durable_without_its_receipt(work: Callable[[Life], None], lost: bool) -> None:
    outcomes = set()
    for operations in itertools.count():
        disk = SimDisk(random.Random(operations))
        life = prepared(disk)
        disk.operations_left = operations
        try:
            work(life)
            finished = True
        except PowerLoss:
            finished = False
        disk.operations_left = -1
        if lost:
            disk.crash()
        else:
            disk.kill()
        messages, receipts = places(new_life(disk))
        assert messages + receipts == COUNT
        outcomes.add(receipts)
        if finished:
            break
    assert {0, COUNT} <= outcomes


def test_commits_that_a_full_disk_refuses_have_no_receipts() -> None:
    outcomes = set()
    for room in range(0, 20_000, 1000):
        disk = SimDisk(random.Random(1))
        life = prepared(disk)
        disk.capacity = disk.used() + room
        try:
            commit(life)
        except PreconditionFailed:
            life.tidy()
        assert receipt_counts(life) in ((0, 0), (COUNT, COUNT))
        outcomes.add(places(life))
        disk.kill()
        disk.capacity = 1 << 40
        outcomes.add(places(new_life(disk)))
    assert outcomes == {(COUNT, 0), (0, COUNT)}


def test_on_a_full_disk_receipts_are_sent_from_memory() -> None:
    full = 0
    for room in range(0, 20_000, 1000):
        disk = SimDisk(random.Random(1))
        life = prepared(disk)
        disk.capacity = disk.used() + room
        consume(life)
        full += life.log.full
        life.tidy()
        life.clock.advance(1)
        assert places(life) == (0, COUNT)
        assert life.broker.counters.receipts_dropped == 0
    assert full > 0
