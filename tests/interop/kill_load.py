"""Publishers and consumers that keep a broker busy until it is killed, and record their observations."""

import random
import select
import struct
import threading
import time
from collections import deque
from typing import Final

from pamqp.commands import Basic, Channel

from tests.interop.kill_ledger import Ledger, body_of, persistent
from tests.support.amqp091.frames import HEAD, METHOD, body_frames, frame_bytes, method_bytes
from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import PATIENCE_S, Address

CONTENT_HEADER: Final = struct.Struct(">HHQHB")
ACK: Final = bytes.fromhex("003c0050")
DELIVER: Final = bytes.fromhex("003c003c")
FLOW_OK: Final = bytes.fromhex("00140015")
DELIVERY_MODE_ONLY: Final = 0x1000
FRAME_MAX: Final = 131072


def cut(buffer: bytearray) -> list[tuple[int, bytes]]:
    """Take the whole frames off the front of `buffer`, as pairs of type and payload."""
    frames = []
    at, size = 0, len(buffer)
    while size - at >= 8:
        kind, _, length = HEAD.unpack_from(buffer, at)
        end = at + 7 + length
        if size <= end:
            break
        frames.append((kind, bytes(buffer[at + 7 : end])))
        at = end + 1
    del buffer[:at]
    return frames


class Party(threading.Thread):
    """A connection of its own in a thread; ends when the broker does."""

    def __init__(self, address: Address, ledger: Ledger) -> None:
        super().__init__(daemon=True)
        self.ledger = ledger
        self.peer = Peer(address).open()
        self.channel = self.peer.channel()
        self.buffer = bytearray()
        self.expecting_the_end = False

    def run(self) -> None:
        """Work until the socket ends; then read the broker's last bytes."""
        try:
            try:
                self.work()
            except ConnectionError:
                while self.fill():
                    self.handle()
        except ConnectionError:
            pass
        except BaseException as failure:
            self.ledger.violations.append(f"{self.name}: {failure!r}")
        finally:
            self.handle()
            self.peer.drop()
        if not self.expecting_the_end:
            self.ledger.violations.append(f"{self.name}: the broker closed the connection")

    def work(self) -> None:
        """Do the work of this party, which a subclass defines."""
        raise NotImplementedError

    def handle(self) -> None:
        """Deal with the whole frames in the buffer; a subclass says how."""
        raise NotImplementedError

    def fill(self) -> bool:
        """Wait for bytes; False at the end of the socket."""
        data = self.peer.socket.recv(1 << 18)
        self.buffer += data
        return bool(data)

    def fill_or_end(self) -> None:
        """Wait for bytes; the end of the socket is a ConnectionError."""
        if not self.fill():
            raise ConnectionResetError


