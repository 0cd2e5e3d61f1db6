"""Receipts, with the power cut or the process killed anywhere on their way, and with the disk full.

After a crash a message is in its queue, or has been consumed and its receipt is there: never neither.
"""

import itertools
import json
import random

import pytest

from broker.core.message import TELLS_CONSUMED, Message
from broker.core.view import MessageView
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
    for name in ("q", "back"):
        life.declare(name)
    route = life.vhost.route("", "q")
    for number in range(COUNT):
        message = Message(route.address, b"%d" % number, 1, True, 0)
        message.marks = TELLS_CONSUMED
        life.vhost.publish_carefully(route, message)
    life.commit()
    life.commit()
    return life


def consume(life: Life) -> None:
    """In several turns, and what the disk does about it."""
    consumer, entries = life.take("q")
    for entry in entries:
        consumer.queue.settle(entry)
        life.log.commit()
    life.commit()
    life.tidy()
    life.clock.advance(1)


def places(life: Life) -> tuple[int, int]:
    """How many messages are there, and how many receipts that say so."""
    held = life.held()
    assert all(json.loads(body)["what"] == "consumed" for body in held["back"])
    return len(held["q"]), len(held["back"])


@pytest.mark.parametrize("lost", [True, False], ids=["power", "killed"])
def test_none_is_consumed_without_a_receipt(lost: bool) -> None:
    outcomes = set()
    for operations in itertools.count():
        disk = SimDisk(random.Random(operations))
        life = prepared(disk)
        disk.operations_left = operations
        try:
            consume(life)
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


def test_on_a_full_disk_they_come_in_memory() -> None:
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
