"""The broker's streams: their offsets, and their messages by bulk fetch, in chunks as they are stored."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from pipeline.connector.choices import OptionError
from pipeline.connector.offsets import NOTHING, Offsets, Partition, Place, Range
from pipeline.connector.options import SourceOptions
from pipeline.connector.server import RefusedError, Retry, Server, ServerError
from pipeline.errors import PipelineError
from protocol.streams.chunk import HEADER_BYTES, Chunk, ChunkDamagedError, Header

NAMES_AT_ONCE: Final = 50  # in one request
BLOCK_BYTES: Final = 1024 * 1024  # the part of an answer that is read at once

LOG: Final = logging.getLogger("amqpd.pipeline")


class DataLossError(PipelineError):
    """Messages of a planned range do not exist any more, or the stream was declared again."""


class SubscribedStreams(Protocol):
    """The streams that options name, of any broker."""

    def partitions(self, known: Mapping[Place, int] = NOTHING) -> list[Partition]:
        """Return the partitions. `known`: offsets that they had reached. Raises ServerError, OptionError."""

    def at_time(self, place: Place, time: int, /) -> int:
        """Return the offset of the first message from a time on (in µs since 1970). Raises ServerError."""

    def reach(self, place: Place, start: int, size: int) -> int:
        """Return the offset up to which messages have `size` bytes. Raises ServerError, OptionError."""

    def keep(self, reader: str, offsets: Offsets) -> None:
        """Store the offsets of a reader in the streams. Raises ServerError, OptionError."""


class Streams:
    """The streams that options name, in amqpd, which lists them over HTTP."""

    def __init__(self, options: SourceOptions, names: Sequence[str]) -> None:
        """`names`: the names that are streams, without a pattern."""
        self._server = options.server
        self._options = options
        self._names = names

    def partitions(self, known: Mapping[Place, int] = NOTHING) -> list[Partition]:
        """Return the partitions. `known` is ignored, as the broker reports the ends.

        Raises ServerError, OptionError.
        """
        options = self._options
        partitions = [each for stream in self._streams().values() for each in stream]
        if not options.assigned:
            return partitions
        by_place = {each.place: each for each in partitions}
        for place in options.assigned:
            if place not in by_place and place.queue in self._names:
                raise OptionError(f"stream '{place.queue}' has no partition {place.number}")
        return [by_place[place] for place in options.assigned if place in by_place]

    def at_time(self, place: Place, time: int) -> int:
        """Return the offset of the first message from a time on (in µs since 1970). Raises ServerError."""
        return self._offset(place, time=time)

    def reach(self, place: Place, start: int, size: int) -> int:
        """Return the offset up to which messages have `size` bytes, at least one message.

        Raises ServerError.
        """
        try:
            return self._offset(place, **{"from": start, "bytes": size})
        except RefusedError as error:
            if error.status != 410:
                raise
            return start + 1  # retention has removed the message since; reading it reports the loss

    def keep(self, reader: str, offsets: Offsets) -> None:
        """Store a reader's offsets in the streams, unless a stream was declared again. Raises ServerError."""
        for name, partitions in self._streams().items():
            known = {
                each.place: offsets.positions[each.place]
                for each in partitions
                if offsets.incarnations.get(each.place) == each.incarnation
            }
            if known:
                others = {each.place: each.first if each.kept is None else each.kept for each in partitions}
                kept = list((others | known).values())
                self._server.put("streams", self._server.vhost, name, "consumers", reader, offsets=kept)

    def _streams(self) -> dict[str, list[Partition]]:
        """Return all partitions of each stream. Raises ServerError: a named queue is no stream."""
        if self._options.pattern is not None:
            wanted = re.compile(self._options.pattern)
            described = [each for each in self._asked() if wanted.fullmatch(each["name"])]
        else:
            described = self._described(self._names)
        return {
            stream["name"]: [_partition(stream["name"], each, self._options) for each in stream["partitions"]]
            for stream in described
        }

    def _offset(self, place: Place, **query: object) -> int:
        where = ("streams", self._server.vhost, place.queue, str(place.number), "offset")
        return int(self._server.get(*where, **query)["offset"])

    def _described(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return streams with all their partitions. Raises ServerError: a queue is no stream."""
        groups = [names[start : start + NAMES_AT_ONCE] for start in range(0, len(names), NAMES_AT_ONCE)]
        return [each for group in groups for each in self._asked(group)]

    def _asked(self, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
        described: list[dict[str, Any]] = self._server.get("streams", self._server.vhost, name=names)
        return described


def _partition(queue: str, found: dict[str, Any], options: SourceOptions) -> Partition:
    kept = found["consumers"].get(options.reader) if options.reader is not None else None
    place = Place(queue, found["partition"])
    return Partition(place, str(found["incarnation"]), found["first"], found["next"], kept)


def fetch_range(server: Server, wanted: Range, gaps: bool) -> Iterator[tuple[Chunk, int, int]]:
    """Yield the chunks with messages of a range, each with the first and last offset of the range in it.

    `gaps`: missing messages are left out. Raises DataLossError and ServerError at the first missing message.
    """
    where = ("streams", server.vhost, wanted.place.queue, str(wanted.place.number), "chunks")
    return _chunks(server, where, wanted, gaps)


def fetch_staged(server: Server, reader: str, wanted: Range, gaps: bool) -> Iterator[tuple[Chunk, int, int]]:
    """Yield the chunks of the messages that are staged for a reader, as `fetch_range` does."""
    where = ("staged", server.vhost, wanted.place.queue, reader, "rows")
    return _chunks(server, where, wanted, gaps)


def _chunks(
    server: Server, where: tuple[str, ...], wanted: Range, gaps: bool
) -> Iterator[tuple[Chunk, int, int]]:
    query = {"gaps": "true"} if gaps else {}
    offset = wanted.start
    suspect = -1  # an offset of damaged data: the broker must check it
    retry = Retry(server)
    while offset < wanted.end:
        bounds: dict[str, object] = {"from": offset, "to": wanted.end, "incarnation": wanted.incarnation}
        if suspect == offset:
            bounds["check"] = "true"
        before = offset
        try:
            with server.open(*where, **bounds, **query) as answer:
                for chunk in _read(answer):
                    first, behind = chunk.header.first, chunk.header.behind
                    if first > offset and not gaps:
                        raise DataLossError(f"{_name(wanted)} has no message {offset}, but {first}")
                    if first > offset and suspect == offset:
                        _log_damage(wanted, offset, min(first, wanted.end))
                    start, end = max(first, offset), min(behind, wanted.end)
                    if start < end:
                        yield chunk, start, end
                    offset = max(offset, end)
        except RefusedError as error:
            raise _refusal(error, wanted) from error
        except (ServerError, ChunkDamagedError) as error:
            known, suspect = suspect, offset if isinstance(error, ChunkDamagedError) else suspect
            if offset > before:
                retry.succeed()
                continue
            if suspect != known:
                continue  # the repeated request makes the broker check
            try:
                retry.fail(error)
            except (ServerError, ChunkDamagedError):
                raise ServerError(f"{_name(wanted)} from {offset} on: {error}") from error
            continue
        if offset < wanted.end and gaps:
            if suspect == offset:
                _log_damage(wanted, offset, wanted.end)
            return
        if offset < wanted.end and offset == before:
            raise ServerError(f"{_name(wanted)} gave no message {offset}")


def _read(answer: Any) -> Iterator[Chunk]:
    """Yield chunks as they arrive; if the answer breaks off later, the chunks before are complete.

    Raises ChunkDamagedError: a chunk is damaged, or the answer ends within it.
    """
    parts: list[bytes] = []
    have, wanted = 0, HEADER_BYTES
    while block := answer.read1(BLOCK_BYTES):
        parts.append(block)
        have += len(block)
        if have < wanted:
            continue
        data = b"".join(parts)
        at, wanted = 0, HEADER_BYTES
        while have - at >= HEADER_BYTES:
            size = Header(data, at).size
            if size > have - at:
                wanted = size
                break
            yield Chunk(data, at)
            at += size
        parts = [data[at:]]
        have -= at
    if have:
        raise ChunkDamagedError(f"the answer ends {have} bytes after the beginning of a chunk")


def _log_damage(wanted: Range, first: int, behind: int) -> None:
    LOG.warning(
        "messages %d to %d of %s do not read back from the broker's disk and are left out",
        first,
        behind - 1,
        _name(wanted),
    )


def _refusal(error: RefusedError, wanted: Range) -> PipelineError:
    if error.status in (404, 409, 410, 416):
        return DataLossError(f"{_name(wanted)}: {error}")
    return error


def _name(wanted: Range) -> str:
    return f"partition {wanted.place.number} of '{wanted.place.queue}'"
