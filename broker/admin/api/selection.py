"""The messages of a queue that a request selects, found in slices between which other work runs."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from broker.adapters.formats.either import SelectorFilter
from broker.admin.api.answers import bad_request
from broker.admin.api.slices import Slices
from broker.admin.json_documents import Fields, read_text
from broker.core.entries.cursor import Cursor
from broker.core.entries.entry import AVAILABLE, DEQUEUED, HELD, EntryFilter, QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.operators.operation import is_over
from broker.core.ports import MessageStore
from broker.core.queues.dead_letter_backlog import existing_backlog
from broker.core.queues.death import Death
from broker.core.queues.hooks import EXHAUSTED, REJECTED
from broker.core.queues.queue import Queue, open_browser_context
from broker.core.queues.search import FirstSearch, IdSearch, Search, is_message_id, numbers_of
from broker.core.queues.state import begin_browsing, end_browsing, places_of
from broker.core.selector.selector import Selector
from broker.core.streams.list import RowSearch

LOOK: Final = 2000  # entries checked in one slice
READY: Final = "ready"
UNACKNOWLEDGED: Final = "unacknowledged"
WAITING: Final = "waiting"
DEAD_LETTER: Final = "dead-letter"  # the message waits to be dead-lettered
LINKED: Final = (READY, UNACKNOWLEDGED, WAITING)
STATES: Final = (*LINKED, DEAD_LETTER)
DEATHS: Final = 100  # messages that wait to be dead-lettered, found in one slice


def entry_state(queue: Queue, entry: QueueEntry) -> str:
    """Return the state of an entry: ready, unacknowledged, or held for a retry."""
    if entry.state == AVAILABLE or queue.stream is not None:
        return READY
    return WAITING if entry.state == HELD else UNACKNOWLEDGED


async def ready_entries(queue: Queue, sieve: EntryFilter | None) -> AsyncGenerator[QueueEntry]:
    """Yield the ready entries in order, in slices. Must be closed.

    The generator ends when the queue is deleted.
    """
    slices = Slices()
    newest = queue.entries.sequence
    cursor = open_browser_context(queue, sieve)
    begin_browsing(queue, cursor)
    try:
        while True:
            await slices.breathe()
            if queue.deleted:
                break
            entry = cursor.get_next_available_entry()
            if entry is not None:
                cursor.move_past(entry)
                if queue.entries.arrival(entry) > newest:
                    if queue.entries.in_order:
                        break
                elif not is_over(queue, entry):
                    yield entry
            elif not cursor.more:
                break
    finally:
        end_browsing(queue, cursor)


async def entries_after(
    queue: Queue, start: QueueEntry, sieve: EntryFilter | None, states: tuple[str, ...]
) -> AsyncGenerator[QueueEntry]:
    """Yield the entries behind `start` that exist now and are in one of the states. Must be closed.

    `start` is linked or the head. The generator ends when the queue is deleted.
    """
    slices = Slices()
    entries = queue.entries
    newest = entries.sequence
    cursor = Cursor(entries)
    cursor.last = start
    begin_browsing(queue, cursor)
    try:
        while True:
            await slices.breathe()
            entry = None if queue.deleted else entries.next(cursor.last)
            if entry is None:
                break
            if cursor.behind:
                cursor.behind.clear()  # late entries stand before those that were yielded
            cursor.move_past(entry)
            if entries.arrival(entry) > newest:
                if entries.in_order:
                    break
            elif (
                entry_state(queue, entry) in states
                and not (entry.owner is None and is_over(queue, entry))
                and (sieve is None or sieve.passes(entry))
            ):
                yield entry
    finally:
        end_browsing(queue, cursor)


def make_unlinked_entry(death: Death) -> QueueEntry:
    """Return an unlinked entry that looks like the entry of a message that waits to be dead-lettered."""
    entry = QueueEntry(death.message, death.order)
    entry.state = DEQUEUED
    entry.delivery_count = death.deliveries
    entry.redelivered = death.deliveries > 0 or death.reason in (REJECTED, EXHAUSTED)
    return entry


async def deaths_after(queue: Queue, number: int, sieve: EntryFilter | None) -> AsyncGenerator[Death]:
    """Yield the messages that wait to be dead-lettered, in the order of their deaths.

    `number`: the death to begin behind; 0: none. Must be closed. Ends when the queue is deleted.
    """
    slices = Slices()
    backlog = existing_backlog(queue)
    if backlog is None:
        return
    newest = int(backlog.numbers)
    while not queue.deleted:
        deaths = backlog.after(number, DEATHS)
        if not deaths:
            break
        for death in deaths:
            number = int(death.number)
            if number > newest:
                return
            if death.lane is not None and (sieve is None or sieve.passes(make_unlinked_entry(death))):
                yield death
            await slices.breathe()


async def entry_before(queue: Queue, mark: str) -> QueueEntry:
    """Return the last entry at or before a place in a queue, or the head.

    Raises ValueError: `mark` is no place.

    The answer is right until other work runs. In a deleted queue the answer is the head.
    """
    placeholder = queue.entries.placeholder(mark)
    if queue.stream is not None:
        return placeholder
    slices = Slices()
    while not queue.deleted:  # a deleted queue does not report the end of its entries
        places = places_of(queue)
        if places.reaches(placeholder):
            return places.last_up_to(placeholder)
        places.extend(LOOK)
        await slices.breathe()
    return queue.entries.head


async def entry_at(queue: Queue, place: int, ready: bool) -> QueueEntry | None:
    """Return the entry, or the ready entry, at a position; None: no such entry, or the queue is deleted.

    `place` counts entries from 0. The queue is no stream. The answer is right until other work runs.
    """
    slices = Slices()
    while not queue.deleted:  # a deleted queue does not report the end of its entries
        places = places_of(queue)
        entry = places.nth(place, ready)
        if entry is not None or not places.extend(LOOK):
            return places.nth(place, ready)
        await slices.breathe()
    return None


async def run_search(search: Search) -> QueueEntry | None:
    """Return the entry that a search finds. The answer is right until other work runs."""
    slices = Slices()
    try:
        while not search.queue.deleted and not search.step(LOOK):
            await slices.breathe()
        return search.entry
    finally:
        search.end()


def make_search(queue: Queue, wanted: str, store: MessageStore) -> Search:
    """Return the search for the message with this id, or else with this property message_id."""
    if is_message_id(wanted):
        return IdSearch(queue, wanted) if queue.stream is None else RowSearch(queue, wanted)
    return FirstSearch(queue, make_message_id_filter(wanted, store))


def make_message_id_filter(wanted: str, store: MessageStore) -> SelectorFilter:
    """Return the filter that passes messages with this property message_id."""
    quoted = wanted.replace("'", "''")
    return SelectorFilter(Selector(f"JMSMessageID = '{quoted}'"), store)


async def find_dead_message(queue: Queue, wanted: str, store: MessageStore) -> Death | None:
    """Return the message with this id or property message_id that waits to be dead-lettered."""
    backlog = existing_backlog(queue)
    if backlog is None:
        return None
    if is_message_id(wanted):
        return backlog.find(*numbers_of(wanted))
    async with aclosing(deaths_after(queue, 0, make_message_id_filter(wanted, store))) as deaths:
        async for death in deaths:
            return death
    return None


def state_to_operate_on(state: str) -> str:
    """Return READY or DEAD_LETTER, the state of the messages that an operation selects. Raises ApiError."""
    if state not in (READY, DEAD_LETTER):
        raise bad_request(f"state '{state}' is not known here, allowed: {READY}, {DEAD_LETTER}")
    return state


def make_filter(body: Fields, store: MessageStore) -> SelectorFilter | None:
    """Return the filter of `selector`; None if the selector is empty. Raises ApiError: it is no selector."""
    chosen = read_text(body, "selector", "")
    if not chosen.strip():
        return None
    try:
        return SelectorFilter(Selector(chosen), store)
    except PreconditionFailed as error:
        raise bad_request(f"selector: {error.text}") from error
