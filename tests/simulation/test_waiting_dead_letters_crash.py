"""Messages that wait to be dead-lettered: the power is cut, the process killed or the disk full at any time.

Each is found in one place afterwards: in its queue, waiting there, or where its dead letter goes.
"""

import itertools
import random
from collections.abc import Callable

import pytest

from broker.core.message import Message
from broker.core.queues.attach import detach
from broker.core.queues.dead_letter_backlog import RETRY_MS, SOON_MS, existing_backlog
from broker.core.queues.hooks import REASONS
from broker.core.queues.queue import Queue
from broker.core.transactions.transaction import DISCARD, SETTLE
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import PowerLoss, SimDisk
from tests.simulation.test_dead_letter_crash import expire, reject, return_once_too_often
from tests.simulation.test_transaction_crash import Job, Publish
from tests.support.store.hand_log import content_of

COUNT = 4
TTL = 1000
SIZE = 400
CONTENTS = [content_of(n, SIZE) for n in range(COUNT)]
SEEDS = range(2)  # seeds of the choice that a power cut makes
DLX = "x-dead-letter-exchange"


DEATHS = {"rejected": reject, "expired": expire, "delivery_limit": return_once_too_often}


def prepared(disk: SimDisk, delivery_limit: int = 0) -> Life:
    """Return a broker with a queue of dying messages, and a queue with room for a single message."""
    life = Life(disk)
    life.declare(
        "work",
        dead_letter_exchange="",
        dead_letter_routing_key="narrow",
        dead_letter_strategy="at-least-once",
        message_ttl=TTL,
        delivery_limit=delivery_limit,
        max_length=100,
        overflow="reject-publish",
    )
    life.declare("narrow", max_length=1, overflow="reject-publish")
    life.publish("narrow", b"occupies")
    for content in CONTENTS:
        life.publish("work", content)
    settle(life)
    return life


def settle(life: Life) -> None:
    """Make the appended records durable, in two turns."""
    life.commit()
    life.commit()


def waiting(life: Life, queue: Queue) -> list[bytes]:
    """The contents of the messages of a queue that wait to be dead-lettered."""
    backlog = existing_backlog(queue)
    deaths = [] if backlog is None else backlog.deaths()
    assert len(deaths) == queue.dead
    return [death.message.content or life.log.load(death.message) for death in deaths]


def consume_narrow(life: Life, came: list[bytes] | None = None) -> list[bytes]:
    """Take the messages of the narrow queue one by one; return them in order."""
    came = [] if came is None else came
    narrow = life.vhost.topology.queues["narrow"]
    while narrow.ready:
        consumer, entries = life.take("narrow")
        came += [entry.message.content or life.log.load(entry.message) for entry in entries]
        for entry in entries:
            narrow.settle(entry)
        detach(narrow, consumer, [])
        life.clock.advance(0)
        life.commit()
    return came


def run(life: Life, die: Callable[[Life], None], came: list[bytes]) -> None:
    """Have them die, wait, and go on as there is room."""
    die(life)
    life.commit()
    consume_narrow(life, came)
    life.tidy()


@pytest.mark.parametrize("reason", DEATHS)
@pytest.mark.parametrize("lost", [True, False], ids=["power", "killed"])
def test_each_waiting_dead_letter_survives_a_crash_at_any_operation_and_is_delivered_once(
    reason: str, lost: bool
) -> None:
    stages = set()
    for seed in SEEDS:
        for operations in itertools.count():
            disk = SimDisk(random.Random(seed))
            life = prepared(disk)
            disk.operations_left = operations
            came: list[bytes] = []
            finished = True
            try:
                run(life, DEATHS[reason], came)
            except PowerLoss:
                finished = False
            if finished:
                assert came == [b"occupies", *CONTENTS]
                break
            if lost:
                disk.crash()
            else:
                disk.kill()
            again = Life(disk)
            work = again.vhost.topology.queues["work"]
            alive, dead = again.held()["work"], waiting(again, work)
            arrived = again.held()["narrow"]
            stages.add((bool(alive), bool(dead), bool(arrived)))
            there = alive + dead + [content for content in arrived if content != b"occupies"]
            assert len(set(there)) == len(there), "none twice"
            assert set(there) | set(came) >= set(CONTENTS), "none lost"
            assert work.messages == len(alive) + len(dead)
            DEATHS[reason](again)
            again.clock.advance(TTL)
            rest = [content for content in consume_narrow(again) if content != b"occupies"]
            assert sorted(rest) == sorted(there), "all that were there have come, each once"
            assert again.vhost.topology.queues["work"].messages == 0
        assert operations > 1
    assert {(True, False, True), (False, True, True)} <= stages


@pytest.mark.parametrize("reason", DEATHS)
def test_dead_letters_wait_after_a_restart_and_keep_their_reason(reason: str) -> None:
    disk = SimDisk(random.Random(1))
    life = prepared(disk)
    DEATHS[reason](life)
    settle(life)
    backlog = existing_backlog(life.vhost.topology.queues["work"])
    assert backlog is not None
    before = [(death.reason, death.message.sequence) for death in backlog.deaths()]
    for end in (disk.kill, disk.crash):
        end()
        life = Life(disk)
        work = life.vhost.topology.queues["work"]
        assert (work.depth, work.dead, work.dead_bytes) == (0, COUNT, COUNT * SIZE)
        backlog = existing_backlog(work)
        assert backlog is not None
        deaths = backlog.deaths()
        assert [(death.reason, death.message.sequence) for death in deaths] == before
        assert {REASONS[death.reason] for death in deaths} == {reason}
        past = deaths[0].past
        returned = {"rejected": (1, 0, ""), "expired": (0, 0, "queue"), "delivery_limit": (1, 1, "")}
        assert past is not None
        assert (past.deliveries, past.returns, past.expired_by) == returned[reason]
        life.tidy()
        life.clock.advance(3 * RETRY_MS)
        assert work.dead == COUNT
    assert consume_narrow(life) == [b"occupies", *CONTENTS]


