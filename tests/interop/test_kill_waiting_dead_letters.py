"""kill -9 among dead letters whose target is full, or not there: none is lost, and none is in two places."""

import random
import threading
import time
from pathlib import Path

import pika
import pika.exceptions
import pytest
from pamqp.commands import Basic, Exchange, Queue, Tx
from pamqp.common import FieldTable

from tests.interop.kill_work import SMALL, body_of, number_of
from tests.support.admin.api import Api
from tests.support.amqp091.frames import UnexpectedClose
from tests.support.amqp091.peer import Peer, PeerChannel
from tests.support.daemon.daemon import PATIENCE_S, Address, Daemon

SOURCES = ("to the full one", "to the absent one")
TARGETS = ("narrow", "behind the exchange")
EXCHANGE = "comes and goes"
ROOM = 20
SOURCE_MAX = 300


def declare(channel: PeerChannel) -> None:
    """The parts that each life of the broker has."""
    ways: dict[str, FieldTable] = {
        SOURCES[0]: {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": TARGETS[0]},
        SOURCES[1]: {"x-dead-letter-exchange": EXCHANGE},
    }
    for queue, way in ways.items():
        channel.declare(
            queue,
            durable=True,
            arguments={
                "x-queue-type": "quorum",
                "x-delivery-limit": 1,
                "x-max-length": SOURCE_MAX,
                "x-overflow": "reject-publish",
                **way,
            },
        )
    narrow: FieldTable = {"x-max-length": ROOM, "x-overflow": "reject-publish"}
    channel.declare(TARGETS[0], durable=True, arguments=narrow)
    channel.declare(TARGETS[1], durable=True)


def open_way(channel: PeerChannel) -> None:
    """Declare the exchange."""
    channel.call(
        Exchange.Declare(exchange=EXCHANGE, exchange_type="fanout", durable=True), Exchange.DeclareOk
    )
    channel.call(Queue.Bind(queue=TARGETS[1], exchange=EXCHANGE, routing_key=""), Queue.BindOk)


class Party(threading.Thread):
    """Has a connection and works until the broker is killed."""

    def __init__(self, seed: int) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Work, and keep errors other than the broker's end."""
        try:
            while True:
                self.step()
        except (ConnectionError, UnexpectedClose, pika.exceptions.AMQPError):
            pass
        except BaseException as failure:
            self.failure = failure
        finally:
            self.drop()

    def drop(self) -> None:
        """Close the connection; a subclass defines how."""
        raise NotImplementedError

    def step(self) -> None:
        """Do something repeatable, which a subclass defines."""
        raise NotImplementedError


class Publisher(Party):
    """Publishes to both sources, with confirms; some messages expire soon."""

    def __init__(self, address: Address, seed: int, first: int) -> None:
        super().__init__(seed)
        parameters = pika.ConnectionParameters(address.host, address.port)
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.next = first
        self.confirmed: set[int] = set()
        self.refused: set[int] = set()

    def drop(self) -> None:
        if self.connection.is_open:
            self.connection.close()

    def step(self) -> None:
        number = self.next
        self.next += 1
        expiration = "5" if self.random.random() < 0.2 else None
        properties = pika.BasicProperties(delivery_mode=2, expiration=expiration)
        try:
            self.channel.basic_publish("", SOURCES[number % 2], body_of(number), properties)
            self.confirmed.add(number)
        except pika.exceptions.NackError:
            self.refused.add(number)


class PeerParty(Party):
    """Has a connection of the peer's."""

    def __init__(self, address: Address, seed: int) -> None:
        super().__init__(seed)
        self.peer = Peer(address).open()
        self.channel = self.peer.channel()

    def drop(self) -> None:
        self.peer.drop()


class Refuser(PeerParty):
    """Takes from a source and refuses: at once, in transactions, or by giving back too often."""

    def __init__(self, address: Address, seed: int, queue: str) -> None:
        super().__init__(address, seed)
        self.transacts = self.random.random() < 0.5
        if self.transacts:
            self.channel.call(Tx.Select(), Tx.SelectOk)
        self.channel.qos(10)
        self.channel.consume(queue, "r")

    def step(self) -> None:
        tag = self.channel.delivery().tag
        self.channel.nack(tag, requeue=self.random.random() < 0.3)
        if self.transacts:
            self.channel.call(Tx.Commit(), Tx.CommitOk)


class Drainer(PeerParty):
    """A party that consumes slowly, so that other messages wait."""

    def __init__(self, address: Address, seed: int) -> None:
        super().__init__(address, seed)
        self.channel.qos(1)
        for queue in TARGETS:
            self.channel.consume(queue, queue)
        self.acked: set[int] = set()

    def step(self) -> None:
        message = self.channel.delivery()
        number = number_of(message.body)
        self.acked.add(number)
        self.channel.ack(message.tag)
        time.sleep(self.random.uniform(0, 0.004))  # a slow consumer


class Opener(PeerParty):
    """Takes the exchange away and makes it again."""

    def step(self) -> None:
        open_way(self.channel)
        time.sleep(self.random.uniform(0, 0.1))  # while it is there
        self.channel.call(Exchange.Delete(exchange=EXCHANGE), Exchange.DeleteOk)
        time.sleep(self.random.uniform(0, 0.3))  # while it is not


def counts(api: Api) -> tuple[int, int]:
    """Return the numbers of messages in all queues, and of waiting dead letters."""
    shown = [api.get("queues", "/", queue) for queue in (*SOURCES, *TARGETS)]
    return sum(queue["messages"] for queue in shown), sum(queue["messages_dlx"] for queue in shown)


def drain(channel: PeerChannel, count: int, where: str) -> set[int]:
    """Reject all messages and consume all dead letters: `count` messages, each once."""
    open_way(channel)
    for queue in (*SOURCES, *TARGETS):
        channel.consume(queue, queue)
    found: set[int] = set()
    while len(found) < count:
        message = channel.delivery()
        assert isinstance(message.method, Basic.Deliver)
        if message.method.consumer_tag in SOURCES:
            channel.reject(message.tag, requeue=False)
            continue
        number = number_of(message.body)
        assert number not in found, f"{where}: {number} is there twice"
        found.add(number)
        channel.ack(message.tag)
    channel.expect_silence()
    for queue in (*SOURCES, *TARGETS):
        channel.cancel(queue)
    return found


def life(daemon: Daemon, chance: random.Random, first: int) -> tuple[Publisher, Drainer]:
    """Work, and be killed at any instant."""
    address = daemon.address
    seeds = [chance.randrange(1 << 30) for _ in range(5)]
    publisher, drainer = Publisher(address, seeds[0], first), Drainer(address, seeds[1])
    refusers = [Refuser(address, seed, queue) for seed, queue in zip(seeds[2:], SOURCES, strict=False)]
    parties = [publisher, drainer, *refusers, Opener(address, seeds[4])]
    for party in parties:
        party.start()
    late = time.monotonic() + PATIENCE_S
    while not publisher.confirmed and time.monotonic() < late:
        time.sleep(0.01)
    time.sleep(chance.uniform(0.05, 1.0))  # the instant of the kill is meant to be anywhere
    daemon.kill()
    for party in parties:
        party.join(PATIENCE_S)
        assert not party.is_alive()
        assert party.failure is None, party.failure
    return publisher, drainer


def rounds(folder: Path, count: int, settings: dict[str, str]) -> None:
    """Start, work, kill and check, `count` times."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    confirmed: set[int] = set()
    refused: set[int] = set()
    acked: set[int] = set()
    first = waited = 0
    for number in range(count + 1):
        where = f"seed {seed}, life {number}"
        daemon = Daemon(folder / str(number), environment=settings, data_dir=folder / "data")
        try:
            daemon.wait_until_ready()
            peer = Peer(daemon.address).open()
            channel = peer.channel()
            declare(channel)
            api = Api(daemon.load_api().admin)
            there, waiting = counts(api)
            waited += waiting
            found = drain(channel, there, where)
            assert counts(api) == (0, 0), where
            api.close()
            assert confirmed - acked <= found, f"{where}: lost {sorted(confirmed - acked - found)}"
            assert not found & refused, f"{where}: there, and was refused: {sorted(found & refused)}"
            # drained messages are settled on disk when this later publish is confirmed
            channel.confirm_select()
            channel.publish(body_of(first), TARGETS[1], properties=Basic.Properties(delivery_mode=2))
            channel.expect_confirms(1)
            first += 1
            if number == count:
                peer.drop()
                daemon.stop()
                break
            publisher, drainer = life(daemon, chance, first)
            peer.drop()
            first = publisher.next
            confirmed, refused, acked = publisher.confirmed, publisher.refused, drainer.acked
        finally:
            if daemon.alive:
                daemon.kill()
    print(f"seed {seed}: {count} kills, {first} published, {waited} found waiting to be dead-lettered")
    assert waited > 0


@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_kill_among_dead_letters_that_wait(tmp_path: Path, settings: dict[str, str]) -> None:
    rounds(tmp_path, 2, settings)


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_a_hundred_kills_among_dead_letters_that_wait(tmp_path: Path, settings: dict[str, str]) -> None:
    rounds(tmp_path, 100, settings)
