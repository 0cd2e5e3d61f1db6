"""A channel of the test client, with a method for each common exchange."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeVar

from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Queue
from pamqp.common import FieldTable

from tests.support.amqp091.frames import (
    METHOD,
    Frame,
    Message,
    UnexpectedClose,
    body_frames,
    decode_method,
    describe,
    header_bytes,
    method_bytes,
)

if TYPE_CHECKING:
    from tests.support.amqp091.peer import Peer

F = TypeVar("F", bound=base.Frame)


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
