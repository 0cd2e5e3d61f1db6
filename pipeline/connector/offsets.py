"""Offsets in Spark's checkpoint: the next offset of each partition of each stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from pipeline.errors import PipelineError

VERSION: Final = 1
EARLIEST: Final = -2  # as in Kafka's options
LATEST: Final = -1

NOTHING: Final[Mapping[Place, int]] = {}


class Place(NamedTuple):
    """A partition of a stream, or the staged messages of a queue, as partition 0."""

    queue: str
    number: int


K = TypeVar("K", Place, str)


class Partition(NamedTuple):
    """A partition with the messages from the offset `first` up to `next`, exclusively.

    `incarnation` distinguishes the stream from an earlier one of the same name. `kept`: the stored offset of
    the reader that the options name; None: unknown. `retained`: number of messages before `first` that can be
    read again.
    """

    place: Place
    incarnation: str
    first: int
    next: int
    kept: int | None = None
    retained: int = 0


class Offsets(NamedTuple):
    """The next offset of each partition, and the incarnations of the partitions."""

    positions: dict[Place, int]
    incarnations: dict[Place, str]

    def json(self) -> dict[str, Any]:
        """Return the JSON for the checkpoint; equal offsets have equal JSON."""
        queues: dict[str, dict[str, int]] = {}
        known: dict[str, dict[str, str]] = {}
        for place, offset in sorted(self.positions.items()):
            queues.setdefault(place.queue, {})[str(place.number)] = offset
            known.setdefault(place.queue, {})[str(place.number)] = self.incarnations[place]
        return {"v": VERSION, "q": queues, "id": known}

    def moved(self, positions: Mapping[Place, int]) -> Offsets:
        """Return these offsets with some positions replaced."""
        return Offsets(self.positions | dict(positions), self.incarnations)

    def with_new(self, partitions: Iterable[Partition]) -> Offsets:
        """Return these offsets and the beginnings of new partitions. [Kafka's rule]"""
        new = [each for each in partitions if each.place not in self.positions]
        return Offsets(
            self.positions | {each.place: each.first for each in new},
            self.incarnations | {each.place: each.incarnation for each in new},
        )


def parse_offsets(found: Mapping[str, Any]) -> Offsets:
    """Return the offsets of a checkpoint. Raises PipelineError: another program or version wrote it."""
    if found.get("v") != VERSION:
        raise PipelineError(
            f"the checkpoint has offsets of version {found.get('v')!r}, this program reads {VERSION}"
        )
    try:
        positions = {
            Place(queue, int(number)): int(offset)
            for queue, numbers in found["q"].items()
            for number, offset in numbers.items()
        }
        incarnations = {place: str(found["id"][place.queue][str(place.number)]) for place in positions}
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise PipelineError(f"the checkpoint has malformed offsets: {found}") from error
    return Offsets(positions, incarnations)


def share_messages(backlogs: Mapping[K, int], most: int) -> dict[K, int]:
    """Return each partition's share of `most` messages: in proportion to its backlog.

    No share is larger than the backlog, and the shares use `most` up if the backlogs suffice.
    """
    total = sum(backlogs.values())
    if total <= most:
        return dict(backlogs)
    shares = {place: waiting * most // total for place, waiting in backlogs.items()}
    left = most - sum(shares.values())
    by_rest = sorted(backlogs, key=lambda place: (-(backlogs[place] * most % total), place))
    for place in by_rest[:left]:
        shares[place] += 1
    return shares


class Range(NamedTuple):
    """The messages of a partition from the offset `start` up to `end`, exclusively, which a task reads."""

    place: Place
    incarnation: str
    start: int
    end: int


def split_ranges(ranges: Iterable[Range], least: int | None, most: int | None) -> list[Range]:
    """Cut ranges into at least about `least` parts of at most `most` messages."""
    whole = list(ranges)
    total = sum(each.end - each.start for each in whole)
    parts: list[Range] = []
    for each in whole:
        rows = each.end - each.start
        count = 1 if most is None else -(-rows // most)
        if least is not None and total:
            count = max(count, round(rows * least / total))
        count = max(min(count, rows), 1)
        bounds = [each.start + rows * part // count for part in range(count + 1)]
        parts += [each._replace(start=a, end=b) for a, b in pairwise(bounds)]
    return parts


AtTime = Callable[[Place, int], int]
"""Returns the offset of the first message from a time on, in µs since 1970; behind the last message: none."""
