"""Links that begin: what their termini name, and what of all that is asked for is given.

[amqp-1.0 2.6.3, 3.5]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from broker.adapters.access import QUEUE
from broker.adapters.activity091 import check_notified
from broker.adapters.amqp10.coordinator import CoordinatorLink
from broker.adapters.amqp10.establishing import (
    NAME_CHARACTERS_MAX,
    WaitingReceiver,
    WaitingSender,
    answer_to,
    establish,
    note_refusal,
    refuse,
)
from broker.adapters.amqp10.filters import CAPABILITIES as FILTERS
from broker.adapters.amqp10.filters import SourceFilters, filters_of
from broker.adapters.amqp10.incoming import SETTLED, UNSETTLED, IncomingLink
from broker.adapters.amqp10.leases import lease_of
from broker.adapters.amqp10.link import Link10
from broker.adapters.amqp10.link_arguments import LinkArguments, link_arguments
from broker.adapters.amqp10.managing import BYTES_MAX as REQUEST_BYTES_MAX
from broker.adapters.amqp10.managing import RequestLink, ResponseLink, pair_of
from broker.adapters.amqp10.outgoing import OutgoingLink
from broker.adapters.amqp10.reach import Small
from broker.adapters.amqp10.refusing import condition_of
from broker.adapters.amqp10.resuming import check_states
from broker.adapters.amqp10.routes import place
from broker.adapters.amqp10.sources import (
    SHARED,
    VOLATILE_QUEUE,
    Supply,
    dynamic_target,
    forget_supply,
    supply_of,
)
from broker.adapters.amqp10.suspended import Expiry, expiry_of
from broker.adapters.amqp10.taking_up import TakenUpLater, is_ahead
from broker.auth.terms import READ
from broker.core.arguments.consumer import (
    ALSO_CONSUME,
    BROWSE,
    EXCLUSIVE_CONSUMER,
    PRIORITY,
    browses,
    extent_argument,
)
from broker.core.arguments.queue import CONSUMER_TIMEOUT, RELEASED, is_non_destructive
from broker.core.entries.entry import EntryFilter
from broker.core.errors import BrokerError, NotFound
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue
from broker.core.streams.extent import stream_extent
from protocol.amqp10 import addresses
from protocol.amqp10.addresses import AddressError, node_of
from protocol.amqp10.composites import Coordinator, Modified, Released, Source, Target
from protocol.amqp10.conditions import (
    INVALID_FIELD,
    PeerError,
)
from protocol.amqp10.performatives import Attach

if TYPE_CHECKING:
    from broker.adapters.amqp10.session import Session10

CAPABILITIES: Final = (
    "queue",
    "topic",
    "shared",
    "global",
    "temporary-queue",
    "temporary-topic",
    VOLATILE_QUEUE,
    *FILTERS,
)
OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
UNSETTLED_STATE: Final = 2  # what is to be kept of a terminus [amqp-1.0 3.5.5]
MOVE: Final = "move"
COPY: Final = "copy"
TXN_CAPABILITIES: Final = ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn")


def attach_link(session: Session10, attach: Attach) -> None:
    """Take the peer's attach: answer it, or refuse the link. The session is the actor of what that does."""
    journal = session.vhost.journal
    before = journal.actor
    journal.actor = session
    try:
        _attach_link(session, attach)
    finally:
        journal.actor = before


def _attach_link(session: Session10, attach: Attach) -> None:
    try:
        if len(attach.name) > NAME_CHARACTERS_MAX:
            text = f"link name of {len(attach.name)} characters, at most {NAME_CHARACTERS_MAX} are allowed"
            raise PeerError(INVALID_FIELD, text)
        session.peer.server.link_names.steal(session, attach)
        if session.ending:  # by what was to be said before
            return
        if is_ahead(session, attach):
            TakenUpLater(session, attach, attach_link).wait()
        elif attach.role:
            _send_to(session, attach)
        else:
            _receive_from(session, attach)
    except PeerError as error:
        refuse(session, attach, error)
    except AddressError as fault:
        note_refusal(session, attach, NotFound(str(fault)))
        refuse(session, attach, PeerError(INVALID_FIELD, str(fault)))
    except BrokerError as refusal:
        note_refusal(session, attach, refusal)
        refuse(session, attach, PeerError(condition_of(refusal), refusal.text))


# ---- the peer sends


