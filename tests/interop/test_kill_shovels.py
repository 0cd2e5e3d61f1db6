"""Shovels between two brokers that are killed again and again: each message arrives once, in order."""

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pika
import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import Daemon, DaemonStarter
from tests.support.daemon.rabbitmq import lasting_port

BATCH = 300


class Pair:
    """Two brokers, each at a fixed address with a data folder of its own."""

    def __init__(self, start: DaemonStarter, folder: Path) -> None:
        self._start = start
        self._folder = folder
        self._ports = [lasting_port() for _ in range(2)]
        self.daemons: list[Daemon] = [
            start(data_dir=self._data(number), port=port) for number, port in enumerate(self._ports)
        ]

    def _data(self, number: int) -> Path:
        return self._folder / f"data-{number}"

    def kill(self, numbers: list[int]) -> None:
        """Kill brokers, and start them again."""
        for number in numbers:
            self.daemons[number].kill()
        for number in numbers:
            self.daemons[number] = self._start(data_dir=self._data(number), port=self._ports[number])

    def wait_for_depth(self, number: int, queue: str, count: int) -> None:
        """Wait until a queue has so many messages."""
        with amqp(self.daemons[number].address, "/") as channel:
            while channel.queue_declare(queue, passive=True).method.message_count < count:
                pass

    def publish(self, queue: str, start: int, end: int) -> None:
        """Publish numbered messages, which the queue takes once however often they are sent."""
        with amqp(self.daemons[0].address, "/") as channel:
            for number in range(start, end):
                headers = {"x-producer": "p", "x-sequence": number}
                properties = pika.BasicProperties(delivery_mode=2, headers=headers)
                channel.basic_publish("", queue, b"%d" % number, properties)

    def take(self, number: int, queue: str, count: int) -> list[bytes]:
        """Consume so many messages, and check that no more are there."""
        bodies: list[bytes] = []
        with amqp(self.daemons[number].address, "/") as channel:
            for _, _, body in channel.consume(queue, auto_ack=True):
                bodies.append(body)
                if len(bodies) == count:
                    break
            channel.cancel()
            assert channel.queue_declare(queue, passive=True).method.message_count == 0
        return bodies


@pytest.fixture
def pair(start_daemon: DaemonStarter, tmp_path: Path) -> Pair:
    return Pair(start_daemon, tmp_path)


def forward(pair: Pair, mode: str, pulls: bool = False, protocol: str = "amqp091", **more: object) -> None:
    """Define a shovel from the first broker to the second one, which has the shovel if it `pulls`."""
    owner = 1 if pulls else 0
    value = {
        "src-uri": pair.daemons[0].address.url() if pulls else "amqp://",
        "src-queue": "out",
        "dest-uri": "amqp://" if pulls else pair.daemons[1].address.url(),
        "dest-queue": "in",
        "ack-mode": mode,
        "reconnect-delay": 1,
        "src-prefetch-count": 40,
        **{field.replace("_", "-"): each for field, each in more.items()},
    }
    with amqp(pair.daemons[0].address, "/") as channel:
        channel.queue_declare("out", durable=True, arguments={"x-dedup-producers": 1})
    if protocol == "amqp10":
        with amqp(pair.daemons[1].address, "/") as channel:
            channel.queue_declare("in", durable=True)
        del value["src-queue"], value["dest-queue"]
        value |= {"src-protocol": protocol, "src-address": "/queues/out"}
        value |= {"dest-protocol": protocol, "dest-address": "/queues/in"}
    api = Api(pair.daemons[owner].load_api().admin)
    api.put("parameters", "shovel", "/", "s", value=value)
    api.close()
    pair.daemons[owner].log.wait_for("shovel running")


def run_rounds(pair: Pair, rounds: int, chance: random.Random) -> None:
    """Publish a batch in each round, and kill one or both brokers when a part of it has arrived."""
    for turn in range(rounds):
        start = turn * BATCH
        pair.publish("out", start, start + BATCH)
        pair.wait_for_depth(1, "in", start + chance.randrange(1, BATCH))
        pair.kill(chance.choice([[0], [1], [0, 1]]))
    pair.wait_for_depth(1, "in", rounds * BATCH)


