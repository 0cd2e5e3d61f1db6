"""The passage of one message into its queues: the destinations, the steps before its append, and the enqueue.

A passage is not the message itself: the log may take the message's content out of memory, and releases the
message when its queues have settled it.
"""

from __future__ import annotations

from typing import Final, final

from broker.core.message import DELAYED, TELLS_ARRIVAL, TELLS_CONSUMED, Message, copy_of, uid_of
from broker.core.message_view import MessageView
from broker.core.partitions.partitioned import spread
from broker.core.ports import MessageStore
from broker.core.publishing.duplicate_check import DuplicateCheck, find_new_queues, identity_of
from broker.core.queues.death import Death, LetterPassage
from broker.core.queues.hooks import MAXLEN, LimitsHook, MemberHook
from broker.core.queues.limits import Limits
from broker.core.queues.queue import Queue
from broker.core.queues.source import Source
from broker.core.routing.graph import Keeper
from broker.core.routing.virtual_host import RoutingHost


def unlogged_copy(message: Message, queues: list[Queue], keepers: list[Keeper]) -> Message:
    """Return the message for queues and keepers that are not logged.

    The content of `message` is in memory.
    """
    if message.sequence != 0:
        for queue in queues:
            if not queue.logged and queue.stream is None:
                return _copy(message)
        for keeper in keepers:
            if not keeper.queue.logged:
                return _copy(message)
    return message


def _copy(message: Message) -> Message:
    unlogged = copy_of(message, message.content)
    unlogged.date = message.date
    unlogged.uid = uid_of(message)
    return unlogged


def refuse_if_full(host: RoutingHost, message: Message, queues: list[Queue]) -> bool:
    """Whether one of the queues is full, so that no queue gets the message and its publisher gets a nack.

    Full queues that dead-letter refused messages do so. [RabbitMQ x-overflow, where the other queues get the
    message] A delayed message is never refused here, because its queue may have room at its date.
    """
    if message.marks & DELAYED:
        return False
    full = [queue for queue in queues if queue.limits is not None and queue.limits.refuses(message)]
    if not full:
        return False
    host.counters.overflowed += 1
    for queue in full:
        host.dead_letter_refused(queue, message)
    return True


def find_full_queue(message: Message, queues: list[Queue]) -> Queue | None:
    """Return the first of the queues that refuses `message` because it is full."""
    for queue in queues:
        if queue.limits is not None and queue.limits.refuses(message):
            return queue
    return None


def set_date(host: RoutingHost, message: Message, queues: list[Queue]) -> None:
    """Date a message that may be logged if its time to live is limited, and limit the time in its queues.

    A message that wants receipts is dated too, because the log stores such marks only for dated messages.
    """
    limited = message.expiration >= 0 or message.marks & (TELLS_ARRIVAL | TELLS_CONSUMED) != 0
    for queue in queues:
        if queue.limits is not None:
            limited = limited or queue.limits.ttl >= 0
        elif message.expiration >= 0 and queue.stream is None:
            queue.limits = Limits(queue, host)
    if limited and message.date == 0 and message.persistent:
        message.date = host.schedule.date()


NO_RULES: Final[list[LimitsHook]] = []
NO_DEATHS: Final[list[Death]] = []
NO_MEMBERS: Final[list[MemberHook]] = []


