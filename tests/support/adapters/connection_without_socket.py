"""A connection of the broker without a socket: bytes in by hand, bytes out in a list, a store that waits."""

import itertools
import struct
from collections import deque
from collections.abc import Sequence
from typing import Final

from pamqp import base
from pamqp import frame as pamqp_frame
from pamqp.commands import Basic, Channel, Connection
from pamqp.common import FieldTable

from broker.adapters.access import Access, Origin
from broker.adapters.amqp091.connection import Connection091
from broker.adapters.amqp10.names import LinkNames
from broker.adapters.formats.either import view_of, write_letter
from broker.adapters.peers.server import Server
from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.delivery.session import Connection as CoreConnection
from broker.core.delivery.session import Scheduler
from broker.core.message import Message
from broker.core.ports import DurableWaiter, LoggedQueue, MessageStore
from broker.core.schedule import Schedule
from protocol.amqp091.content import body, body_size, header_frame_bytes
from tests.support.amqp091.frames import FRAME_OVERHEAD, METHOD, method_bytes, publish_bytes
from tests.support.auth.open_login import OpenAccess
from tests.support.core.hand_clock import HandClock

CAPABILITIES: Final[FieldTable] = {"authentication_failure_close": True, "consumer_cancel_notify": True}


class HandStore(MessageStore):
    """A store that makes batches durable, or fails, when a test calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.sequences = itertools.count(1)
        self.appended: list[Message] = []
        self.pieces: list[Message] = []
        self.settled: list[Message] = []
        self.transacted: list[Message] = []
        self.forgotten: list[Message] = []
        self.unreadable = False
        self.contents: dict[int, bytes] = {}
        self._waiters: list[DurableWaiter] = []
        self._in_flight: list[DurableWaiter] = []

    def append_message(self, message: Message, queues: Sequence[LoggedQueue]) -> None:
        message.sequence = next(self.sequences)
        message.references = len(queues)
        self.appended.append(message)

    def append_piece(self, piece: Message) -> None:
        piece.sequence = next(self.sequences)
        self.pieces.append(piece)

    def append_settle(self, message: Message, queue: LoggedQueue) -> None:
        self.settled.append(message)

    def append_transacted_settle(self, message: Message, queue: LoggedQueue) -> None:
        self.transacted.append(message)

    def forget(self, message: Message, queue: LoggedQueue) -> None:
        self.forgotten.append(message)

    def load(self, message: Message) -> bytes:
        if self.unreadable:
            raise OSError("the disk does not give it back")
        return self.contents[message.sequence]

    def wait(self, waiter: DurableWaiter) -> None:
        if self.failure:
            waiter.on_store_failed(self.failure)
        else:
            self._waiters.append(waiter)

    def seal(self) -> None:
        """Seal the batch being filled, so that it is written, and begin another batch."""
        assert not self._in_flight
        self._in_flight, self._waiters = self._waiters, []
        self.batch += 1

    def sync(self) -> None:
        """The batch on its way is on disk."""
        self.durable = self.batch - 1
        waiters, self._in_flight = self._in_flight, []
        for waiter in waiters:
            waiter.on_durable(self.durable)

    def complete(self) -> None:
        """Seal and sync."""
        self.seal()
        self.sync()

    def fail(self, reason: str) -> None:
        """Stop for good."""
        self.failure = reason
        waiters = self._in_flight + self._waiters
        self._in_flight, self._waiters = [], []
        for waiter in waiters:
            waiter.on_store_failed(reason)

    def drop_contents(self) -> None:
        """Drop the content of the appended messages from memory, so that it is on disk only."""
        for message in self.appended:
            if message.content is not None:
                self.contents[message.sequence] = message.content
                message.content = None


class TurnScheduler(Scheduler):
    """The connections that wait for a turn of the event loop."""

    def __init__(self) -> None:
        self.waiting: deque[CoreConnection] = deque()

    def schedule(self, connection: CoreConnection) -> None:
        self.waiting.append(connection)

    def run(self) -> None:
        """Give turns until nobody waits."""
        while self.waiting:
            self.waiting.popleft().pump(256)


class RecordingEdge:
    """An Edge without a socket."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.holds = 0
        self.closed = False
        self.hanging_up = False  # the peer is to close first
        self.room = 1 << 40  # bytes after which a socket is full
        self.connection: Connection091 | None = None

    def write(self, data: bytes) -> None:
        self.written += data
        if len(self.written) > self.room and self.connection is not None:
            self.connection.set_blocked(True)

    def close(self) -> None:
        self.closed = True

    end_output = close

    def await_hangup(self, seconds: int) -> None:
        assert seconds > 0
        self.hanging_up = True

    def is_closing(self) -> bool:
        return self.closed

    def hold(self, reason: int) -> None:
        self.holds |= reason

    def release(self, reason: int) -> None:
        self.holds &= ~reason

    def on_logged_in(self) -> None:
        assert not self.closed

    def limit_close(self, seconds: int) -> None:
        assert seconds > 0