class Publisher(Party):
    """Publishes in batches, with a window of unconfirmed messages."""

    window = 2000
    batch = 100

    def __init__(
        self, address: Address, ledger: Ledger, publisher: int, exchange: str, routing_key: str
    ) -> None:
        super().__init__(address, ledger)
        self.name = f"publisher {publisher}"
        self.publisher = publisher
        self.publications = ledger.publications[publisher]
        self.first = self.publications.sent  # the message with delivery tag 1
        self.confirmed_to = self.first  # every number below is confirmed
        self.times: deque[tuple[int, float]] = deque()  # last number of a batch, when its sending began
        self.method = method_bytes(Basic.Publish(exchange=exchange, routing_key=routing_key), 1)
        self.channel.confirm_select()

    def work(self) -> None:
        """Publish."""
        while True:
            while self.publications.sent - self.confirmed_to >= self.window:
                self.fill_or_end()
                self.handle()
            batch = self.encode(self.publications.sent)
            last = self.publications.sending(self.batch) + self.batch - 1
            self.times.append((last, time.monotonic()))
            self.peer.socket.sendall(batch)
            if select.select([self.peer.socket], [], [], 0)[0]:
                self.fill_or_end()
                self.handle()

    def encode(self, first: int) -> bytes:
        """The frames of the next batch."""
        parts = []
        for number in range(first, first + self.batch):
            body = body_of(self.publisher, number)
            mode = 2 if persistent(number) else 1
            header = CONTENT_HEADER.pack(60, 0, len(body), DELIVERY_MODE_ONLY, mode)
            parts += [self.method, frame_bytes(2, 1, header), *body_frames(body, 1, FRAME_MAX)]
        return b"".join(parts)

    def handle(self) -> None:
        """Confirms."""
        for kind, payload in cut(self.buffer):
            assert (kind, payload[:4]) == (METHOD, ACK), f"{payload[:4].hex()} instead of an ack"
            tag, multiple = struct.unpack_from(">QB", payload, 4)
            number = self.first + tag - 1
            assert self.confirmed_to <= number < self.publications.sent, f"tag {tag} is not open"
            assert multiple or number == self.confirmed_to, "a confirm out of order"
            self.publications.confirm(self.confirmed_to, number)
            self.confirmed_to = number + 1
        while self.times and self.times[0][0] < self.confirmed_to:
            self.ledger.fence = max(self.ledger.fence, self.times.popleft()[1])


class Consumer(Party):
    """Consumes a queue and acknowledges in batches of random size."""

    def __init__(self, address: Address, ledger: Ledger, queue: str, seed: int) -> None:
        super().__init__(address, ledger)
        self.name = f"consumer of {queue}"
        self.queue = queue
        self.random = random.Random(seed)
        self.unacked: list[tuple[int, int]] = []
        self.tickets: deque[int] = deque()  # acknowledgements that the broker may not have handled yet
        self.tag = 0  # the tag of the latest complete delivery
        self.method = b""
        self.size = 0
        self.parts: list[bytes] = []
        self.channel.qos(self.random.choice((50, 500, 2000)))
        self.channel.write(Basic.Consume(queue=queue, consumer_tag="c", nowait=True))

    def work(self) -> None:
        """Take, and acknowledge."""
        while True:
            self.fill_or_end()
            self.handle()
            if self.unacked and self.random.random() < 0.7:
                self.tickets.append(self.ledger.acknowledging(self.queue, self.unacked))
                self.unacked = []
                ack = method_bytes(Basic.Ack(self.tag, True), 1)
                # and a round trip that tells when the broker has handled it
                self.peer.socket.sendall(ack + method_bytes(Channel.Flow(True), 1))

    def handle(self) -> None:
        """Deliveries, and the ends of round trips."""
        for kind, payload in cut(self.buffer):
            if kind == METHOD and payload[:4] == FLOW_OK:
                self.ledger.handled(self.queue, self.tickets.popleft(), time.monotonic())
                continue
            if kind == METHOD:
                assert payload[:4] == DELIVER, f"{payload[:4].hex()} instead of a delivery"
                self.method = payload
                continue
            if kind == 2:
                (self.size,) = struct.unpack_from(">Q", payload, 4)
                self.parts = []
            else:
                self.parts.append(payload)
                self.size -= len(payload)
            if self.size == 0:
                self.tag, redelivered = struct.unpack_from(">Q?", self.method, 6)  # after the tag "c"
                self.unacked.append(self.ledger.delivered(self.queue, b"".join(self.parts), redelivered))


class Load:
    """All parties of a single life of the broker."""

    def __init__(self, parties: list[Party]) -> None:
        self.parties = parties
        for party in parties:
            party.start()

    def end(self) -> None:
        """The broker has been killed: wait until everybody has noticed."""
        for party in self.parties:
            party.join(PATIENCE_S)
            assert not party.is_alive(), f"{party.name} hangs"

    def expect_the_end(self) -> None:
        """Accept the end of connections from now on."""
        for party in self.parties:
            party.expecting_the_end = True
