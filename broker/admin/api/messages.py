"""Messages over HTTP, for tools and tests: browse and get. Not for large numbers of messages."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from broker.admin.api.answers import await_sync, bad_request, not_found
from broker.admin.api.management import Managed
from broker.admin.api.message_shapes import BYTES_MAX, show_message
from broker.admin.api.queues import find_readable_queue
from broker.admin.api.requests import Asker, Body, Name
from broker.admin.api.selection import (
    READY,
    entries_after,
    entry_at,
    entry_state,
    make_filter,
    make_search,
    ready_entries,
    run_search,
)
from broker.admin.api.slices import Slices
from broker.admin.json_documents import Fields, read_flag, read_number, read_text
from broker.core.arguments.queue import RELEASED
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.operators.operation import is_over
from broker.core.ports import MessageStore
from broker.core.queues.attach import begin_get, get_chosen, get_one
from broker.core.queues.consumer import QueueConsumer, make_holder
from broker.core.queues.consumers import next_entry, pass_baton
from broker.core.queues.queue import Queue, join_context, leave_context, refuse_stream
from broker.core.queues.returns import release_entries
from broker.core.queues.search import PlaceSearch, Search, may_take

COUNT_MAX: Final = 10_000
PIECE: Final = 64  # messages that are sent at once
SETTLES: Final = ("ack_requeue_false", "reject_requeue_false")
LEAVES: Final = ("ack_requeue_true", "reject_requeue_true")

Write = Callable[[QueueEntry, int], str]
"""Writes a message as JSON, with the number of ready messages behind it."""

router = APIRouter(tags=["messages"])


@router.post("/queues/{vhost}/{name}/get")
async def get_messages(
    management: Managed, visitor: Asker, vhost: Name, name: Name, body: Body
) -> StreamingResponse:
    """Get messages from the front of a queue.

    With the ackmodes `ack_requeue_true` and `reject_requeue_true` the messages stay: order, counts and the
    mark `redelivered` do not change. With the other two ackmodes the messages leave the queue, and the answer
    comes when that is on disk. `requeue`, true or false, replaces ackmode for clients of RabbitMQ up to 3.6.
    `selector` restricts the request to messages for which the condition is true. `position` begins at a ready
    message, counted from 1. `id` asks for a single message. The answer is 404 if no such message is ready.
    """
    _, queue = find_readable_queue(visitor, vhost, name)
    mode = _ackmode(body)
    if mode not in SETTLES + LEAVES:
        raise bad_request(f"ackmode '{mode}' is not known, allowed: {', '.join(LEAVES + SETTLES)}")
    pick = Pick.of(body, queue, management.store)
    count = 1 if pick is not None and body.get("count") is None else read_number(body, "count")
    if not 0 < count <= COUNT_MAX:
        raise bad_request(f"count {count} is not from 1 to {COUNT_MAX}")
    encoding = read_text(body, "encoding", "auto")
    if encoding not in ("auto", "base64"):
        raise bad_request(f"encoding '{encoding}' is not known, allowed: auto, base64")
    limit = read_number(body, "truncate") if body.get("truncate") is not None else None
    if limit is not None and limit < 0:
        raise bad_request(f"truncate {limit} is negative")
    sieve = make_filter(body, management.store)

    def write(entry: QueueEntry, left: int) -> str:
        return json.dumps(show_message(management.server, queue, entry, left, encoding, limit))

    if mode in LEAVES:
        written = await (look(queue, count, write, sieve) if pick is None else pick.look(count, write))
    else:
        refuse_stream(queue, f"read with ackmode {mode}")
        if pick is None:
            written = await take(queue, count, mode, write, sieve)
        else:
            written = await pick.take(count, mode, write)
        await await_sync(management.store)
    if pick is not None and not written:
        raise not_found(f"no message with {pick} is ready in queue '{name}' in vhost '{vhost}'")
    return StreamingResponse(_joined(written), media_type="application/json")


class Pick:
    """A message that a request selects by its id, or messages from a position on."""

    def __init__(self, queue: Queue, store: MessageStore, position: int, wanted: str) -> None:
        self.queue = queue
        self._store = store
        self._position = position
        self._wanted = wanted

    @staticmethod
    def of(body: Fields, queue: Queue, store: MessageStore) -> "Pick | None":
        """Return the selection of a request; None if the request selects no particular message.

        Raises ApiError.
        """
        asked = [name for name in ("position", "id", "selector") if body.get(name) not in (None, "")]
        if not asked or asked == ["selector"]:
            return None
        if len(asked) > 1:
            raise bad_request(f"{' and '.join(asked)} do not go together")
        if asked == ["id"]:
            if body.get("count") is not None and read_number(body, "count") != 1:
                raise bad_request(f"count {read_number(body, 'count')}: one message has an id")
            return Pick(queue, store, 0, read_text(body, "id"))
        position = read_number(body, "position")
        if not 0 < position < 1 << 62:
            raise bad_request(f"position {position} is less than 1, or too large")
        return Pick(queue, store, position, "")

    def __str__(self) -> str:
        return f"id '{self._wanted}'" if self._wanted else f"position {self._position}"

    async def look(self, count: int, write: Write) -> list[str]:
        """Return the selected messages without acquiring them, each as `write` formats it."""
        queue = self.queue
        if self._wanted:
            entry = await run_search(make_search(queue, self._wanted, self._store))
            if entry is None or entry_state(queue, entry) != READY or is_over(queue, entry):
                return []
            return [write(entry, max(0, int(queue.ready) - 1))]
        start: QueueEntry | None = queue.entries.head
        skip = self._position - 1
        if queue.stream is None:
            first = await entry_at(queue, skip, True)
            start, skip = (None if first is None else queue.entries.before(first)), 0
        written: list[str] = []
        if start is None:
            return written
        size, left = 0, int(queue.ready) - self._position
        async with aclosing(entries_after(queue, start, None, (READY,))) as entries:
            async for entry in entries:
                if skip > 0:
                    skip -= 1
                    continue
                size += int(entry.message.size)
                if written and size > BYTES_MAX:
                    break
                written.append(write(entry, max(0, left - len(written))))
                if len(written) == count:
                    break
        return written

    async def take(self, count: int, mode: str, write: Write) -> list[str]:
        """Acquire and return the selected messages, each as `write` formats it."""
        queue, holder, slices = self.queue, make_holder(self.queue), Slices()
        taken: list[QueueEntry] = []
        written: list[str] = []
        size = 0
        try:
            while len(taken) < count:
                begin_get(queue)
                entry = await run_search(self._search())
                if entry is None or not may_take(queue, entry):
                    break
                size += int(entry.message.size)
                if taken and size > BYTES_MAX:
                    break  # acquiring would count as a delivery
                get_chosen(queue, holder, entry)
                taken.append(entry)
                written.append(write(entry, int(queue.ready)))
                await slices.breathe()
            await _leave(queue, taken, mode, slices)
        except BaseException:
            release_entries(queue, taken, holder, RELEASED)
            raise
        return written

    def _search(self) -> Search:
        if self._wanted:
            return make_search(self.queue, self._wanted, self._store)
        return PlaceSearch(self.queue, self._position - 1)  # an acquired message is not ready any more


def _ackmode(body: Fields) -> str:
    if "requeue" in body and "ackmode" not in body:
        return "ack_requeue_true" if read_flag(body, "requeue") else "ack_requeue_false"
    return read_text(body, "ackmode")


async def look(queue: Queue, count: int, write: Write, sieve: EntryFilter | None = None) -> list[str]:
    """Browse the first `count` ready messages; return each as `write` formats it."""
    written: list[str] = []
    size, ready = 0, int(queue.ready)
    async with aclosing(ready_entries(queue, sieve)) as entries:
        async for entry in entries:
            size += int(entry.message.size)
            if written and size > BYTES_MAX:
                break
            written.append(write(entry, max(0, ready - len(written) - 1)))
            if len(written) == count:
                break
    return written


async def take(
    queue: Queue, count: int, mode: str, write: Write, sieve: EntryFilter | None = None
) -> list[str]:
    """Acquire and return the first `count` ready messages.

    The messages leave the queue when the last one is written.
    """
    holder = make_holder(queue)
    holder.context = cursor = join_context(queue, sieve)
    try:
        return await _take(queue, holder, count, mode, write)
    finally:
        if not queue.deleted:  # a deleted queue has released all cursors
            leave_context(queue, cursor)
            pass_baton(queue)


async def _take(queue: Queue, holder: QueueConsumer, count: int, mode: str, write: Write) -> list[str]:
    slices = Slices()
    taken: list[QueueEntry] = []
    written: list[str] = []
    size = 0
    try:
        while len(taken) < count:
            following = next_entry(queue, holder)
            if following is None and holder.context.more:
                await slices.breathe()
                continue
            size += int(following.message.size) if following is not None else 0
            if taken and size > BYTES_MAX:
                break  # acquiring would count as a delivery
            entry = get_one(queue, holder)
            if entry is None:
                break
            taken.append(entry)
            written.append(write(entry, int(queue.ready)))
            await slices.breathe()
        await _leave(queue, taken, mode, slices)
    except BaseException:
        release_entries(queue, taken, holder, RELEASED)
        raise
    return written


async def _leave(queue: Queue, taken: list[QueueEntry], mode: str, slices: Slices) -> None:
    """Remove or requeue acquired messages, as `mode` says."""
    for entry in taken:
        if mode == "ack_requeue_false":
            queue.settle(entry)
        else:
            queue.discard(entry)
        await slices.breathe()


async def _joined(written: list[str]) -> AsyncIterator[str]:
    """Yield a list in pieces that are short to send."""
    opening = "["
    for start in range(0, len(written), PIECE):
        yield opening + ",".join(written[start : start + PIECE])
        opening = ","
    yield "[]" if opening == "[" else "]"
