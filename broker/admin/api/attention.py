"""The queues that need an operator, and the latest lines of the audit log. [amqpd]"""

import heapq
import time
from typing import Annotated, Final

from fastapi import APIRouter, Query

from broker.admin.api.answers import JSONResponse
from broker.admin.api.management import Managed
from broker.admin.api.requests import Asker
from broker.admin.api.slices import Slices
from broker.admin.shapes import Shown
from broker.admin.statistics import OF_QUEUE
from broker.core.counters import Reading
from broker.core.partitions.partitioned import totals_of
from broker.core.queues.queue import Queue
from broker.core.remotes.remote import consumers_of
from broker.core.statistics import head_age, numbers_of
from broker.core.values import to_json
from broker.logs import recent_audit

QUEUES: Final = 10
OLD_SECONDS: Final = 60.0
GROWTH: Final = 1.0
"""Messages a second by which a queue grows before it needs attention."""

LINES_MAX: Final = 2000

_MESSAGES: Final = OF_QUEUE.index("messages")
_READY: Final = OF_QUEUE.index("messages_ready")
_DEAD: Final = OF_QUEUE.index("messages_dlx")

Rank = tuple[int, float, int]

router = APIRouter(tags=["overview"])


def _may_need_attention(queue: Queue) -> bool:
    """Whether there is anything in a queue, or in queues that belong to it."""
    return queue.stream is None and bool(queue.depth or queue.dead or queue.partitions or queue.remote)


def _trouble_of(queue: Queue, now: float) -> tuple[Rank, Shown] | None:
    """Return what an operator must know of a queue, and how bad it is; None: the queue needs nobody."""
    numbers = numbers_of(totals_of(queue))
    age = head_age(queue, now)
    worries = _worries(queue, numbers, queue.reading, age)
    if not worries:
        return None
    shown = {
        "name": to_json(queue.name),
        "vhost": queue.vhost,
        "reasons": worries,
        "messages": numbers[_MESSAGES],
        "consumers": queue.consumer_count,
        "head_age": round(age, 1),
        "growth": 0.0 if queue.reading is None else queue.reading.rates[_MESSAGES],
    }
    return (len(worries), age, numbers[_MESSAGES]), shown


def _worries(queue: Queue, numbers: list[int], reading: Reading | None, age: float) -> list[str]:
    """Return why a queue needs an operator, the worst reason first."""
    found: list[str] = []
    if numbers[_DEAD]:
        found.append("dead letters wait")
    if numbers[_READY] and not _has_taker(queue):
        found.append("no consumers")
    if age >= OLD_SECONDS:
        found.append("old messages")
    if reading is not None and reading.rates[_MESSAGES] >= GROWTH:
        found.append("growing")
    return found


def _has_taker(queue: Queue) -> bool:
    """Whether a consumer takes messages of the queue; browsers take none."""
    return any(consumer.acquires for consumer in consumers_of(queue))


@router.get("/attention")
async def list_queues_that_need_attention(management: Managed, visitor: Asker) -> JSONResponse:
    """Return up to ten queues that need an operator, with the reasons.

    The reasons: no consumers for ready messages, an old first message, messages that wait to be
    dead-lettered, and growth.
    """
    now = time.monotonic()
    slices = Slices()
    found: list[tuple[Rank, int, Shown]] = []
    count = 0
    for vhost in visitor.vhosts():
        async for part in slices.parts(list(vhost.topology.queues.values())):
            for queue in filter(_may_need_attention, part):
                trouble = _trouble_of(queue, now)
                if trouble is None:
                    continue
                count += 1
                rank, shown = trouble
                heapq.heappush(found, (rank, count, shown))
                if len(found) > QUEUES:
                    heapq.heappop(found)
    return JSONResponse({"count": count, "queues": [shown for _, _, shown in sorted(found, reverse=True)]})


@router.get("/audit")
async def list_audit_lines(
    visitor: Asker,
    count: Annotated[int, Query(ge=1, le=LINES_MAX, description="Lines of the answer at most.")] = 200,
    part: Annotated[
        str, Query(alias="contains", description="Text that a line has in one of its values.")
    ] = "",
) -> JSONResponse:
    """Return the latest lines of the audit log, the latest first.

    The broker keeps the latest 2000 lines about changes, and the latest 2000 about log-ins, connections and
    refusals. Lines that the setting `log_level` leaves out are missing here too.
    """
    visitor.require_monitor()
    wanted = part.lower()
    lines: list[dict[str, object]] = []
    for line in reversed(recent_audit()):
        if not wanted or any(wanted in str(value).lower() for value in line.values()):
            lines.append(line)
            if len(lines) == count:
                break
    return JSONResponse(lines)
