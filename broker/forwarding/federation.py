"""Federation: the links of all federated exchanges and queues of a broker. [RabbitMQ federation]

A policy with a key of federation gives each matching exchange and queue a link for each of its upstreams. A
link is a shovel whose source is at the upstream, and whose destination is the local object. Links appear and
vanish with policies, upstreams, sets, exchanges and queues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, final

import structlog

from broker.core.arguments.queue import is_stream
from broker.core.broker import CLUSTER_NAME, INTERNAL, Broker
from broker.core.delivery.journal import DELETED, STARTED
from broker.core.errors import BrokerError, NotFound, StoreFailed
from broker.core.names import DEFAULT_EXCHANGE
from broker.core.queues.queue import Queue
from broker.core.routing.federation import INTERNAL_PURPOSE
from broker.core.routing.graph import Exchange
from broker.core.schedule import TimedTask
from broker.core.vhosts.vhost import VirtualHost
from broker.forwarding.definition import Definition, DestinationEnd, SourceEnd
from broker.forwarding.ends import EndHost
from broker.forwarding.exchange_link import ExchangeSource, LinkMemory
from broker.forwarding.federated_source import Place
from broker.forwarding.line import Dialer
from broker.forwarding.ports import MessageSource
from broker.forwarding.queue_link import QueueSource
from broker.forwarding.shovel import RUNNING, STARTING, Attempt, ForwardingHost, Shovel
from broker.forwarding.staged import StagingHost
from broker.forwarding.upstream import UPSTREAM, UPSTREAM_SET, Choice, choose_upstreams
from broker.forwarding.uri import AMQP091, parse_uri

EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"
ERROR: Final = "error"
STATUSES: Final = (STARTING, RUNNING, ERROR)
"""The states of links, as RabbitMQ shows them."""

NAMES: Final = f"{INTERNAL}_federation_names"
"""The global parameter with the names that this broker's queues at upstreams have, the present one first."""

NAMES_MAX: Final = 20
SLICE: Final = 100  # objects whose links are compared with the definitions in a turn

_log = structlog.get_logger("amqpd.forwarding")

Node = Queue | Exchange


@final
class FederationLink(Shovel):
    """The link of a federated exchange or queue, `place`, to an upstream.

    `text`: everything that, when changed, needs another link. `objects`: the names of the link's objects at
    the upstream. `arguments`: the arguments of its queue there. `sites`: hosts and virtual hosts of the
    upstream. `id`: names the link in the HTTP API.
    """

    def __init__(
        self,
        place: Place,
        node: Node,
        choice: Choice,
        host: ForwardingHost,
        note_empty: Callable[[], None],
    ) -> None:
        upstream = choice.upstream
        self.place = place
        self.upstream = upstream
        self.target = (upstream.exchange if place.kind == EXCHANGE else upstream.queue) or place.name
        self.text = _text_of(place, choice)
        self.objects = place.name, self.target
        self.arguments = upstream.expires, upstream.message_ttl, upstream.queue_type
        self.sites = {(uri.host, uri.vhost) for uri in upstream.uris}
        identity = "\0".join((place.vhost.name, place.kind, place.name, upstream.name, self.target))
        self.id = hashlib.blake2b(identity.encode(errors="surrogateescape"), digest_size=4).hexdigest()
        super().__init__(_definition_of(place, choice), host, _note_finished)
        self.kind = "federation link"
        self.names = {place.kind: place.name, "upstream": upstream.name, "vhost": place.vhost.name}
        self._node = node
        self._memory = LinkMemory(note_empty)

    def shares_objects(self, other: FederationLink) -> bool:
        """Whether two links of a node have the same objects, at the same upstream."""
        return self.objects == other.objects and not self.sites.isdisjoint(other.sites)

    def has_emptied(self, name: str) -> bool:
        """Whether no message waits for the link at its upstream under a former name of this broker."""
        if self.place.kind == QUEUE:
            return True
        return name not in self.place.former_names or all(
            (name, host, vhost) in self._memory.empty for host, vhost in self.sites
        )

    def new_source(self, attempt: Attempt) -> MessageSource:
        """Return the connection of an attempt to the upstream."""
        node = self._node
        ends = attempt, self.definition, attempt.source_uri, self.host.ends, self.upstream, self.place
        if isinstance(node, Queue):
            return QueueSource(*ends, node)
        return ExchangeSource(*ends, node, self._memory)

    @property
    def labels(self) -> tuple[str, ...]:
        """The federated object's name, its kind, the name of the upstream, and the virtual host."""
        return self.place.name, self.place.kind, self.upstream.name, self.place.vhost.name

    @property
    def status(self) -> str:
        """The state as RabbitMQ shows it: one of STATUSES."""
        return self.state if self.state in STATUSES else ERROR


