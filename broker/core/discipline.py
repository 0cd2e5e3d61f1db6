"""Rules for who may have which entry of a queue, besides filters and priorities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from broker.core.consumer import INTERESTED, NOTIFIED, QueueConsumer
from broker.core.context import QueueContext
from broker.core.entry import QueueEntry

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.session import Session

ABLE: Final[tuple[int, ...]] = (INTERESTED, NOTIFIED)  # states of an acquiring consumer that wants work


class Discipline:
    """The rule by which `queue` holds entries back, from everybody or from all but one consumer.

    A queue has at most one, from before it has entries, and is never `alike` then. Whoever looks for what is
    next asks `next_entry`, and whoever looks for a taker asks `is_open` and `owner`; browsers do not. The
    queue tells it what happens to entries and consumers; it sees to it that what it lets go of is noticed.

    `personal`: consumers that see the same entries may have different ones next.
    `pauses`: it has much to do, in turns to come, and until then no attached consumer is served.
    """

    def __init__(self, queue: Queue, personal: bool) -> None:
        self.queue = queue
        self.personal = personal
        self.pauses: bool = False
        queue.alike = False

    # ---- what is asked

    def next_entry(self, consumer: QueueConsumer) -> QueueEntry | None:
        """The entry to deliver next to `consumer`, which acquires, or None.

        As `QueueContext.get_next_available_entry`, `context.more` included.
        """
        raise NotImplementedError

    def is_open(self, entry: QueueEntry) -> bool:
        """Whether `entry`, which is AVAILABLE, may be given out now."""
        raise NotImplementedError

    def owner(self, entry: QueueEntry) -> QueueConsumer | None:
        """The only one who may have `entry`, None: whoever sees it."""
        return None

    def contenders(self, entry: QueueEntry) -> list[QueueConsumer]:
        """The consumers that may have `entry` now if it is not for whoever sees it, the first one first.

        There are several where a transaction has what precedes `entry`: consumers of its session.
        """
        owner = self.owner(entry)
        return [] if owner is None else [owner]

    def parked_in(self, context: QueueContext) -> list[QueueEntry]:
        """AVAILABLE entries that `context` has passed, and that are not in its `all_behind`."""
        return []

    # ---- what is told

    def linked(self, entry: QueueEntry) -> None:
        """`entry` is new, and has not been announced."""

    def acquired(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """`consumer`, attached or a basic.get, has just acquired `entry`."""

    def left(self, entry: QueueEntry, owner: QueueConsumer | None) -> None:
        """`entry` is DEQUEUED; `owner` had acquired it, None: it was not given out."""

    def returned(self, entries: list[QueueEntry]) -> None:
        """`entries`, all of one call, have been given back: not a word to consumers before `wake`."""

    def wake(self) -> None:
        """Notify whoever can have more than what was returned: cursors know of that."""

    def promised(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """A transaction of `consumer`, which has `entry`, takes it out of the queue when it is committed."""

    def withdrawn(self, entries: list[QueueEntry]) -> None:
        """The transaction that would have taken `entries` out has been rolled back."""

    def passed_on(self) -> None:
        """Notify one of those who alone may have an entry: one that was relied upon has dropped out."""

    def attached(self, consumer: QueueConsumer) -> None:
        """`consumer`, which acquires, is new."""

    def detached(self, consumer: QueueConsumer) -> None:
        """`consumer` has gone, and what it gives back with that is back."""

    def context_changed(self, consumer: QueueConsumer) -> None:
        """`consumer` looks for entries with the cursor of another context, which has not moved yet."""

    def sent_away(self, consumer: QueueConsumer, entries: list[QueueEntry]) -> None:
        """`consumer` is not to get `entries` again, which it has and which are about to be given back."""

    def served_alone(self, consumer: QueueConsumer) -> None:
        """From now on the queue serves `consumer` alone."""


def able_in(session: Session, queue: Queue, entry: QueueEntry) -> Iterator[QueueConsumer]:
    """The consumers of `session` that want work from `queue` and see `entry`."""
    for target in session.targets:
        for consumer in target.consumers:
            if consumer.queue is queue and consumer.state in ABLE and consumer.context.sees(entry):
                yield consumer


def first_idle(consumers: Iterable[QueueConsumer]) -> QueueConsumer | None:
    """The first of `consumers` that is INTERESTED."""
    for consumer in consumers:
        if consumer.state == INTERESTED:
            return consumer
    return None


def next_entry(queue: Queue, consumer: QueueConsumer) -> QueueEntry | None:
    """The next entry for `consumer`; None with `consumer.context.more`: not all was looked at yet."""
    discipline = queue.discipline
    if discipline is None or not consumer.acquires:
        return consumer.context.get_next_available_entry()
    return discipline.next_entry(consumer)
