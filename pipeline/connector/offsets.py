"""Offsets as Spark keeps them in its checkpoint: where to go on in each partition of which stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from pipeline.errors import PipelineError

VERSION: Final = 1
EARLIEST: Final = -2  # as Kafka's options have them
LATEST: Final = -1

NOTHING: Final[Mapping[Place, int]] = {}


class Place(NamedTuple):
    """A partition of a stream, or what is staged of a queue, which has the one partition 0."""

    queue: str
    number: int


K = TypeVar("K", Place, str)


class Partition(NamedTuple):
    """A partition has the messages with the offsets from `first` up to `next`, exclusively.

    `incarnation` tells it from an earlier one of its name. `kept`: where the reader that the options name
    goes on, None: not known. `retained`: how many before `first` can be read again.
    """

    place: Place
    incarnation: str
    first: int
    next: int
    kept: int | None = None
    retained: int = 0


class Offsets(NamedTuple):
    """The next offset of each partition, and the incarnations that these are of."""

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
        """The same with some positions changed."""
        return Offsets(self.positions | dict(positions), self.incarnations)

    def with_new(self, partitions: Iterable[Partition]) -> Offsets:
        """The same, and the beginnings of the partitions that are not there yet. [Kafka's rule]"""
        new = [each for each in partitions if each.place not in self.positions]
        return Offsets(
            self.positions | {each.place: each.first for each in new},
            self.incarnations | {each.place: each.incarnation for each in new},
        )


def offsets_of(found: Mapping[str, Any]) -> Offsets:
    """Return the offsets of a checkpoint. Raises PipelineError: another program or version wrote it."""
    if found.get("v") != VERSION:
        raise PipelineError(f"the checkpoint has offsets of version {found.get('v')!r}, this reads {VERSION}")
    try:
        positions = {
            Place(queue, int(number)): int(offset)
            for queue, numbers in found["q"].items()
            for number, offset in numbers.items()
        }
        incarnations = {place: str(found["id"][place.queue][str(place.number)]) for place in positions}
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise PipelineError(f"the checkpoint has offsets that make no sense: {found}") from error
    return Offsets(positions, incarnations)


def shares(backlogs: Mapping[K, int], most: int) -> dict[K, int]:
    """How many of `most` messages each partition is given: in proportion to what waits there.

    None gets more than waits, and all that can be given is given.
    """
    total = sum(backlogs.values())
    if total <= most:
        return dict(backlogs)
    given = {place: waiting * most // total for place, waiting in backlogs.items()}
    left = most - sum(given.values())
    by_rest = sorted(backlogs, key=lambda place: (-(backlogs[place] * most % total), place))
    for place in by_rest[:left]:
        given[place] += 1
    return given


class Range(NamedTuple):
    """The messages of a partition from the offset `start` up to `end`, exclusively, which a task reads."""

    place: Place
    incarnation: str
    start: int
    end: int


def split(ranges: Iterable[Range], least: int | None, most: int | None) -> list[Range]:
    """Cut ranges into parts, so that there are about `least` and none has more than `most` messages."""
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
"""The offset of the first message from a time on, in microseconds since 1970; behind the last one: none."""
