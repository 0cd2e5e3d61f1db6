"""A staged sink, with the power cut, the process killed or the disk full anywhere on the way of a batch.

The next life of the broker finds all of the batch or nothing of it.
"""

import itertools
import random
from collections.abc import Callable

import pytest

from broker.adapters.amqp091.rows import chunk_message
from broker.core.operators.sink import Attempt
from protocol.streams.chunk import BASIC, ChunkWriter
from protocol.streams.rows import columns_of
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import PowerLoss, SimDisk

SEEDS = range(3)  # seeds of the choice that a power cut makes
QUEUES = ("even", "odd")
ROWS = 5  # in each chunk
SIZES = (20, 2000)  # sizes of bodies: within a segment, and over several


def body(batch: int, number: int, size: int) -> bytes:
    return b"%d.%d " % (batch, number) * size


def add(attempt: Attempt, batch: int, start: int, size: int, report: Callable[[str], object] = str) -> None:
    """Add a chunk of rows for both queues."""
    writer = ChunkWriter()
    for number in range(start, start + ROWS):
        key = QUEUES[number % 2].encode()
        writer.add(0, BASIC, b"", key, b"\x10\x00\x02", body(batch, number, size)[:size])
    attempt.add([chunk_message(writer.take(0, 0), ROWS)], report)


def rows(batches: tuple[int, ...], size: int) -> dict[str, list[bytes]]:
    """Return the expected rows of the queues after these batches."""
    return {
        name: [body(batch, n, size)[:size] for batch in batches for n in range(4 * ROWS) if n % 2 == odd]
        for odd, name in enumerate(QUEUES)
    }