@final
class RoutedMessage(LetterPassage):
    """The passage of `message` from `source` to `queues` and `keepers`.

    A member takes the place of each partitioned queue among the queues. `view`: a view of the message, if the
    caller has one.
    `identity`: the message's identity, if one of the queues remembers it. `is_duplicate`: all queues have had
    the message before. `has_gap`: a queue must have the message's predecessor first.
    `deaths`: the deaths of the message in full queues that dead-letter what they refuse. `full`: the limits
    of other full queues. `remove_full_queues` sets both.
    """

    def __init__(
        self,
        message: Message,
        queues: list[Queue],
        keepers: list[Keeper],
        source: Source,
        view: MessageView | None = None,
    ) -> None:
        self.message = message
        self.queues = queues
        for queue in queues:
            if queue.partitions is not None:
                self.queues = spread(queues, message, view)
                break
        self.keepers = keepers
        self.source = source
        self.identity: DuplicateCheck | None = None
        self.is_duplicate = False
        self.has_gap = False
        self.deaths: list[Death] = NO_DEATHS
        self.full: list[LimitsHook] = NO_RULES
        self._reserved: list[LimitsHook] = NO_RULES
        self._members: list[MemberHook] = NO_MEMBERS

    @property
    def logged(self) -> list[Queue]:
        """The queues, including those of keepers, for which the log stores the message."""
        if not self.message.persistent:
            return []
        logged = [queue for queue in self.queues if queue.logged]
        logged += [keeper.queue for keeper in self.keepers if keeper.queue.logged]
        return logged

    @property
    def has_destination(self) -> bool:
        """Whether a queue or keeper gets the message, or dead-letters it."""
        return bool(self.queues) or bool(self.keepers) or bool(self.deaths)

    @property
    def streams(self) -> list[Queue]:
        """The queues that store it in a stream, persistent or not."""
        return [queue for queue in self.queues if queue.stream is not None]

    def identify(self, host: RoutingHost) -> None:
        """Leave out queues for which the message is a duplicate.

        Raises:
            PreconditionFailed: the identity is malformed.
            StoreFailed: a queue with a duplicate cannot confirm it as durable.
        """
        identity = identity_of(self.message, self.queues, host, self.source.names_origins)
        if identity is None:
            return
        left = find_new_queues(identity, self.message, self.queues, host)
        self.is_duplicate = not left and not any(keeper.counts_as_routed for keeper in self.keepers)
        self.queues = left
        self.has_gap = identity.has_gap(left)
        self.identity = identity

    def identify_republished(self, host: RoutingHost) -> None:
        """Leave out queues as `identify` does, for a message that was published before.

        A malformed identity is ignored, because there is no publisher to inform: it published to queues that
        did not ask.
        """
        try:
            self.identify(host)
        except Exception:
            self.identity = None

    def append(self, host: RoutingHost) -> bool:
        """Append the message for its logged queues; false if there is none. The log must accept appends."""
        logged = self.logged
        if logged:
            host.store.append_message(self.message, logged)
        self.append_rows()
        self.append_identity(host)
        return bool(logged) or bool(self.streams)

    def append_rows(self) -> None:
        """Append the message to its streams. The log must accept appends."""
        for queue in self.queues:
            if queue.stream is not None:
                queue.stream.append(self.message, self.source)

    def append_identity(self, host: RoutingHost, is_kept: bool = False) -> None:
        """Append, next to the message, that its queues have had it.

        `is_kept`: see `DuplicateCheck.append`.
        """
        if self.identity is not None:
            self.identity.append(self.message, self.queues, host, is_kept)

    def remove_full_queues(self, behind: bool) -> None:
        """Leave out full queues; `behind`: also queues where dead letters wait for room."""
        message = self.message
        accepting: list[Queue] = []
        deaths: list[Death] = []
        full: list[LimitsHook] = []
        for queue in self.queues:
            limits = queue.limits
            if limits is None or not (limits.refuses(message) if behind else limits.lacks_room(message)):
                accepting.append(queue)
            elif limits.passes_on:
                deaths.append(Death(queue, limits, message, MAXLEN, None, queue))
            else:
                full.append(limits)
        self.queues = accepting
        self.deaths = deaths
        self.full = full

    # ---- when time passes between the append and the enqueue

    def reserve(self) -> None:
        """Reserve room in limited queues, and reserve the identity, until the message is put.

        Later publishes of the same transaction count against this room too.
        """
        if self.identity is not None:
            self.identity.reserve(self.queues)
        for queue in self.queues:
            if queue.member is not None:
                queue.member.reserve(1)
                self._members = [*self._members, queue.member]
        for queue in [] if self.message.marks & DELAYED else self.queues:
            limits = queue.limits
            if limits is not None and limits.limited:
                limits.reserve(1, self.message.size)
                self._reserved = [*self._reserved, limits]

    def unreserve(self) -> None:
        """Release the room and the identity."""
        if self.identity is not None:
            self.identity.unreserve()
        for limits in self._reserved:
            limits.reserve(-1, -self.message.size)
        self._reserved = NO_RULES
        for member in self._members:
            member.reserve(-1)
        self._members = NO_MEMBERS

    def remove_deleted_queues(self, store: MessageStore) -> None:
        """Leave out queues that were deleted between the append and the enqueue."""
        if not self._has_deleted():
            return
        for queue in self.logged:
            if queue.deleted:
                store.forget(self.message, queue)
        self.queues = [queue for queue in self.queues if not queue.deleted]
        self.keepers = [keeper for keeper in self.keepers if not keeper.queue.deleted]

    def _has_deleted(self) -> bool:
        for queue in self.queues:  # most often one
            if queue.deleted:
                return True
        return bool(self.keepers) and any(keeper.queue.deleted for keeper in self.keepers)

    # ---- the enqueue

    def put(self, host: RoutingHost) -> None:
        """Put the message, which has been appended, into its queues."""
        message = self.message
        unlogged = unlogged_copy(message, self.queues, self.keepers)
        for keeper in self.keepers:
            keeper.add(message if keeper.queue.logged else unlogged)
        for queue in self.queues:
            queue.enqueue(message if queue.logged else unlogged, self.source)
        if self.identity is not None:
            self.identity.keep(self.queues)
        if message.marks & TELLS_ARRIVAL:
            host.write_arrival_receipts(message, self.queues)
