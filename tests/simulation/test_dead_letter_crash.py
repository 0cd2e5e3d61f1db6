"""Dead letters, with the power cut, the process killed or the disk full anywhere on their way.

What is found afterwards is each message in its queue or in the dead-letter queue: never both, never neither.
"""

import itertools
import random
from collections.abc import Callable

import pytest

from broker.core.queues.returns import release_entries
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import PowerLoss, SimDisk
from tests.support.store.hand_log import content_of

COUNT = 6
TTL = 1000
SIZES = [400, 5000]  # sizes of messages: many to a segment, or few
CONTENTS = {size: [content_of(n, size) for n in range(COUNT)] for size in SIZES}
SEEDS = range(3)  # seeds of the choice that a power cut makes


def reject(life: Life) -> None:
    """Reject the messages, in several turns."""
    _, entries = life.take("work")
    for entry in entries:
        life.vhost.topology.queues["work"].discard(entry)
        life.log.commit()


def expire(life: Life) -> None:
    """Their time is over."""
    life.clock.advance(TTL)


def crowd_out(life: Life) -> None:
    """Publish as many messages as the limit allows."""
    for _ in range(COUNT):
        life.publish("work", b"newer")


def return_once_too_often(life: Life) -> None:
    """Return messages whose delivery limit is exceeded."""
    consumer, entries = life.take("work")
    release_entries(life.vhost.topology.queues["work"], entries, consumer)


DEATHS = [reject, expire, crowd_out, return_once_too_often]
WAYS = {"dead": "at once", "full": "by way of a queue that refuses them"}


def prepared(disk: SimDisk, size: int, way: str) -> Life:
    """A broker with a queue whose messages are about to die, all of it durable."""
    life = Life(disk)
    life.declare(
        "work",
        dead_letter_exchange="",
        dead_letter_routing_key=way,
        message_ttl=TTL,
        max_length=COUNT,
        delivery_limit=0,
    )
    life.declare(
        "full",
        max_length=0,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    life.declare("dead")
    for content in CONTENTS[size]:
        life.publish("work", content)
    life.commit()
    life.commit()
    return life


def run(life: Life, die: Callable[[Life], None]) -> None:
    """Have them die, and the disk do its part."""
    die(life)
    life.commit()
    life.tidy()


def places(life: Life, size: int) -> list[str]:
    """Return the only queue of each message, or fail."""
    found = []
    held = life.held()
    for content in CONTENTS[size]:
        (queue,) = [name for name, contents in held.items() for other in contents if other == content]
        found.append(queue)
    return found


@pytest.mark.parametrize("die", DEATHS)
@pytest.mark.parametrize("way", WAYS, ids=list(WAYS))
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lost", [True, False], ids=["power", "killed"])
def test_each_dead_letter_is_in_one_queue_after_a_crash_at_any_operation(
    die: Callable[[Life], None], way: str, size: int, lost: bool
) -> None:
    outcomes = set()
    for seed in SEEDS:
        for operations in itertools.count():
            disk = SimDisk(random.Random(seed))
            life = prepared(disk, size, way)
            disk.operations_left = operations
            try:
                run(life, die)
                finished = True
            except PowerLoss:
                finished = False
            if lost:
                disk.crash()
            else:
                disk.kill()
            found = places(Life(disk), size)
            outcomes.update(found)
            if finished:
                assert found == ["dead"] * COUNT
                break
        assert operations > 1
    assert outcomes == {"work", "dead"}


@pytest.mark.parametrize("die", DEATHS)
@pytest.mark.parametrize("way", WAYS, ids=list(WAYS))
@pytest.mark.parametrize("size", SIZES)
def test_each_dead_letter_is_in_one_queue_after_a_full_disk(
    die: Callable[[Life], None], way: str, size: int
) -> None:
    outcomes = set()
    for room in range(0, 60_000, 1000):
        disk = SimDisk(random.Random(1))
        life = prepared(disk, size, way)
        disk.capacity = disk.used() + room
        run(life, die)
        assert places(life, size) == ["dead"] * COUNT, "in memory they have all died"
        disk.kill()
        disk.capacity = 1 << 40
        outcomes.add(tuple(places(Life(disk), size)))
    assert ("dead",) * COUNT in outcomes, "there was room"
    assert any("work" in outcome for outcome in outcomes), "there was none"
