"""Why and where messages die, and what a dead letter is to tell of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.entry import HELD, Holder, QueueEntry
from broker.core.message import Message, uid_of
from broker.core.ports import MessageStore
from broker.core.queues.hooks import EXPIRED, REJECTED, BacklogHook, QueueLimits, Seeker
from broker.core.queues.host import QueueHost
from broker.core.queues.queue import Queue
from broker.core.view import MessageView

NO_PLACE: Final[i64] = -1
_HELD: Final = "held"
_MARK_SHIFT: Final = 56  # `broker.store.format`, count
_WAS_HELD: Final[i64] = 16  # a mark beside the reason's number, from 1
# why a dead letter does not arrive
NO_EXCHANGE: Final = 0
NO_ROUTE: Final = 1
CYCLE: Final = 2
FULL: Final = 3
ARRIVES: Final = 4  # it does
CAUSES: Final[tuple[str, ...]] = ("no_exchange", "no_route", "cycle", "full")


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


class LetterPassage:
    """The way of a dead letter, once it is planned; `broker.core.publishing.passage` extends this class."""


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
        self,
        queue: Queue,
        rules: QueueLimits,
        message: Message,
        reason: i64,
        held: Message | None,
        holder: Queue,
    ) -> None:
        self.queue = queue
        self.rules = rules
        self.message = message
        self.reason = reason
        self.held = held
        self.holder = holder
        self.passage: LetterPassage | None = None
        self.past: Past | None = None
        self.order: i64 = NO_PLACE
        self.by: Holder | None = None
        self.uid: i64 = uid_of(message)
        self.count: i64 = 0
        self.sure = False
        self.failure: i64 = ARRIVES
        self.apart = False
        self.planned = False
        self.full: list[QueueLimits] = []
        self.obstacle = ""
        self.is_unreadable = False
        self.number: i64 = 0
        self.lane: Seeker | None = None
        self.is_seized = False
        self.arrival: i64 = 0
        self.deliveries: i64 = 0


_REJECTED: Final = "rejected"


@final
class Past:
    """How it went with a message in the queue in which it died.

    `deliveries`: how often the queue, which counts, gave it out, 0: never; `returns`: how often it came back
    then in a way that counts. `expired_by`: whose time to live was over, "message" or "queue"; "" if it did
    not expire; `expired_while`: "ready", or "held" because it was to wait before it was tried again.
    `annotations`: what consumers have added to it, encoded.
    """

    def __init__(self) -> None:
        self.deliveries: i64 = 0
        self.returns: i64 = 0
        self.expired_by = ""
        self.expired_while = ""
        self.annotations = b""


@final
class Notice:
    """What a dead letter is to say: the message has left `queue` at `date` (ms since 1970) for `reason`.

    `keeps_keys`: it goes on with the routing keys that it has; else those that its publisher added are void.
    `past`: what else there is to tell, if anything.
    """

    def __init__(
        self, queue: str, reason: str, date: i64, keeps_keys: bool, past: Past | None = None
    ) -> None:
        self.queue = queue
        self.reason = reason
        self.date = date
        self.keeps_keys = keeps_keys
        self.past = past


@final
class DeadLetter:
    """A message that says why it died.

    `content`: as it goes on, without an expiration. `copies`: the routing keys that it has beside its own.
    `deaths`: queue and reason of each death, the latest first. `view`: for exchanges that choose by message.
    """

    def __init__(
        self, content: bytes, copies: list[str], deaths: list[tuple[str, str]], view: MessageView
    ) -> None:
        self.content = content
        self.copies = copies
        self.deaths = deaths
        self.view = view

    def ends_cycle(self, queue: str) -> bool:
        """Whether the message died in `queue` before, and no client has refused it since.

        It would die there again and again, with nobody to notice. [RabbitMQ automatic dead-letter cycles]
        """
        for where, reason in self.deaths:
            if reason == _REJECTED:
                return False
            if where == queue:
                return True
        return False


LetterWriter = Callable[[Message, MessageStore, Notice], DeadLetter]
"""Makes the dead letter of a message; the store has its content if memory has not.

Raises what MessageStore.load raises.
"""


def bare_letter(message: Message, store: MessageStore, notice: Notice) -> DeadLetter:
    """For messages of which nothing is known but where they go."""
    content = message.content
    if content is None:
        content = store.load(message)
    return DeadLetter(content, [], [(notice.queue, notice.reason)], MessageView())


def death_of(queue: Queue, rules: QueueLimits, entry: QueueEntry, reason: i64) -> Death:
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


class DeathHost(QueueHost):
    """The virtual host as queues know it whose messages die; `broker.core.vhosts.vhost` implements it."""

    def dead_letter(self, death: Death) -> None:
        """Dead-letter a message that has left its queue."""
        raise NotImplementedError

    def try_again(self, death: Death) -> bool:
        """Dead-letter a message that waits for that; False: it goes on waiting."""
        raise NotImplementedError

    def backlog_began(self, backlog: BacklogHook) -> None:
        """Messages of a queue wait to be dead-lettered: try them again when routes change."""
        raise NotImplementedError

    def backlog_ended(self, backlog: BacklogHook) -> None:
        """No message of the queue waits any more."""
        raise NotImplementedError
