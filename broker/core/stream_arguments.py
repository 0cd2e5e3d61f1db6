"""Where in a stream a consumer begins and what it filters by, as its arguments say. [RabbitMQ streams]"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from broker.core.argument_rule import ANY_SIZE, Arguments, age_milliseconds, invalid, is_age
from broker.core.arguments import PARTITIONS_MAX
from broker.core.consumer_arguments import BROWSE, BROWSE_FROM, browses, extent_argument
from broker.core.extent import BEGINNINGS, NEXT, Extent
from broker.core.names import is_short
from broker.core.stream_extent import StreamExtent
from broker.core.view import milliseconds

STREAM_OFFSET: Final = "x-stream-offset"
STREAM_FILTER: Final = "x-stream-filter"
PARTITION: Final = "x-stream-partition"
CONSUMER_NAME: Final = "x-stream-consumer-name"
MATCH_UNFILTERED: Final = "x-stream-match-unfiltered"


def stream_extent(arguments: Arguments, queue: str, date: int) -> Extent:
    """What a consumer with these arguments sees of a stream, `queue 'q' in vhost '/'`.

    `date`: the time of day, in milliseconds since 1970. Without arguments it sees what comes.

    Raises:
        PreconditionFailed: an argument has a value that it cannot have.
    """
    if BROWSE_FROM in arguments:
        for other in (STREAM_OFFSET, STREAM_FILTER, PARTITION, CONSUMER_NAME, MATCH_UNFILTERED):
            if other in arguments:
                raise invalid(BROWSE_FROM, queue, arguments[BROWSE_FROM], f"does not go with {other}")
        return extent_argument(arguments)
    offset = arguments.get(STREAM_OFFSET, NEXT)
    values = _values(arguments, queue)
    unfiltered = arguments.get(MATCH_UNFILTERED, False)
    if not isinstance(unfiltered, bool):
        raise invalid(MATCH_UNFILTERED, queue, unfiltered, "is not a boolean")
    snapshot = browses(arguments) and arguments[BROWSE] not in (True, "true")
    name = arguments.get(CONSUMER_NAME, "")
    if not isinstance(name, str) or not is_short(name):
        raise invalid(CONSUMER_NAME, queue, name, "is not a string of at most 255 bytes")
    found = StreamExtent(snapshot=snapshot, values=values, unfiltered=unfiltered, name=name)
    if PARTITION in arguments:
        partition = arguments[PARTITION]
        if name:
            raise invalid(PARTITION, queue, partition, f"does not go with {CONSUMER_NAME}")
        number = partition if isinstance(partition, int) and not isinstance(partition, bool) else -1
        if not 0 <= number < PARTITIONS_MAX:
            raise invalid(PARTITION, queue, partition, "is not the number of a partition")
        found.partition = number
    if isinstance(offset, datetime):
        found.since = max(milliseconds(offset), 0)
    elif isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset < ANY_SIZE:
        found.offset = offset
    elif isinstance(offset, str) and offset in BEGINNINGS:
        found.beginning = offset
    elif isinstance(offset, str) and is_age(offset):
        found.since = max(date - age_milliseconds(offset), 0)
    else:
        allowed = f"{', '.join(BEGINNINGS)}, an offset, a timestamp, or an interval as 12h"
        raise invalid(STREAM_OFFSET, queue, offset, f"is not one of {allowed}")
    return found


def _values(arguments: Arguments, queue: str) -> tuple[bytes, ...]:
    value = arguments.get(STREAM_FILTER, [])
    values: list[bytes] = []
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, str) or not each:
            raise invalid(STREAM_FILTER, queue, value, "is neither a string nor a list of strings")
        values.append(each.encode("utf-8", "surrogateescape"))
    return tuple(values)
