"""Transactions over several queues while the broker is killed, and the required state afterwards."""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pamqp.commands import Basic
from pamqp.common import FieldTable

from tests.support.amqp091.frames import UnexpectedClose
from tests.support.amqp091.peer import Peer, PeerChannel
from tests.support.daemon.daemon import PATIENCE_S, Address, Daemon

PERSISTENT = Basic.Properties(delivery_mode=2)
RESULTS = ("out.0", "out.1", "out.2")
DEAD_LETTERS: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
SMALL = {"AMQPD_SEGMENT_BYTES": "64KiB", "AMQPD_MEMORY_BUDGET": "1MiB"}
"""Settings under which files are dropped and copied all the time."""


def body_of(number: int) -> bytes:
    return b"%08d" % number + b"." * (number * 37 % 2000)


def number_of(body: bytes) -> int:
    number = int(body[:8])
    assert body == body_of(number)
    return number


class Outcome:
    """The numbers of done work, with its results, and of rejected work."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        self.rejected: set[int] = set()

    def add(self, other: "Outcome") -> None:
        self.done |= other.done
        self.rejected |= other.rejected


class Worker(threading.Thread):
    """Takes work and puts a result into each of three queues, a few of both per transaction.

    Some it rejects: that is in the same transactions, and goes to the dead letters.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.committed = Outcome()
        self.asked: set[int] = set()  # the numbers of a transaction whose commit has not been answered
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Work until the broker is killed."""
        try:
            while True:
                self.transaction()
        except (ConnectionError, UnexpectedClose):
            pass
        except BaseException as failure:
            self.failure = failure
        finally:
            self.drop()

    def transaction(self) -> None:
        """Run a transaction, sometimes after a rollback."""
        raise NotImplementedError

    def drop(self) -> None:
        """Close the connection."""
        raise NotImplementedError


def add_work(channel: PeerChannel, first: int, count: int) -> None:
    for number in range(first, first + count):
        channel.publish(body_of(number), "work", properties=PERSISTENT)
    channel.expect_confirms(count)


def numbers_in(address: Address, queue: str) -> list[int]:
    """The numbers in a queue, which is left as it is."""
    peer = Peer(address).open()
    channel = peer.channel()
    ready, _ = channel.counts(queue)
    channel.consume(queue, arguments={"x-browse": True})
    numbers = [number_of(message.body) for message in channel.deliveries(ready)]
    peer.close()
    return numbers


def check(
    address: Address, published: int, committed: Outcome, unanswered: list[set[int]], where: str
) -> int:
    """Check that each number is waiting, done in all queues, or dead; return how many wait."""
    queues = {queue: numbers_in(address, queue) for queue in ("work", "dead", *RESULTS)}
    for queue, numbers in queues.items():
        assert len(numbers) == len(set(numbers)), f"{where}: doubles in {queue}"
    work, dead, done = set(queues["work"]), set(queues["dead"]), set(queues[RESULTS[0]])
    for queue in RESULTS:
        assert set(queues[queue]) == done, f"{where}: {queue} differs in {sorted(set(queues[queue]) ^ done)}"
    assert done.isdisjoint(work), f"{where}: done and to be done: {sorted(done & work)}"
    assert dead.isdisjoint(work), f"{where}: rejected and to be done: {sorted(dead & work)}"
    assert dead.isdisjoint(done), f"{where}: rejected and done: {sorted(dead & done)}"
    for asked in unanswered:
        assert asked & work in (set(), asked), (
            f"{where}: of {sorted(asked)} only {sorted(asked - work)} are done"
        )
    missing = set(range(published)) - done - work - dead
    assert missing == set(), f"{where}: lost {sorted(missing)}"
    assert committed.done <= done, f"{where}: committed and not done {sorted(committed.done - done)}"
    lost = committed.rejected - dead
    assert lost == set(), f"{where}: committed and not dead-lettered {sorted(lost)}"
    return len(done) + len(dead)


def await_commit(workers: list[Worker]) -> None:
    """Wait until a worker's transaction has ended."""
    late = time.monotonic() + PATIENCE_S
    while not any(worker.committed.done or worker.committed.rejected for worker in workers):
        assert time.monotonic() < late
        time.sleep(0.01)


def await_end(workers: list[Worker]) -> None:
    """Wait until all workers notice the end of the broker."""
    for worker in workers:
        worker.join(PATIENCE_S)
        assert not worker.is_alive()
        assert worker.failure is None, worker.failure


def rounds(
    folder: Path, count: int, settings: dict[str, str], new_worker: Callable[[Address, int], Worker]
) -> None:
    """Start, work and kill the daemon `count` times, checking after each."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    committed = Outcome()
    unanswered: list[set[int]] = []
    published = 0
    finished = 0
    never = threading.Event()
    for number in range(count + 1):
        daemon = Daemon(folder / str(number), environment=settings, data_dir=folder / "data")
        try:
            daemon.wait_until_ready()
            channel = Peer(daemon.address).open().channel()
            channel.declare("work", durable=True, arguments=DEAD_LETTERS)
            for queue in ("dead", *RESULTS):
                channel.declare(queue, durable=True)
            finished = check(daemon.address, published, committed, unanswered, f"seed {seed}, life {number}")
            if number < count:
                channel.confirm_select()
                add_work(channel, published, 1500)
                published += 1500
                workers = [new_worker(daemon.address, chance.randrange(1 << 30)) for _ in range(3)]
                for worker in workers:
                    worker.start()
                if number == 0:
                    await_commit(workers)
                never.wait(chance.uniform(0.05, 1.5))  # the instant of the kill is meant to be anywhere
                daemon.kill()
                await_end(workers)
                for worker in workers:
                    committed.add(worker.committed)
                unanswered = [worker.asked for worker in workers]
            channel.peer.drop()
            if number == count:
                daemon.stop()
        finally:
            if daemon.alive:
                daemon.kill()
    known = f"{len(committed.done)} done and {len(committed.rejected)} rejected for sure"
    print(f"seed {seed}: {count} kills, {published} published, {finished} finished, {known}")
    assert len(committed.done | committed.rejected) > 0
