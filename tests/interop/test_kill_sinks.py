"""kill -9 during attempts, commits and publishes of a staged sink: each batch is published exactly once.

The program does what a Spark query does: tasks run twice, also at the same time. A task without an answer
begins the batch anew, with other attempts, and repeats the request to commit.
"""

import random
import threading

import httpx
import pytest

from tests.conformance.test_http_sinks import Driver, chunk
from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Address, DaemonStarter

PARTITIONS = 2
ROWS = 400  # in each chunk
CHUNKS = 4  # in each partition

Row = tuple[int, int, int, int]
"""Batch, partition, number in it, and the attempt that has written it."""


class Program:
    """Writes batch after batch until the broker is killed, and goes on when there is another one.

    `batch`: the one that it is at; all before were answered for. `zombie`: an epoch that is over, and its
    attempts.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.batch = 0
        self.resumed = 0  # how many commits had been decided when their answer was lost
        self.stops = False
        self.zombie: tuple[Driver, list[int]] | None = None
        self.failure: BaseException | None = None

    def run(self, base: str) -> None:
        """Write to a broker."""
        api = Api(base)
        try:
            driver = Driver(api, "/")
            self._outlive(api)
            while not self.stops:
                attempts: list[int] = []
                self.zombie = driver, attempts
                self._write(driver, attempts)
                self._commit(driver, attempts)
        except httpx.TransportError:
            pass  # the broker was killed
        except BaseException as failure:
            self.failure = failure
        finally:
            api.close()

    def _outlive(self, api: Api) -> None:
        """A driver of before comes late."""
        if self.zombie is not None:
            driver, attempts = self.zombie
            driver.api = api
            driver.refused(409, self.batch, attempts, len(attempts) * CHUNKS * ROWS)

    def _write(self, driver: Driver, attempts: list[int]) -> None:
        """Write all partitions, some of them by two tasks at the same time; `attempts` win."""
        for partition in range(PARTITIONS):
            tasks = [driver.begin(self.batch, partition) for _ in range(self.chance.choice((1, 1, 2)))]
            if None in tasks:
                return  # the batch is committed
            for number in range(CHUNKS):
                for attempt in tasks:
                    start = number * ROWS
                    driver.add(attempt, start, chunk(self._bodies(partition, start, attempt)))
            attempts.append(self.chance.choice(tasks))

    def _bodies(self, partition: int, start: int, attempt: int) -> list[bytes]:
        rows = range(start, start + ROWS)
        return [b"%d %d %d %d" % (self.batch, partition, number, attempt) for number in rows]

    def _commit(self, driver: Driver, attempts: list[int]) -> None:
        answer = driver.commit(self.batch, attempts, len(attempts) * CHUNKS * ROWS)
        assert answer["last_batch"] == self.batch
        assert answer["moving_rows"] == 0
        self.resumed += answer["committed"] == "already"
        self.batch += 1


def consumed(address: Address) -> list[Row]:
    """Return all published rows, in order."""
    found: list[Row] = []
    with amqp(address, "/") as channel:
        count = channel.queue_declare("q", passive=True).method.message_count
        for method, _, body in channel.consume("q", auto_ack=True, inactivity_timeout=PATIENCE_S):
            assert method is not None, f"{len(found)} of {count} messages have come"
            batch, partition, number, attempt = map(int, body.split())
            found.append((batch, partition, number, attempt))
            if len(found) == count:
                break
    return found


def killed(start_daemon: DaemonStarter, rounds: int, seed: int) -> Program:
    """Kill the broker `rounds` times; return the program."""
    chance = random.Random(seed)
    daemon = start_daemon().load_api()
    api = Api(daemon.admin)
    api.put("queues", "/", "q", durable=True)
    api.close()
    program = Program(seed)
    for _ in range(rounds):
        running = threading.Thread(target=program.run, args=(daemon.admin,))
        running.start()
        running.join(chance.uniform(0.05, 0.9))
        daemon.kill()
        running.join()
        assert program.failure is None, program.failure
        daemon = start_daemon().load_api()  # the instant of the kill is meant to be among batches
    last = threading.Thread(target=program.run, args=(daemon.admin,))
    last.start()
    last.join(1)
    while not program.batch and last.is_alive():
        last.join(0.1)
    program.stops = True
    last.join()
    assert program.failure is None, program.failure
    api = Api(daemon.admin)
    assert Driver(api, "/").attached["last_batch"] == program.batch - 1
    api.close()
    _expect_once(consumed(daemon.address), program.batch)
    return program


def _expect_once(rows: list[Row], batches: int) -> None:
    """Check that every partition of every batch is there once, from a single attempt, in order."""
    assert batches > 0
    by_partition: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        by_partition.setdefault(row[:2], []).append(row)
    assert list(by_partition) == [(batch, each) for batch in range(batches) for each in range(PARTITIONS)]
    for found in by_partition.values():
        assert [row[2] for row in found] == list(range(CHUNKS * ROWS))
        assert len({row[3] for row in found}) == 1


def test_kill_among_batches(start_daemon: DaemonStarter) -> None:
    killed(start_daemon, 3, 1)


@pytest.mark.nightly
def test_kill_among_batches_for_long(start_daemon: DaemonStarter) -> None:
    program = killed(start_daemon, 40, 2)
    assert program.resumed > 0
