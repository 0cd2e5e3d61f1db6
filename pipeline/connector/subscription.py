"""What options subscribe to, sorted: streams, and ordinary queues with their reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.connector.choices import OptionError
from pipeline.connector.options import AMQP, SourceOptions
from pipeline.connector.server import RefusedError
from pipeline.connector.staged import StagedQueue
from pipeline.connector.streams import Streams

if TYPE_CHECKING:
    from pipeline.connector.plain import ForeignStreams


class Subscription:
    """The streams and the queues that options name. Raises OptionError, ServerError when it is made."""

    def __init__(self, options: SourceOptions) -> None:
        self.streams: Streams | ForeignStreams
        self.queues: list[StagedQueue] = []
        if options.transport == AMQP:
            from pipeline.connector.plain import ForeignStreams

            self.streams = ForeignStreams(options)
            return
        names = options.names or tuple(dict.fromkeys(place.queue for place in options.assigned))
        ordinary = _ordinary(options, names)
        self.queues = [StagedQueue(options.server, name, options.reader, options.retain) for name in ordinary]
        self.streams = Streams(options, [name for name in names if name not in ordinary])
        for place in options.assigned:
            if place.queue in ordinary and place.number:
                raise OptionError(
                    f"'{place.queue}' is an ordinary queue, and has no partition {place.number}"
                )


def _ordinary(options: SourceOptions, names: Sequence[str]) -> list[str]:
    """The names of queues that are no streams."""
    server = options.server
    found: list[str] = []
    for name in names:
        try:
            kind = server.get("queues", server.vhost, name, columns="type")["type"]
        except RefusedError as error:
            if error.status == 404:
                raise OptionError(f"no queue '{name}' in vhost '{server.vhost}'") from error
            raise
        if kind != "stream":
            found.append(name)
    return found
