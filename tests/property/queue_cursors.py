"""What must be true of cursors: I4 nothing that can be taken is hidden behind one, and none is dead."""

from broker.core.browsers import SWEEP
from broker.core.context import QueueContext
from broker.core.entry import AVAILABLE
from broker.core.queue import Queue


def check_cursors(queue: Queue) -> None:
    live = set(queue.entries)
    browsing = check_browsers(queue)
    for context in (queue.context, *queue.filtered, *browsing):
        assert context.last in live or context.last is queue.entries.head, "a dead cursor"
        spare = SWEEP + len(browsing) if context in browsing else 0
        assert len(context.behind) <= max(64, 2 * len(live)) + spare, "dead entries are kept"
    for context in (queue.context, *queue.filtered):
        behind = set(context.behind)
        for entry in live:
            passed = not context.last.precedes(entry)
            if entry.state == AVAILABLE and passed and context.sees(entry):
                assert entry in behind, "I4: hidden behind the cursor"


def check_browsers(queue: Queue) -> list[QueueContext]:
    """It is known of each browser's cursor where it stands."""
    wanted = {consumer.context for consumer in queue.manager.all if not consumer.acquires}
    if queue.browsers is None:
        assert not wanted
        return []
    cursors = list(queue.browsers.cursors)
    assert set(cursors) == wanted
    standing = [(entry, cursor) for entry, there in queue.browsers.standing.items() for cursor in there]
    assert {cursor: entry for entry, cursor in standing} == {cursor: cursor.last for cursor in cursors}
    assert len(standing) == len(cursors)
    assert all(queue.browsers.standing.values()), "nobody stands there any more"
    return cursors
