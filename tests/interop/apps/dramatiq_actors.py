"""Dramatiq actors for the tests and for the worker process."""

import os
import time
from pathlib import Path

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

BROKER = RabbitmqBroker(url=os.environ["BROKER"], confirm_delivery=True, max_priority=10)
dramatiq.set_broker(BROKER)


@dramatiq.actor(queue_name=os.environ["QUEUE"])
def note(file: str, line: str) -> str:
    """Add a line and the time to a file."""
    with Path(file).open("a", encoding="utf-8") as stream:
        stream.write(f"{line} {time.time()}\n")
    return line


@dramatiq.actor(queue_name=os.environ["QUEUE"])
def follow(file: str, suffix: str, line: str) -> None:
    """The second half of a pipeline."""
    note(file, line + suffix)


@dramatiq.actor(queue_name=os.environ["QUEUE"], min_backoff=100, max_backoff=400, max_retries=3)
def succeed_at(file: str, attempt: int) -> None:
    """Fail until `attempt`; every attempt adds a line to the file."""
    note(file, "attempt")
    if len(Path(file).read_text(encoding="utf-8").splitlines()) < attempt:
        raise ValueError("not yet")


@dramatiq.actor(queue_name=os.environ["QUEUE"])
def wait_for(file: str, started: str) -> None:
    """Say that it has started, then wait until a file is there."""
    Path(started).touch()
    while not Path(file).exists():
        time.sleep(0.01)
