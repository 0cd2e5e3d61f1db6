"""An AMQP 0-9-1 client that does nothing by itself: a test requests every frame that the client sends.

`Peer` is the connection, `PeerChannel` a channel of the connection with a method for each common exchange.

The client reads frames in the order of the socket and keeps them by channel until a test expects them. An
unexpected close of the connection or of a channel fails the test with the broker's reply text.
"""

from __future__ import annotations

import socket
import struct
import warnings
from collections import deque
from typing import Final, Protocol, TypeVar

from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Connection, Queue
from pamqp.common import FieldTable

from tests.support.amqp091.frames import (
    BODY,
    FRAME_END,
    FRAME_OVERHEAD,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    Frame,
    Message,
    UnexpectedClose,
    body_frames,
    decode_method,
    describe,
    header_bytes,
    method_bytes,
)
from tests.support.daemon.daemon import PATIENCE_S, Address

CAPABILITIES: Final[FieldTable] = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "exchange_exchange_bindings": True,
    "publisher_confirms": True,
}

NOTICES: Final = (bytes.fromhex("000a003c"), bytes.fromhex("000a003d"))
"""connection.blocked and connection.unblocked: they come at any time and may be looked at later."""

F = TypeVar("F", bound=base.Frame)


class Peer:
    """A client connection to a broker."""

    def __init__(self, address: Address, patience: float = PATIENCE_S) -> None:
        self.socket = socket.create_connection(address, timeout=patience)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = self.socket.getsockname()
        self.name = f"{host}:{port}"  # as the broker's log calls this connection
        self.frame_max = 131072
        self.channel_max = 2047
        self.server_properties: FieldTable = {}
        self.mechanisms = ""
        self._buffer = bytearray()
        self._kept: dict[int, deque[Frame]] = {}

    # --- sending

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def write(self, command: base.Frame, channel: int = 0) -> None:
        """Send a single method."""
        self.send(method_bytes(command, channel))

    # --- receiving

    def raw_frame(self) -> Frame:
        """The next frame from the socket, whatever it is."""
        while (frame := self._take_frame()) is None:
            self._fill()
        return frame

    def receive(self) -> Frame:
        """The next frame of any channel from the socket; heartbeats are passed over."""
        while (frame := self.raw_frame()).kind == HEARTBEAT:
            assert frame == (HEARTBEAT, 0, b"")
        return frame

    def next_frame(self, channel: int) -> Frame:
        """Return the next frame of `channel`; frames of other channels are kept for later calls."""
        kept = self._kept.setdefault(channel, deque())
        while not kept:
            frame = self.receive()
            if frame.channel == 0 != channel and frame.payload[:4] not in NOTICES:
                raise UnexpectedClose(f"on channel {channel}: {describe(decode_method(frame))}")
            self._kept.setdefault(frame.channel, deque()).append(frame)
        return kept.popleft()

    def keep(self, channel: int, frames: list[Frame]) -> None:
        """Put back frames that came before the expected frame, in order."""
        self._kept[channel].extendleft(reversed(frames))

    def forget(self, channel: int) -> None:
        """Drop the kept frames of a channel."""
        self._kept.pop(channel, None)

    def kept(self, channel: int) -> int:
        """Return the number of kept frames of `channel`."""
        return len(self._kept.get(channel, ()))

    def expect(self, wanted: type[F], channel: int = 0) -> F:
        """The next frame of `channel`, which must be this method."""
        command = self.expect_any((wanted,), channel)
        assert isinstance(command, wanted)
        return command

    def expect_any(self, wanted: tuple[type[base.Frame], ...], channel: int = 0) -> base.Frame:
        """Return the next frame of `channel`, which must be any of these methods."""
        command = decode_method(self.next_frame(channel))
        if isinstance(command, wanted):
            return command
        names = " or ".join(kind.name for kind in wanted)
        text = f"expected {names} on channel {channel}, got {describe(command)}"
        if isinstance(command, (Connection.Close, Channel.Close)):
            raise UnexpectedClose(text)
        raise AssertionError(text)

    def expect_content(self, method: Basic.Deliver | Basic.GetOk | Basic.Return, channel: int) -> Message:
        """The header and body frames that follow a method that carries content."""
        kind, _, payload = self.next_frame(channel)
        assert kind == HEADER
        class_id, _, size = struct.unpack_from(">HHQ", payload)
        assert class_id == 60
        parts: list[bytes] = []
        received = 0
        while received < size:
            frame = self.next_frame(channel)
            assert frame.kind == BODY
            assert len(frame.payload) <= self.frame_max - FRAME_OVERHEAD
            parts.append(frame.payload)
            received += len(frame.payload)
        assert received == size
        return Message(method, payload, b"".join(parts), tuple(len(part) for part in parts))

    def expect_close(self, code: int) -> str:
        """The broker must close the connection with this reply code, then the socket; returns its text."""
        while True:
            frame = self.receive()
            if frame.channel == 0:
                break
        command = decode_method(frame)
        assert isinstance(command, Connection.Close), describe(command)
        assert command.reply_code == code, describe(command)
        self.write(Connection.CloseOk())
        self.expect_end()
        return command.reply_text

    def expect_end(self) -> bytes:
        """Expect the end of the connection; return the bytes before the end that no call has expected."""
        while True:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                break
            if not data:
                break
            self._buffer += data
        return bytes(self._buffer)

    def read_exactly(self, size: int) -> bytes:
        """So many raw bytes."""
        while len(self._buffer) < size:
            self._fill()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    # --- the conversation every test begins and ends with

    def start(self) -> Connection.Start:
        """Send the protocol header and read connection.start."""
        self.send(PROTOCOL_HEADER)
        start = self.expect(Connection.Start)
        self.server_properties = start.server_properties
        self.mechanisms = start.mechanisms
        return start

    def login(
        self, user: str = "guest", password: str = "guest", capabilities: FieldTable | None = None
    ) -> None:
        """Answer connection.start with PLAIN."""
        properties: FieldTable = {"capabilities": CAPABILITIES if capabilities is None else capabilities}
        self.write(Connection.StartOk(properties, "PLAIN", f"\0{user}\0{password}"))

    def tune(self, channel_max: int = 2047, frame_max: int = 131072, heartbeat: int = 0) -> Connection.Tune:
        """Read connection.tune and answer it with these values; returns the broker's."""
        offer = self.expect(Connection.Tune)
        self.channel_max, self.frame_max = channel_max, frame_max
        self.write(Connection.TuneOk(channel_max, frame_max, heartbeat))
        return offer

    def open(
        self,
        frame_max: int = 131072,
        heartbeat: int = 0,
        channel_max: int = 2047,
        capabilities: FieldTable | None = None,
        vhost: str = "/",
    ) -> Peer:
        """The whole handshake, as guest."""
        self.start()
        self.login(capabilities=capabilities)
        self.tune(channel_max, frame_max, heartbeat)
        self.write(Connection.Open(vhost))
        self.expect(Connection.OpenOk)
        return self

    def channel(self, number: int = 1) -> PeerChannel:
        """Open a channel."""
        self.write(Channel.Open(), number)
        self.expect(Channel.OpenOk, number)
        return PeerChannel(self, number)

    def close(self) -> None:
        """Close politely."""
        self.write(Connection.Close(200, "", 0, 0))
        while True:
            frame = self.receive()
            if frame.channel == 0 and isinstance(decode_method(frame), Connection.CloseOk):
                break
        self.socket.shutdown(socket.SHUT_WR)
        self.expect_end()
        self.socket.close()

    def drop(self) -> None:
        """Let the socket go without a word."""
        self.socket.close()

    # --- bytes

    def _fill(self) -> None:
        data = self.socket.recv(262144)
        if not data:
            raise UnexpectedClose("the broker ended the connection")
        self._buffer += data

    def _take_frame(self) -> Frame | None:
        if len(self._buffer) < FRAME_OVERHEAD:
            return None
        kind, channel, size = struct.unpack_from(">BHI", self._buffer)
        if len(self._buffer) < size + FRAME_OVERHEAD:
            return None
        assert size + FRAME_OVERHEAD <= self.frame_max, f"a frame of {size} bytes, frame_max {self.frame_max}"
        assert self._buffer[7 + size] == FRAME_END
        payload = bytes(self._buffer[7 : 7 + size])
        del self._buffer[: size + FRAME_OVERHEAD]
        return Frame(kind, channel, payload)


