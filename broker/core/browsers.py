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
        others = self.standing.get(cursor.last)
        if others is None and len(there) == 1:
            del self.standing[before]
            self.standing[cursor.last] = there
            return
        del there[cursor]
        if not there:
            del self.standing[before]
        if others is None:
            self.standing[cursor.last] = {cursor: None}
        else:
            others[cursor] = None

    def offer(self, entry: QueueEntry, depth: i64) -> None:
        """`entry` is new in a queue of `depth` entries, and perhaps not the last one."""
        for cursor in self.cursors:
            cursor.offer(entry, depth)

    def forget(self, entry: QueueEntry, depth: i64) -> None:
        """`entry` is about to be unlinked, and then `depth` are left: no cursor may stand on it."""
        there = self.standing.pop(entry, None)
        if there is not None:
            for cursor in there:
                before = cursor.entries.before(entry)
                cursor.last = before
                self.standing.setdefault(before, {})[cursor] = None
        self._gone += 1
        if self._gone >= SWEEP + len(self.cursors):
            self._gone = 0
            for cursor in self.cursors:
                cursor.compact(depth)

    def add(self, queue: Queue, cursor: QueueContext) -> None:
        """A cursor of somebody who begins to look at `queue`."""
        cursor.browsers = self
        self.cursors[cursor] = queue.delivered
        self.standing.setdefault(cursor.last, {})[cursor] = None

    def remove(self, cursor: QueueContext) -> None:
        """Its owner looks no longer."""
        cursor.browsers = None
        del self.cursors[cursor]
        there = self.standing[cursor.last]
        del there[cursor]
        if not there:
            del self.standing[cursor.last]

    def share(self, queue: Queue, cursor: QueueContext) -> i64:
        """How many messages the owner of `cursor` may be shown in its turn, while the queue has consumers.

        They do not notice much of it then, whether they are as fast as they can be or wait for their client.
        """
        delivered = queue.delivered - self.cursors[cursor]
        self.cursors[cursor] = queue.delivered
        return max(delivered // SHARE, 1) if delivered > 0 else LEAST


def begin(queue: Queue, cursor: QueueContext) -> None:
    """Somebody looks at `queue` with this cursor."""
    if queue.browsers is None:
        queue.browsers = Browsers()
    queue.browsers.add(queue, cursor)


def end(queue: Queue, cursor: QueueContext) -> None:
    """And looks no longer. Nothing happens if the queue has been deleted, which let go of all cursors."""
    browsers = queue.browsers
    if browsers is not None:
        browsers.remove(cursor)
        if cursor.row is not None and queue.index is not None:
            queue.index.release(cursor.row)
        if not browsers.cursors:
            queue.browsers = None
