"""What a queue asks and tells its features.

A queue that is journaled has a `QueueJournal`, which it tells of each step as it takes it, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import OFF
from broker.core.entries.cursor import QueueContext
from broker.core.entries.entry import QueueEntry
from broker.core.errors import AccessRefused, BrokerError, NotFound, QueueStopped, StoreFailed
from broker.core.message import Address, Message
from broker.core.queues.consumer import INTERESTED, NOTIFIED, QueueConsumer

if TYPE_CHECKING:
    from broker.core.delivery.session import Session
    from broker.core.queues.queue import Queue


# in which way a message comes into queues
PUBLISHED: Final = 0
DEAD_LETTERED: Final = 1
MOVED: Final = 2
COPIED: Final = 3
DELAYED: Final = 4  # it has been held until now
OWN: Final = 5  # the broker's own: a receipt, say
EDITED: Final = 6
REDRIVEN: Final = 7  # it was a dead letter

# why a publish is refused
QUEUE_FULL: Final = 0
STOPPED: Final = 1  # the queue takes nothing
NO_PERMISSION: Final = 2
NOT_FOUND: Final = 3
LOG_FAILED: Final = 4
INVALID: Final = 5


def refusal_of(error: BrokerError) -> i64:
    """Return the reason that the journal has for a publish which `error` refuses."""
    if isinstance(error, AccessRefused):
        return NO_PERMISSION
    if isinstance(error, QueueStopped):
        return STOPPED
    if isinstance(error, StoreFailed):
        return LOG_FAILED
    return NOT_FOUND if isinstance(error, NotFound) else INVALID


@final
class Operator:
    """A user who asks for something over HTTP. `request`: the method and the path.

    `name` and `consumers` are what the journal calls the operator, and consumers that act for the operator.
    """

    def __init__(self, user: str, address: str, request: str) -> None:
        self.user = user
        self.address = address
        self.request = request
        self.name: object | None = None
        self.consumers: dict[str, object] = {}


class QueueJournal:
    """What becomes of the messages of one queue. Each step is told once, when it has been decided.

    The base class is of no use by itself: a queue that is not journaled has none at all.
    """

    def enqueued(self, entry: QueueEntry) -> None:
        """`entry` is new, and came in the journal's `way`."""
        raise NotImplementedError

    def delivered(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """`entry` was acquired for `consumer`, or goes to it once more."""
        raise NotImplementedError

    def staged(self, entry: QueueEntry, taker: QueueConsumer) -> None:
        """`entry` is set apart for a reader, who has `taker`: it is there, and nobody else gets it."""
        raise NotImplementedError

    def settled(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """`consumer` is done with `entry`."""
        raise NotImplementedError

    def returned(self, entry: QueueEntry, consumer: QueueConsumer, outcome: i64) -> None:
        """`consumer` gives `entry` back, one of `broker.core.arguments.queue`."""
        raise NotImplementedError

    def discarded(self, entry: QueueEntry, reason: i64) -> None:
        """`entry` leaves for one of the reasons of `broker.core.queues.queue`, and nothing comes of it."""
        raise NotImplementedError

    def died(
        self,
        message: Message,
        uid: i64,
        order: i64,
        reason: i64,
        to: Queue | None,
        by: QueueConsumer | None,
    ) -> None:
        """A message with this number and place becomes a dead letter, in `to` and others; None: nowhere.

        `by`: the consumer that had the message, if one had.
        """
        raise NotImplementedError

    def replaced(self, entry: QueueEntry) -> None:
        """A later message has taken the place of `entry`."""
        raise NotImplementedError

    def removed(self, message: Message, order: i64, deliveries: i64) -> None:
        """An operator takes a message away, in the journal's `way` if something else comes of it."""
        raise NotImplementedError

    def unwanted(self, entry: QueueEntry) -> None:
        """`entry` came to be delivered at once or not at all, and nobody could have it."""
        raise NotImplementedError

    def purged(self, first: i64, last: i64, count: i64, by: object | None) -> None:
        """All entries from the place `first` to the place `last` leave, which are `count`.

        `by`: the actor who asked for it, of `Journal.who`.
        """
        raise NotImplementedError

    def appended(self, message: Message, offset: i64) -> None:
        """The queue is a stream, and `message` has this offset."""
        raise NotImplementedError

    def shown(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """`consumer`, which acquires nothing, is sent `entry`."""
        raise NotImplementedError

    def trimmed(self, first: i64, last: i64, count: i64) -> None:
        """Retention takes `count` rows of a stream away, those with the offsets from `first` to `last`."""
        raise NotImplementedError

    def who(self) -> object | None:
        """The actor of what happens now (`Journal.who`)."""
        raise NotImplementedError

    def renamed(self) -> None:
        """The queue is called otherwise from here on."""
        raise NotImplementedError

    def deleted(self) -> None:
        """The queue is deleted, with all that is in it now."""
        raise NotImplementedError


class Journal:
    """The journal of a broker, as the core knows it: this one is switched off.

    `on`: something may be journaled. `events`: how many there were since the start, as far as is known, and
    `lost`: of how many nothing was written. `way`: how what is enqueued now comes into its queue, and what
    becomes of what is removed; `publisher`: who publishes it, if it is published. `actor`: whose request is
    being worked on (a `Session`, a `Connection` or an `Operator`), None: nobody's, or that of an operator
    whom only the journal knows.
    """

    def __init__(self) -> None:
        self.on: bool = False
        self.events: i64 = 0
        self.lost: i64 = 0
        self.way: i64 = PUBLISHED
        self.publisher: Session | None = None
        self.actor: object | None = None

    def level_of(self, queue: Queue) -> str:
        """Out of LEVELS, what holds for `queue`."""
        return OFF

    def of(self, queue: Queue) -> QueueJournal | None:
        """What is to be told of `queue`, whose arguments or policies are new; None: nothing."""
        return None

    def who(self) -> object | None:
        """Return the actor of what happens now, for steps in later turns; None: the broker itself."""
        return None

    def unroutable(self, message: Message) -> None:
        """A message was published to no queue."""

    def refused(
        self,
        session: Session | None,
        address: Address,
        message: Message | None,
        reason: i64,
        queue: object | None = None,
    ) -> None:
        """A message for this address was refused. `queue`: the `Queue` that is full or stopped, if one is."""

    def refused_by(self, session: Session | None, message: Message, error: BrokerError) -> None:
        """Tell that `error` has refused a message of `session`."""
        queue = error.queue if isinstance(error, QueueStopped) else None
        self.refused(session, message.address, message, refusal_of(error), queue)

    def rolled_back(self, session: Session | None, publishes: i64, settlements: i64, why: str) -> None:
        """A transaction with so many publishes and settlements has been rolled back."""

    def changed(self, change: dict[str, object]) -> None:
        """A definition has changed; `change` is as the log has it."""

    def confirmed(self, session: Session, count: i64) -> None:
        """A client has been told that `count` messages, which came by `session`, are safe."""


SILENT: Final = Journal()
"""That of a broker which journals nothing."""

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