class PeerChannel:
    """A channel of a Peer, with a method for each common exchange."""

    def __init__(self, peer: Peer, number: int) -> None:
        self.peer = peer
        self.number = number

    def write(self, command: base.Frame) -> None:
        """Send a single method."""
        self.peer.write(command, self.number)

    def expect(self, wanted: type[F]) -> F:
        """The channel's next frame, which must be this method."""
        return self.peer.expect(wanted, self.number)

    def call(self, command: base.Frame, reply: type[F]) -> F:
        """Send a method and return its reply; other frames that arrive meanwhile are kept."""
        self.write(command)
        passed: list[Frame] = []
        while True:
            frame = self.peer.next_frame(self.number)
            if frame.kind == METHOD:
                answer = decode_method(frame)
                if isinstance(answer, reply):
                    self.peer.keep(self.number, passed)
                    return answer
                if isinstance(answer, Channel.Close):
                    raise UnexpectedClose(f"{describe(command)}: {describe(answer)}")
            passed.append(frame)

    def expect_close(self, code: int) -> str:
        """The broker must close this channel with this reply code; answers it and returns the text."""
        close = self.expect(Channel.Close)
        assert close.reply_code == code, describe(close)
        self.write(Channel.CloseOk())
        return close.reply_text

    def refused(self, command: base.Frame, code: int) -> str:
        """Send a method that must cost the channel its life, with this reply code; returns the text."""
        self.write(command)
        return self.expect_close(code)

    def declare(
        self,
        queue: str = "",
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: FieldTable | None = None,
    ) -> str:
        """Declare a queue; returns its name."""
        command = Queue.Declare(
            queue=queue, durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=arguments
        )
        return str(self.call(command, Queue.DeclareOk).queue)

    def counts(self, queue: str) -> tuple[int, int]:
        """Return the number of ready messages in `queue` and the number of its consumers."""
        reply = self.call(Queue.Declare(queue=queue, passive=True), Queue.DeclareOk)
        assert reply.message_count is not None
        assert reply.consumer_count is not None
        return reply.message_count, reply.consumer_count

    def publish(
        self,
        body: bytes,
        routing_key: str,
        exchange: str = "",
        properties: Basic.Properties | bytes | None = None,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        """Publish a single message, in as few frames as frame_max allows."""
        self.peer.send(self.encode_publish(body, routing_key, exchange, properties, mandatory, immediate))

    def encode_publish(
        self,
        body: bytes,
        routing_key: str,
        exchange: str = "",
        properties: Basic.Properties | bytes | None = None,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> bytes:
        """The bytes of `publish`."""
        command = Basic.Publish(
            exchange=exchange, routing_key=routing_key, mandatory=mandatory, immediate=immediate
        )
        frames = [method_bytes(command, self.number), header_bytes(len(body), properties, self.number)]
        return b"".join(frames + body_frames(body, self.number, self.peer.frame_max))

    def confirm_select(self) -> None:
        """Ask for publisher confirms."""
        self.call(Confirm.Select(), Confirm.SelectOk)

    def expect_confirms(self, last: int, first: int = 1) -> None:
        """Read acks until every publish from `first` to `last` is confirmed, each exactly once."""
        open_tags = set(range(first, last + 1))
        while open_tags:
            ack = self.expect(Basic.Ack)
            assert ack.delivery_tag is not None
            tags = (
                {tag for tag in open_tags if tag <= ack.delivery_tag} if ack.multiple else {ack.delivery_tag}
            )
            assert tags, f"{ack.delivery_tag} was confirmed before"
            assert ack.delivery_tag in open_tags, f"{ack.delivery_tag} is not open"
            open_tags -= tags

    def consume(
        self,
        queue: str = "",
        tag: str = "",
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: FieldTable | None = None,
    ) -> str:
        """Start a consumer; returns its tag."""
        command = Basic.Consume(
            queue=queue, consumer_tag=tag, no_ack=no_ack, exclusive=exclusive, arguments=arguments
        )
        return str(self.call(command, Basic.ConsumeOk).consumer_tag)

    def cancel(self, tag: str) -> None:
        """Stop a consumer."""
        self.call(Basic.Cancel(consumer_tag=tag), Basic.CancelOk)

    def delivery(self) -> Message:
        """The next delivery."""
        return self.peer.expect_content(self.expect(Basic.Deliver), self.number)

    def deliveries(self, count: int) -> list[Message]:
        """The next `count` deliveries."""
        return [self.delivery() for _ in range(count)]

    def returned(self) -> Message:
        """The next frame must begin a basic.return."""
        return self.peer.expect_content(self.expect(Basic.Return), self.number)

    def get(self, queue: str = "", no_ack: bool = True) -> Message | None:
        """basic.get: a message, or None if the queue is empty."""
        self.write(Basic.Get(queue=queue, no_ack=no_ack))
        frame = self.peer.next_frame(self.number)
        command = decode_method(frame)
        if isinstance(command, Basic.GetEmpty):
            return None
        assert isinstance(command, Basic.GetOk), describe(command)
        return self.peer.expect_content(command, self.number)

    def take(self, queue: str) -> Message:
        """basic.get that must find something; the message stays unacked."""
        message = self.get(queue, no_ack=False)
        assert message is not None, f"{queue} is empty"
        return message

    def ack(self, tag: int, multiple: bool = False) -> None:
        """Acknowledge."""
        self.write(Basic.Ack(tag, multiple))

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> None:
        """Reject a single delivery or several."""
        self.write(Basic.Nack(tag, multiple, requeue))

    def reject(self, tag: int, requeue: bool = True) -> None:
        """Reject a single delivery."""
        self.write(Basic.Reject(tag, requeue))

    def recover(self) -> None:
        """basic.recover with requeue."""
        self.call(Basic.Recover(True), Basic.RecoverOk)

    def recover_async(self) -> None:
        """basic.recover-async with requeue; the protocol deprecates it, clients still send it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.write(Basic.RecoverAsync(True))

    def qos(self, count: int, size: int = 0, whole_channel: bool = False) -> None:
        """Set the prefetch window."""
        self.call(Basic.Qos(size, count, whole_channel), Basic.QosOk)

    def round_trip(self) -> None:
        """Wait until the broker has handled everything sent on this channel so far."""
        self.call(Channel.Flow(True), Channel.FlowOk)

    def expect_silence(self) -> None:
        """Check that nothing more arrives during several round trips, each with a turn for the broker."""
        for _ in range(3):
            self.round_trip()
        assert not self.peer.kept(self.number), describe(decode_method(self.peer.next_frame(self.number)))

    def close(self) -> None:
        """Close the channel; whatever still arrives for it is dropped."""
        self.call(Channel.Close(200, "", 0, 0), Channel.CloseOk)
        self.peer.forget(self.number)


class Dialler(Protocol):
    """Opens sockets that are closed at the end of the test, like the fixture `dial`."""

    def __call__(self, to: Address | None = None) -> Peer:
        """Connect to the broker under test, or to another broker."""
        ...


class Connector(Protocol):
    """Opens sockets and does the handshake, like the fixture `connect`."""

    def __call__(
        self,
        to: Address | None = None,
        *,
        frame_max: int = 131072,
        heartbeat: int = 0,
        channel_max: int = 2047,
        capabilities: FieldTable | None = None,
        vhost: str = "/",
    ) -> Peer:
        """Connect to the broker under test, or to another broker, and do the handshake."""
        ...
