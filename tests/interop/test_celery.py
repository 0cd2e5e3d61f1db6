"""Celery, unmodified: a real worker process that works through a real broker."""

import importlib
import itertools
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError

from tests.interop.apps import celery_app
from tests.interop.worker_process import WorkerProcess, wait_until
from tests.support.daemon.daemon import PATIENCE_S, Daemon

# Celery leaves connections of applications that it has closed to the garbage collector, whenever that comes
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

pools: Any = importlib.import_module("kombu.pools")  # typed in part only


class Worker:
    """A Celery worker process on a queue, and an application that sends to it."""

    def __init__(self, folder: Path, broker: str, results: str = "rpc://", queue: str = "") -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.name = f"{folder.name}@here"
        self.queue = queue or folder.name
        self.app = celery_app.make_app(broker, results, self.queue)
        self.process = WorkerProcess(
            folder,
            f"celery -A tests.interop.apps.celery_worker worker -l INFO -c 1 -n {self.name}".split(),
            {"BROKER": broker, "RESULTS": results, "QUEUE": self.queue},
            ready=r"ready\.$",
        )

    def send(self, task: str, *arguments: Any, **options: Any) -> Any:
        """Send a task; returns its result to come."""
        return self.signature(task, *arguments).apply_async(**options)

    def signature(self, task: str, *arguments: Any, **more: Any) -> Any:
        """A task with arguments, for a canvas."""
        return self.app.signature(f"{celery_app.__name__}.{task}", args=arguments, **more)

    def occupy(self, name: str) -> tuple[Path, Any]:
        """Keep the worker busy until the returned file is there; returns when the task has started."""
        gate, started = self.folder / f"{name}.gate", self.folder / f"{name}.started"
        result = self.send("wait_for", str(gate), str(started))
        wait_until(started.exists)
        return gate, result

    def stop(self) -> None:
        """A warm shutdown."""
        self.process.stop()
        self._let_go()

    def kill(self) -> None:
        """Kill the worker, as the loss of its machine would."""
        self.process.kill()
        self._let_go()

    def _let_go(self) -> None:
        with suppress(AttributeError, OSError):  # never requested, or lost with the broker
            self.app.backend.result_consumer.stop()
        self.app.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker process for the tests of this module."""
    daemon = Daemon(tmp_path_factory.mktemp("celery-broker")).wait_until_ready()
    yield daemon
    pools.reset()  # else the broker waits for this process to answer its close
    daemon.stop()


@pytest.fixture(scope="module")
def worker(broker: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker that sends its results through the broker."""
    worker = Worker(tmp_path_factory.mktemp("celery") / "worker", broker.address.url())
    yield worker
    worker.stop()


def test_results_and_a_chain(worker: Worker) -> None:
    assert worker.send("add", 2, 3).get(timeout=PATIENCE_S) == 5
    steps = [worker.signature("add", 1, 2), worker.signature("add", 10), worker.signature("add", 100)]
    assert chain(*steps)().get(timeout=PATIENCE_S) == 113


def test_a_group(worker: Worker) -> None:
    result = group([worker.signature("add", number, number) for number in range(50)], app=worker.app)()
    assert result.get(timeout=PATIENCE_S) == [2 * number for number in range(50)]


def test_countdown_and_eta(worker: Worker) -> None:
    sent = time.time()
    later = worker.send("now", countdown=1.5)
    at = worker.send("now", eta=datetime.now(UTC) + timedelta(seconds=1))
    assert at.get(timeout=PATIENCE_S) >= sent + 1
    assert later.get(timeout=PATIENCE_S) >= sent + 1.5


def test_retries_with_backoff(worker: Worker) -> None:
    made = worker.send("succeed_at", 4).get(timeout=PATIENCE_S)
    waits = [later - earlier for earlier, later in itertools.pairwise(made)]
    assert len(waits) == 3
    assert all(wait >= wanted for wait, wanted in zip(waits, (0.2, 0.4, 0.8), strict=True))


