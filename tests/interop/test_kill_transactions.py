"""kill -9 among transactions over three queues: each is there as a whole or not at all."""

import random
import threading
from pathlib import Path

import pytest
from pamqp.commands import Basic, Tx

from tests.daemon import PATIENCE_S, Address, Daemon
from tests.frames import UnexpectedClose
from tests.peer import Peer
from tests.peer_channel import PeerChannel

PERSISTENT = Basic.Properties(delivery_mode=2)
RESULTS = ("out.0", "out.1", "out.2")
SMALL = {"AMQPD_SEGMENT_BYTES": "64KiB", "AMQPD_MEMORY_BUDGET": "1MiB"}
"""Settings under which files are dropped and copied all the time."""


def body_of(number: int) -> bytes:
    return b"%08d" % number + b"." * (number * 37 % 2000)


def number_of(body: bytes) -> int:
    number = int(body[:8])
    assert body == body_of(number)
    return number


class Worker(threading.Thread):
    """Takes work and puts a result into each of three queues, a few of both per transaction."""

    def __init__(self, address: Address, seed: int) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.channel = Peer(address).open().channel()
        self.committed: set[int] = set()
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Work until the broker is killed."""
        try:
            self.channel.call(Tx.Select(), Tx.SelectOk)
            self.channel.qos(10)
            self.channel.consume("work", "w")
            while True:
                self.transaction()
        except (ConnectionError, UnexpectedClose):
            pass
        except BaseException as failure:
            self.failure = failure
        finally:
            self.channel.peer.drop()

    def transaction(self) -> None:
        """One of them, sometimes after a false start."""
        channel = self.channel
        messages = channel.deliveries(self.random.randrange(1, 6))
        if self.random.random() < 0.2:
            self.fill([messages[0].tag], [number_of(messages[0].body)])
            channel.call(Tx.Rollback(), Tx.RollbackOk)
        numbers = [number_of(message.body) for message in messages]
        self.fill([message.tag for message in messages], numbers)
        channel.call(Tx.Commit(), Tx.CommitOk)
        self.committed.update(numbers)

    def fill(self, tags: list[int], numbers: list[int]) -> None:
        for tag, number in zip(tags, numbers, strict=True):
            self.channel.ack(tag)
            for queue in RESULTS:
                self.channel.publish(body_of(number), queue, properties=PERSISTENT)


def add_work(channel: PeerChannel, first: int, count: int) -> None:
    for number in range(first, first + count):
        channel.publish(body_of(number), "work", properties=PERSISTENT)
    channel.expect_confirms(count)


def held(address: Address, queue: str) -> list[int]:
    """The numbers in a queue, which is left as it is."""
    peer = Peer(address).open()
    channel = peer.channel()
    ready, _ = channel.counts(queue)
    channel.consume(queue, arguments={"x-browse": True})
    numbers = [number_of(message.body) for message in channel.deliveries(ready)]
    peer.close()
    return numbers


def check(address: Address, published: int, committed: set[int], where: str) -> int:
    """Everything is either still to be done or in all three queues, once; returns how much is done."""
    work = held(address, "work")
    results = [held(address, queue) for queue in RESULTS]
    done = set(results[0])
    for queue, numbers in zip(RESULTS, results, strict=True):
        assert len(numbers) == len(set(numbers)), f"{where}: doubles in {queue}"
        assert set(numbers) == done, f"{where}: {queue} differs in {sorted(set(numbers) ^ done)}"
    assert len(work) == len(set(work)), f"{where}: doubles in work"
    assert done.isdisjoint(work), f"{where}: done and to be done: {sorted(done & set(work))}"
    missing = set(range(published)) - done - set(work)
    assert missing == set(), f"{where}: lost {sorted(missing)}"
    assert committed <= done, f"{where}: committed and not done {sorted(committed - done)}"
    return len(done)


def ended(workers: list[Worker]) -> set[int]:
    """What they know to be committed, once they have noticed that the broker is gone."""
    committed: set[int] = set()
    for worker in workers:
        worker.join(PATIENCE_S)
        assert not worker.is_alive()
        assert worker.failure is None, worker.failure
        committed |= worker.committed
    return committed


def rounds(folder: Path, count: int, seed: int, settings: dict[str, str]) -> None:
    """Start, work and kill the daemon `count` times, checking after each."""
    chance = random.Random(seed)
    committed: set[int] = set()
    published = 0
    done = 0
    never = threading.Event()
    for number in range(count + 1):
        daemon = Daemon(folder / str(number), environment=settings, data_dir=folder / "data")
        try:
            daemon.wait_until_ready()
            channel = Peer(daemon.address).open().channel()
            for queue in ("work", *RESULTS):
                channel.declare(queue, durable=True)
            done = check(daemon.address, published, committed, f"seed {seed}, life {number}")
            if number < count:
                channel.confirm_select()
                add_work(channel, published, 1500)
                published += 1500
                workers = [Worker(daemon.address, chance.randrange(1 << 30)) for _ in range(3)]
                never.wait(chance.uniform(0.05, 1.5))  # the instant of the kill is meant to be anywhere
                daemon.kill()
                committed |= ended(workers)
            channel.peer.drop()
            if number == count:
                daemon.stop()
        finally:
            if daemon.alive:
                daemon.kill()
    print(f"seed {seed}: {count} kills, {published} published, {done} done, {len(committed)} known to be")
    assert len(committed) > 0


@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_kill_among_transactions(tmp_path: Path, settings: dict[str, str]) -> None:
    rounds(tmp_path, 2, random.randrange(1 << 30), settings)


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_fifty_kills_among_transactions(tmp_path: Path, settings: dict[str, str]) -> None:
    rounds(tmp_path, 50, random.randrange(1 << 30), settings)