def _receive_from(session: Session10, attach: Attach) -> None:
    """Answer the attach of a sender. Raises PeerError, AddressError and BrokerError."""
    target = attach.target
    if attach.initial_delivery_count is None:
        raise PeerError(INVALID_FIELD, "a sender's attach has no initial-delivery-count")
    if isinstance(target, Coordinator):
        _coordinate(session, attach, attach.initial_delivery_count)
        return
    supply = None
    address = None if target is None else target.address
    if target is not None and target.dynamic:
        supply = dynamic_target(session, target)
        address = supply.address
    node = node_of(address)
    exchange, key, made = None, None, None
    if node.kind == addresses.MANAGEMENT:
        requests = RequestLink(
            session, pair_of(session, attach.name), attach.name, attach.handle, attach.initial_delivery_count
        )
        _manage(requests, attach)
        requests.top_up()
        return
    if node.kind != addresses.ANONYMOUS:
        exchange, key, made = place(session, node, () if target is None else target.capabilities)
        session.peer.routes.check(exchange, key)
    link = IncomingLink(
        session,
        attach.name,
        attach.handle,
        attach.initial_delivery_count,
        exchange,
        key,
        attach.snd_settle_mode,
        attach.rcv_settle_mode == 1,
        session.peer.server.body_bytes_max,
    )
    link.expiry = expiry_of(target)
    source = attach.source
    if source is not None:
        link.outcomes = _outcomes(source)
    size_max: int = link.size_max
    answer = answer_to(attach)
    answer.source = source if source is not None else Source()
    answer.target = target if target is not None else Target()
    if supply is not None:
        link.lifetime = supply.lifetime
        answer.target.dynamic_node_properties = supply.node_properties
    answer.target.address = address
    answer.target.durable = 0
    answer.target.timeout = link.expiry.seconds
    answer.max_message_size = size_max
    waiting = WaitingSender(link, attach, answer, made)
    if made is not None:
        waiting.wait()
    else:
        waiting.attach()


def _manage(link: Link10, attach: Attach) -> None:
    """Answer the attach of a link to the node of management."""
    answer = answer_to(attach)
    answer.rcv_settle_mode = 0
    answer.source = attach.source if attach.source is not None else Source()
    answer.target = attach.target if isinstance(attach.target, Target) else Target()
    if link.receives:
        answer.max_message_size = REQUEST_BYTES_MAX
    else:
        answer.snd_settle_mode = SETTLED
        answer.initial_delivery_count = 0
    establish(link.session, link, answer)


def _coordinate(session: Session10, attach: Attach, count: i64) -> None:
    """Answer the attach of a controller of transactions. [amqp-1.0 4.1]"""
    source = attach.source
    link = CoordinatorLink(
        session, attach.name, attach.handle, count, () if source is None else _outcomes(source)
    )
    answer = answer_to(attach)
    answer.rcv_settle_mode = 0
    answer.source = source if source is not None else Source()
    answer.target = Coordinator(capabilities=TXN_CAPABILITIES)
    establish(session, link, answer)
    link.top_up()


def _outcomes(source: Source) -> tuple[str, ...]:
    """What the sender understands, with its default outcome."""
    if not source.outcomes:
        return ()
    default = source.default_outcome
    if isinstance(default, Released):
        return (*source.outcomes, "amqp:released:list")
    return source.outcomes


# ---- the peer receives


def _send_to(session: Session10, attach: Attach) -> None:
    """Answer the attach of a receiver. Raises PeerError, AddressError and BrokerError."""
    source = attach.source
    mode = None if source is None else source.distribution_mode
    if mode is not None and mode not in (MOVE, COPY):
        raise PeerError(INVALID_FIELD, f"distribution-mode '{mode}' is neither move nor copy")
    if source is not None and not source.dynamic and node_of(source.address).kind == addresses.MANAGEMENT:
        pair = pair_of(session, attach.name)
        _manage(ResponseLink(session, pair, attach.name, attach.handle), attach)
        return
    check_states(attach.unsettled)
    vhost = session.vhost
    filters = filters_of(None if source is None else source.filter, vhost.schedule.date)
    dynamic = source is None or source.dynamic
    options = {} if source is None or dynamic else node_of(source.address).options
    asked = link_arguments(attach, filters.arguments, options)
    further: list[Queue] = []

    def check(name: str, subscribes: bool) -> None:
        if mode == COPY and not subscribes:  # a subscription's queue is its own, whatever it asks for
            asked.arguments.setdefault(BROWSE, True)
        asked.check(name, vhost.name)
        if asked.notified and asked.notified != name:
            check_notified(session.peer.rights, vhost, asked.notified, name)
        further.extend(_further(session, name, asked))

    supply = supply_of(session, attach.name, source, filters, check)
    try:
        _receive_with(session, attach, asked, filters, supply, further)
    except (PeerError, BrokerError):
        forget_supply(session, supply)
        raise


