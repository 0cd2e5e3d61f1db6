"""An entry: a message's place in one queue.

An entry is AVAILABLE, then ACQUIRED by one consumer (or one basic.get). From there it either returns to
AVAILABLE at the very same place, or leaves the queue as DEQUEUED, for good. Acquiring is the only way out of
AVAILABLE. Before an entry is AVAILABLE again, it may be HELD for a while: in the queue, but without an owner.
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
IN_LANE: Final[i64] = -1  # the timer runs; else the position in the heap


@final
@mypyc_attr(acyclic=True)
class Timer:
    """The expiry of one entry: `due`, in milliseconds of the schedule's clock.

    An entry keeps its timer, but only a running timer refers to its entry: `entry` is None while the timer is
    stopped. Not tracked by the garbage collector.
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
    `inflight`: the number of entries that the holder has acquired and that are neither settled nor released.
    The number counts on after the holder's removal.
    """

    def __init__(self, tag: str = "", acquires: bool = True, no_ack: bool = False) -> None:
        self.tag = tag
        self.acquires = acquires
        self.no_ack = no_ack
        self.inflight: i64 = 0

    def on_acquisition_removed(self, entry: QueueEntry) -> None:
        """Note that the queue has taken `entry` back: a later settle or release has no effect."""


class EntryGroup:
    """The message group of an entry; `broker.core.queues.groups` extends this class."""

    def disown(self) -> None:
        """Forget the group's owner: the queue has been deleted."""
        raise NotImplementedError


@mypyc_attr(acyclic=True)
class QueueEntry:
    """A message in one queue; made by `QueueEntryList.append` only.

    The garbage collector does not track entries, so the code that takes an entry out of its list cuts its
    links. Heaps of entries contain the entries themselves, which compare by their places.

    `order`: the entry's place, smaller is sooner, fixed at enqueue: rank << 55 | sequence. A kind of queue
    with another order has its own class of entries, whose `precedes` compares the places.
    `owner`: the holder that acquired the entry, None unless ACQUIRED.
    `redelivered`: the entry may have been delivered before.
    `delivery_count`: how often the entry was acquired for delivery; browsing does not count.
    `uncounted`: how many of these deliveries were returned in a way that does not count.
    `stood_on`: a browser's cursor stands on the entry.
    `timer`: when the entry expires; None: never. `own_time`: the message sets this time, not the queue.
    `group`: the entry's group, in a queue with groups.
    """

    def __init__(self, message: Message, order: i64) -> None:
        self.order: i64 = order
        self.message: Message = message
        self.state: u8 = AVAILABLE
        self.redelivered: bool = False
        self.own_time: bool = False
        self.stood_on: bool = False
        self.uncounted: i32 = 0  # placed here, the field takes no extra room
        self.delivery_count: i64 = 0
        self.owner: Holder | None = None
        self.prev: QueueEntry | None = None
        self.next: QueueEntry | None = None
        self.timer: Timer | None = None
        self.group: EntryGroup | None = None

    @property
    def counted(self) -> i64:
        """The number of the entry's deliveries that count."""
        return self.delivery_count - i64(self.uncounted)

    def release_page(self) -> None:
        """Release the page of a stream's row, on which no cursor stands any more; an entry has no page."""

    def precedes(self, other: QueueEntry) -> bool:
        """Whether the entry's place in the queue is before the place of `other`."""
        return self.order < other.order

    def __lt__(self, other: QueueEntry) -> bool:
        return self.precedes(other)

    def __hash__(self) -> int:  # a compiled class with comparisons has no hash of its own
        return id(self) >> 4


@mypyc_attr(allow_interpreted_subclasses=True)
class EntryFilter:
    """A condition that holds for an entry, or does not, as long as the entry is in its queue.

    `key`: filters with the same key let the same entries pass.
    `demands`: equalities without which the filter lets nothing pass; see `Criterion`. `selector`: the text of
    the selector that is the filter; "": the filter is another one.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.selector = ""
        self.demands: list[tuple[str, str | int]] = []

    def passes(self, entry: QueueEntry) -> bool:
        """Whether consumers with this filter see `entry`."""
        raise NotImplementedError

    def excludes(self, entry: QueueEntry) -> bool:
        """Whether consumers with this filter have returned `entry` as undeliverable to themselves."""
        return False
