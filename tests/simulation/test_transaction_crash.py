"""A transaction over several queues, with the power cut, the process killed or the disk full anywhere in it.

The real core and the real log on a simulated disk: what is found afterwards is all of it or nothing.
"""

import itertools
import random
from collections.abc import Callable

import pytest

from broker.core.broker import Broker
from broker.core.consumer import QueueConsumer
from broker.core.counters import Counters
from broker.core.message import Message
from broker.core.transaction import SETTLE, HeldPublish, HeldSettlement, Transaction
from broker.core.vhost import VirtualHost
from broker.store.log import Log
from broker.store.restore import Recovered
from broker.store.syncer import DiskSyncer
from tests.clock import HandClock
from tests.simulation.sim_disk import PowerLoss, SimDisk
from tests.storing import Deferred, content_of
from tests.topology import Taker

FOLDER = "/data"
WORK = 3  # messages that the transaction settles
RESULTS = ("out.0", "out.1", "out.2")
SEEDS = range(4)  # of what a power cut leaves


class Publish(HeldPublish):
    """One that nobody hears of."""

    def taken(self, count: int) -> None:
        assert count == 1


class Job(Transaction):
    """Remembers how it ended."""

    answer = ""

    def committed(self) -> None:
        self.answer = "committed"

    def failed(self, reason: str) -> None:
        self.answer = "failed"


class Life:
    """A broker from its start to its end on a disk that lives on."""

    def __init__(self, disk: SimDisk) -> None:
        self.deferred = Deferred()
        self.log = Log(
            FOLDER,
            disk,
            DiskSyncer(disk, self.deferred.run),
            lambda: 0.0,
            lambda: self.broker.definitions(),
            segment_bytes=8192,
            first_segment_bytes=8192,
            reserve_bytes=8192,
        )
        names = itertools.count(1)
        self.broker = Broker(self.log, Counters(), lambda: str(next(names)), HandClock().schedule)
        self.log.recover(Recovered(self.broker))
        self.vhost: VirtualHost = self.broker.declare_vhost("/")

    def commit(self) -> None:
        """The end of a turn, and what the disk does about it."""
        self.log.commit()
        self.deferred.run_all()

    def publish(self, queue: str, content: bytes) -> None:
        route = self.vhost.route("", queue)
        self.vhost.publish(route, Message(route.address, content, len(content), True, 0))

    def held(self) -> dict[str, list[bytes]]:
        """The contents of each queue, whether they are ready or with somebody."""
        return {
            name: [entry.message.content or self.log.load(entry.message) for entry in queue.entries]
            for name, queue in self.vhost.queues.items()
        }

    def job(self, size: int) -> Job:
        """Take the work, and ask for results of `size` bytes in its place, in one transaction."""
        taker = Taker()
        work = self.vhost.queues["work"]
        consumer = QueueConsumer(taker, work)
        work.add_consumer(consumer)
        while work.deliver_single_message(consumer):
            pass
        job = Job(self.vhost)
        for number, queue in enumerate(RESULTS):
            route = self.vhost.route("", queue)
            message = Message(route.address, content_of(number, size), size, True, 0)
            job.publishes.append(Publish(route, message, [], False))
        job.settlements += [HeldSettlement(0, entry, consumer, SETTLE) for entry in taker.taken]
        job.commit()
        assert self.held()["work"] == BEFORE["work"], "nothing is seen before it is durable"
        return job


BEFORE = {"work": [content_of(n, 100) for n in range(WORK)], **{name: [] for name in RESULTS}}


def after(size: int) -> dict[str, list[bytes]]:
    return {"work": [], **{name: [content_of(n, size)] for n, name in enumerate(RESULTS)}}


def prepared(disk: SimDisk) -> Life:
    """A broker with work, all of it durable."""
    life = Life(disk)
    for name in ("work", *RESULTS):
        life.vhost.declare_queue(name, True, None, False, {})
    for content in BEFORE["work"]:
        life.publish("work", content)
    life.commit()
    life.commit()
    return life


def run(disk: SimDisk, size: int, accident: Callable[[], None]) -> str:
    """Do the job with `accident` on its way; returns what the client was told."""
    life = prepared(disk)
    if size % 2:  # the batch before it is still on its way
        life.publish("out.0", b"x")
        life.log.commit()
    job = None
    try:
        accident()
        job = life.job(size)
        life.commit()
        for _ in range(3):  # segments begin and go
            life.log.tick()
            life.commit()
    except PowerLoss:
        pass
    else:
        if not life.log.failure and not job.answer:
            raise AssertionError("neither committed nor failed")
    return job.answer if job is not None else ""


def found(disk: SimDisk) -> dict[str, list[bytes]]:
    """What the next life of the broker has."""
    held = Life(disk).held()
    held["out.0"] = [content for content in held["out.0"] if content != b"x"]
    return held


@pytest.mark.parametrize("size", [400, 401, 5000, 5001])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lost", [True, False], ids=["power", "killed"])
def test_all_or_nothing_wherever_it_is_cut(size: int, seed: int, lost: bool) -> None:
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
def test_nothing_is_done_on_a_full_disk(size: int) -> None:
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
