"""A dispatcher whose broker is killed again and again: each message is called, in the order of its group."""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPError

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Address, Daemon, DaemonStarter
from tests.support.dispatch.hook_server import HookServer, Received, Reply

GROUPS = "abcd"
FAILING = 0.05  # the share of calls that the application refuses


class Application:
    """An application that notes which messages it has taken; some calls it refuses, to be tried again."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.lock = threading.Lock()
        self.calls: set[str] = set()
        self.taken: dict[str, None] = {}  # in the order of the first successes
        self.unmarked: list[str] = []  # repeated calls that did not say so
        self.grown = threading.Condition(self.lock)
        self.hook = HookServer()
        self.hook.reply = self.reply

    def reply(self, request: Received) -> Reply:
        """Take the message of a request, or refuse it."""
        body = request.body.decode()
        with self.grown:
            if body in self.calls and request.headers["Amqp-Redelivered"] != "true":
                self.unmarked.append(body)
            self.calls.add(body)
            if self.chance.random() < FAILING:
                return Reply(500)
            self.taken.setdefault(body)
            self.grown.notify_all()
        return Reply()

    def wait_for(self, count: int) -> None:
        """Wait until so many messages have been taken."""
        with self.grown:
            assert self.grown.wait_for(lambda: len(self.taken) >= count, PATIENCE_S), len(self.taken)


class Publisher(threading.Thread):
    """Publishes numbered messages of each group until the broker is killed, and notes the confirmed ones."""

    def __init__(self, address: Address, start: int) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.number = start
        self.confirmed: list[str] = []

    def run(self) -> None:
        """Publish until the connection ends."""
        try:
            with amqp(self.address, "/") as channel:
                while True:
                    self.number += 1
                    for group in GROUPS:
                        name = f"{group}{self.number}"
                        properties = pika.BasicProperties(delivery_mode=2, headers={"g": group})
                        channel.basic_publish("", "q", name.encode(), properties)
                        self.confirmed.append(name)
        except (AMQPError, OSError):
            pass


@pytest.fixture
def application(request: pytest.FixtureRequest) -> Iterator[Application]:
    found = Application(request.param)
    yield found
    found.hook.close()


def start(start_daemon: DaemonStarter, folder: Path, application: Application) -> Daemon:
    return start_daemon("--dispatch-allow", application.hook.url, data_dir=folder / "data")


def run_rounds(start_daemon: DaemonStarter, folder: Path, application: Application, rounds: int) -> None:
    """Kill the broker in each round while the application gets messages; check all messages in the end."""
    daemon = start(start_daemon, folder, application)
    api = Api(daemon.admin)
    arguments = {"x-group-key": "g", "x-retry-min": 5, "x-retry-max": 50}
    api.put("queues", "/", "q", durable=True, arguments=arguments)
    fields = {"queue": "q", "url": application.hook.url, "concurrency": 8, "breaker": {"failures": 0}}
    api.put("dispatchers", "/", "d", body=fields)
    api.close()
    confirmed: list[str] = []
    number = 0
    for _ in range(rounds):
        publisher = Publisher(daemon.address, number)
        publisher.start()
        application.wait_for(len(application.taken) + application.chance.randrange(1, 200))
        daemon.kill()
        publisher.join(PATIENCE_S)
        assert not publisher.is_alive()
        number = publisher.number
        confirmed += publisher.confirmed
        daemon = start(start_daemon, folder, application)
    api = Api(daemon.load_api().admin)
    end = time.monotonic() + PATIENCE_S
    while api.get("queues", "/", "q")["messages"]:
        assert time.monotonic() < end, "the calls do not come to an end"
        time.sleep(0.05)
    api.close()

    assert [name for name in confirmed if name not in application.taken] == []
    assert application.unmarked == []
    for group in GROUPS:
        numbers = [int(name[1:]) for name in application.taken if name[0] == group]
        assert numbers == sorted(numbers), f"a message of group {group} has passed another"


@pytest.mark.parametrize("application", [1], indirect=True)
def test_a_few_kills_lose_no_call(
    start_daemon: DaemonStarter, tmp_path: Path, application: Application
) -> None:
    run_rounds(start_daemon, tmp_path, application, 3)


@pytest.mark.nightly
@pytest.mark.parametrize("application", [2, 3], indirect=True)
def test_fifty_kills_lose_no_call(
    start_daemon: DaemonStarter, tmp_path: Path, application: Application
) -> None:
    run_rounds(start_daemon, tmp_path, application, 50)