def test_waiting_dead_letters_are_copied_forward_and_still_wait() -> None:
    disk = SimDisk(random.Random(1))
    life = prepared(disk)
    reject(life)
    settle(life)
    life.declare("busy")
    for _ in range(200):
        life.publish("busy", b"x" * 900)
        consumer, entries = life.take("busy")
        for entry in entries:
            life.vhost.topology.queues["busy"].settle(entry)
        detach(life.vhost.topology.queues["busy"], consumer, [])
        settle(life)
    life.tidy()
    disk.kill()
    again = Life(disk)
    assert again.log.segment_count < 10, "the old segments are gone"
    assert waiting(again, again.vhost.topology.queues["work"]) == CONTENTS


def test_waiting_dead_letters_outlive_their_exchange_and_their_policy() -> None:
    disk = SimDisk(random.Random(1))
    life = prepared(disk)
    reject(life)
    limits = life.vhost.topology.queues["work"].limits
    assert limits is not None
    limits.apply({})
    settle(life)
    assert consume_narrow(life) == [b"occupies"]
    assert life.vhost.topology.queues["work"].dead == COUNT
    limits.apply({DLX: "", "x-dead-letter-routing-key": "narrow"})
    life.clock.advance(SOON_MS)
    assert consume_narrow(life) == CONTENTS, "they died at least once, whatever the strategy is now"


@pytest.mark.parametrize("room", range(0, 30_000, 1000))
def test_each_waiting_dead_letter_is_in_one_queue_after_a_full_disk(room: int) -> None:
    disk = SimDisk(random.Random(1))
    life = prepared(disk)
    disk.capacity = disk.used() + room
    reject(life)
    life.commit()
    life.tidy()
    work = life.vhost.topology.queues["work"]
    assert (work.depth, work.dead) == (0, COUNT)
    came = consume_narrow(life)
    assert came == [b"occupies", *CONTENTS]
    life.tidy()
    disk.kill()
    disk.capacity = 1 << 40
    again = Life(disk)
    there = (
        again.held()["work"] + waiting(again, again.vhost.topology.queues["work"]) + again.held()["narrow"]
    )
    assert len(set(there)) == len(there)


# ---- transactions


RESULTS = ("out.0", "out.1")


def commit_job(life: Life, size: int) -> Job:
    """Take the work, acknowledge the half of it and reject the other half, and publish results."""
    consumer, entries = life.take("work")
    job = Job(life.vhost.publisher)
    for number, queue in enumerate(RESULTS):
        route = life.vhost.publisher.route("", queue)
        message = Message(route.address, content_of(number, size), size, True, 0)
        job.publishes.append(Publish(route, message, [], False))
    for number, entry in enumerate(entries):
        job.hold_settlement(number, entry, consumer, DISCARD if number % 2 else SETTLE)
    job.commit()
    return job


def places(life: Life) -> tuple[list[bytes], list[bytes], int]:
    """Return the messages in the queue, the waiting ones, and the number of results."""
    held = life.held()
    return (
        held["work"],
        waiting(life, life.vhost.topology.queues["work"]),
        sum(len(held[name]) for name in RESULTS),
    )


REJECTED = [content for number, content in enumerate(CONTENTS) if number % 2]


@pytest.mark.parametrize("size", [400, 5000])
@pytest.mark.parametrize("lost", [True, False], ids=["power", "killed"])
def test_a_transaction_that_rejects_is_done_or_not(size: int, lost: bool) -> None:
    outcomes = set()
    for seed in SEEDS:
        for operations in itertools.count():
            disk = SimDisk(random.Random(seed))
            life = prepared(disk)
            for name in RESULTS:
                life.declare(name)
            settle(life)
            disk.operations_left = operations
            answer = ""
            try:
                job = commit_job(life, size)
                life.commit()
                answer = job.answer
                life.tidy()
                finished = True
            except PowerLoss:
                finished = False
            if lost:
                disk.crash()
            else:
                disk.kill()
            alive, dead, results = places(Life(disk))
            assert (alive, dead, results) in ((CONTENTS, [], 0), ([], REJECTED, len(RESULTS)))
            assert not answer or results, "what was committed is there"
            outcomes.add(results)
            if finished:
                assert answer == "committed"
                break
    assert outcomes == {0, len(RESULTS)}


@pytest.mark.parametrize("room", [0, 1000, 4000, 9000, 30_000])
def test_a_transaction_that_does_not_fit_on_the_disk_kills_nothing(room: int) -> None:
    disk = SimDisk(random.Random(1))
    life = prepared(disk, delivery_limit=5)
    for name in RESULTS:
        life.declare(name)
    settle(life)
    disk.capacity = disk.used() + room
    job = commit_job(life, 20_000)
    life.commit()
    life.tidy()
    expected = ([], REJECTED, len(RESULTS)) if job.answer == "committed" else (CONTENTS, [], 0)
    assert places(life) == expected
    disk.kill()
    disk.capacity = 1 << 40
    assert places(Life(disk)) == expected