class Story:
    """The requests and answers of a batch. Batch 0 is published; the accident hits batch 1."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.life = Life(disk)
        self.answers: list[str] = []
        for name in QUEUES:
            self.life.declare(name)
        self.sink = self.life.broker.sinks.attach(self.life.vhost, "query", "guest")

    def write(self, batch: int, size: int) -> list[Attempt]:
        """Write two partitions, and an attempt that does not win."""
        attempts = [self.sink.begin(batch, partition) for partition in (0, 1, 1)]
        for number, attempt in enumerate(attempts[:2]):
            for start in (0, ROWS):
                add(attempt, batch, 2 * ROWS * number + start, size)
        add(attempts[2], 9, 0, size)
        self.turn()
        return attempts[:2]

    def commit(self, batch: int, attempts: list[Attempt]) -> None:
        """Commit, and run some turns of the decided batch."""
        self.sink.commit(batch, attempts, True, "mine", self.answers.append)
        self.go_on()

    def go_on(self) -> None:
        for _ in range(8):
            self.turn()

    def turn(self) -> None:
        self.life.commit()
        self.life.clock.advance(1000)
        self.life.tidy()

    def found(self) -> dict[str, list[bytes]]:
        return {name: [columns_of(each)[2] for each in held] for name, held in self.life.held().items()}


def found(disk: SimDisk) -> tuple[int, dict[str, list[bytes]]]:
    """Return the last batch in the next life of the broker, and the rows of its queues."""
    story = Story.__new__(Story)
    story.life = Life(disk)
    story.life.broker.resume()
    story.sink = story.life.broker.sinks.existing(story.life.vhost, "query")
    story.go_on()
    assert not story.sink.moving
    assert story.sink.blocked == ""
    return int(story.sink.last), story.found()


def answers_to(disk: SimDisk, operations: int, size: int) -> list[str]:
    """Publish two batches, with `operations` of the disk for the second; return the answers."""
    story = Story(disk)
    story.commit(0, story.write(0, size))
    assert story.found() == rows((0,), size)
    try:
        disk.operations_left = operations
        story.commit(1, story.write(1, size))
    except PowerLoss:
        pass
    return story.answers


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lost", [True, False], ids=["power", "killed"])
def test_a_batch_is_published_once_wherever_it_is_cut(size: int, seed: int, lost: bool) -> None:
    outcomes = set()
    for operations in itertools.count():
        disk = SimDisk(random.Random(seed))
        answers = answers_to(disk, operations, size)
        finished = disk.operations_left > 0
        if lost:
            disk.crash()
        else:
            disk.kill()
        last, held = found(disk)
        assert held == rows(tuple(range(last + 1)), size), f"after {operations} operations"
        if len(answers) == 2:
            assert last == 1, f"after {operations} operations"
        outcomes.add((len(answers), last))
        if finished:
            break
    assert {(1, 0), (2, 1)} <= outcomes


def short_of_room(size: int, room: int) -> Story:
    """Batch 1 with so many bytes of the disk left when it is committed."""
    story = Story(SimDisk(random.Random(1)))
    story.commit(0, story.write(0, size))
    attempts = story.write(1, size)
    story.disk.capacity = story.disk.used() + room
    story.commit(1, attempts)
    return story


@pytest.mark.parametrize("size", SIZES)
def test_a_batch_is_published_once_on_a_full_disk(size: int) -> None:
    outcomes = set()
    for room in range(0, 60_000, 2000):
        story = short_of_room(size, room)
        decided = story.answers[1] == ""
        story.disk.kill()
        story.disk.capacity = 1 << 40
        last, held = found(story.disk)
        assert held == rows(tuple(range(last + 1)), size), f"with {room} bytes of room"
        if decided:
            assert last == 1, f"with {room} bytes of room"
        outcomes.add((decided, bool(story.life.log.failure)))
    assert (True, False) in outcomes
    assert (size == SIZES[0] and (False, True) in outcomes) or (True, True) in outcomes


def test_an_undecided_batch_stays_undecided() -> None:
    (size, _) = SIZES
    story = short_of_room(size, 0)
    assert story.answers[1] != ""
    story.disk.capacity = 1 << 40
    story.go_on()
    assert not story.sink.moving
    story.disk.kill()
    assert found(story.disk) == (0, rows((0,), size))


@pytest.mark.parametrize("size", SIZES)
def test_rows_refused_by_a_full_disk_are_not_published(size: int) -> None:
    story = Story(SimDisk(random.Random(1)))
    report: list[str] = []
    attempt = story.sink.begin(0, 0)
    add(attempt, 0, 0, size, report.append)
    story.turn()
    assert (report, attempt.rows) == ([""], ROWS)

    story.disk.capacity = story.disk.used()
    add(attempt, 0, ROWS, size, report.append)
    story.turn()
    assert report[1]
    assert (attempt.rows, attempt.queue.depth) == (ROWS, 1)

    story.disk.capacity = 1 << 40
    story.go_on()
    add(attempt, 0, ROWS, size, report.append)
    for start in (2 * ROWS, 3 * ROWS):
        add(attempt, 0, start, size, report.append)
    story.turn()
    assert (report[2:], attempt.rows) == ([""] * 3, 4 * ROWS)
    story.sink.commit(0, [attempt], True, "", story.answers.append)
    story.life.commit()
    assert story.answers == [""]
    story.disk.kill()
    assert found(story.disk) == (0, rows((0,), size))


@pytest.mark.parametrize("size", SIZES)
def test_a_batch_goes_on_when_there_is_room_again(size: int) -> None:
    outcomes = set()
    for room in range(0, 60_000, 2000):
        story = short_of_room(size, room)
        outcomes.add((story.answers[1] == "", story.life.log.failure == ""))
        story.disk.capacity = 1 << 40
        story.go_on()
        assert story.life.log.failure == ""
        if story.answers[1]:
            assert story.sink.last == 0
            assert story.found() == rows((0,), size)
            story.commit(1, [each for each in story.sink.attempts.values() if each.rows > ROWS])
            assert story.answers[2] == ""
        assert story.found() == rows((0, 1), size)
        story.disk.kill()
        assert found(story.disk) == (1, rows((0, 1), size)), f"with {room} bytes of room"
    assert len(outcomes) > 1
