"""Messages of a queue without changing them: counted, listed, one by its position or its id. [amqpd]

A list shows the messages of the queue in order, unacknowledged ones too, and changes none. Messages that
arrive meanwhile are left out. The next page of a list continues behind the last entry shown, even if entries
have left the queue meanwhile. So the pages show every message that stays.

Messages that wait to be dead-lettered come last, in the order of their deaths. A message that dies while a
list is read may be listed twice, with both states.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response

from broker.adapters.peers.server import Server
from broker.admin.api.answers import ApiError, JSONResponse, bad_request, not_found
from broker.admin.api.consumers import show_holder
from broker.admin.api.management import Managed
from broker.admin.api.message_shapes import BYTES_MAX, show_message
from broker.admin.api.messages import COUNT_MAX
from broker.admin.api.queues import find_readable_queue
from broker.admin.api.requests import Asker, Name
from broker.admin.api.selection import (
    DEAD_LETTER,
    LINKED,
    READY,
    STATES,
    deaths_after,
    entries_after,
    entry_at,
    entry_before,
    entry_state,
    find_dead_message,
    make_filter,
    make_search,
    make_unlinked_entry,
    ready_entries,
    run_search,
    state_to_operate_on,
)
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.operators.operation import is_over
from broker.core.publishing.dead_letters import cause_of_wait
from broker.core.queues.death import Death
from broker.core.queues.hooks import REASONS
from broker.core.queues.queue import Queue
from broker.core.queues.search import id_of, message_id
from broker.core.queues.state import places_of
from broker.core.values import to_json

USUAL_COUNT: Final = 100
USUAL_BYTES: Final = 50_000  # the part of a body that is shown by default
AFTER: Final = "after:"
DIED: Final = "died "  # the beginning of the mark of a message that waits to be dead-lettered

Selected = Annotated[str, Query(description="Condition in the SQL of JMS that messages must meet.")]
States = Annotated[
    str, Query(description="States of the messages, with commas between them; all states by default.")
]
Truncated = Annotated[
    int, Query(ge=0, le=BYTES_MAX, description="Bytes of a body that the answer shows at most.")
]

router = APIRouter(tags=["messages"])


@router.get("/queues/{vhost}/{name}/messages")
async def list_messages(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    name: Name,
    selector: Selected = "",
    state: States = "",
    begin: Annotated[
        str, Query(alias="from", description="Place to begin at, or the `next` of an earlier answer.")
    ] = "0",
    count: Annotated[
        int, Query(ge=1, le=COUNT_MAX, description="Messages of an answer at most.")
    ] = USUAL_COUNT,
    truncate: Truncated = USUAL_BYTES,
) -> Response:
    """Return the messages of a queue in order, from a place on.

    `selector` and `state` (several with commas between them) restrict the list. Places count from 0 among the
    listed messages. `next` is the value for `from` in the next request; null means the end.
    """
    virtual_host, queue = find_readable_queue(visitor, vhost, name)
    sieve = make_filter({"selector": selector}, virtual_host.store)
    states = _states(state)
    place, skip, start, died = await _find_start(queue, begin, states, sieve is None)
    written: list[str] = []
    size, following, last = 0, None, ""
    async with aclosing(_select_entries(queue, start, died, sieve, states)) as chosen:
        async for each in chosen:
            if skip > 0:
                skip -= 1
                continue
            if len(written) == count or size > BYTES_MAX:
                following = f"{AFTER}{place}:{last}"
                break
            facts = {"place": place} | describe_message(management.server, queue, each, truncate)
            written.append(json.dumps(facts))
            size += len(written[-1])
            last = queue.entries.mark(each) if isinstance(each, QueueEntry) else f"{DIED}{int(each.number)}"
            place += 1
    return _answer(written, following)


async def _select_entries(
    queue: Queue, start: QueueEntry | None, died: int, sieve: EntryFilter | None, states: tuple[str, ...]
) -> AsyncGenerator[QueueEntry | Death]:
    """Yield the entries behind `start`, then messages that wait to be dead-lettered, behind `died`."""
    if start is not None and states != (DEAD_LETTER,):
        async with aclosing(entries_after(queue, start, sieve, states)) as entries:
            async for entry in entries:
                yield entry
    if DEAD_LETTER in states:
        async with aclosing(deaths_after(queue, died, sieve)) as deaths:
            async for death in deaths:
                yield death


def _states(text: str) -> tuple[str, ...]:
    named = tuple(name.strip() for name in text.split(",")) if text else STATES
    for name in named:
        if name not in STATES:
            raise bad_request(f"state '{name}' is not known, allowed: {', '.join(STATES)}")
    return named


async def _find_start(
    queue: Queue, begin: str, states: tuple[str, ...], whole: bool
) -> tuple[int, int, QueueEntry | None, int]:
    """Return where a list begins: position, messages to skip, entry and death to begin behind.

    An entry of None: begin among the messages that wait to be dead-lettered. `whole`: no selector hides any
    message. Raises ApiError for a mark that names no place.
    """
    if begin.startswith(AFTER):
        shown, _, mark = begin.removeprefix(AFTER).partition(":")
        try:
            if mark.startswith(DIED):
                return max(int(shown), 0), 0, None, max(int(mark.removeprefix(DIED)), 0)
            return max(int(shown), 0), 0, await entry_before(queue, mark), 0
        except ValueError as error:
            raise _no_place(begin) from error
    if not (begin.isascii() and begin.isdigit() and len(begin) < 19):
        raise _no_place(begin)
    place = int(begin)
    linked = set(states) - {DEAD_LETTER}
    ready = linked == {READY}
    if place == 0 or queue.stream is not None or not whole or not (ready or linked == set(LINKED)):
        return place, place, queue.entries.head, 0
    entry = await entry_at(queue, place, ready)
    if entry is not None:
        return place, 0, queue.entries.before(entry), 0
    passed = 0 if queue.deleted else int(places_of(queue).count(ready))
    return place, max(0, place - passed), None, 0


def _no_place(begin: str) -> ApiError:
    return bad_request(f"from '{begin}' is neither a position nor the 'next' of a list")


def _answer(written: list[str], following: str | None) -> Response:
    content = f'{{"messages":[{",".join(written)}],"next":{json.dumps(following)}}}'
    return Response(content, media_type="application/json")


@router.get("/queues/{vhost}/{name}/messages/count")
async def count_messages(
    visitor: Asker, vhost: Name, name: Name, selector: Selected = "", state: States = READY
) -> JSONResponse:
    """Return the number of ready messages, or of those that the selector accepts.

    With `state` = `dead-letter` the messages that wait to be dead-lettered are counted.
    """
    virtual_host, queue = find_readable_queue(visitor, vhost, name)
    sieve = make_filter({"selector": selector}, virtual_host.store)
    is_dead = state_to_operate_on(state) == DEAD_LETTER
    count = int(queue.dead if is_dead else queue.ready)
    if sieve is not None:
        count = 0
        chosen = deaths_after(queue, 0, sieve) if is_dead else ready_entries(queue, sieve)
        async with aclosing(chosen) as each:
            async for _ in each:
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
    """Return the message with this id, also an unacknowledged one or one that waits to be dead-lettered."""
    _, queue = find_readable_queue(visitor, vhost, name)
    death = await find_dead_message(queue, number, management.store)
    if death is not None:
        return JSONResponse(describe_message(management.server, queue, death, truncate))
    entry = await run_search(make_search(queue, number, management.store))
    if entry is None or (entry.owner is None and is_over(queue, entry)):
        raise not_found(f"no message '{number}' is in queue '{name}' in vhost '{vhost}'")
    return JSONResponse(describe_message(management.server, queue, entry, truncate))


def describe_message(
    server: Server, queue: Queue, entry: QueueEntry | Death, truncate: int
) -> dict[str, Any]:
    """Show a message with its holder, or with the destination of its dead letter."""
    if isinstance(entry, Death):
        return _describe_dead(server, queue, entry, truncate)
    message = show_message(server, queue, entry, 0, "auto", truncate)
    del message["message_count"]
    about: dict[str, Any] = {
        "id": message_id(queue, entry),
        "state": entry_state(queue, entry),
        "delivery_count": int(entry.delivery_count),
    }
    if entry.owner is not None:
        about["holder"] = show_holder(entry.owner)
    return about | message


def _describe_dead(server: Server, queue: Queue, death: Death, truncate: int) -> dict[str, Any]:
    """Show a message that waits to be dead-lettered, with the destination and the obstacle."""
    past = death.past
    message = show_message(
        server,
        queue,
        make_unlinked_entry(death),
        0,
        "auto",
        truncate,
        b"" if past is None else past.annotations,
    )
    del message["message_count"]
    limits = death.limits
    key = limits.dead_letter_key
    target = {
        "reason": REASONS[death.reason],
        "exchange": limits.dead_letter_exchange if limits.dead_letter_reasons else None,
        "routing_key": to_json(death.message.address.routing_key if key is None else key),
        "waits_for": cause_of_wait(death) or None,
    }
    about: dict[str, Any] = {
        "id": id_of(death.message, int(death.arrival)),
        "state": DEAD_LETTER,
        "delivery_count": int(death.deliveries),
        "dead_letter": target,
    }
    return about | message
