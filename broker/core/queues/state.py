"""The state of a queue: its properties, its entries, its counts and its cursors.

Every step of an entry between AVAILABLE, ACQUIRED, HELD and DEQUEUED is a function of this module. Each step
changes the entry, its owner and the counts of its queue together, so that they always agree.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from broker.core.counters import Arrivals, Counters, Flows, Reading
from broker.core.entries.cursor import Browsers, Cursor
from broker.core.entries.entry import ACQUIRED, AVAILABLE, DEQUEUED, HELD, Holder, QueueEntry
from broker.core.entries.index import Index
from broker.core.entries.list import QueueEntryList
from broker.core.entries.places import IDLE_MIN, Places
from broker.core.policies.policy import NO_POLICIES, MergedPolicies
from broker.core.ports import LoggedQueue, MessageStore


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueState(LoggedQueue):
    """A queue as its consumers and its features see it. Only the functions of this module change its counts.

    `store` gets the settles if the queue is `logged`, by its `number`. `counters` are the broker's.
    `ready`, `unacked`, `held`, `dead` and their `_bytes` (of bodies) count what is in the queue now.
    `published`, `delivered`, `acked` and so on count since the start, as in `Flows`. `vhost` is the name of
    the virtual host, for messages to clients. `arguments` are those of the declaration, `effective` these
    arguments merged with `effect`, the policies of the queue.

    Consumers that see all entries share `context`, those with the same filter one of `filtered`, and each
    browser has its own. `alike`: all consumers see the same entries, so any of them may be notified of any
    entry. `places`: the places of entries, while an operator asks for them. `reading`: the last reading of
    the queue's counts. `arrivals`: when the messages that are in the queue have arrived.
    """

    def __init__(
        self,
        name: str,
        store: MessageStore,
        entries: QueueEntryList,
        counters: Counters,
        durable: bool,
        logged: bool,
        number: i64,
        vhost: str,
    ) -> None:
        super().__init__(name, number, logged)
        self.vhost = vhost
        self.store = store
        self.entries = entries
        self.counters = counters
        self.durable = durable
        self.exclusive_owner: object | None = None
        self.auto_delete: bool = False
        self.arguments: dict[str, object] = {}
        self.effect: MergedPolicies = NO_POLICIES
        self.effective: dict[str, object] = self.arguments
        self.delivery_limit: i64 = -1  # see `broker.core.queues.retry`
        self.counts: bool = False
        self.ready: i64 = 0
        self.ready_bytes: i64 = 0
        self.unacked: i64 = 0
        self.unacked_bytes: i64 = 0
        self.held: i64 = 0
        self.held_bytes: i64 = 0
        self.dead: i64 = 0
        self.dead_bytes: i64 = 0
        self.published: i64 = 0
        self.delivered: i64 = 0
        self.delivered_no_ack: i64 = 0
        self.got: i64 = 0
        self.got_no_ack: i64 = 0
        self.got_empty: i64 = 0
        self.redelivered: i64 = 0
        self.acked: i64 = 0
        self.context = Cursor(entries)
        self.filtered: list[Cursor] = []
        self.browsers: Browsers | None = None
        self.index: Index | None = None
        self.alike: bool = True
        self.places: Places | None = None
        self.reading: Reading | None = None
        self.arrivals: Arrivals | None = None

    @property
    def depth(self) -> i64:
        """The number of linked entries."""
        return self.ready + self.unacked + self.held

    @property
    def messages(self) -> i64:
        """The count of messages: linked entries, and messages that wait to be dead-lettered."""
        return self.depth + self.dead


def add_flows(flows: Flows, queue: QueueState, factor: i64) -> None:
    """Add, or with -1 subtract, the counters of a queue since its start."""
    flows.published += factor * queue.published
    flows.delivered += factor * queue.delivered
    flows.delivered_no_ack += factor * queue.delivered_no_ack
    flows.got += factor * queue.got
    flows.got_no_ack += factor * queue.got_no_ack
    flows.got_empty += factor * queue.got_empty
    flows.redelivered += factor * queue.redelivered
    flows.acked += factor * queue.acked
    latest = queue.entries.latest
    if latest is not None:
        flows.replaced += factor * latest.replaced


def owns(holder: Holder, entry: QueueEntry, queue: QueueState) -> bool:
    """Whether `holder` still owns this entry of `queue`: the queue has not taken it back."""
    return entry.state == ACQUIRED and entry.owner is holder and not queue.deleted


def count_linked(queue: QueueState, entry: QueueEntry) -> None:
    """Count `entry`, which is new, linked and AVAILABLE."""
    queue.ready += 1
    queue.ready_bytes += entry.message.size


def make_acquired(queue: QueueState, entry: QueueEntry, holder: Holder) -> None:
    """Make `holder` the owner of `entry`: AVAILABLE → ACQUIRED."""
    size = entry.message.size
    entry.state = ACQUIRED
    entry.owner = holder
    holder.inflight += 1
    queue.ready -= 1
    queue.ready_bytes -= size
    queue.unacked += 1
    queue.unacked_bytes += size
    if queue.places is not None:
        note_change(queue, queue.places, entry, -1)


def make_available(queue: QueueState, entry: QueueEntry) -> None:
    """Return `entry` to its place, from its owner or from its wait: ACQUIRED or HELD → AVAILABLE."""
    size = entry.message.size
    owner = entry.owner
    if owner is not None:
        owner.inflight -= 1
        queue.unacked -= 1
        queue.unacked_bytes -= size
        entry.owner = None
    else:
        queue.held -= 1
        queue.held_bytes -= size
    entry.state = AVAILABLE
    queue.ready += 1
    queue.ready_bytes += size
    if queue.places is not None:
        note_change(queue, queue.places, entry, 1)


def make_held(queue: QueueState, entry: QueueEntry) -> None:
    """Keep `entry` from all consumers for a while: AVAILABLE → HELD."""
    size = entry.message.size
    entry.state = HELD
    queue.ready -= 1
    queue.ready_bytes -= size
    queue.held += 1
    queue.held_bytes += size
    if queue.places is not None:
        note_change(queue, queue.places, entry, -1)


def make_dequeued(queue: QueueState, entry: QueueEntry) -> None:
    """Uncount `entry`, which leaves the queue: AVAILABLE, ACQUIRED or HELD → DEQUEUED."""
    size = entry.message.size
    owner = entry.owner
    if owner is not None:
        owner.inflight -= 1
        queue.unacked -= 1
        queue.unacked_bytes -= size
        entry.owner = None
    elif entry.state == HELD:
        queue.held -= 1
        queue.held_bytes -= size
    else:
        queue.ready -= 1
        queue.ready_bytes -= size
        if queue.places is not None:
            note_change(queue, queue.places, entry, -1)
    entry.state = DEQUEUED


def abandon(entry: QueueEntry) -> None:
    """Take `entry` out of a deleted queue, whose counts are 0: AVAILABLE, ACQUIRED or HELD → DEQUEUED."""
    owner = entry.owner
    if owner is not None:
        owner.inflight -= 1
        entry.owner = None
    entry.state = DEQUEUED


def reset_counts(queue: QueueState) -> None:
    """Set the counts of what is in the queue to 0: the queue is deleted, with all its messages."""
    queue.ready = queue.ready_bytes = queue.unacked = queue.unacked_bytes = 0
    queue.held = queue.held_bytes = queue.dead = queue.dead_bytes = 0


def count_no_ack(queue: QueueState) -> None:
    """Count a delivery that needs no acknowledgement; `delivered` has it already."""
    queue.delivered_no_ack += 1
    queue.counters.delivered_no_ack += 1


def count_get(queue: QueueState, no_ack: bool) -> None:
    """Count a delivery as an answer to basic.get; `delivered` has it already."""
    if no_ack:
        queue.got_no_ack += 1
        queue.counters.got_no_ack += 1
    else:
        queue.got += 1
        queue.counters.got += 1


def count_get_empty(queue: QueueState) -> None:
    """Count the answer that there is no message."""
    queue.got_empty += 1
    queue.counters.got_empty += 1


def count_dead(queue: QueueState, size: i64) -> None:
    """Count a message with a body of `size` bytes, which waits to be dead-lettered."""
    queue.dead += 1
    queue.dead_bytes += size


def uncount_dead(queue: QueueState, size: i64) -> None:
    """Uncount a message with a body of `size` bytes, which does not wait to be dead-lettered any more."""
    queue.dead -= 1
    queue.dead_bytes -= size


def count_rows(queue: QueueState, rows: i64, size: i64) -> None:
    """Set the counts of a stream, which has no entries: `rows` rows with `size` bytes on disk."""
    queue.ready = rows
    queue.ready_bytes = size


def places_of(queue: QueueState) -> Places:
    """Return the places of a queue that is no stream, made if there are none yet."""
    if queue.places is None:
        queue.places = Places(queue.entries)
    return queue.places


def note_change(queue: QueueState, places: Places, entry: QueueEntry, ready: i64) -> None:
    """Note that `entry` is ready now (1), or not any more (-1); drop places that were not used for long."""
    places.note_ready_change(entry, ready)
    if places.idle > IDLE_MIN and places.is_idle:
        queue.places = None


def begin_browsing(queue: QueueState, cursor: Cursor) -> None:
    """Add the cursor of a new browser of `queue`."""
    if queue.browsers is None:
        queue.browsers = Browsers()
    queue.browsers.add(cursor, queue.delivered)


def end_browsing(queue: QueueState, cursor: Cursor) -> None:
    """Remove the cursor of a browser. Nothing happens if the queue has been deleted with all its cursors."""
    browsers = queue.browsers
    if browsers is not None:
        browsers.remove(cursor)
        if cursor.postings is not None and queue.index is not None:
            queue.index.release(cursor.postings)
        if not browsers.cursors:
            queue.browsers = None