def test_priorities(worker: Worker) -> None:
    notes = worker.folder / "priorities.txt"
    gate, busy = worker.occupy("priorities")
    sent = [worker.send("note", str(notes), str(priority), priority=priority) for priority in (1, 9, 5, 9, 2)]
    gate.touch()
    for result in (busy, *sent):
        result.get(timeout=PATIENCE_S)
    assert notes.read_text(encoding="utf-8").split() == ["9", "9", "5", "2", "1"]


def test_waiting_and_running_tasks_may_be_revoked(worker: Worker) -> None:
    gate, busy = worker.occupy("revoked")
    waiting = worker.send("add", 1, 1)
    replies = worker.app.control.revoke(waiting.id, reply=True, timeout=PATIENCE_S, limit=1)
    assert [list(reply) for reply in replies] == [[worker.name]]
    worker.app.control.revoke(busy.id, terminate=True)
    for result in (waiting, busy):
        with pytest.raises(TaskRevokedError):
            result.get(timeout=PATIENCE_S)
    assert not gate.exists()


def test_a_rate_limit(worker: Worker) -> None:
    task = f"{celery_app.__name__}.now"
    control = worker.app.control
    for rate in ("4/s", "0"):
        (reply,) = control.rate_limit(task, rate, reply=True, timeout=PATIENCE_S, limit=1)
        assert reply[worker.name] == {"ok": "new rate limit set successfully"}
        times = sorted(result.get(timeout=PATIENCE_S) for result in [worker.send("now") for _ in range(4)])
        if rate != "0":
            assert times[-1] - times[0] > 0.3  # 0.75 but for what its bucket holds at first


def test_inspection_and_remote_control(worker: Worker) -> None:
    inspect = worker.app.control.inspect([worker.name], timeout=PATIENCE_S, limit=1)
    assert inspect.ping() == {worker.name: {"ok": "pong"}}
    (queue,) = inspect.active_queues()[worker.name]
    assert queue["name"] == worker.queue
    gate, busy = worker.occupy("inspected")
    assert [task["id"] for task in inspect.active()[worker.name]] == [busy.id]
    gate.touch()
    assert busy.get(timeout=PATIENCE_S) == "done"


def test_a_chord(broker: Daemon, tmp_path: Path) -> None:
    """A chord needs a store of results that every worker can read; its body waits by retrying."""
    results = tmp_path / "results"
    results.mkdir()
    url = broker.address.url()
    worker = Worker(tmp_path / "chord", url, f"file://{results}")
    header = [worker.signature("add", number, number, app=worker.app) for number in range(10)]
    body = worker.signature("add_all", app=worker.app)
    assert chord(header, app=worker.app)(body).get(timeout=PATIENCE_S) == 90
    worker.stop()


@pytest.mark.nightly
def test_a_killed_worker_loses_no_task(broker: Daemon, tmp_path: Path) -> None:
    url = broker.address.url()
    first = Worker(tmp_path / "first", url, queue="killed")
    gate, result = first.occupy("killed")
    gone = time.monotonic()
    first.kill()
    second = Worker(tmp_path / "second", url, queue="killed")
    gate.touch()
    wait_until(lambda: "succeeded" in second.process.log.text())
    assert result.id in second.process.log.text()
    assert time.monotonic() - gone < PATIENCE_S
    second.stop()


@pytest.mark.nightly
def test_a_worker_outlives_the_broker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    daemon = Daemon(tmp_path / "before", data_dir=data).wait_until_ready()
    port = daemon.address.port
    worker = Worker(tmp_path / "worker", daemon.address.url())
    assert worker.send("add", 1, 1).get(timeout=PATIENCE_S) == 2
    notes = tmp_path / "notes.txt"
    gate, _ = worker.occupy("restart")
    for number in range(10):
        worker.send("note", str(notes), str(number))
    daemon.kill()
    daemon = Daemon(tmp_path / "after", data_dir=data, port=port).wait_until_ready()
    gate.touch()
    wait_until(lambda: notes.exists() and len(notes.read_text(encoding="utf-8").split()) >= 10)
    assert set(notes.read_text(encoding="utf-8").split()) == {str(number) for number in range(10)}
    worker.stop()
    daemon.stop()
