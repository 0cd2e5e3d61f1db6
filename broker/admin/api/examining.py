"""Messages of a queue, looked at where they are: counted, listed, one by its place or its id. [amqpd]

A list shows what is there, in order, also what consumers have, and leaves everything as it is. What comes
meanwhile is not in it. A list that is read page by page goes on behind the entry that it has shown last,
whatever has left the queue in between, so that all is shown that stays.
"""

import json
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response

from broker.adapters.server import Server
from broker.admin.api.answers import JSONResponse
from broker.admin.api.consumers import shown_holder
from broker.admin.api.errors import ApiError, bad_request, not_found
from broker.admin.api.management import Managed
from broker.admin.api.messages import COUNT_MAX, search_of, sieve_of
from broker.admin.api.paths import Name
from broker.admin.api.queues import readable
from broker.admin.api.ready import (
    READY,
    STATES,
    entries_after,
    entry_at,
    entry_before,
    ready_entries,
    searched,
    state_of,
)
from broker.admin.api.showing import BYTES_MAX, shown_message
from broker.admin.api.visitor import Asker
from broker.core.entry import QueueEntry
from broker.core.operation import is_over
from broker.core.queue import Queue
from broker.core.random_access import message_id

USUAL_COUNT: Final = 100
USUAL_BYTES: Final = 50_000  # of a body that are shown
AFTER: Final = "after:"

Selected = Annotated[str, Query()]
Truncated = Annotated[int, Query(ge=0, le=BYTES_MAX)]

router = APIRouter(tags=["messages"])


@router.get("/queues/{vhost}/{name}/messages")
async def list_messages(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    name: Name,
    selector: Selected = "",
    state: Selected = "",
    begin: Annotated[str, Query(alias="from")] = "0",
    count: Annotated[int, Query(ge=1, le=COUNT_MAX)] = USUAL_COUNT,
    truncate: Truncated = USUAL_BYTES,
) -> Response:
    """Messages in the order of the queue, those only for which the selector is true, from a place on.

    Places count from 0, among the messages that the list is about: all, or those with one of the states in
    `state`, with commas between them. `next` is what to go on `from`; null at the end.
    """
    found, queue = readable(visitor, vhost, name)
    sieve = sieve_of({"selector": selector}, found.store)
    states = _states(state)
    place, skip, start = await _start(queue, begin, states, sieve is None)
    written: list[str] = []
    size, following, last = 0, None, ""
    if start is None:
        return _answer(written, following)
    async with aclosing(entries_after(queue, start, sieve, states)) as entries:
        async for entry in entries:
            if skip > 0:
                skip -= 1
                continue
            if len(written) == count or size > BYTES_MAX:
                following = f"{AFTER}{place}:{last}"
                break
            shown = {"place": place} | described(management.server, queue, entry, truncate)
            written.append(json.dumps(shown))
            size += len(written[-1])
            last = queue.entries.mark(entry)
            place += 1
    return _answer(written, following)


def _states(text: str) -> tuple[str, ...]:
    named = tuple(name.strip() for name in text.split(",")) if text else STATES
    for name in named:
        if name not in STATES:
            raise bad_request(f"state '{name}' is not known, allowed: {', '.join(STATES)}")
    return named


async def _start(
    queue: Queue, begin: str, states: tuple[str, ...], whole: bool
) -> tuple[int, int, QueueEntry | None]:
    """The place of the first message to show, how many to pass, and the entry behind which to look.

    `whole`: no selector leaves any out. Raises ApiError for what is no place.
    """
    if begin.startswith(AFTER):
        shown, _, mark = begin.removeprefix(AFTER).partition(":")
        try:
            return max(int(shown), 0), 0, await entry_before(queue, mark)
        except ValueError as error:
            raise _no_place(begin) from error
    if not (begin.isascii() and begin.isdigit() and len(begin) < 19):
        raise _no_place(begin)
    place = int(begin)
    ready = states == (READY,)
    if place == 0 or queue.stream is not None or not whole or not (ready or set(states) == set(STATES)):
        return place, place, queue.entries.head
    entry = await entry_at(queue, place, ready)
    return place, 0, None if entry is None else queue.entries.before(entry)


def _no_place(begin: str) -> ApiError:
    return bad_request(f"from '{begin}' is neither a place nor what a list has called next")


def _answer(written: list[str], following: str | None) -> Response:
    content = f'{{"messages":[{",".join(written)}],"next":{json.dumps(following)}}}'
    return Response(content, media_type="application/json")


@router.get("/queues/{vhost}/{name}/messages/count")
async def count_messages(visitor: Asker, vhost: Name, name: Name, selector: Selected = "") -> JSONResponse:
    """How many messages are ready, or for how many of them the selector is true."""
    found, queue = readable(visitor, vhost, name)
    sieve = sieve_of({"selector": selector}, found.store)
    count = int(queue.ready)
    if sieve is not None:
        count = 0
        async with aclosing(ready_entries(queue, sieve)) as entries:
            async for _ in entries:
                count += 1
    return JSONResponse({"count": count, "empty": count == 0})


@router.get("/queues/{vhost}/{name}/messages/{number}")
async def get_message(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    name: Name,
    number: Name,
    truncate: Truncated = USUAL_BYTES,
) -> JSONResponse:
    """The message with this id, also one that a consumer has."""
    _, queue = readable(visitor, vhost, name)
    entry = await searched(search_of(queue, number, management.store))
    if entry is None or (entry.owner is None and is_over(queue, entry)):
        raise not_found(f"no message '{number}' is in queue '{name}' in vhost '{vhost}'")
    return JSONResponse(described(management.server, queue, entry, truncate))


def described(server: Server, queue: Queue, entry: QueueEntry, truncate: int) -> dict[str, Any]:
    """A message that is where it is, and who has it if somebody has."""
    found = shown_message(server, queue, entry, 0, "auto", truncate)
    del found["message_count"]
    about: dict[str, Any] = {
        "id": message_id(queue, entry),
        "state": state_of(queue, entry),
        "delivery_count": int(entry.delivery_count),
    }
    if entry.owner is not None:
        about["holder"] = shown_holder(entry.owner)
    return about | found
