"""The virtual host as its topology, and messages on their way into its queues, see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from broker.core.arguments.unknown import UnknownArguments
from broker.core.counters import Counters
from broker.core.delivery.journal import Journal
from broker.core.hashing import Chance
from broker.core.message import Message
from broker.core.message_view import Views
from broker.core.ports import MessageStore
from broker.core.queues.death import DeathHost, LetterWriter
from broker.core.queues.election import EXCLUSIVE_DRAIN
from broker.core.queues.queue import Queue
from broker.core.remotes.remote import RemoteLinks
from broker.core.routing.graph import Exchange, Keeper
from broker.core.schedule import Schedule


def no_readers(queue: Queue) -> list[str]:
    """Return nothing: the virtual host belongs to no broker."""
    return []


class RoutingHost(DeathHost):
    """The virtual host as routing and publishing see it; `broker.core.vhosts.vhost` implements the methods.

    `name`: the name of the virtual host. `journal`: the journal of events of the broker. `write_letter`:
    writes dead letters. `connections_max`, `queues_max`: the limits of the virtual host, None: no limit.
    `remote_links` returns the links of remote queues to other brokers. `readers_of` returns the
    readers and shovels that read a queue exactly once, for people. `description`, `tags`: for operators.
    `default_queue_type`: the type of queues declared without a type. `protected`: operators have protected
    the virtual host from deletion.
    """

    def __init__(
        self,
        name: str,
        store: MessageStore,
        counters: Counters,
        journal: Journal,
        schedule: Schedule,
        chance: Chance,
        views: Views,
        write_letter: LetterWriter,
        trouble: Callable[[str], None],
    ) -> None:
        super().__init__(store, schedule, chance, views, EXCLUSIVE_DRAIN, trouble)
        self.name = name
        self.counters = counters
        self.journal = journal
        self.write_letter = write_letter
        self.connections_max: int | None = None
        self.queues_max: int | None = None
        self.description = ""
        self.tags: tuple[str, ...] = ()
        self.default_queue_type: str | None = None
        self.protected = False
        self.remote_links: Callable[[], RemoteLinks] = RemoteLinks
        self.readers_of: Callable[[Queue], list[str]] = no_readers
        self._unknown_arguments = UnknownArguments()

    def warn_of_unknown(self, arguments: Mapping[str, object], known: Iterable[str], owner: str) -> None:
        """Warn of unknown `arguments` of `owner` that are near to one of the `known` names."""
        for text in self._unknown_arguments.warnings(arguments, known, owner):
            self.warn(text)

    def cover_queue(self, queue: Queue) -> None:
        """Apply the policies that match a queue, which is new or altered."""
        raise NotImplementedError

    def cover_exchange(self, exchange: Exchange) -> None:
        """Apply the policies that match a new exchange."""
        raise NotImplementedError

    def on_node_changed(self, node: Queue | Exchange) -> None:
        """Inform watchers that a queue or an exchange is about to be added, or has other policies."""
        raise NotImplementedError

    def on_node_removed(self, node: Queue | Exchange) -> None:
        """Inform dependent objects that a queue or an exchange has been deleted."""
        raise NotImplementedError

    def new_delays(self, exchange: Exchange, queue: Queue) -> Keeper:
        """Make the keeper of messages that `exchange` delays; `queue` stores them."""
        raise NotImplementedError

    def send_delayed(
        self, message: Message, source: Exchange, keys: list[str], held: Message, holder: Queue
    ) -> bool:
        """Route a message that `source` has delayed, as `held` in `holder`, by the present bindings.

        False, and nothing was done, if one of its queues is full.
        """
        raise NotImplementedError

    def put_delayed(self, message: Message, queue: Queue, held: Message | None) -> None:
        """Put a message that `queue` has delayed, as `held` in the log, into `queue`."""
        raise NotImplementedError

    def dead_letter_refused(self, queue: Queue, message: Message) -> None:
        """Dead-letter a message that `queue` refuses, if the queue dead-letters refused messages."""
        raise NotImplementedError

    def write_arrival_receipts(self, message: Message, queues: list[Queue]) -> None:
        """Write the receipts for the arrival of a message in `queues`."""
        raise NotImplementedError
