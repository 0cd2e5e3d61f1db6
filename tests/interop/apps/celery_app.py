"""A Celery application for the tests and for its worker process."""

import time
from pathlib import Path
from typing import Any

from celery import Celery, shared_task
from celery.exceptions import SoftTimeLimitExceeded


def make_app(broker: str, backend: str, queue: str) -> Any:
    """The application, for a broker, a store of results and a queue."""
    app = Celery("interop", broker=broker, backend=backend)
    app.conf.update(
        task_default_queue=queue,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"confirm_publish": True},
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_queue_max_priority=10,
        task_default_priority=5,
        worker_prefetch_multiplier=1,
        result_chord_retry_interval=0.1,
        task_track_started=True,
    )
    return app


@shared_task
def add(*numbers: int) -> int:
    """The sum of numbers."""
    return sum(numbers)


@shared_task
def add_all(numbers: list[int]) -> int:
    """The sum of a list, as the body of a chord."""
    return sum(numbers)


@shared_task
def now() -> float:
    """Return the time of the run, in seconds since the epoch."""
    return time.time()


@shared_task(bind=True, max_retries=5)
def succeed_at(self: Any, attempt: int) -> list[float]:
    """Fail until `attempt`, each time waiting twice as long; when the attempts were made."""
    made = [*self.request.headers.get("made", []), time.time()] if self.request.headers else [time.time()]
    if self.request.retries + 1 < attempt:
        raise self.retry(countdown=0.2 * 2**self.request.retries, headers={"made": made})
    return made


@shared_task
def note(file: str, line: str) -> None:
    """Add a line to a file."""
    with Path(file).open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")


@shared_task
def wait_for(file: str, started: str) -> str:
    """Say that it has started, then wait until a file is there."""
    Path(started).touch()
    try:
        while not Path(file).exists():
            time.sleep(0.01)
    except SoftTimeLimitExceeded:
        return "told to stop"
    return "done"
