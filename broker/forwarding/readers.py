"""Readers of this broker's queues that forward exactly once: other brokers, whose shovels pull. [amqpd]

A client that consumes with `x-origin-reader` is the only consumer of its channel. The broker stages the
messages of the queue for the reader, and delivers each one with its origin and position, as a shovel of this
broker would send the message. The delivery tags count the deliveries. An acknowledgement moves the reader
past a message. A new connection of the reader gets all messages again that are not acknowledged, with the
same positions.
"""

from __future__ import annotations

from typing import Final, final

import structlog
from mypy_extensions import i64

from broker.adapters.amqp091.deliver import OUTPUT_BYTES_MAX, write_content_for
from broker.adapters.amqp091.state import ChannelState
from broker.adapters.peers.server import StagedReader
from broker.core.errors import PreconditionFailed
from broker.core.queues.queue import Queue
from broker.core.selector.selector import Selector
from broker.forwarding.ports import EndOwner
from broker.forwarding.staged import StagedQueue, StagedSource, StagingHost
from protocol.amqp091.constants import BASIC_DELIVER
from protocol.amqp091.content import header_frame_bytes, write_frames
from protocol.amqp091.methods import method_frame, short_string
from protocol.errors import PRECONDITION_FAILED

ERROR: Final = "internal error, see the broker's log"

_log = structlog.get_logger("amqpd.forwarding")


@final
class ReaderOwner(EndOwner):
    """The owner of a served reader's source: it writes messages to the channel of the reader."""

    def __init__(self, channel: ChannelState, staged: StagedQueue, tag: str, host: StagingHost) -> None:
        self.source = StagedSource(self, staged, host)
        self._channel = channel
        self._where = staged.where
        self._tag = short_string(tag)

    def on_source_ready(self, ready: i64) -> None:
        """Do nothing: the source delivers."""

    def on_message(self, number: i64, address: bytes, content: bytes, has_pieces: bool, traits: i64) -> None:
        """Write a basic.deliver."""
        channel = self._channel
        frame_max = channel.connection.frame_max
        if header_frame_bytes(content) > frame_max:
            self.on_failed(
                f"a message has a content header of {header_frame_bytes(content)} bytes with its position, "
                f"the negotiated frame_max is {frame_max}"
            )
            return
        tag: int = number
        arguments = b"".join((self._tag, tag.to_bytes(8, "big"), b"\0", address))
        channel.connection.out.write(method_frame(channel.number, BASIC_DELIVER, arguments))
        write_content_for(channel, content)
        self._limit_output()

    def on_piece(self, frames: bytes, is_last: bool) -> None:
        """Write body frames."""
        connection = self._channel.connection
        write_frames(connection.out, frames, self._channel.number, connection.frame_max)
        self._limit_output()

    def _limit_output(self) -> None:
        """Send nothing more while the client does not read."""
        connection = self._channel.connection
        if len(connection.out) >= OUTPUT_BYTES_MAX:
            connection.flush()
        if connection.blocked:
            self.source.hold()

    def on_failed(self, reason: str) -> None:
        """Close the channel."""
        if self._channel.is_open():
            self._channel.fail(PRECONDITION_FAILED, f"{self._where}: {reason}", 0)
            self._channel.connection.answer()

    def on_broken(self) -> None:
        """Log the exception that is being handled, and close the channel."""
        _log.exception("internal error", reader=self._where)
        self.on_failed(ERROR)

    def end_turn(self) -> None:
        """Write the output."""
        self._channel.connection.flush()


@final
class ServedReader(StagedReader):
    """The reader of a queue on a channel."""

    def __init__(self, channel: ChannelState, staged: StagedQueue, tag: str, host: StagingHost) -> None:
        super().__init__(tag)
        self._owner = ReaderOwner(channel, staged, tag, host)
        self._source = self._owner.source
        self._staged = staged
        self._releases = host.releases
        self._connection = channel.connection

    def open(self) -> None:
        """Begin to deliver."""
        self._connection.readers.append(self)
        self._source.open()

    def acknowledge(self, number: i64, multiple: bool) -> None:
        """Move past a message, or all messages up to this one."""
        self._source.settle(number, multiple)
        self._source.flush()

    def refuse(self, number: i64, multiple: bool) -> None:
        """Deliver a message, or all up to this one, again when all messages on their way are answered."""
        self._source.refuse(number, multiple)
        self._source.flush()

    def resume(self) -> None:
        """Deliver again: the client reads again."""
        self._source.release()

    def close(self) -> None:
        """End the reader's connection. The messages stay staged."""
        if self in self._connection.readers:
            self._connection.readers.remove(self)
        self._source.close()

    def give_up(self) -> None:
        """Delete the reader, and return its messages to the queue, when the log takes this."""
        self.close()
        self._releases.release_reader(self._staged)


@final
class Readers:
    """The maker of readers: the callable that the server keeps for its channels."""

    def __init__(self, host: StagingHost) -> None:
        self._host = host

    def __call__(
        self, channel: object, queue: Queue, reader: str, tag: str, selector: Selector | None
    ) -> StagedReader:
        """Return a reader of a queue, which the caller opens. Raises PreconditionFailed."""
        assert isinstance(channel, ChannelState), "channels of AMQP 0-9-1 have readers"
        where = f"reader '{reader}' of queue '{queue.name}' in vhost '{queue.vhost}'"
        if channel.targets or channel.unacked.next_tag() > 1 or channel.transaction is not None:
            raise PreconditionFailed(
                f"{where} needs a channel of its own, without consumers and transactions"
            )
        staged = StagedQueue(queue.vhost, queue.name, reader, where)
        staged.prefetch = channel.prefetch_count
        staged.selector = selector
        return ServedReader(channel, staged, tag, self._host)
