"""A transaction over several queues, with the power cut, the process killed or the disk full anywhere in it.

What is found afterwards is all of it or nothing: what it acknowledges, rejects and publishes.
"""

import itertools
import random
from collections.abc import Callable

import pytest

from broker.core.message import Message
from broker.core.publishing.publisher import ROUTED, Outcome
from broker.core.transactions.transaction import DISCARD, SETTLE, HeldPublish, Transaction
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import PowerLoss, SimDisk
from tests.support.store.hand_log import content_of

WORK = 4  # messages that the transaction settles
REJECTED = (1, 3)  # delivered messages that the transaction rejects
RESULTS = ("out.0", "out.1", "out.2")
SEEDS = range(4)  # seeds of the choice that a power cut makes


class Publish(HeldPublish):
    """A publish without a confirm."""

    def report_outcome(self, outcome: Outcome) -> None:
        assert outcome is ROUTED


class Job(Transaction):
    """Remembers how it ended."""

    answer = ""

    def on_committed(self) -> None:
        self.answer = "committed"

    def on_commit_failed(self, reason: str) -> None:
        self.answer = "failed"


def committed(life: Life, size: int) -> Job:
    """Take the work, publish results of `size` bytes and reject some, in a single transaction."""
    consumer, entries = life.take("work")
    job = Job(life.vhost.publisher)
    for number, queue in enumerate(RESULTS):
        route = life.vhost.publisher.route("", queue)
        message = Message(route.address, content_of(number, size), size, True, 0)
        job.publishes.append(Publish(route, message, [], False))
    for number, entry in enumerate(entries):
        outcome = DISCARD if number in REJECTED else SETTLE
        job.hold_settlement(number, entry, consumer, outcome)
    job.commit()
    held = life.held()
    held["out.0"] = [content for content in held["out.0"] if content != OTHER]
    assert held == BEFORE, "nothing is seen before it is durable"
    return job


WORKS = [content_of(n, 100) for n in range(WORK)]
OTHER = b"x"
BEFORE = {"work": WORKS, "full": [b"full"], "dead": [], **{name: [] for name in RESULTS}}


def after(size: int) -> dict[str, list[bytes]]:
    return {
        "work": [],
        "full": [b"full"],
        "dead": [WORKS[number] for number in REJECTED],
        **{name: [content_of(n, size)] for n, name in enumerate(RESULTS)},
    }


def prepared(disk: SimDisk) -> Life:
    """A broker with work, all of it durable.

    What is rejected goes to a queue that is full, and from there on.
    """
    life = Life(disk)
    life.declare("work", dead_letter_exchange="", dead_letter_routing_key="full")
    life.declare(
        "full",
        max_length=1,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    for name in ("dead", *RESULTS):
        life.declare(name)
    life.publish("full", b"full")
    for content in WORKS:
        life.publish("work", content)
    life.commit()
    life.commit()
    return life


def run(disk: SimDisk, size: int, accident: Callable[[], None]) -> str:
    """Do the job with `accident` during the commit; return the client's answer."""
    life = prepared(disk)
    if size % 2:  # the batch before it is still on its way
        life.publish("out.0", OTHER)
        life.log.commit()
    job = None
    try:
        accident()
        job = committed(life, size)
        life.commit()
        life.tidy()
    except PowerLoss:
        pass
    else:
        if not life.log.failure and not job.answer:
            raise AssertionError("neither committed nor failed")
    return job.answer if job is not None else ""


def found(disk: SimDisk) -> dict[str, list[bytes]]:
    """Return the messages in the next life of the broker."""
    held = Life(disk).held()
    held["out.0"] = [content for content in held["out.0"] if content != OTHER]
    return held


@pytest.mark.parametrize("size", [400, 401, 5000, 5001])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lost", [True, False], ids=["power", "killed"])
def test_a_transaction_is_atomic_across_a_crash_at_any_operation(size: int, seed: int, lost: bool) -> None:
    outcomes = set()
    for operations in itertools.count():
        disk = SimDisk(random.Random(seed))

        def cut(disk: SimDisk = disk, operations: int = operations) -> None:
            disk.operations_left = operations

        answer = run(disk, size, cut)
        finished = disk.operations_left > 0
        if lost:
            disk.crash()
        else:
            disk.kill()
        held = found(disk)
        assert held in (BEFORE, after(size)), f"after {operations} operations"
        if answer == "committed":
            assert held == after(size), f"after {operations} operations"
        outcomes.add((answer, held == BEFORE))
        if finished:
            break
    assert operations > 3
    assert ("", True) in outcomes
    assert ("committed", False) in outcomes


@pytest.mark.parametrize("size", [400, 401, 5000, 5001])
def test_a_transaction_on_a_full_disk_has_no_partial_effect(size: int) -> None:
    outcomes = set()
    for room in range(0, 30_000, 500):
        disk = SimDisk(random.Random(1))

        def fill(disk: SimDisk = disk, room: int = room) -> None:
            disk.capacity = disk.used() + room

        answer = run(disk, size, fill)
        disk.kill()
        disk.capacity = 1 << 40
        held = found(disk)
        assert held == (after(size) if answer == "committed" else BEFORE), f"with {room} bytes of room"
        outcomes.add(answer)
    assert "committed" in outcomes
    if size > 1000:
        assert "failed" in outcomes
