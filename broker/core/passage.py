"""A message and where it goes, which is found out before it is appended, and before it goes there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.dead_letter import MAXLEN, Death
from broker.core.identity import Identity, identity_of, leave_out_known
from broker.core.keeper import Keeper
from broker.core.message import DELAYED, TELLS_ARRIVAL, Message
from broker.core.queue import Queue
from broker.core.rules import Rules
from broker.core.twin import unlogged_twin

if TYPE_CHECKING:
    from broker.core.ports import MessageStore
    from broker.core.topology import Topology


NO_RULES: Final[list[Rules]] = []
NO_DEATHS: Final[list[Death]] = []


@final
class Passage:
    """`queues` and `keepers` get `message`.

    `identity`: what it is known by, if that matters to one of them; `known`: all queues have had it before.
    `deaths`: of the message in queues that take no more and send on what they refuse; `full`: the rules of
    others that take no more. Both only if `leave_out_full` was asked for.
    """

    def __init__(self, message: Message, queues: list[Queue], keepers: list[Keeper]) -> None:
        self.message = message
        self.queues = queues
        self.keepers = keepers
        self.identity: Identity | None = None
        self.known = False
        self.deaths: list[Death] = NO_DEATHS
        self.full: list[Rules] = NO_RULES
        self._reserved: list[Rules] = NO_RULES

    @property
    def logged(self) -> list[Queue]:
        """The queues, those of keepers too, for which the log is to keep the message."""
        if not self.message.persistent:
            return []
        logged = [queue for queue in self.queues if queue.logged]
        logged += [keeper.queue for keeper in self.keepers if keeper.queue.logged]
        return logged

    @property
    def leads_somewhere(self) -> bool:
        """Whether a queue or keeper gets the message, or dead-letters it."""
        return bool(self.queues) or bool(self.keepers) or bool(self.deaths)

    @property
    def streams(self) -> list[Queue]:
        """The queues that keep it in a stream, persistent or not."""
        return [queue for queue in self.queues if queue.stream is not None]

    def identify(self, topology: Topology) -> None:
        """Leave out queues that have had the message.

        Raises:
            PreconditionFailed: it says something of itself that cannot be.
            StoreFailed: a queue that has had it cannot say so durably.
        """
        identity = identity_of(self.message, self.queues, topology)
        if identity is None:
            return
        left = leave_out_known(identity, self.message, self.queues, topology)
        self.known = not left and not any(keeper.takes for keeper in self.keepers)
        self.queues = left
        self.identity = identity

    def identify_again(self, topology: Topology) -> None:
        """The same of what was published before: what it says that cannot be counts for nothing.

        Nobody is there to be told: its publisher went by queues that did not ask.
        """
        try:
            self.identify(topology)
        except Exception:
            self.identity = None

    def append(self, topology: Topology) -> bool:
        """Append the message for those queues; false if there is none. The log accepts appends."""
        logged = self.logged
        if logged:
            topology.store.append_message(self.message, logged)
        self.append_rows()
        self.append_identity(topology)
        return bool(logged) or bool(self.streams)

    def append_rows(self) -> None:
        """Append the message to streams. The log accepts appends."""
        for queue in self.queues:
            if queue.stream is not None:
                queue.stream.append(self.message)

    def append_identity(self, topology: Topology) -> None:
        """Append, next to the message, that its queues have had it."""
        if self.identity is not None:
            self.identity.append(self.message, self.queues, topology)

    def leave_out_full(self, behind: bool) -> None:
        """Leave out queues that take no more; `behind`: also where dead letters wait for room."""
        message = self.message
        taking: list[Queue] = []
        deaths: list[Death] = []
        full: list[Rules] = []
        for queue in self.queues:
            rules = queue.rules
            if rules is None or not (rules.refuses(message) if behind else rules.lacks_room(message)):
                taking.append(queue)
            elif rules.passes_on:
                deaths.append(Death(queue, rules, message, MAXLEN, None, queue))
            else:
                full.append(rules)
        self.queues = taking
        self.deaths = deaths
        self.full = full

    # ---- when some time passes between the append and the put

    def reserve(self) -> None:
        """Keep room in queues that refuse what is too much, and have the others know what is to come.

        Also for what the same transaction sends.
        """
        if self.identity is not None:
            self.identity.reserve(self.queues)
        for queue in [] if self.message.marks & DELAYED else self.queues:
            rules = queue.rules
            if rules is not None and rules.limited:
                rules.reserve(1, self.message.size)
                self._reserved = [*self._reserved, rules]

    def unreserve(self) -> None:
        """Give the room back."""
        if self.identity is not None:
            self.identity.unreserve()
        for rules in self._reserved:
            rules.reserve(-1, -self.message.size)
        self._reserved = NO_RULES

    def leave_out_deleted(self, store: MessageStore) -> None:
        """Leave out what was deleted since the append, when it did not have the message yet."""
        if not self._has_deleted():
            return
        for queue in self.logged:
            if queue.deleted:
                store.forget(self.message, queue)
        self.queues = [queue for queue in self.queues if not queue.deleted]
        self.keepers = [keeper for keeper in self.keepers if not keeper.queue.deleted]

    def _has_deleted(self) -> bool:
        for queue in self.queues:  # of most there is one
            if queue.deleted:
                return True
        return bool(self.keepers) and any(keeper.queue.deleted for keeper in self.keepers)

    # ---- at last

    def put(self, topology: Topology, way: i64) -> None:
        """Put the message, which has been appended, where it goes; `way`: in the journal, as PUBLISHED."""
        journal = topology.journal
        before = journal.way
        journal.way = way
        message = self.message
        twin = unlogged_twin(message, self.queues, self.keepers)
        for keeper in self.keepers:
            keeper.add(message if keeper.queue.logged else twin)
        for queue in self.queues:
            queue.enqueue(message if queue.logged else twin)
        journal.way = before
        if self.identity is not None:
            self.identity.keep(self.queues)
        if message.marks & TELLS_ARRIVAL:
            topology.receipts.arrived(message, self.queues)
