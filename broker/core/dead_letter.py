"""What becomes of entries that leave a queue without having been settled. [RabbitMQ dead letter exchanges]

An entry that is refused, whose time is over, that is one too many or was given out too often leaves its
queue. If the queue has a dead-letter exchange, a message that says so goes where that exchange sends it. To
the log both are one step: in one batch, and none without the other.
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
    from broker.core.passage import Passage
    from broker.core.queue import Queue
    from broker.core.rules import Rules

REJECTED: Final = 0
EXPIRED: Final = 1
MAXLEN: Final = 2
DELIVERY_LIMIT: Final = 3
NO_PLACE: Final[i64] = -1
REASONS: Final[tuple[str, str, str, str]] = ("rejected", "expired", "maxlen", "delivery_limit")


def dead_letter(queue: Queue, entry: QueueEntry, reason: i64) -> None:
    """AVAILABLE, ACQUIRED or HELD → DEQUEUED: `entry` goes to the dead-letter exchange, if there is one."""
    rules = queue.rules
    if rules is None or not rules.moves(reason):
        queue.counters.discarded[reason] += 1
        if queue.journal is not None:
            queue.journal.discarded(entry, reason)
        drop(queue, entry)
        return
    message = entry.message
    past = past_of(queue, entry, reason)
    take_out(queue, entry)
    held = message if queue.logged and message.sequence != 0 else None
    death = Death(queue, rules, message, reason, held, queue)
    death.past = past
    death.order = entry.order
    rules.topology.dead_letters.add(death)


def past_of(queue: Queue, entry: QueueEntry, reason: i64) -> Past | None:
    """What its letter is to tell of `entry`, which is about to leave `queue`; None: nothing."""
    past = Past()
    if queue.counts:
        past.deliveries = entry.delivery_count
        past.returns = entry.counted - 1 if reason == REJECTED else entry.counted
    if reason == EXPIRED:
        past.expired_by = "message" if entry.own_time else "queue"
        past.expired_while = "held" if entry.state == HELD else "ready"
    past.annotations = queue.entries.annotations_of(entry)
    return past if past.deliveries > 0 or past.expired_by or past.annotations else None


@final
class Death:
    """A message that has left `queue` for a `reason` and waits to be dead-lettered.

    `held`: what the log still has instead, of `holder`: until it is settled, the message is there again after
    a crash. None if it has nothing. `passage`: the way of the dead letter, once it is planned; None also if
    its exchange is not there. `past`: what its letter tells of its time in the queue, if anything. `order`:
    its place there; NO_PLACE: the queue did not take it. `uid`: what the journal knew it by.
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
        self.uid: i64 = uid_of(message)