@pytest.mark.parametrize("pulls", [False, True], ids=["push", "pull"])
def test_a_few_kills_repeat_and_lose_nothing_with_exactly_once(pair: Pair, pulls: bool) -> None:
    forward(pair, "exactly-once", pulls)
    run_rounds(pair, 3, random.Random(1))
    assert pair.take(1, "in", 3 * BATCH) == [b"%d" % number for number in range(3 * BATCH)]


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("pulls", [False, True], ids=["push", "pull"])
def test_fifty_kills_repeat_and_lose_nothing_with_exactly_once(pair: Pair, seed: int, pulls: bool) -> None:
    forward(pair, "exactly-once", pulls)
    run_rounds(pair, 50, random.Random(seed))
    assert pair.take(1, "in", 50 * BATCH) == [b"%d" % number for number in range(50 * BATCH)]


@pytest.mark.parametrize("pulls", [False, True], ids=["push", "pull"])
def test_a_few_kills_lose_nothing_over_amqp10(pair: Pair, pulls: bool) -> None:
    forward(pair, "on-confirm", pulls, "amqp10")
    run_rounds(pair, 3, random.Random(4))
    assert bodies_in(pair, 3 * BATCH) == {b"%d" % number for number in range(3 * BATCH)}


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", ["amqp091", "amqp10"])
def test_fifty_kills_lose_nothing_with_on_confirm(pair: Pair, protocol: str) -> None:
    forward(pair, "on-confirm", protocol=protocol)
    run_rounds(pair, 50, random.Random(3))
    assert bodies_in(pair, 50 * BATCH) == {b"%d" % number for number in range(50 * BATCH)}


def bodies_in(pair: Pair, count: int) -> set[bytes]:
    """Consume the queue `in` of the second broker until so many different messages have come."""
    found: set[bytes] = set()
    with amqp(pair.daemons[1].address, "/") as channel:
        for _, _, body in channel.consume("in", auto_ack=True):
            found.add(body)
            if len(found) == count:
                break
    return found


def publish_letters(pair: Pair, start: int, end: int) -> None:
    """Publish numbered messages that ask for receipts, in the queue `receipts`."""
    with amqp(pair.daemons[0].address, "/") as channel:
        for number in range(start, end):
            headers = {"x-receipt-to": "receipts", "x-receipt-on": "arrival,consumed"}
            properties = pika.BasicProperties(delivery_mode=2, message_id=str(number), headers=headers)
            channel.basic_publish("", "out", b"%d" % number, properties)


def wait_for_receipts(pair: Pair, names: Iterable[int]) -> None:
    """Consume until the other broker has reported the arrival and the consumption of each message."""
    missing = {(what, str(name)) for what in ("arrival", "consumed") for name in names}
    with amqp(pair.daemons[0].address, "/") as channel:
        for method, properties, body in channel.consume("receipts"):
            receipt = json.loads(body)
            if "cluster" in receipt and receipt["queue"] == "in":
                missing.discard((receipt["what"], properties.correlation_id))
            if not missing:
                channel.basic_ack(method.delivery_tag, multiple=True)
                return


def take_letters(pair: Pair, count: int) -> None:
    """Consume so many messages of the second broker in a transaction."""
    with amqp(pair.daemons[1].address, "/") as confirming:
        channel = confirming.connection.channel()
        channel.tx_select()
        for method, _, _ in channel.consume("in"):
            count -= 1
            if count == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)
                channel.tx_commit()
                return


@pytest.mark.parametrize(
    "rounds", [pytest.param(1, id="few"), pytest.param(8, marks=pytest.mark.nightly, id="many")]
)
@pytest.mark.parametrize("pulls", [False, True], ids=["push", "pull"])
def test_no_receipt_is_lost_when_brokers_are_killed(pair: Pair, pulls: bool, rounds: int) -> None:
    with amqp(pair.daemons[0].address, "/") as channel:
        channel.queue_declare("receipts", durable=True)
    forward(pair, "exactly-once", pulls, dest_receipt_queue="back")
    chance = random.Random(5)
    for turn in range(rounds):
        numbers = range(turn * BATCH, (turn + 1) * BATCH)
        publish_letters(pair, numbers[0], numbers[-1] + 1)
        pair.wait_for_depth(1, "in", chance.randrange(1, BATCH))
        pair.kill(chance.choice([[0], [1], [0, 1]]))
        pair.wait_for_depth(1, "in", BATCH)
        take_letters(pair, BATCH)
        pair.kill(chance.choice([[0], [1], [0, 1]]))
        wait_for_receipts(pair, numbers)
