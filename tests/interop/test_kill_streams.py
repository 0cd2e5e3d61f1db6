"""kill -9 among publishes to a stream and a queue at once: both have a message, or neither; none is lost."""

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pamqp.commands import Basic, Queue, Tx

from tests.interop.kill_work import SMALL
from tests.support.amqp091.peer import Peer, PeerChannel
from tests.support.amqp091.streams import declare_stream, offset_of, read
from tests.support.daemon.daemon import Address, Daemon

PERSISTENT = Basic.Properties(delivery_mode=2)
EXCHANGE = "amq.fanout"


class Publishers:
    """Two publishers to both streams until the broker dies, with confirms and with transactions.

    Each number is published once. `confirmed`: of which the broker has said that it has them.
    """

    def __init__(self, address: Address, first: int, seed: int) -> None:
        self.confirmed: set[int] = set()
        self.dying = False  # the broker is about to be killed
        self.failure: Exception | None = None
        self._address = address
        self._random = random.Random(seed)
        self._numbers = iter(range(first, first + 10_000_000))
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._until_it_dies, args=(work,))
            for work in (self._with_confirms, self._with_transactions)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> int:
        """Wait until both have noticed that it is dead; returns a number that was not published."""
        for thread in self._threads:
            thread.join()
        assert self.failure is None, self.failure
        return next(self._numbers)

    def _take(self, count: int) -> list[int]:
        with self._lock:
            return [next(self._numbers) for _ in range(count)]

    def _until_it_dies(self, work: Callable[[PeerChannel], None]) -> None:
        peer = Peer(self._address)
        try:
            work(peer.open().channel())
        except Exception as error:
            if not self.dying:
                self.failure = error
        finally:
            peer.drop()

    def _with_confirms(self, channel: PeerChannel) -> None:
        channel.confirm_select()
        tag = 0
        while True:
            numbers = self._take(self._random.randrange(1, 40))
            self._publish(channel, numbers)
            channel.expect_confirms(tag + len(numbers), tag + 1)
            tag += len(numbers)
            self.confirmed.update(numbers)

    def _with_transactions(self, channel: PeerChannel) -> None:
        channel.call(Tx.Select(), Tx.SelectOk)
        while True:
            numbers = self._take(self._random.randrange(1, 10))
            self._publish(channel, numbers)
            channel.call(Tx.Commit(), Tx.CommitOk)
            self.confirmed.update(numbers)

    def _publish(self, channel: PeerChannel, numbers: list[int]) -> None:
        frames = [
            channel.encode_publish(b"%d " % n + b"x" * (n * 7919 % 900), "", EXCHANGE, PERSISTENT)
            for n in numbers
        ]
        channel.peer.send(b"".join(frames))


def all_of(channel: PeerChannel, queue: str, count: int, stream: bool) -> list[tuple[int, int]]:
    """Offset and number of everything in a stream; of a queue the place instead of the offset."""
    tag = read(channel, queue, "first" if stream else None, browse=not stream)
    found: list[tuple[int, int]] = []
    while len(found) < count:
        message = channel.delivery()
        number, _, rest = message.body.partition(b" ")
        assert len(rest) == int(number) * 7919 % 900
        found.append((offset_of(message) if stream else len(found), int(number)))
        if len(found) % 500 == 0:
            channel.ack(message.tag, multiple=True)
    channel.cancel(tag)
    return found


def check(address: Address, confirmed: set[int]) -> None:
    """Both have the same, and all that was confirmed; offsets are dense."""
    channel = Peer(address).open().channel()
    in_stream, _ = channel.counts("stream")
    in_queue, _ = channel.counts("queue")
    assert in_stream == in_queue
    rows = all_of(channel, "stream", in_stream, True)
    assert [offset for offset, _ in rows] == list(range(in_stream))
    numbers = [number for _, number in rows]
    assert numbers == [number for _, number in all_of(channel.peer.channel(2), "queue", in_queue, False)]
    assert len(set(numbers)) == len(numbers)
    assert confirmed <= set(numbers)
    channel.peer.drop()


def rounds(folder: Path, kills: int, settings: dict[str, str]) -> None:
    """Publish, kill, check, again and again."""
    confirmed: set[int] = set()
    number = 0
    daemon = Daemon(folder, environment=settings).wait_until_ready()
    channel = Peer(daemon.address).open().channel()
    declare_stream(channel, "stream")
    channel.declare("queue", durable=True)
    for queue in ("stream", "queue"):
        channel.call(Queue.Bind(queue=queue, exchange=EXCHANGE), Queue.BindOk)
    channel.peer.drop()
    chance = random.Random(kills)
    for seed in range(kills):
        publishers = Publishers(daemon.address, number, seed)
        threading.Event().wait(chance.uniform(0.1, 0.8))  # any moment will do
        publishers.dying = True
        daemon.kill()
        number = publishers.join()
        confirmed |= publishers.confirmed
        daemon = Daemon(folder, environment=settings).wait_until_ready()
        check(daemon.address, confirmed)
    assert confirmed
    daemon.stop()


@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_kill_among_publishes_to_a_stream(tmp_path: Path, settings: dict[str, str]) -> None:
    rounds(tmp_path, 2, settings)


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_thirty_kills_among_publishes_to_a_stream(tmp_path: Path, settings: dict[str, str]) -> None:
    rounds(tmp_path, 30, settings)
