"""Invariants of cursors: I4 no available entry is hidden behind a cursor, and no cursor is dead."""

from broker.core.entries.cursor import SWEEP, Cursor
from broker.core.entries.entry import AVAILABLE, QueueEntry
from broker.core.entries.index import Index
from broker.core.queues.group import group_of
from broker.core.queues.queue import Queue
from tests.property.queue_rules import DivisorView


def check_cursors(queue: Queue) -> None:
    live = set(queue.entries)
    if queue.index is not None:
        check_index(queue, queue.index)
    browsing = check_browsers(queue)
    for context in (queue.context, *filtered(queue), *browsing):
        assert context.last in live or context.last is context.entries.head, "a dead cursor"
        spare = SWEEP + len(browsing) if context in browsing else 0
        if context.late is not None:
            assert live.issuperset(context.late.entries(context.last)), "late arrivals that are gone"
        assert len(context.behind) <= max(64, 2 * len(live)) + spare, "dead entries are kept"
    for context in (queue.context, *filtered(queue)):
        behind = set(context.all_behind())
        for entry in live:
            passed = not context.last.precedes(entry)
            if entry.state == AVAILABLE and passed and context.sees(entry):
                group = group_of(entry)
                parked = group is not None and entry in group.parked.get(context, ())
                assert entry in behind or parked, "I4: hidden behind the cursor"


def filtered(queue: Queue) -> list[Cursor]:
    """The cursors of consumers that do not see everything."""
    served = queue.index.served if queue.index is not None else {}
    assert all(postings.contexts for postings in served)
    return queue.filtered + [context for postings in served for context in postings.contexts]


def check_index(queue: Queue, index: Index) -> None:
    """X1: an entry is in the posting list of each of its values, in order. A list exists while needed."""
    looking = [*filtered(queue), *(queue.browsers.cursors if queue.browsers is not None else ())]
    for header, name in enumerate(index.names):
        lists = index.posting_lists[header]
        found: dict[object, list[QueueEntry]] = {value: [] for value in lists}
        for entry in queue.entries:
            value = DivisorView(entry.message).lookup(name)
            if value is not None:
                found[value].append(entry)
        for value, postings in lists.items():
            entries = []
            posting = postings.first
            while posting is not None:
                entries.append(posting.entry)
                assert index.posting(posting.entry, postings) is posting
                posting = posting.after
            assert entries == found[value], "X1"
            assert postings.users == sum(context.postings is postings for context in looking), "X1"
            assert postings.users or entries, "X1: nobody needs it"


def check_browsers(queue: Queue) -> list[Cursor]:
    """Check that the positions of all browsers' cursors are known."""
    wanted = {consumer.context for consumer in queue.manager.all if not consumer.acquires}
    stood_on = {entry for entry in (queue.entries.head, *queue.entries) if entry.stood_on}
    if queue.browsers is None:
        assert not wanted
        assert not stood_on
        return []
    cursors = list(queue.browsers.cursors)
    assert wanted <= set(cursors)
    assert len(cursors) <= len(wanted) + bool(queue.manager.purges), "only a purge has one besides"
    standing = [(entry, cursor) for entry, there in queue.browsers.standing.items() for cursor in there]
    assert {cursor: entry for entry, cursor in standing} == {cursor: cursor.last for cursor in cursors}
    assert len(standing) == len(cursors)
    assert all(queue.browsers.standing.values()), "nobody stands there any more"
    assert all(entry.stood_on for entry, _ in standing)
    assert stood_on <= {entry for entry, _ in standing}
    return cursors
