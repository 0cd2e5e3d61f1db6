"""The streams and ordinary queues that options subscribe to.

[amqpd, staged readers]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pipeline.connector.choices import OptionError
from pipeline.connector.offsets import Partition, Place
from pipeline.connector.options import AMQP, SourceOptions
from pipeline.connector.server import RefusedError, Server
from pipeline.connector.streams import Streams, SubscribedStreams
from pipeline.errors import PipelineError

AT_ONCE: Final = 100_000  # limit of messages that one request stages


class ReaderDeletedError(PipelineError):
    """The attached reader was deleted; the next request attaches a new one."""


class StagedQueue:
    """A queue with a reader. The first request attaches the reader, which excludes other programs."""

    def __init__(self, server: Server, queue: str, reader: str | None, retain: int) -> None:
        """`retain`: number of committed batches that can be read again.

        Raises OptionError without a reader's name.
        """
        if reader is None:
            raise OptionError(
                f"'{queue}' is an ordinary queue, and is read by name: option 'readerName' is missing"
            )
        self.place = Place(queue, 0)
        self._server = server
        self._where = ("staged", server.vhost, queue, reader)
        self._reader = reader
        self._retain = retain
        self._epoch: int | None = None
        self._incarnation = ""
        self._first = 0
        self._retained = 0
        self._next = 0

    def partition(self) -> Partition:
        """Return the staged messages as a partition. Raises ServerError."""
        self._attach()
        return Partition(self.place, self._incarnation, self._first, self._next, retained=self._retained)

    def whole(self) -> Partition:
        """Return the staged messages and the ready ones behind them as a partition. Raises ServerError."""
        staged = self.partition()
        queue = self._server.get("queues", self._server.vhost, self.place.queue, columns="messages_ready")
        return staged._replace(next=staged.next + int(queue["messages_ready"]))

    def acknowledge(self, start: int) -> None:
        """Acknowledge all messages before an offset. Raises ServerError, PipelineError, GoneError."""
        self._attach()
        if start > self._first:
            self._advance(start, 0, None)

    def advance(self, start: int, rows: int, size: int | None) -> int:
        """Acknowledge the messages before `start`, and stage up to `rows` messages from there on.

        `size`: approximate bytes of their bodies. Returns the offset behind the last message. Raises
        ServerError, GoneError, and PipelineError if another program has attached the reader, also without
        messages.
        """
        self._attach()
        goal = start + rows
        while True:
            before = self._next
            self._advance(start, min(max(goal - before, 0), AT_ONCE), size)
            if self._next >= goal or self._next == before or size is not None:
                return min(self._next, goal)

    def _attach(self) -> None:
        if self._epoch is None:
            self._take(self._server.post(*self._where, retain=self._retain))

    def _advance(self, start: int, rows: int, size: int | None) -> None:
        try:
            answer = self._server.post(
                *self._where,
                "advance",
                epoch=self._epoch,
                ack_upto=start,
                want_rows=rows,
                want_bytes=size,
                expect_next=self._next,
            )
        except RefusedError as error:
            name = f"reader '{self._reader}' of queue '{self.place.queue}'"
            if error.status == 404:
                self._epoch = None
                raise ReaderDeletedError(f"{name} was deleted ({error})") from error
            if error.status != 409:  # 409: another program has attached the reader
                raise
            raise PipelineError(
                f"{name} has been taken over: another query has the same 'readerName', or this one was "
                f"started again ({error})"
            ) from error
        self._take(answer)

    def _take(self, answer: dict[str, Any]) -> None:
        self._epoch = answer["epoch"]
        self._incarnation = str(answer["incarnation"])
        self._first, self._retained, self._next = answer["first"], answer["retained"], answer["next"]


class Subscription:
    """The streams and the queues that options name. The constructor raises OptionError, ServerError."""

    def __init__(self, options: SourceOptions) -> None:
        self.streams: SubscribedStreams
        self.queues: list[StagedQueue] = []
        if options.transport == AMQP:
            from pipeline.connector.foreign_streams import ForeignStreams

            self.streams = ForeignStreams(options)
            return
        names = options.names or tuple(dict.fromkeys(place.queue for place in options.assigned))
        ordinary = _find_ordinary_queues(options, names)
        self.queues = [StagedQueue(options.server, name, options.reader, options.retain) for name in ordinary]
        self.streams = Streams(options, [name for name in names if name not in ordinary])
        for place in options.assigned:
            if place.queue in ordinary and place.number:
                raise OptionError(
                    f"'{place.queue}' is an ordinary queue, and has no partition {place.number}"
                )


def _find_ordinary_queues(options: SourceOptions, names: Sequence[str]) -> list[str]:
    """Return the names of queues that are no streams."""
    server = options.server
    queues: list[str] = []
    for name in names:
        try:
            kind = server.get("queues", server.vhost, name, columns="type")["type"]
        except RefusedError as error:
            if error.status == 404:
                raise OptionError(f"no queue '{name}' in vhost '{server.vhost}'") from error
            raise
        if kind != "stream":
            queues.append(name)
    return queues