def _receive_with(
    session: Session10,
    attach: Attach,
    asked: LinkArguments,
    filters: SourceFilters,
    supply: Supply,
    further: list[Queue],
) -> None:
    """Attach a receiver to the queue of `supply`, and to further ones. Raises PeerError and BrokerError."""
    source = attach.source
    vhost = session.vhost
    queue = supply.queue
    subscribes = supply.lifetime is not None
    if asked.notified == queue.name:
        check_notified(session.peer.rights, vhost, asked.notified, queue.name)
    queues = [queue, *further]
    settled = attach.snd_settle_mode == SETTLED
    size_max = min(attach.max_message_size or 0, 2**62)
    link = OutgoingLink(session, attach.name, attach.handle, settled, attach.rcv_settle_mode == 1, size_max)
    link.lifetime = supply.lifetime
    default = None if source is None else source.default_outcome
    if isinstance(default, Released):
        link.target.abandoned = RELEASED
    link.target.arguments = asked.arguments
    sieve: EntryFilter | None = filters.entry_filter(queue.store, vhost.trouble)
    if size_max > 0:
        sieve = Small(sieve, size_max)
    try:
        consumers = [_consumer(link, each, asked, sieve, filters) for each in queues]
    except (PeerError, BrokerError):
        link.target.close()
        raise
    copies = not consumers[0].acquires
    if not settled and not copies:
        link.expiry = _kept(source, supply)
        link.generation = session.peer.server.link_names.next_generation()
    answer = answer_to(attach)
    if asked.properties:
        answer.properties = {**asked.properties, **(answer.properties or {})}
    answer.snd_settle_mode = SETTLED if settled else UNSETTLED
    answer.source = _given(source or Source(), supply, COPY if copies else MOVE)
    answer.source.timeout = 0 if link.expiry is None else link.expiry.seconds
    binds = subscribes and source is not None and not source.dynamic
    streams = any(each.stream is not None for each in queues)
    answer.source.filter = filters.in_force(binding=binds, no_local=supply.no_local, stream=streams)
    answer.target = attach.target if isinstance(attach.target, Target) else Target()
    answer.initial_delivery_count = 0
    waiting = WaitingReceiver(link, consumers, attach, answer)
    if supply.is_new and queue.durable:
        waiting.wait()
    else:
        waiting.attach()


def _further(session: Session10, first: str, asked: LinkArguments) -> list[Queue]:
    """The queues that the link receives from besides the one named `first`, which may not be there yet.

    Raises PeerError for one that is named twice, NotFound, ResourceLocked and AccessRefused.
    """
    names = asked.arguments.get(ALSO_CONSUME, [])
    assert isinstance(names, list), "arguments have been checked"
    known = {first}
    queues: list[Queue] = []
    for name in names:
        session.peer.rights.require(READ, QUEUE, name)
        if name in known:
            text = f"'{ALSO_CONSUME}' of the link names queue '{name}', which the link receives from already"
            raise PeerError(INVALID_FIELD, text)
        known.add(name)
        queues.append(session.vhost.queue(name, session.peer))
    return queues


def _consumer(
    link: OutgoingLink,
    queue: Queue,
    asked: LinkArguments,
    sieve: EntryFilter | None,
    filters: SourceFilters,
) -> QueueConsumer:
    """The consumer of one of the link's queues. Raises PeerError, PreconditionFailed."""
    asked.check_with(queue)
    session = link.session
    arguments = asked.arguments
    copies = browses(arguments) or is_non_destructive(queue.arguments)
    priority = arguments.get(PRIORITY, 0)
    assert isinstance(priority, int), "arguments have been checked"
    consumer = QueueConsumer(
        link.target, queue, not copies, priority, asked.exclusive, link.name, link.settled, sieve
    )
    if queue.stream is not None:
        where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        consumer.extent = stream_extent(filters.stream, where, session.vhost.schedule.date())
    elif copies:
        consumer.extent = extent_argument(arguments)
    consumer.candidate = arguments.get(EXCLUSIVE_CONSUMER) is True
    if not link.settled and not copies:
        consumer.lease = lease_of(session, queue, arguments.get(CONSUMER_TIMEOUT))
    return consumer


def _kept(source: Source | None, supply: Supply) -> Expiry | None:
    """When what is unsettled goes back after the link is gone; None: at once.

    Others wait for it meanwhile, so it is kept only where somebody asks for a time, or where the link is the
    only one of a subscription and wants to find it.
    """
    expiry = expiry_of(source)
    if source is None or source.timeout > 0:
        return expiry if expiry.seconds > 0 else None
    subscribes = supply.lifetime is not None and not source.dynamic and SHARED not in source.capabilities
    return expiry if subscribes and source.durable == UNSETTLED_STATE else None


def _given(source: Source, supply: Supply, mode: str) -> Source:
    """The source as it is in force. [amqp-1.0 3.5.3]"""
    lifetime = supply.lifetime
    released = isinstance(source.default_outcome, Released)
    return Source(
        address=supply.address,
        durable=min(source.durable, 1) if supply.queue.durable and lifetime is not None else 0,
        expiry_policy=source.expiry_policy if lifetime is None else lifetime.until,
        dynamic=source.dynamic,
        dynamic_node_properties=supply.node_properties,
        distribution_mode=mode,
        default_outcome=source.default_outcome if released else Modified(delivery_failed=True),
        outcomes=OUTCOMES,
        capabilities=tuple(name for name in source.capabilities if name in CAPABILITIES),
    )