@final
class Federation(TimedTask):
    """The links of a broker, by federated object. They run from `start` to `stop`."""

    def __init__(self, broker: Broker, dialer: Dialer, version: str, staging: StagingHost) -> None:
        super().__init__()
        self._broker = broker
        ends = EndHost(dialer, broker.schedule, version, staging.conversions, lambda: broker.cluster_name)
        self._host = ForwardingHost(ends, staging)
        self._links: dict[Node, dict[str, FederationLink]] = {}
        self._changed: dict[Node, VirtualHost] = {}  # objects whose links may be other ones now
        self._runs = False
        self._has_emptied = False  # a link has found no message under a former name
        broker.parameters.watchers.append(self._on_global_parameter)
        broker.parameter_watchers.append(self._on_parameter)
        broker.node_watchers.append(self._on_node)
        broker.leaving.append(self._forget_vhost)

    def all(self) -> Iterator[FederationLink]:
        """Yield all links."""
        for links in list(self._links.values()):
            yield from list(links.values())

    def existing(self, vhost: str, name: str) -> FederationLink:
        """Return a link by its id. Raises NotFound."""
        for link in self.all():
            if link.id == name and link.place.vhost.name == vhost:
                return link
        raise NotFound(f"no federation link '{name}' in vhost '{vhost}'")

    def count(self) -> dict[str, int]:
        """Return the number of links in each of STATUSES."""
        counts = dict.fromkeys(STATUSES, 0)
        for link in self.all():
            counts[link.status] += 1
        return counts

    def start(self) -> None:
        """Start the links of all federated objects: the broker serves clients now."""
        self._runs = True
        for vhost in list(self._broker.vhosts.values()):
            self._look_at_all(vhost)

    def stop(self) -> None:
        """Stop all links: the broker stops. The messages stay at the upstreams."""
        self._runs = False
        self._broker.schedule.cancel(self)
        for link in self.all():
            link.stop()
        self._links.clear()

    def do_due_work(self) -> None:
        """Compare the links of changed objects with the definitions, in slices."""
        for _ in range(min(SLICE, len(self._changed))):
            node = next(iter(self._changed))
            self._update(self._changed.pop(node), node)
        if self._changed:
            self._wake()
        elif self._has_emptied:
            self._has_emptied = False
            self._forget_names()

    def _on_global_parameter(self, name: str) -> None:
        """Start the links again if the broker has another name: the links' names at upstreams contain it."""
        if name == CLUSTER_NAME:
            for vhost in list(self._broker.vhosts.values()):
                self._look_at_all(vhost)

    def _names(self) -> list[str]:
        """Return the names of this broker, the present one first, and note a new one in the log.

        The name of a host may change between two starts, so the log has each name that links have had.
        """
        name = self._broker.cluster_name
        stored = self._stored_names()
        names = [name, *(each for each in stored if each != name)][:NAMES_MAX]
        if names != stored:
            try:
                self._broker.parameters.set(NAMES, names)
            except StoreFailed as error:  # the next comparison notes the name
                _log.warning("name of the broker not stored for federation", name=name, reason=error.text)
        return names

    def _stored_names(self) -> list[str]:
        stored = self._broker.parameters.get(NAMES)
        return [str(each) for each in stored] if isinstance(stored, list) else []

    def _forget_names(self) -> None:
        """Forget the former names under which no link has messages."""
        names = self._stored_names()
        links = list(self.all())
        left = names[:1] + [name for name in names[1:] if not all(link.has_emptied(name) for link in links)]
        if left != names:
            with suppress(StoreFailed):  # the links look for the queues again after the next start
                self._broker.parameters.set(NAMES, left)

    def _note_empty(self) -> None:
        self._has_emptied = True
        self._wake()

    def _on_parameter(self, vhost: VirtualHost, component: str, name: str) -> None:
        if component in (UPSTREAM, UPSTREAM_SET):
            self._look_at_all(vhost)

    def _on_node(self, vhost: VirtualHost, node: Node) -> None:
        """Note a node that is new, has other policies, or was deleted, if it is or was federated."""
        if self._runs and (node.effect.federation[0] or node in self._links):
            self._changed[node] = vhost
            self._wake()

    def _look_at_all(self, vhost: VirtualHost) -> None:
        for exchange in list(vhost.topology.exchanges.values()):
            self._on_node(vhost, exchange)
        for queue in list(vhost.topology.queues.values()):
            self._on_node(vhost, queue)

    def _wake(self) -> None:
        if self.due == 0:
            self._broker.schedule.set(self, self._broker.schedule.now())

    def _update(self, vhost: VirtualHost, node: Node) -> None:
        """Stop the links of a node that are no longer defined, and start the new ones."""
        before = self._links.pop(node, {})
        links: dict[str, FederationLink] = {}
        started: list[FederationLink] = []
        for link in self._defined(vhost, node):
            old = before.get(link.id)
            if old is not None and old.text == link.text:
                links[link.id] = old
                del before[link.id]
            else:
                links[link.id] = link
                started.append(link)
        for link in before.values():
            heir = next((each for each in links.values() if each.shares_objects(link)), None)
            link.stop(heir is None or heir.arguments != link.arguments, DELETED)
            _log.info("federation link deleted", **link.names)
        if links:
            self._links[node] = links
        for link in started:
            link.record(STARTED)
            link.start()

    def _defined(self, vhost: VirtualHost, node: Node) -> list[FederationLink]:
        """Return new links for a node, by its policies.

        Upstreams that are the same object of the same broker have a single link, of the first of them.
        """
        if not _can_be_federated(vhost, node):
            return []
        key = node.effect.federation[0]
        policy = next((each for each in node.effect.policies if key in each.definition), None)
        if policy is None:
            return []
        kind = QUEUE if isinstance(node, Queue) else EXCHANGE
        names = [self._broker.cluster_name] if kind == QUEUE else self._names()
        place = Place(vhost, kind, node.name, names[0], policy.name, tuple(names[1:]))
        links: dict[str, FederationLink] = {}
        try:
            for choice in choose_upstreams(vhost.name, vhost.parameters, node.effect.federation):
                link = FederationLink(place, node, choice, self._host, self._note_empty)
                if link.id in links:
                    continue
                first = next((each for each in links.values() if each.shares_objects(link)), None)
                if first is None:
                    links[link.id] = link
                else:
                    _log.warning("federation link not started", **link.names, same_as=first.upstream.name)
        except BrokerError as error:  # a later version of the broker has set a parameter
            _log.error("not federated", **{kind: node.name}, vhost=vhost.name, reason=error.text)
        return list(links.values())

    def _forget_vhost(self, name: str) -> None:
        for node, vhost in list(self._changed.items()):
            if vhost.name == name:
                del self._changed[node]
        for node, links in list(self._links.items()):
            if any(link.place.vhost.name == name for link in links.values()):
                del self._links[node]
                for link in links.values():
                    link.stop(True, DELETED)


