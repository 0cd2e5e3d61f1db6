"""What becomes of entries that leave a queue without having been settled. [RabbitMQ dead letter exchanges]

An entry that is refused, whose time is over, that is one too many or was given out too often leaves its
queue. If the queue has a dead-letter exchange, a message that says so goes where that exchange sends it. To
the log both are one step: in one batch, and none without the other.

A queue dead-letters at most once or at least once (`Rules.sure`). At most once, a dead letter that no queue
takes is dropped. At least once, the message waits in the `Backlog` of its queue until all queues of its
route take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.entry import HELD, QueueEntry
from broker.core.journal import uid_of
from broker.core.leaving import drop, take_out
from broker.core.letter import Past
from broker.core.message import Message

if TYPE_CHECKING:
    from broker.core.consumer import QueueConsumer
    from broker.core.dead_letter_backlog import Lane
    from broker.core.passage import Passage
    from broker.core.queue import Queue
    from broker.core.rules import Rules

REJECTED: Final = 0
EXPIRED: Final = 1
MAXLEN: Final = 2
DELIVERY_LIMIT: Final = 3
QUEUE_EXPIRED: Final = 4
QUEUE_DELETED: Final = 5
NO_PLACE: Final[i64] = -1
_HELD: Final = "held"
_MARK_SHIFT: Final = 56  # `broker.store.format`, count
_WAS_HELD: Final[i64] = 16  # a mark beside the reason's number, from 1
REASONS: Final[tuple[str, ...]] = (
    "rejected",
    "expired",
    "maxlen",
    "delivery_limit",
    "queue_expired",
    "queue_deleted",
)

# why a dead letter does not arrive
NO_EXCHANGE: Final = 0
NO_ROUTE: Final = 1
CYCLE: Final = 2
FULL: Final = 3
ARRIVES: Final = 4  # it does
CAUSES: Final[tuple[str, ...]] = ("no_exchange", "no_route", "cycle", "full")


def dead_letter(queue: Queue, entry: QueueEntry, reason: i64) -> None:
    """AVAILABLE, ACQUIRED or HELD → DEQUEUED: `entry` goes to the dead-letter exchange, if there is one."""
    rules = queue.rules
    if rules is None or not rules.moves(reason):
        queue.counters.discarded[reason] += 1
        if queue.journal is not None:
            queue.journal.discarded(entry, reason)
        drop(queue, entry)
        return
    death = death_of(queue, rules, entry, reason)
    take_out(queue, entry)
    rules.topology.dead_letters.add(death)


def death_of(queue: Queue, rules: Rules, entry: QueueEntry, reason: i64) -> Death:
    """Describe the death of `entry`, which is about to leave `queue`."""
    message = entry.message
    held = message if queue.logged and message.sequence != 0 else None
    death = Death(queue, rules, message, reason, held, queue)
    death.past = past_of(queue, entry, reason)
    death.order = entry.order
    death.arrival = queue.entries.arrival(entry)
    death.deliveries = entry.delivery_count
    death.count = entry.counted if queue.counts else 0
    death.sure = rules.sure
    if queue.journal is not None:
        death.by = entry.owner
    return death


def marked_count(death: Death) -> i64:
    """The count of a message that waits to be dead-lettered: how it died is in the first octet."""
    past = death.past
    mark = death.reason + 1
    if past is not None and past.expired_while == _HELD:
        mark |= _WAS_HELD
    return mark << _MARK_SHIFT | death.count


def marked_reason(count: i64) -> i64:
    """Why the message with this count died, -1: it is alive."""
    return (count >> _MARK_SHIFT & (_WAS_HELD - 1)) - 1


def was_held(count: i64) -> bool:
    """Whether the message with this count was HELD when it died."""
    return count >> _MARK_SHIFT & _WAS_HELD != 0


def plain_count(count: i64) -> i64:
    """The count alone."""
    return count & ((1 << _MARK_SHIFT) - 1)


def past_of(queue: Queue, entry: QueueEntry, reason: i64) -> Past | None:
    """What its letter is to tell of `entry`, which is about to leave `queue`; None: nothing."""
    past = Past()
    if queue.counts:
        past.deliveries = entry.delivery_count
        is_refused = reason == REJECTED and entry.owner is not None  # else it has come back before
        past.returns = entry.counted - 1 if is_refused else entry.counted
    if reason == EXPIRED:
        past.expired_by = "message" if entry.own_time else "queue"
        past.expired_while = _HELD if entry.state == HELD else "ready"
    past.annotations = queue.entries.annotations_of(entry)
    return past if past.deliveries > 0 or past.expired_by or past.annotations else None


@final
class Death:
    """A message that has left `queue` for a `reason` and waits to be dead-lettered.

    `held`: what the log still has instead, of `holder`: until it is settled, the message is there again after
    a crash. None if it has nothing. `passage`: the way of the dead letter, once it is planned; None also if
    its exchange is not there. `past`: what its letter tells of its time in the queue, if anything. `order`:
    its place there; NO_PLACE: the queue did not take it. `arrival`: the number of its arrival there.
    `deliveries`: how often it was delivered there. `uid`: what the journal knew it by. `count`: how
    many of its deliveries count, as the log has it. `by`: the consumer that had it, for the journal.
    `sure`: it is dead-lettered at least once. `failure`: why its letter does not arrive, one of CAUSES or
    ARRIVES, once it is `planned`. `apart`: its route is its own, not that of all with its routing key.
    `full`: the rules of the queues that have no room for its letter. `obstacle`: why the letter does not
    arrive where a queue that refuses it passes it on; "" if it is not passed on. `is_unreadable`: the disk
    has not given the message back. `number`: its place in the `Backlog`, once it waits there. `lane`: where
    it waits there; None: it does not wait. `is_seized`: an operation is about to take it away, so that it is
    not tried.
    """

    def __init__(
        self, queue: Queue, rules: Rules, message: Message, reason: i64, held: Message | None, holder: Queue
    ) -> None:
        self.queue = queue
        self.rules = rules
        self.message = message
        self.reason = reason
        self.held = held
        self.holder = holder
        self.passage: Passage | None = None
        self.past: Past | None = None
        self.order: i64 = NO_PLACE
        self.by: QueueConsumer | None = None
        self.uid: i64 = uid_of(message)
        self.count: i64 = 0
        self.sure = False
        self.failure: i64 = ARRIVES
        self.apart = False
        self.planned = False
        self.full: list[Rules] = []
        self.obstacle = ""
        self.is_unreadable = False
        self.number: i64 = 0
        self.lane: Lane | None = None
        self.is_seized = False
        self.arrival: i64 = 0
        self.deliveries: i64 = 0
