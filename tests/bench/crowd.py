"""Many consumers of a single queue, on shared connections or on connections of their own."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Final

from pamqp.commands import Basic
from pamqp.common import FieldTable

from protocol.amqp10.composites import Accepted, Source, Target
from protocol.amqp10.performatives import Attach, Disposition, Flow
from tests.support.amqp091.frames import method_bytes
from tests.support.amqp091.peer import Peer
from tests.support.amqp10.peer import Peer10, amqp
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.daemon import PATIENCE_S, Address

DELIVER: Final = b"\x00\x3c\x00\x3c"
TRANSFER: Final = b"\x00\x53\x14"
READ_BYTES: Final = 262144
CREDIT: Final = 1000  # for links whose deliveries are sent settled
WINDOW: Final = 1_000_000  # for sessions: the window must not limit anything


def jain(counts: Iterable[int]) -> float:
    """Return 1 if all counts are equal, 1/n if a single one has all. [Jain, Chiu and Hawe, DEC-TR-301]"""
    shares = list(counts)
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


class End:
    """A connection with a consumer on each of its channels, and how many messages each consumer has got.

    `prefetch`: how many messages a consumer may have that are not settled; 0: nothing is to be settled.
    """

    def __init__(self, connected: socket.socket, channels: Iterable[int], prefetch: int) -> None:
        self.socket = connected
        self.prefetch = prefetch
        self.shares = dict.fromkeys(channels, 0)
        self._data = b""

    def look(self, most: float = inf) -> bytes:
        """Count the deliveries that have come, at most `most`; return the bytes that settle them.

        The socket must not block. Raises AssertionError if the broker has hung up.
        """
        before = dict(self.shares)
        taken = 0
        while (taken := taken + self._count(most - taken)) < most:
            try:
                data = self.socket.recv(READ_BYTES)
            except BlockingIOError:
                break
            assert data, "the broker has hung up"
            self._data += data
        return self._settling(before) if taken else b""

    def _count(self, most: float) -> int:
        """Count and remove the deliveries in the data, at most `most`; return their number."""
        raise NotImplementedError

    def _settling(self, before: dict[int, int]) -> bytes:
        """The bytes that settle what each consumer has got since it had as many as `before` says."""
        raise NotImplementedError


class End091(End):
    """A connection of AMQP 0-9-1, with a channel for each consumer, of which there are the arguments."""

    def __init__(self, address: Address, queue: str, prefetch: int, consumers: Sequence[FieldTable]) -> None:
        peer = Peer(address).open()
        super().__init__(peer.socket, range(1, len(consumers) + 1), prefetch)
        self._tags: dict[int, int] = {}  # the last delivery's, by channel
        for number, arguments in enumerate(consumers, 1):
            channel = peer.channel(number)
            if prefetch:
                channel.qos(prefetch)
            no_ack = not prefetch
            channel.write(
                Basic.Consume(
                    queue=queue, consumer_tag="t", no_ack=no_ack, nowait=True, arguments=arguments or None
                )
            )

    def _count(self, most: float) -> int:
        data, at, size, taken = self._data, 0, len(self._data), 0
        while size - at >= 7 and taken < most:
            kind, channel, length = struct.unpack_from(">BHI", data, at)
            end = at + 7 + length + 1
            if end > size:
                break
            if kind == 1 and data[at + 7 : at + 11] == DELIVER:
                self._tags[channel] = struct.unpack_from(">Q", data, at + 12 + data[at + 11])[0]
                self.shares[channel] += 1
                taken += 1
            at = end
        self._data = data[at:]
        return taken

    def _settling(self, before: dict[int, int]) -> bytes:
        if not self.prefetch:
            return b""
        return b"".join(
            method_bytes(Basic.Ack(self._tags[channel], True), channel)
            for channel, count in self.shares.items()
            if count != before[channel]
        )


class End10(End):
    """A connection of AMQP 1.0, with a session and a link for each consumer."""

    def __init__(self, address: Address, queue: str, prefetch: int, consumers: int) -> None:
        peer = Peer10(address)
        peer.open(container_id=f"crowd {peer.socket.getsockname()[1]}", channel_max=consumers)
        super().__init__(peer.socket, range(consumers), prefetch)
        sessions = [PeerSession10(peer, number, incoming_window=WINDOW) for number in self.shares]
        for session in sessions:
            session.write(
                Attach(
                    name=f"{peer.socket.getsockname()[1]} {session.channel}",
                    handle=0,
                    role=True,
                    snd_settle_mode=0 if prefetch else 1,
                    source=Source(address=f"/queues/{queue}"),
                    target=Target(),
                )
            )
            session.expect(Attach)
        for session in sessions:
            session.allow(0, prefetch or CREDIT)

    def _count(self, most: float) -> int:
        data, at, size, taken = self._data, 0, len(self._data), 0
        while size - at >= 8 and taken < most:
            length, offset, kind, channel = struct.unpack_from(">IBBH", data, at)
            if at + length > size:
                break
            if kind == 0 and data.startswith(TRANSFER, at + 4 * offset):
                self.shares[channel] += 1
                taken += 1
            at += length
        self._data = data[at:]
        return taken

    def _settling(self, before: dict[int, int]) -> bytes:
        return b"".join(
            self._settle(channel, before[channel], count)
            for channel, count in self.shares.items()
            if count != before[channel]
        )

    def _settle(self, channel: int, before: int, count: int) -> bytes:
        settling = b""
        if self.prefetch:
            state = Disposition(role=True, first=before, last=count - 1, settled=True, state=Accepted())
            settling = amqp(state, channel)
        allowing = Flow(
            next_incoming_id=count,
            incoming_window=WINDOW,
            next_outgoing_id=0,
            outgoing_window=WINDOW,
            handle=0,
            delivery_count=count,
            link_credit=self.prefetch or CREDIT,
        )
        return settling + amqp(allowing, channel)


class Feeder:
    """A publisher that sends `data` as fast as the broker takes it."""

    def __init__(self, address: Address, data: bytes) -> None:
        self._peer = Peer(address).open()
        self._peer.channel(1)
        self.socket = self._peer.socket
        self._left = memoryview(data)

    def send(self) -> bool:
        """Send some; false when all has been sent."""
        with suppress(BlockingIOError):
            self._left = self._left[self.socket.send(self._left[:READ_BYTES]) :]
        return len(self._left) > 0


class Crowd:
    """`ends` that read and settle in turn, until they have `count` messages."""

    def __init__(self, ends: list[End]) -> None:
        self.ends = ends

    @property
    def shares(self) -> list[int]:
        """The messages that each consumer has got."""
        return [share for end in self.ends for share in end.shares.values()]

    def consume(
        self,
        count: int,
        feed: Callable[[], None] | None = None,
        feeder: Feeder | None = None,
        pause: float = 0,
        each: int = 0,
    ) -> None:
        """Read until all have `count` messages together; `feed` is called after each round of reads.

        With `each`, all consumers are equally fast: each connection takes at most `each` messages for each of
        its consumers, then all settle, and then all wait for `pause` seconds. The last round is a whole one.
        Without it, a connection is read as soon as it has something: a faster connection takes more.
        """
        selector = selectors.DefaultSelector()
        for end in self.ends:
            end.socket.setblocking(False)
            if not each:
                selector.register(end.socket, selectors.EVENT_READ, end)
        if feeder is not None:
            feeder.socket.setblocking(False)
            selector.register(feeder.socket, selectors.EVENT_WRITE, feeder)
        total = 0
        last = time.monotonic()
        while total < count:
            time.sleep(pause)
            for key, _ in selector.select(0 if each else 0.01):
                if isinstance(key.data, End):
                    _send(key.data, key.data.look())
                elif not key.data.send():
                    selector.unregister(key.fileobj)
            if each:
                answers = [end.look(each * len(end.shares)) for end in self.ends]
                for end, answer in zip(self.ends, answers, strict=True):
                    _send(end, answer)
            if feed is not None:
                feed()
            got = sum(self.shares)
            if got != total:
                total, last = got, time.monotonic()
            assert time.monotonic() - last < PATIENCE_S, f"{total} of {count} messages have come"
        selector.close()
        if feeder is not None:
            feeder.socket.close()
        for end in self.ends:
            end.socket.setblocking(True)

    def close(self) -> None:
        """Let all sockets go."""
        for end in self.ends:
            end.socket.close()


def _send(end: End, answer: bytes) -> None:
    if answer:
        end.socket.setblocking(True)
        end.socket.sendall(answer)
        end.socket.setblocking(False)
