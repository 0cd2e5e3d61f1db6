"""The browsers of a queue: where they stand, and how much they may see while consumers want the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.entry import QueueEntry

if TYPE_CHECKING:
    from broker.core.context import QueueContext
    from broker.core.queue import Queue

SHARE: Final[i64] = 32  # a browser is shown one message for so many that consumers get,
LEAST: Final[i64] = 8  # and so many in a turn in which they get none
SWEEP: Final[i64] = 64  # entries that leave before what cursors have behind them is looked through


@final
class Browsers:
    """The cursors of those who look at a queue, each with what consumers had got when it had its last turn.

    `standing` has the cursors by the entries that they stand on. So an entry that goes concerns those only
    that stand on it, however many browsers there are.
    """

    def __init__(self) -> None:
        self.cursors: dict[QueueContext, int] = {}
        self.standing: dict[QueueEntry, dict[QueueContext, None]] = {}
        self._gone: i64 = 0  # entries, since the last sweep

    def moved(self, cursor: QueueContext, before: QueueEntry) -> None:
        """`cursor` stood on `before` and stands on its `last` now."""
        there = self.standing[before]
        if len(there) == 1 and not cursor.last.stood_on:
            del self.standing[before]
            before.stood_on = False
            before.let_go()
            self.standing[cursor.last] = there
            cursor.last.stood_on = True
        else:
            self._leave(cursor, before)
            self._stand(cursor)

    def offer(self, entry: QueueEntry, depth: i64) -> None:
        """`entry` is new in a queue of `depth` entries, and perhaps not the last one."""
        for cursor in self.cursors:
            cursor.offer(entry, depth)

    def forget(self, entry: QueueEntry, depth: i64) -> None:
        """`entry` is about to be unlinked, and then `depth` are left: no cursor may stand on it."""
        if entry.stood_on:
            entry.stood_on = False
            for cursor in self.standing.pop(entry):
                cursor.last = cursor.entries.before(entry)
                self._stand(cursor)
        self._gone += 1
        if self._gone >= SWEEP + len(self.cursors):
            self._gone = 0
            for cursor in self.cursors:
                cursor.compact(depth)

    def add(self, queue: Queue, cursor: QueueContext) -> None:
        """A cursor of somebody who begins to look at `queue`."""
        cursor.browsers = self
        self.cursors[cursor] = queue.delivered
        self._stand(cursor)

    def remove(self, cursor: QueueContext) -> None:
        """Its owner looks no longer."""
        cursor.browsers = None
        del self.cursors[cursor]
        self._leave(cursor, cursor.last)

    def _stand(self, cursor: QueueContext) -> None:
        entry = cursor.last
        entry.stood_on = True
        self.standing.setdefault(entry, {})[cursor] = None

    def _leave(self, cursor: QueueContext, entry: QueueEntry) -> None:
        there = self.standing[entry]
        del there[cursor]
        if not there:
            del self.standing[entry]
            entry.stood_on = False
            entry.let_go()

    def share(self, queue: Queue, cursor: QueueContext) -> i64:
        """How many messages the owner of `cursor` may be shown in its turn, while the queue has consumers.

        They do not notice much of it then, whether they are as fast as they can be or wait for their client.
        """
        delivered = queue.delivered - self.cursors[cursor]
        self.cursors[cursor] = queue.delivered
        return max(delivered // SHARE, 1) if delivered > 0 else LEAST


def begin_browsing(queue: Queue, cursor: QueueContext) -> None:
    """Somebody looks at `queue` with this cursor."""
    if queue.browsers is None:
        queue.browsers = Browsers()
    queue.browsers.add(queue, cursor)


def end_browsing(queue: Queue, cursor: QueueContext) -> None:
    """And looks no longer. Nothing happens if the queue has been deleted, which let go of all cursors."""
    browsers = queue.browsers
    if browsers is not None:
        browsers.remove(cursor)
        if cursor.row is not None and queue.index is not None:
            queue.index.release(cursor.row)
        if not browsers.cursors:
            queue.browsers = None
