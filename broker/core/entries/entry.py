"""A message's place in one queue.

An entry is AVAILABLE, then ACQUIRED by one consumer (or one basic.get), and either goes back to AVAILABLE at
the very same place or leaves the queue as DEQUEUED, for good. Acquiring is the only gate out of AVAILABLE.
Before it is AVAILABLE again it may be HELD for a while: there, but nobody's.
[Qpid: QueueEntryImpl]
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i32, i64, mypyc_attr, u8

from broker.core.message import Message

AVAILABLE: Final = 0
ACQUIRED: Final = 1
DEQUEUED: Final = 2
HELD: Final = 3

# `order` is 8 bits of rank above 55 of sequence: no number of arrivals reaches the rank
RANK_SHIFT: Final = 55


STOPPED: Final[i64] = -2  # the place of a timer that is stopped
IN_LANE: Final[i64] = -1  # of a timer that runs; else the position in the heap


@final
@mypyc_attr(acyclic=True)
class Timer:
    """When one entry expires: `due`, in milliseconds of the schedule's clock.

    `entry` is None while it is stopped: an entry keeps its timer, but only a running one refers to its entry.
    Not tracked by the garbage collector.
    """

    def __init__(self, due: i64) -> None:
        self.due = due
        self.entry: QueueEntry | None = None
        self.place: i64 = STOPPED
        self.before: Timer | None = None
        self.after: Timer | None = None


@mypyc_attr(allow_interpreted_subclasses=True)
class Holder:
    """The owner of acquired entries: a consumer, or an operation or a stage, which are no consumers.

    `acquires`: False for a browser, which owns nothing. `no_ack`: each entry is settled when it is delivered.
    `tag`: the client's name for a consumer, or an operator's for a stage; the core does not read it.
    `inflight`: the entries that it has acquired and that are neither settled nor released, also after its
    removal.
    """

    def __init__(self, tag: str = "", acquires: bool = True, no_ack: bool = False) -> None:
        self.tag = tag
        self.acquires = acquires
        self.no_ack = no_ack
        self.inflight: i64 = 0

    def acquisition_removed(self, entry: QueueEntry) -> None:
        """The queue has taken `entry` back: settling or releasing it does nothing."""


class EntryGroup:
    """The message group of entries, as an entry knows it; `broker.core.queues.groups` extends this class."""

    def disown(self) -> None:
        """Forget the group's owner: the queue has been deleted."""
        raise NotImplementedError


@mypyc_attr(acyclic=True)
class QueueEntry:
    """One message in one queue; made by `QueueEntryList.append` only.

    Not tracked by the garbage collector, so whoever takes an entry out of its list cuts its links. Heaps of
    entries hold the entries themselves, which are compared by their places.

    `order`: its place, smaller is sooner, fixed at enqueue: rank << 55 | sequence. Where something else comes
    first, a kind of queue has a kind of entry: whose place is before whose, `precedes` knows.
    `owner`: the holder that acquired it, None unless ACQUIRED.
    `redelivered`: it may have been with a client before.
    `delivery_count`: how often it was acquired for delivery; browsing does not count.
    `uncounted`: how many of these came back in a way that does not count.
    `stood_on`: a browser's cursor stands on it.
    `timer`: when its time is over; None: never. `own_time`: it is the message that says so, not the queue.
    `group`: the one that it is in, in a queue that has groups.
    """

    def __init__(self, message: Message, order: i64) -> None:
        self.order: i64 = order
        self.message: Message = message
        self.state: u8 = AVAILABLE
        self.redelivered: bool = False
        self.own_time: bool = False
        self.stood_on: bool = False
        self.uncounted: i32 = 0  # it takes no room where it stands
        self.delivery_count: i64 = 0
        self.owner: Holder | None = None
        self.prev: QueueEntry | None = None
        self.next: QueueEntry | None = None
        self.timer: Timer | None = None
        self.group: EntryGroup | None = None

    @property
    def counted(self) -> i64:
        """How many of its deliveries count."""
        return self.delivery_count - i64(self.uncounted)

    def let_go(self) -> None:
        """The cursor of a browser that has stood on it stands there no longer."""

    def precedes(self, other: QueueEntry) -> bool:
        """Whether its place in their queue is before that of `other`."""
        return self.order < other.order

    def __lt__(self, other: QueueEntry) -> bool:
        return self.precedes(other)

    def __hash__(self) -> int:  # what compares has no hash of its own when it is compiled
        return id(self) >> 4


@mypyc_attr(allow_interpreted_subclasses=True)
class EntryFilter:
    """A condition that holds for an entry, or not, as long as it is in its queue.

    `key`: filters with the same key let the same entries pass.
    `demands`: equalities without which it lets nothing pass; see `Criterion`.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.demands: list[tuple[str, str | int]] = []

    def passes(self, entry: QueueEntry) -> bool:
        """Whether consumers with this filter see `entry`."""
        raise NotImplementedError

    def excludes(self, entry: QueueEntry) -> bool:
        """Whether consumers with this filter have sent `entry` away for themselves."""
        return False
