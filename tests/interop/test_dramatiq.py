"""Dramatiq over pika, unmodified: a real worker process that works through a real broker."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from tests.interop.worker_process import WorkerProcess, wait_until
from tests.support.daemon.daemon import Address


class Actors:
    """A worker process with a single thread, and a broker object that sends to it."""

    def __init__(self, folder: Path, url: str, queue: str) -> None:
        self.folder = folder
        self.queue = queue
        self.url = url
        self.broker = RabbitmqBroker(url=url, confirm_delivery=True, max_priority=10)
        self.worker = self.start()

    def start(self) -> WorkerProcess:
        """Start another worker process."""
        arguments = ["dramatiq", "tests.interop.apps.dramatiq_actors", "--processes", "1", "--threads", "1"]
        environment = {"BROKER": self.url, "QUEUE": self.queue, "dramatiq_queue_prefetch": "1"}
        return WorkerProcess(self.folder, arguments, environment, ready=r"Worker process is ready for action")

    def send(self, actor: str, *arguments: Any, delay: int | None = None, **options: Any) -> None:
        """Send a message; `delay` in milliseconds."""
        self.broker.enqueue(self.message(actor, *arguments, **options), delay=delay)

    def message(self, actor: str, *arguments: Any, **options: Any) -> "dramatiq.Message[Any]":
        """A message that is not sent yet."""
        return dramatiq.Message(
            queue_name=self.queue, actor_name=actor, args=arguments, kwargs={}, options=options
        )

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of ready messages: in the queue, in its delayed queue and in its dead queue."""
        return self.broker.get_queue_message_counts(self.queue)


@pytest.fixture
def actors(address: Address, name: str, tmp_path: Path) -> Iterator[Actors]:
    """A worker on a queue of its own."""
    actors = Actors(tmp_path, address.url(), name)
    yield actors
    actors.worker.stop()
    for suffix in ("", ".DQ", ".XQ"):
        actors.broker.channel.queue_delete(name + suffix)
    actors.broker.close()


def lines(file: Path) -> list[tuple[str, float]]:
    """Return the lines that the actors have written, with their times."""
    if not file.exists():
        return []
    pairs = [line.rpartition(" ") for line in file.read_text(encoding="utf-8").splitlines()]
    return [(text, float(when)) for text, _, when in pairs]


def test_actors_run_at_once_and_later_and_in_a_row(actors: Actors, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    sent = int(time.time() * 1000) / 1000  # dramatiq counts whole milliseconds that are over
    actors.send("note", str(notes), "later", delay=1000)
    row = actors.message("note", str(notes), "first") | actors.message("follow", str(notes), ".second")
    for number in range(20):
        actors.send("note", str(notes), str(number))
    actors.broker.enqueue(row.messages[0])
    wait_until(lambda: len(lines(notes)) == 23)
    when = dict(lines(notes))
    assert set(when) == {"later", "first", "first.second", *map(str, range(20))}
    assert when["later"] >= sent + 1
    assert when["first"] < when["first.second"]
    wait_until(lambda: actors.counts() == (0, 0, 0))


def test_failures_are_tried_again_with_backoff_and_then_given_up(actors: Actors, tmp_path: Path) -> None:
    mended, hopeless = tmp_path / "mended.txt", tmp_path / "hopeless.txt"
    actors.send("succeed_at", str(mended), 3)
    wait_until(lambda: len(lines(mended)) == 3)
    waits = [later[1] - earlier[1] for earlier, later in itertools.pairwise(lines(mended))]
    assert all(wait >= 0.05 for wait in waits), "half of the backoff is chance"
    actors.send("succeed_at", str(hopeless), 99)
    wait_until(lambda: actors.counts() == (0, 0, 1))
    assert len(lines(hopeless)) == 4
    _, properties, body = actors.broker.channel.basic_get(actors.queue + ".XQ", auto_ack=True)
    assert dramatiq.Message.decode(body).actor_name == "succeed_at"
    (death,) = properties.headers["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == (actors.queue, "rejected", 1)


def test_priorities(actors: Actors, tmp_path: Path) -> None:
    notes, gate, started = tmp_path / "notes.txt", tmp_path / "gate", tmp_path / "started"
    actors.send("wait_for", str(gate), str(started))
    wait_until(started.exists)
    for priority in (1, 9, 5, 9, 2):
        actors.send("note", str(notes), str(priority), broker_priority=priority)
    gate.touch()
    wait_until(lambda: len(lines(notes)) == 5)
    assert [text for text, _ in lines(notes)] == ["9", "9", "5", "2", "1"]


@pytest.mark.nightly
def test_a_killed_worker_loses_nothing(actors: Actors, tmp_path: Path) -> None:
    notes, gate, started = tmp_path / "notes.txt", tmp_path / "gate", tmp_path / "started"
    actors.send("wait_for", str(gate), str(started))
    wait_until(started.exists)
    for number in range(10):
        actors.send("note", str(notes), str(number))
    actors.worker.kill()
    gate.touch()
    actors.worker = actors.start()
    wait_until(lambda: len(lines(notes)) == 10)
    assert [text for text, _ in lines(notes)] == [str(number) for number in range(10)]
    wait_until(lambda: actors.counts() == (0, 0, 0))
