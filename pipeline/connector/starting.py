"""Offsets out of what options say of a beginning or an end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.connector.choices import OptionError
from pipeline.connector.offsets import EARLIEST, LATEST, Offsets, Partition, Place
from pipeline.connector.options import Bound

AtTime = Callable[[Place, int], int]
"""The offset of the first message from a time on, in microseconds since 1970; behind the last one: none."""


def resolved(
    bound: Bound,
    partitions: Sequence[Partition],
    at_time: AtTime,
    latest_if_none: bool,
    goes_on: bool = False,
) -> Offsets:
    """An offset of each partition.

    `latest_if_none`: where no message is from a time on, reading begins with what comes; else that is an
    error. `goes_on`: `latest` is where a reader was, if that is known. An offset that is not there is left to
    who reads.

    Raises OptionError: an offset is of a partition that is not read, or is not said of one, as others are.
    """
    named = dict(bound.offsets) or dict(bound.times or {})
    places = {each.place for each in partitions}
    for place in named.keys() - places:
        raise OptionError(
            f"an offset is said of partition {place.number} of '{place.queue}', which is not read"
        )
    if named and not bound.by_time:
        for place in sorted(places - named.keys()):
            raise OptionError(f"no offset is said of partition {place.number} of '{place.queue}'")
    positions: dict[Place, int] = {}
    for each in partitions:
        time = bound.time if bound.times is None else bound.times.get(each.place)
        offset = bound.offsets.get(each.place, bound.offset)
        if time is not None:
            offset = _at(each, time, at_time, latest_if_none)
        latest = each.kept if goes_on and each.kept is not None else each.next
        positions[each.place] = {EARLIEST: each.first, LATEST: latest}.get(offset, offset)
    return Offsets(positions, {each.place: each.incarnation for each in partitions})


def _at(partition: Partition, time: int, at_time: AtTime, latest_if_none: bool) -> int:
    """The offset of the first message from a time on, or of what comes.

    Where a reader was is not asked: that may be before that time.
    """
    offset = at_time(partition.place, time)
    if offset < partition.next:
        return offset
    if not latest_if_none:
        place = partition.place
        raise OptionError(
            f"partition {place.number} of '{place.queue}' has no message from {time // 1000} ms since 1970 on"
        )
    return partition.next
