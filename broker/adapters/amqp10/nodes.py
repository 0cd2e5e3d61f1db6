"""The queues from which links receive: an existing queue, a new one, or the queue of a subscription.

[amqp-1.0 3.5.3, JMS mapping 5]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from broker.adapters.access import QUEUE
from broker.adapters.amqp10.filters.source import SourceFilters
from broker.adapters.amqp10.lifetimes import (
    CONNECTION_CLOSE,
    LIFETIME_POLICY,
    LINK_DETACH,
    NEVER,
    SESSION_END,
    Lifetime,
    Policy,
    dynamic_policy,
    lifespan_of,
)
from broker.adapters.amqp10.names import link_names
from broker.adapters.amqp10.routes import TOPIC_CAPABILITY, create_queue, may_create
from broker.adapters.amqp10.state import Session10State
from broker.adapters.peers.direct_reply import PREFIX as REPLY_PREFIX
from broker.auth.terms import CONFIGURE, READ
from broker.core.arguments.consumer import SELECTOR
from broker.core.errors import BrokerError, ResourceLocked
from broker.core.queues.queue import Queue
from broker.core.routing.bindings import NO_LOCAL
from broker.core.routing.exchanges import TOPIC
from broker.core.selector.selector import Selector
from protocol.amqp10 import addresses
from protocol.amqp10.addresses import Node, node_of, queue_address, quote
from protocol.amqp10.composites import DeleteOnClose, Source, Target
from protocol.amqp10.conditions import INVALID_FIELD, NOT_FOUND, PeerError

SHARED: Final = "shared"
GLOBAL: Final = "global"
TEMPORARY: Final = (
    "temporary-queue",
    "temporary-topic",
)  # exclusive to their connection [JMS mapping 5.3]
VOLATILE_QUEUE: Final = "rabbitmq:volatile-queue"  # the capability of a dynamic source for direct replies
ALL_KEYS: Final = "#"
_QUOTED_MARK: Final = "%"  # follows the client in a subscription's name; no quoted part ends with it


@final
class TerminusNode:
    """A queue, its address, and its lifetime if that depends on the link.

    `is_new`: the queue has just been declared for the link. `policy`: the lifetime policy of a dynamic node.
    `no_local`: the queue does not get messages that the link's connection publishes.
    """

    def __init__(
        self,
        queue: Queue,
        address: str,
        lifetime: Lifetime | None = None,
        is_new: bool = False,
        policy: Policy | None = None,
    ) -> None:
        self.queue = queue
        self.address = address
        self.lifetime = lifetime
        self.is_new = is_new
        self.policy = policy
        self.no_local = False

    @property
    def node_properties(self) -> dict[str, object] | None:
        """The properties of a dynamic node in its terminus."""
        return None if self.policy is None else {LIFETIME_POLICY: self.policy}


Check = Callable[[str, bool], None]
"""Checks the rest of an attach, given the name of the queue and whether the queue is the link's own.

