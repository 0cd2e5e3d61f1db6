"""What a batch reads: offsets that are fixed when it is planned."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pipeline.connector.choices import OptionError
from pipeline.connector.offsets import NOTHING, Offsets, Partition, Place, Range, split
from pipeline.connector.options import SourceOptions
from pipeline.connector.pushdown import Pushed
from pipeline.connector.starting import resolved
from pipeline.connector.streams import DataLossError
from pipeline.connector.subscription import Subscription

EVERYTHING: Final = Pushed()
LOG: Final = logging.getLogger("amqpd.pipeline")


def of_batch(options: SourceOptions, filters: Pushed = EVERYTHING) -> list[Range]:
    """The ranges that tasks read, as far as filters leave anything of them.

    Raises OptionError, ServerError, DataLossError.
    """
    subscription = Subscription(options)
    for queue in subscription.queues:
        raise OptionError(
            f"'{queue.place.queue}' is an ordinary queue: to read it takes messages out of it, and a batch "
            "cannot do that safely: use readStream with trigger(availableNow=True)"
        )
    partitions = subscription.streams.partitions(options.ending.asked)
    at_time = subscription.streams.at_time
    start = resolved(options.starting, partitions, at_time, options.latest_if_none)
    end = resolved(options.ending, partitions, at_time, latest_if_none=True)
    # what begins behind its end has nothing
    end = end.moved({place: max(offset, end.positions[place]) for place, offset in start.positions.items()})
    ranges = checked(options, start, end, partitions)
    return split(filters.narrowed(ranges, at_time), options.least_parts, options.part_rows)


def checked(
    options: SourceOptions,
    start: Offsets,
    end: Offsets,
    partitions: list[Partition],
    awaited: Mapping[Place, int] = NOTHING,
) -> list[Range]:
    """The ranges from `start` up to `end`, that are held against what is there.

    With `failOnDataLoss` something that is not there is an error, without it is left out, and told.
    `awaited`: offsets that need not be there yet.

    Raises DataLossError.
    """
    by_place = {each.place: each for each in partitions}
    ranges: list[Range] = []
    for place, behind in end.positions.items():
        incarnation = end.incarnations[place]
        found = by_place.get(place)
        name = _name(place)
        first = start.positions.get(place, behind)
        if found is None:
            _lost(options, f"{name} is gone, with the messages up to {behind}")
            continue
        if found.incarnation != incarnation:
            _lost(options, f"{name} was deleted and declared again: the messages up to {behind} are gone")
            continue
        begun = start.incarnations.get(place, incarnation)
        if begun == incarnation and first > behind:
            _lost(
                options,
                f"{name}: the messages up to {behind} were planned by a run whose beginning is not known, "
                f"and this one would begin with {first}: a new checkpoint and startingTimestamp help",
            )
            continue
        if behind > found.next and behind != awaited.get(place):
            _lost(options, f"{name} ends before offset {found.next}, not {behind}")
            behind = found.next
        first = _there(options, found, first, begun, awaited)
        if first < behind:
            ranges.append(Range(place, incarnation, first, behind))
    return ranges


def going_on(
    options: SourceOptions, offsets: Offsets, partitions: list[Partition], awaited: Mapping[Place, int]
) -> Offsets:
    """Where reading goes on that has come so far, as `checked` has it. Raises DataLossError.

    A partition that was declared again begins anew.
    """
    positions: dict[Place, int] = {}
    for each in partitions:
        offset, incarnation = offsets.positions[each.place], offsets.incarnations[each.place]
        positions[each.place] = _there(options, each, offset, incarnation, awaited)
    incarnations = {each.place: each.incarnation for each in partitions}
    return Offsets(offsets.positions | positions, offsets.incarnations | incarnations)


def _there(
    options: SourceOptions, found: Partition, offset: int, incarnation: str, awaited: Mapping[Place, int]
) -> int:
    """An offset, or the one that reading goes on with if that is not there any more."""
    name = _name(found.place)
    oldest = found.first - found.retained
    if found.incarnation != incarnation:
        _lost(options, f"{name} was deleted and declared again: the messages from {offset} are gone")
        return found.first
    if offset > found.next and offset != awaited.get(found.place):
        _lost(options, f"{name} ends before offset {found.next}, not {offset}")
        return found.next
    if offset < oldest:
        _lost(options, f"{name} begins with offset {oldest}: the messages from {offset} are gone")
        return oldest
    return offset


def _name(place: Place) -> str:
    return f"partition {place.number} of '{place.queue}'"


def _lost(options: SourceOptions, what: str) -> None:
    if options.fail_on_loss:
        raise DataLossError(f"{what}; failOnDataLoss=false goes on without them")
    LOG.warning("%s", what)