def _can_be_federated(vhost: VirtualHost, node: Node) -> bool:
    """Whether a node exists and may be federated: neither internal objects nor streams are. [RabbitMQ]"""
    if isinstance(node, Exchange):
        return (
            vhost.topology.exchanges.get(node.name) is node
            and node.name != DEFAULT_EXCHANGE
            and not node.internal
        )
    return (
        vhost.topology.queues.get(node.name) is node
        and INTERNAL_PURPOSE not in node.arguments
        and not is_stream(node.arguments)
        and node.partitions is None
        and node.remote is None
    )


def _definition_of(place: Place, choice: Choice) -> Definition:
    """Return the definition of the shovel that a link is."""
    upstream = choice.upstream
    source = SourceEnd(upstream.uris, AMQP091)
    source.prefetch = upstream.prefetch
    destination = DestinationEnd([parse_uri("amqp://", place.vhost.name, UPSTREAM)], AMQP091)
    if place.kind == QUEUE:
        destination.queue = destination.key = place.name
        destination.exchange = ""
        destination.predeclared = True
    else:
        destination.exchange = place.name
    definition = Definition(place.vhost.name, place.name, source, destination)
    definition.ack_mode = upstream.ack_mode
    definition.reconnect_delay = upstream.reconnect_delay
    definition.title = f"federation link of {place.kind} '{place.name}' to upstream '{upstream.name}'"
    definition.client_name = f"Federation link (upstream: {upstream.name}, policy: {place.policy})"
    return definition


def _text_of(place: Place, choice: Choice) -> str:
    cluster_name = place.cluster_name if place.kind == EXCHANGE else ""  # links of queues do not show it
    return "\0".join((place.name, cluster_name, place.policy, choice.text))


def _note_finished(link: Shovel) -> None:
    """Do nothing: a link does not count its messages, so it never finishes."""