The check comes before the queue is created, so a refused link creates no queue.
"""


def resolve_source(
    session: Session10State, link: str, source: Source | None, filters: SourceFilters, check: Check
) -> TerminusNode:
    """Return the queue from which a receiver gets its messages.

    Raises PeerError and AddressError for a source that makes no sense, what declarations of queues raise, and
    what `check` raises.
    """
    if source is None:
        return _find_subscription(session, link, check)
    if source.dynamic:
        return _create_dynamic(session, source, check)
    node = node_of(source.address)
    address = source.address or ""
    vhost = session.vhost
    if node.kind in (addresses.ANONYMOUS, addresses.MANAGEMENT):
        raise PeerError(INVALID_FIELD, f"source '{address}' is neither a queue nor an exchange")
    name = node.name
    is_exchange = node.kind == addresses.EXCHANGE
    if node.kind == addresses.NAME and name in vhost.topology.exchanges:
        is_exchange = TOPIC_CAPABILITY in source.capabilities or name not in vhost.topology.queues
    if is_exchange:
        return _subscribe(session, link, source, node, filters, check)
    session.peer.rights.require(READ, QUEUE, name)
    if name in vhost.topology.queues:
        queue = vhost.declarations.find_queue(name, session.peer)
        check(name, False)
        return TerminusNode(queue, address)
    if may_create(session, node, source.capabilities):
        check(name, False)
        return TerminusNode(create_queue(session, node), address, is_new=True)
    return TerminusNode(vhost.declarations.find_queue(name, session.peer), address)  # raises NotFound


def delete_new_queue(session: Session10State, terminus_node: TerminusNode) -> None:
    """Delete the queue of a refused link again, if it has just been declared."""
    queue = terminus_node.queue
    if terminus_node.is_new or terminus_node.policy is not None:
        session.lifetimes.pop(queue, None)
        session.vhost.declarations.delete_queue(queue.name, False, False, queue.exclusive_owner)


def create_dynamic_target(session: Session10State, target: Target) -> TerminusNode:
    """Return a new queue for a sender. Raises what `resolve_source` does."""
    return _create_dynamic(session, target, _accept)


def _accept(_queue: str, _subscribes: bool) -> None:
    pass


def _create_dynamic(session: Session10State, terminus: Source | Target, check: Check) -> TerminusNode:
    """Return a new queue, exclusive if it ends with the link or asks for this. [amqp-1.0 3.5.2]

    A queue for direct replies has a name as a requester of AMQP 0-9-1 has, and needs no permission either.
    The queue is deleted when its link ends for any reason. [RabbitMQ direct reply-to]
    """
    policy = dynamic_policy(terminus)
    vhost = session.vhost
    session.peer.require_memory()
    if VOLATILE_QUEUE in terminus.capabilities:
        name = session.peer.server.generate_name(REPLY_PREFIX)
        check(name, True)
        queue = vhost.declarations.declare_queue(name, False, session.peer, False, {}, generated=True)
        lifetime = session.lifetimes[queue] = Lifetime(vhost, queue, LINK_DETACH)
        return TerminusNode(queue, queue_address(name), lifetime, policy=DeleteOnClose())
    name = vhost.declarations.generate_name()
    session.peer.rights.require(CONFIGURE, QUEUE, name)
    check(name, True)
    own = isinstance(policy, DeleteOnClose) or any(each in TEMPORARY for each in terminus.capabilities)
    queue = vhost.declarations.declare_queue(
        name, False, session.peer if own else None, False, {}, generated=True
    )
    lifespan = lifespan_of(vhost, queue, policy)
    lifetime = session.lifetimes[queue] = Lifetime(vhost, queue, CONNECTION_CLOSE, lifespan=lifespan)
    return TerminusNode(queue, queue_address(name), lifetime, policy=policy)


def _subscribe(
    session: Session10State, link: str, source: Source, node: Node, filters: SourceFilters, check: Check
) -> TerminusNode:
    """Return a queue that is bound to an exchange for the link. [JMS mapping 5.2]"""
    vhost = session.vhost
    exchange = vhost.topology.existing_exchange(node.name)
    key = node.key
    if key is None:
        key = ALL_KEYS if exchange.kind == TOPIC else ""
    arguments: dict[str, object] = {}
    if filters.binding is not None:
        key, arguments = filters.binding.key, dict(filters.binding.arguments)
    if isinstance(filters.criterion, Selector):
        arguments[SELECTOR] = filters.criterion.canonical
    policy = source.expiry_policy
    durable = source.durable > 0 or policy == NEVER
    shared = SHARED in source.capabilities
    lasting = durable or shared or source.timeout > 0
    if lasting:
        name = _subscription_name(session, link, shared, GLOBAL in source.capabilities)
    else:
        name = vhost.declarations.generate_name()
    no_local = filters.no_local and not shared
    if no_local:
        arguments[NO_LOCAL] = session.peer.lasting_name() if lasting else session.peer.origin.name
    rights = session.peer.rights
    rights.require(CONFIGURE, QUEUE, name)
    rights.require_binding(QUEUE, name, node.name, exchange, key)
    rights.require(READ, QUEUE, name)
    check(name, True)
    _delete_changed(session, name, node.name, key, arguments)
    is_new = name not in vhost.topology.queues
    if is_new:
        session.peer.require_memory()
    owner = None if lasting else session.peer
    queue = vhost.declarations.declare_queue(name, durable, owner, False, {}, generated=not lasting)
    try:
        vhost.declarations.bind_queue(name, node.name, key, arguments, session.peer)
    except BrokerError:
        if is_new:
            vhost.declarations.delete_queue(name, False, False, owner)
        raise
    expiring = link_names(session.peer.server).expiring
    lifetime = Lifetime(vhost, queue, NEVER if durable else policy, source.timeout, expiring)
    terminus_node = TerminusNode(queue, source.address or "", lifetime, is_new)
    terminus_node.no_local = no_local
    return terminus_node


def _subscription_name(session: Session10State, link: str, shared: bool, is_global: bool) -> str:
    """Return the name of the queue of a subscription that outlives its link, or has several links.

    Names of queues have no line breaks, so the line breaks of a link's name are quoted. The mark after the
    client distinguishes such a name, so no other client and link have a queue of the same name.
    """
    stem = link.partition("|")[0] if shared else link
    if is_global:
        return f"sub.{_quote(stem)}"
    client = _quote(session.peer.client_name)
    if "\r" in stem or "\n" in stem:
        return f"sub.{client}{_QUOTED_MARK}.{_quote(stem)}"
    return f"sub.{client}.{stem}"


def _quote(part: str) -> str:
    """Return a part of a name without dots and line breaks, so that no other parts make the same name."""
    quoted = part.replace("%", "%25").replace(".", "%2E")
    return quoted.replace("\r", "%0D").replace("\n", "%0A")


def _delete_changed(
    session: Session10State, name: str, exchange: str, key: str, arguments: dict[str, object]
) -> None:
    """Delete a subscription of the same name to another node, which a new one replaces. [JMS 6.11.1]

    Raises ResourceLocked if the subscription is in use.
    """
    vhost = session.vhost
    queue = vhost.topology.queues.get(name)
    if queue is None:
        return
    bindings = vhost.topology.bindings_to(queue)
    for binding in bindings:
        same = binding.source.name == exchange and binding.routing_key == key
        if same and binding.arguments == arguments:
            return
    if queue.consumer_count:
        raise ResourceLocked(f"subscription '{name}' is in use, and its source differs from the link's")
    vhost.declarations.delete_queue(name, False, False, session.peer)


def _find_subscription(session: Session10State, link: str, check: Check) -> TerminusNode:
    """Return the existing subscription of this link's name. Raises PeerError(NOT_FOUND). [amqp-1.0 2.6.13]"""
    vhost = session.vhost
    for is_global in (False, True):
        name = _subscription_name(session, link, True, is_global)
        queue = vhost.topology.queues.get(name)
        if queue is not None:
            session.peer.rights.require(READ, QUEUE, name)
            check(name, True)
            until = NEVER if queue.durable else SESSION_END
            return TerminusNode(queue, _address_of(session, queue), Lifetime(vhost, queue, until))
    raise PeerError(
        NOT_FOUND, f"link '{link}' has no source, and there is no subscription of its name to resume"
    )


def _address_of(session: Session10State, queue: Queue) -> str:
    for binding in session.vhost.topology.bindings_to(queue):
        if binding.source.name:
            return f"/exchanges/{quote(binding.source.name)}/{quote(binding.routing_key)}"
    return queue_address(queue.name)