class BrokerBench:
    """A broker whose parts are all moved by hand."""

    def __init__(
        self,
        access: Access | None = None,
        schedule: Schedule | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.store = HandStore()
        numbers = itertools.count(1)
        self.clock = HandClock()
        self.broker = Broker(
            self.store,
            Counters(),
            lambda: f"{next(numbers)}",
            schedule or self.clock.schedule,
            view_of,
            write_letter,
        )
        self.broker.declare_vhost("/")
        self.turns = TurnScheduler()
        self.scheduler = scheduler or self.turns
        self.door = OpenAccess()
        self.server = Server(
            self.broker,
            self.store,
            access or self.door,
            "0",
            lambda prefix: f"{prefix}{next(numbers)}",
            LinkNames(),
        )

    def connect(self) -> "Client091":
        """A client that has sent its protocol header."""
        return Client091(self)

    def open(self) -> "Client091":
        """A client with an open connection and channel 1."""
        client = self.connect()
        client.send(Connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", "\0guest\0guest"))
        client.send(Connection.TuneOk(2047, 131072, 0))
        client.send(Connection.Open("/"))
        client.send(Channel.Open(), 1)
        client.frames()
        return client


class Client091:
    """A client without a socket: a test sends its frames and reads the frames that the broker writes."""

    def __init__(self, bench: BrokerBench) -> None:
        self.bench = bench
        self.edge = RecordingEdge()
        self.connection = Connection091(
            bench.server, bench.scheduler, self.edge, Origin("127.0.0.1", 1, True)
        )
        self.edge.connection = self.connection
        self.connection.start()

    def send(self, command: base.Frame, channel: int = 0) -> None:
        """Send a single method, in a loop turn of its own."""
        self.connection.receive(method_bytes(command, channel))

    def publish(self, key: str, body: bytes = b"", persistent: bool = False, mandatory: bool = False) -> None:
        """Publish a single message on channel 1."""
        self.connection.receive(publish_bytes(key, body, persistent, mandatory))

    def frames(self) -> list[base.Frame]:
        """The methods that were written since the last call; content is passed over."""
        data = bytes(self.edge.written)
        self.edge.written.clear()
        methods = []
        position = 0
        while position < len(data):
            kind, _, size = struct.unpack_from(">BHI", data, position)
            end = position + size + FRAME_OVERHEAD
            if kind == METHOD:
                command = pamqp_frame.unmarshal(data[position:end])[2]
                assert isinstance(command, base.Frame)
                methods.append(command)
            position = end
        return methods

    def contents(self) -> list[tuple[base.Frame, bytes]]:
        """The methods that came with a content since the last call, and the frames of that."""
        data = bytes(self.edge.written)
        self.edge.written.clear()
        found: list[tuple[base.Frame, bytes]] = []
        position = 0
        while position < len(data):
            kind, number, size = struct.unpack_from(">BHI", data, position)
            end = position + size + FRAME_OVERHEAD
            if kind == METHOD:
                command = pamqp_frame.unmarshal(data[position:end])[2]
                assert isinstance(command, base.Frame)
                found.append((command, b""))
            else:
                assert number == 1
                assert size + FRAME_OVERHEAD <= self.connection.frame_max
                command, content = found.pop()
                found.append((command, content + data[position:end]))
            position = end
        for _, content in found:
            assert not content or body_size(content, 0, int(header_frame_bytes(content)) - 8) == len(
                body(content)
            )
        return [(command, content) for command, content in found if content]

    def confirms(self) -> list[tuple[str, int | None, bool | None]]:
        """The confirms that were written: name, tag, multiple."""
        answers: list[tuple[str, int | None, bool | None]] = []
        for command in self.frames():
            assert isinstance(command, (Basic.Ack, Basic.Nack)), command
            answers.append((command.name.removeprefix("Basic."), command.delivery_tag, command.multiple))
        return answers
