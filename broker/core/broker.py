"""The broker: its virtual hosts, and their durable definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Final, final

from mypy_extensions import i64

from broker.core.counters import Counters
from broker.core.delivery.journal import SILENT, Journal
from broker.core.errors import NotAllowed, NotFound, PreconditionFailed, Protected
from broker.core.message_view import Views, bare_view
from broker.core.names import check_length
from broker.core.operators.sink import Sinks
from broker.core.operators.stage import STAGE, Stages
from broker.core.partitions.partitioned import partitions_of
from broker.core.ports import MessageStore
from broker.core.publishing.receipts import ReceiptWriter, bare_receipt
from broker.core.queues.death import LetterWriter, bare_letter
from broker.core.queues.election import EXCLUSIVE_DRAIN
from broker.core.queues.queue import Queue, dead_letter_exhausted, drop_outdated
from broker.core.queues.virtual_host import ignore_report
from broker.core.remotes.remote import RemoteLinks
from broker.core.routing.graph import Exchange
from broker.core.schedule import Schedule
from broker.core.streams.stream import open_stream
from broker.core.vhosts.changes import (
    DELETED,
    VHOST,
    Change,
    check_queue_type,
    limits_change,
    metadata_change,
    number_of,
    text_of,
    vhost_change,
)
from broker.core.vhosts.definitions import apply_change, apply_vhost_change, changes_of, describe_vhost
from broker.core.vhosts.members import delete_orphans
from broker.core.vhosts.parameters import is_same
from broker.core.vhosts.registry import INCARNATION, Registry
from broker.core.vhosts.vhost import VirtualHost

PARAMETER: Final = "parameter"
_DELETED: Final = PARAMETER + ".delete"

INTERNAL: Final = "internal"
"""The prefix of parameter names that concern this broker only. [RabbitMQ]"""

CLUSTER_NAME: Final = "cluster_name"
"""The parameter that names the broker. [RabbitMQ]"""

ParameterChange = dict[str, object]


@final
class Parameters:
    """Global parameters: JSON values by name. [RabbitMQ global parameters]

    `append` appends a change to the log. It raises StoreFailed if the log has stopped. Each of `watchers` is
    called with the name of a parameter that was set or deleted.
    """

    def __init__(self, append: Callable[[ParameterChange], None]) -> None:
        self.watchers: list[Callable[[str], None]] = []
        self._values: dict[str, object] = {}
        self._append = append

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def get(self, name: str) -> object:
        """Return the value of a parameter, None without one."""
        return self._values.get(name)

    def items(self) -> list[tuple[str, object]]:
        """Return all names with their values, in order."""
        return sorted(self._values.items())

    def set(self, name: str, value: object) -> None:
        """Set the value of a parameter.

        Raises:
            PreconditionFailed: the name is empty or longer than 255 bytes.
            StoreFailed: the log has stopped.
        """
        if not name:
            raise PreconditionFailed("a parameter needs a name")
        check_length("parameter name", name)
        if name not in self._values or not is_same(self._values[name], value):
            self._append({"kind": PARAMETER, "name": name, "value": value})
            self._values[name] = value
            self._note_change(name)

    def delete(self, name: str) -> None:
        """Delete a parameter.

        Raises:
            NotFound: no parameter has this name.
            StoreFailed: the log has stopped.
        """
        if name not in self._values:
            raise NotFound(f"no global parameter '{name}'")
        self._append({"kind": _DELETED, "name": name})
        del self._values[name]
        self._note_change(name)

    def changes(self) -> list[ParameterChange]:
        """Return the changes that recreate these parameters."""
        return [{"kind": PARAMETER, "name": name, "value": value} for name, value in self.items()]

    def apply(self, change: ParameterChange) -> None:
        """Apply one change from the log.

        Raises:
            ValueError: the change is none of a parameter.
        """
        name = change.get("name")
        if not isinstance(name, str) or change.get("kind") not in (PARAMETER, _DELETED):
            raise ValueError(f"no change of a parameter: kind '{change.get('kind')}', name '{name}'")
        if change["kind"] == _DELETED:
            self._values.pop(name, None)
        else:
            self._values[name] = change.get("value")

    def _note_change(self, name: str) -> None:
        for watcher in self.watchers:
            watcher(name)


NEXT_NUMBER: Final = "next_number"


@final
class Broker(Registry):
    """All virtual hosts of one log.

    A new broker has no virtual host. The definitions in the log are applied first. Then the caller that
    starts the broker declares `/` if there is no virtual host yet.

    `names` returns the random part of the queue names that the broker generates. `views` makes the view of a
    message. `write_letter` writes the reason of its death into a dead letter. `write_receipt` makes receipts.
    `trouble` receives failures that no client can be informed of. `warn` receives warnings about settings
    that work, but perhaps not as intended; by default `trouble` receives them too.

    Other parts of the daemon keep definitions here (users, for example). `appliers` maps the first word of a
    change's kind to the function that applies the change. Each of `definers` describes the definitions of its
    part, see `describe`. The broker calls each of `leaving` with the name of a virtual host before the
    virtual host is deleted. It calls each of `left` with the name when everything in the virtual host has
    been released; a new virtual host may have this name by then. The broker calls each of
    `parameter_watchers` with virtual host, component and name after a change of a parameter. It calls each of
    `node_watchers` with virtual host and queue or exchange, see `VirtualHost.note_node`. `node`: the name of
    the broker unless operators have set another one. `remote_links`: the links of remote queues to other
    brokers. Each of `reader_finders` returns the readers that read a queue exactly once, for people.
    """

    def __init__(
        self,
        store: MessageStore,
        counters: Counters,
        names: Callable[[], str],
        schedule: Schedule,
        views: Views = bare_view,
        write_letter: LetterWriter = bare_letter,
        trouble: Callable[[str], None] = ignore_report,
        write_receipt: ReceiptWriter = bare_receipt,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(store, schedule)
        self.counters = counters
        self.journal: Journal = SILENT
        self.exclusive_drain: i64 = EXCLUSIVE_DRAIN
        self.leaving: list[Callable[[str], None]] = []
        self.left: list[Callable[[str], None]] = []
        self.parameter_watchers: list[Callable[[VirtualHost, str, str], None]] = []
        self.node_watchers: list[Callable[[VirtualHost, Queue | Exchange], None]] = []
        self.node = "amqpd"
        self.parameters = Parameters(self._append)
        self.remote_links = RemoteLinks()
        self._names = names
        self._views = views
        self._write_letter = write_letter
        self._trouble = trouble
        self._write_receipt = write_receipt
        self._warn = trouble if warn is None else warn
        self.staging = Stages(self)
        self.reader_finders: list[Callable[[Queue], list[str]]] = [self.staging.readers_of]
        self.appliers[STAGE] = self.staging.apply
        self.definers.append(self.staging.describe)
        self.sinks = Sinks(self)

    @property
    def next_number(self) -> i64:
        """The number that the next logged queue gets."""
        return self.numbers.next

    @property
    def cluster_name(self) -> str:
        """The name of the broker in headers and for other brokers."""
        name = self.parameters.get(CLUSTER_NAME)
        return name if isinstance(name, str) else self.node

    def vhost(self, name: str) -> VirtualHost:
        """Find a virtual host for a client that wants to work in it.

        Raises:
            NotAllowed: no virtual host has this name.
        """
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise NotAllowed(f"vhost {name} not found")
        return vhost

    def declare_vhost(self, name: str) -> VirtualHost:
        """Make a virtual host, or find it.

        Raises:
            PreconditionFailed: the name is empty, longer than 255 bytes or not valid UTF-8.
            StoreFailed: the log has stopped.
        """
        vhost = self.vhosts.get(name)
        if vhost is not None:
            return vhost
        if not name:
            raise PreconditionFailed("a vhost needs a name")
        check_length("vhost name", name)
        self._append(vhost_change(name))
        return self._add_vhost(name)

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with everything in it. Its messages are released in later turns.

        Raises:
            NotFound: no virtual host has this name.
            Protected: the virtual host is protected from deletion.
            StoreFailed: the log has stopped.
        """
        vhost = self._existing(name)
        if vhost.protected:
            raise Protected(f"vhost '{name}' is protected from deletion: remove the protection first")
        self.store.require()
        for watcher in self.leaving:
            watcher(name)
        del self.vhosts[name]
        self.store.append_definition({"kind": VHOST + DELETED, "name": name})
        self.sinks.forget_vhost(name)
        vhost.dispose().begin(partial(self._disposed, name))

    def limit_vhost(self, name: str, connections_max: int | None, queues_max: int | None) -> None:
        """Replace the limits of a virtual host; None and negative numbers: no limit.

        Existing connections and queues stay.

        Raises:
            NotFound: no virtual host has this name.
            StoreFailed: the log has stopped.
        """
        vhost = self._existing(name)
        connections = None if connections_max is None or connections_max < 0 else connections_max
        queues = None if queues_max is None or queues_max < 0 else queues_max
        self._append(limits_change(name, connections, queues))
        vhost.connections_max = connections
        vhost.queues_max = queues

    def describe_vhost(
        self,
        name: str,
        description: str,
        tags: tuple[str, ...],
        default_queue_type: str | None,
        protected: bool | None = None,
    ) -> None:
        """Replace the metadata of a virtual host. Queues declared without a type get `default_queue_type`.

        `protected`: whether the virtual host is protected from deletion; None: as before.

        Raises:
            NotFound: no virtual host has this name.
            PreconditionFailed: there is no such type of queues.
            StoreFailed: the log has stopped.
        """
        vhost = self._existing(name)
        check_queue_type(name, default_queue_type)
        if protected is None:
            protected = vhost.protected
        before = vhost.description, vhost.tags, vhost.default_queue_type, vhost.protected
        if before == (description, tags, default_queue_type, protected):
            return
        self._append(metadata_change(name, description, tags, default_queue_type, protected))
        vhost.protected = protected
        vhost.description = description
        vhost.tags = tags
        vhost.default_queue_type = default_queue_type

    def describe(self) -> Iterator[list[Change]]:
        """Yield the changes that recreate all durable definitions in a new broker, in order.

        Each list concerns one object, or is empty. Definitions may change between two lists. Changes that are
        appended to the log meanwhile belong between these two lists. With them, the lists make the
        definitions as they are when the last list is yielded.
        """
        yield [{"kind": NEXT_NUMBER, "number": int(self.numbers.next)}]
        if self._incarnation > 0:
            yield [self.describe_incarnation()]
        yield self.parameters.changes()
        for vhost in list(self.vhosts.values()):
            for changes in chain([changes_of(vhost)], describe_vhost(vhost)):
                if self.vhosts.get(vhost.name) is not vhost:
                    break  # the virtual host was deleted meanwhile: another change would recreate it
                yield changes
        for definer in self.definers:
            yield from definer()

    def apply(self, change: Change) -> None:
        """Apply one change from the log. Nothing is appended.

        Changes may come twice, because a log repeats them at the head of a segment. A later change of the
        same object wins. The deletion of an absent object is no error.

        Raises:
            ValueError: the change is malformed or of an unknown kind.
        """
        kind = text_of(change, "kind")
        applier = self.appliers.get(kind.split(".")[0])
        if applier is not None:
            applier(change)
        elif kind == NEXT_NUMBER:
            self.numbers.reserve(number_of(change, "number") - 1)
        elif kind == INCARNATION:
            self.note_incarnation(number_of(change, "number"))
        elif kind == VHOST + DELETED:
            vhost = self.vhosts.pop(text_of(change, "name"), None)
            self.sinks.forget_vhost(text_of(change, "name"))
            if vhost is not None:
                vhost.dispose().finish()
        elif kind.split(".")[0] == VHOST:
            apply_vhost_change(self._known_vhost(text_of(change, "name")), change)
        elif kind.split(".")[0] == PARAMETER:
            self.parameters.apply(change)
        else:
            apply_change(self._known_vhost(text_of(change, "vhost")), change)

    def apply_policies(self) -> None:
        """Apply the policies to all queues and exchanges before the broker serves anybody."""
        for vhost in self.vhosts.values():
            vhost.policies.apply_all()

    def open_streams(self) -> None:
        """Open the streams, once, after the log has restored all definitions.

        Raises OSError, LogDamaged.
        """
        for queue in self.numbers.queues.values():
            if queue.host is not None:
                open_stream(queue, queue.host)

    def open_partitions(self) -> None:
        """Join the members of partitioned queues, once, after the log has restored all definitions."""
        for vhost in self.vhosts.values():
            for queue in vhost.topology.queues.values():
                partitions = partitions_of(queue)
                if partitions is None:
                    continue
                for name in partitions.open(vhost.topology.queues):
                    self._warn(
                        f"queue '{queue.name}' in vhost '{vhost.name}' works without its member '{name}', "
                        "which does not exist"
                    )
                partitions.warn_of_no_members()

    def count_lost(self) -> None:
        """Count the messages lost from volatile queues, once the log has restored all definitions."""
        for queue in self.numbers.queues.values():
            if queue.volatile is not None:
                queue.volatile.note_restart()

    def objections(self) -> list[str]:
        """Describe the restored policies that cannot be used, and why. These policies apply to nothing."""
        return [
            f"the pattern '{policy.pattern}' of {policy.kind.replace('_', ' ')} '{policy.name}' "
            f"in vhost '{vhost.name}' {policy.objection}"
            for vhost in self.vhosts.values()
            for policy in vhost.policies.all()
            if policy.objection
        ]

    def resume(self) -> None:
        """Continue after recovery, when the log accepts appends again."""
        for vhost in self.vhosts.values():
            delete_orphans(vhost.topology)
        self.staging.recover()
        self.sinks.recover()
        for queue in list(self.numbers.queues.values()):
            drop_outdated(queue)
            dead_letter_exhausted(queue)

    def _existing(self, name: str) -> VirtualHost:
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise NotFound(f"no vhost '{name}'")
        return vhost

    def _disposed(self, name: str) -> None:
        for watcher in self.left:
            watcher(name)

    def _known_vhost(self, name: str) -> VirtualHost:
        vhost = self.vhosts.get(name)
        return vhost if vhost is not None else self._add_vhost(name)

    def _add_vhost(self, name: str) -> VirtualHost:
        vhost = VirtualHost(
            name,
            self.store,
            self.counters,
            self._names,
            self.numbers,
            self.schedule,
            self._views,
            self._write_letter,
            self._trouble,
            self.journal,
        )
        vhost.exclusive_drain = self.exclusive_drain
        vhost.receipts.write = self._write_receipt
        vhost.receipts.cluster_name = lambda: self.cluster_name
        vhost.remote_links = self._remote_links
        vhost.readers_of = self._readers_of
        vhost.warn = self._warn
        vhost.parameters.changed = partial(self._note_parameter, vhost)
        vhost.note_node = partial(self._note_node, vhost)
        self.vhosts[name] = vhost
        return vhost

    def _remote_links(self) -> RemoteLinks:
        return self.remote_links

    def _readers_of(self, queue: Queue) -> list[str]:
        return [reader for find in self.reader_finders for reader in find(queue)]

    def _note_parameter(self, vhost: VirtualHost, component: str, name: str) -> None:
        for watcher in self.parameter_watchers:
            watcher(vhost, component, name)

    def _note_node(self, vhost: VirtualHost, node: Queue | Exchange) -> None:
        for watcher in self.node_watchers:
            watcher(vhost, node)

    def _append(self, change: Change) -> None:
        """Append a change before it takes effect: a change that cannot be stored must not take effect."""
        self.store.require()
        self.store.append_definition(change)
