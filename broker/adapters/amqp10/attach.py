"""The attach of links: termini, refusals, and links that resume earlier ones. [amqp-1.0 2.6.3]

An attach with a map of unsettled deliveries, even an empty one, resumes a suspended link. An attach without a
map begins anew, and the suspended link's deliveries are released.

[amqp-1.0 2.6.3, 3.5]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, final

from mypy_extensions import i64

from broker.adapters.access import EXCHANGE as EXCHANGE_ACCESS
from broker.adapters.access import QUEUE
from broker.adapters.amqp10.coordinator import CoordinatorLink
from broker.adapters.amqp10.entry_filters import SizeFilter
from broker.adapters.amqp10.errors import condition_of
from broker.adapters.amqp10.filters.source import CAPABILITIES as FILTERS
from broker.adapters.amqp10.filters.source import SourceFilters, filters_of
from broker.adapters.amqp10.link import Link10, shorten_description
from broker.adapters.amqp10.link_arguments import LinkArguments, link_arguments
from broker.adapters.amqp10.management.links import BYTES_MAX as REQUEST_BYTES_MAX
from broker.adapters.amqp10.management.links import RequestLink, ResponseLink, pair_of
from broker.adapters.amqp10.names import Expiry, WaitingLink, expiry_of, link_names
from broker.adapters.amqp10.nodes import (
    SHARED,
    VOLATILE_QUEUE,
    TerminusNode,
    create_dynamic_target,
    delete_new_queue,
    resolve_source,
)
from broker.adapters.amqp10.receive import SETTLED, UNSETTLED, IncomingLink
from broker.adapters.amqp10.resume import ResumedDeliveries, ResumedOutcomes, check_states
from broker.adapters.amqp10.routes import destination_of, resolve_target, routes_of
from broker.adapters.amqp10.send import OutgoingLink
from broker.adapters.amqp10.settle import lease_of
from broker.adapters.amqp10.state import Session10State
from broker.adapters.peers.connections import HELD_FOR_REPLY
from broker.adapters.peers.notices import check_notified_queue
from broker.auth.terms import READ, WRITE
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
from broker.core.message import Address, Message
from broker.core.names import DEFAULT_EXCHANGE
from broker.core.ports import DurableWaiter
from broker.core.queues.attach import attach, detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue, queue_of
from broker.core.streams.offsets import CONSUMER_NAMES, stream_extent
from protocol.amqp10 import addresses
from protocol.amqp10.addresses import EXCHANGE, NAME, AddressError, node_of
from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import Coordinator, Error, Modified, Released, Source, Target
from protocol.amqp10.conditions import INTERNAL_ERROR, INVALID_FIELD, STOLEN, PeerError
from protocol.amqp10.decoding import decode_typed
from protocol.amqp10.performatives import Attach, Detach
from protocol.amqp10.types import Symbol

FRAME_ROOM: Final = 64  # bytes for a frame's header, and for the sizes in the attach that grow with the map
ITEM_ROOM: Final = 5  # bytes of an entry in the map besides its tag and its state

AttachFunction = Callable[[Session10State, Attach], None]


@final
class DelayedAttach(DurableWaiter):
    """An attach that resumes a link whose outcomes are not on disk yet."""

    def __init__(self, session: Session10State, attach: Attach, attach_again: AttachFunction) -> None:
        self._session = session
        self._attach = attach
        self._attach_again = attach_again

    def wait(self) -> None:
        """Take the attach when everything appended is on disk, and take no frames until then."""
        connection = self._session.peer
        connection.hold(HELD_FOR_REPLY)
        connection.server.store.wait(self)

    def on_durable(self, batch: i64) -> None:
        """Take the attach: the outcomes are on disk."""
        session = self._session
        handle = self._attach.handle
        before = session.links.get(handle)
        try:
            if not session.is_released:
                self._attach_again(session, self._attach)
        except BaseException:
            resume_input(session)
            raise
        if session.is_released or session.links.get(handle) is not before:
            resume_input(session)
        # else the attach waits again: another link was attached first, and this link resumes it

    def on_store_failed(self, reason: str) -> None:
        """End the session: the outcomes may not be on disk."""
        session = self._session
        if not session.is_released:
            session.fail(INTERNAL_ERROR, f"the log has failed: {reason}")
        resume_input(session)


def resume_input(session: Session10State) -> None:
    """Take frames again after an attach has been answered, if the connection is still open."""
    if session.peer.is_open():
        session.peer.release(HELD_FOR_REPLY)


def awaits_log(session: Session10State, attach: Attach) -> bool:
    """Whether the attach resumes a link with outcomes that are not on disk yet."""
    server = session.peer.server
    suspended = link_names(server).find_suspended(session, attach.name, not attach.role)
    return suspended is not None and suspended.batch > server.store.durable


def resume_received(link: IncomingLink, attach: Attach, answer: Attach) -> None:
    """Compare the sender's unsettled map with the received deliveries of the resumed link, and answer.

    [amqp-1.0 2.6.13]
    """
    session = link.session
    suspended = link_names(session.peer.server).find_suspended(session, link.name, True)
    if suspended is None:
        return
    if attach.unsettled is None:
        suspended.end()
        return
    suspended.end_suspension()
    resumed_outcomes = ResumedOutcomes(suspended.received, attach.incomplete_unsettled)
    if not attach.incomplete_unsettled:
        resumed_outcomes.keep_known(attach.unsettled)
    if not _add_unsettled(session, answer, resumed_outcomes.outcomes):
        resumed_outcomes.incomplete = True
    link.resumed_outcomes = resumed_outcomes


def resume_sent(link: OutgoingLink, consumers: list[QueueConsumer], attach: Attach, answer: Attach) -> None:
    """Compare the receiver's unsettled map with the sent deliveries of the resumed link, and answer.

    [amqp-1.0 2.6.13]
    """
    session = link.session
    suspended = link_names(session.peer.server).find_suspended(session, link.name, False)
    if suspended is None:
        return
    known = attach.unsettled
    queues = {queue_of(each): each for consumer in consumers for each in consumer.parts or [consumer]}
    elsewhere = any(held[0].queue not in queues for held in suspended.sent.values())
    if known is None or link.expiry is None or elsewhere:
        suspended.end()
        return
    complete = _add_unsettled(session, answer, dict.fromkeys(suspended.sent))
    resumed = ResumedDeliveries(link.target, attach.incomplete_unsettled, not complete)
    resumed.compare(suspended, queues, known)
    if not resumed.is_complete():
        link.target.resumption = resumed


def _add_unsettled(session: Session10State, answer: Attach, states: Mapping[bytes, bytes | None]) -> bool:
    """Add the unsettled map to the answer, as many deliveries as fit a frame of the peer.

    Return whether all of them fit.
    """
    room: i64 = session.peer.frame_max - len(encode_composite(answer)) - FRAME_ROOM
    unsettled: dict[bytes, object] = {}
    for tag, state in states.items():
        room -= len(tag) + ITEM_ROOM + (1 if state is None else len(state))
        if room < 0:
            answer.incomplete_unsettled = True
            break
        unsettled[tag] = None if state is None else decode_typed(state)[0]
    answer.unsettled = unsettled
    return not answer.incomplete_unsettled


NAME_CHARACTERS_MAX: Final = 512
PAIRED: Final = Symbol("paired")  # two links of the same name form a pair


def make_answer(attach: Attach) -> Attach:
    """Return the answer to an attach, with the same name, handle and settle modes, without the termini."""
    return Attach(
        name=attach.name,
        handle=attach.handle,
        role=not attach.role,
        snd_settle_mode=attach.snd_settle_mode,
        rcv_settle_mode=attach.rcv_settle_mode,
        properties={PAIRED: True} if attach.properties and attach.properties.get(PAIRED) is True else None,
    )


class WaitingAttach(WaitingLink):
    """A link whose attach is answered at once, or after its new queue is on disk.

    A subclass attaches the link.
    """

    def __init__(self, session: Session10State, attach: Attach, answer: Attach) -> None:
        super().__init__(session, attach.name, not attach.role)
        self.has_waited = False
        self._attach = attach
        self._answer = answer

    def attach(self) -> None:
        """Attach the link. Raises BrokerError."""
        raise NotImplementedError

    def drop(self) -> None:
        """Release the consumers of the link, which will not be attached."""

    def wait(self) -> None:
        """Attach the link when everything appended is on disk, and take no frames until then."""
        self.has_waited = True
        connection = self.session.peer
        connection.hold(HELD_FOR_REPLY)
        link_names(connection.server).begin_waiting(self)
        connection.server.store.wait(self)

    def on_durable(self, batch: i64) -> None:
        """Attach or refuse the link: its queue is on disk."""
        session = self.session
        link_names(session.peer.server).end_waiting(self)
        try:
            if session.is_released:
                self.drop()
            else:
                self._attach_or_refuse()
        finally:
            resume_input(session)

    def _attach_or_refuse(self) -> None:
        """Attach the link now, or refuse the link."""
        session = self.session
        if self.stolen:
            self.drop()
            why = PeerError(STOLEN, f"link '{self.name}' was attached again")
            refuse_link(session, self._answer, why, answered=True)
            return
        try:
            self.attach()
        except BrokerError as error:
            journal_refusal(session, self._attach, error)
            why = PeerError(condition_of(error), error.text)
            refuse_link(session, self._answer, why, answered=True)

    def on_store_failed(self, reason: str) -> None:
        """End the session: the link's queue may not be on disk."""
        session = self.session
        link_names(session.peer.server).end_waiting(self)
        self.drop()
        if not session.is_released:
            session.fail(INTERNAL_ERROR, f"the log has failed: {reason}")
        resume_input(session)


@final
class WaitingSender(WaitingAttach):
    """A link on which the peer sends, perhaps to a queue that was created for the link."""

    def __init__(self, link: IncomingLink, attach: Attach, answer: Attach, new_queue: Queue | None) -> None:
        super().__init__(link.session, attach, answer)
        self._link = link
        self._new_queue = new_queue

    def attach(self) -> None:
        """Attach the link (Waiting)."""
        link = self._link
        session = link.session
        if self._new_queue is not None:
            # the right may have been revoked while the link waited
            session.peer.rights.require(WRITE, EXCHANGE_ACCESS, DEFAULT_EXCHANGE)
            if self._new_queue.deleted:
                session.vhost.declarations.find_queue(
                    self._new_queue.name
                )  # raises NotFound, unless a new queue has this name
        resume_received(link, self._attach, self._answer)
        register_link(session, link, self._answer)
        link.destination = destination_of(link, link.exchange, link.key)
        link.grant_credit()  # at once, because deliveries may follow the attach directly


@final
class WaitingReceiver(WaitingAttach):
    """A link on which the peer receives."""

    def __init__(
        self, link: OutgoingLink, consumers: list[QueueConsumer], attach: Attach, answer: Attach
    ) -> None:
        super().__init__(link.session, attach, answer)
        self._link = link
        self._consumers = consumers

    def attach(self) -> None:
        """Attach the link (Waiting)."""
        link = self._link
        session = link.session
        try:
            if self.has_waited:
                for consumer in self._consumers:
                    self._check(queue_of(consumer))
            for consumer in self._consumers:
                attach(queue_of(consumer), consumer)
        except BrokerError:
            link.target.close()
            for consumer in list(link.target.consumers):
                detach(queue_of(consumer), consumer, [])
            link.drop_target()
            raise
        resume_sent(link, self._consumers, self._attach, self._answer)
        register_link(session, link, self._answer)

    def drop(self) -> None:
        """Close the target, and cut its references (Waiting)."""
        self._link.target.close()
        self._link.drop_target()

    def _check(self, queue: Queue) -> None:
        """Refuse a queue that has been deleted, or closed to the user, while the link waited.

        Raises NotFound, AccessRefused, and ResourceLocked if another connection has since declared an
        exclusive queue of the same name.
        """
        session = self.session
        session.peer.rights.require(READ, QUEUE, queue.name)
        if queue.deleted:
            session.vhost.declarations.find_queue(queue.name, session.peer)
            raise NotFound(
                f"queue '{queue.name}' in vhost '{queue.vhost}' was replaced while the link waited"
            )


def register_link(session: Session10State, link: Link10, answer: Attach) -> None:
    """Answer the attach and register the link."""
    session.links[link.handle] = link
    link_names(session.peer.server).add(link)
    session.send(answer)


def journal_refusal(session: Session10State, attach: Attach, error: BrokerError) -> None:
    """Record in the journal that a sender's link is refused: none of its messages will be taken."""
    journal = session.vhost.journal
    target = attach.target
    if journal.on and not attach.role and isinstance(target, Target):
        journal.refused_by(session, Message(_address_of(session, target), None, 0, False, 0), error)


def _address_of(session: Session10State, target: Target) -> Address:
    """Return the address of messages to `target`: an exchange, or else a queue."""
    try:
        node = node_of(target.address)
    except AddressError:
        return Address("", target.address or "")
    virtual_host = session.vhost
    is_exchange = (
        node.name in virtual_host.topology.exchanges and node.name not in virtual_host.topology.queues
    )
    if node.kind == EXCHANGE or (node.kind == NAME and is_exchange):
        return Address(node.name, node.key or "")
    return Address("", node.name)


def refuse_link(session: Session10State, attach: Attach, why: PeerError, *, answered: bool = False) -> None:
    """Refuse a link: answer its attach without a terminus of this side, and detach at once. [amqp-1.0 2.6.3]

    `answered`: `attach` is this side's answer, not the peer's attach.
    """
    answer = attach if answered else make_answer(attach)
    answer.name = attach.name[:NAME_CHARACTERS_MAX]
    answer.source = answer.target = None
    if not answer.role:
        answer.initial_delivery_count = 0
    session.send(answer)
    link = Link10(session, answer.name, attach.handle, answer.role, attach.initial_delivery_count or 0)
    link.is_detached = True
    session.links[attach.handle] = link
    error = Error(condition=why.condition, description=shorten_description(why.text), info=why.info)
    session.send(Detach(handle=attach.handle, closed=True, error=error))


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
UNSETTLED_STATE: Final = 2  # the terminus durability with unsettled deliveries [amqp-1.0 3.5.5]
MOVE: Final = "move"
COPY: Final = "copy"
TXN_CAPABILITIES: Final = ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn")


def attach_link(session: Session10State, attach: Attach) -> None:
    """Take the peer's attach: answer it, or refuse the link. The session is the actor in the journal."""
    journal = session.vhost.journal
    before = journal.actor
    journal.actor = session
    try:
        _attach_link(session, attach)
    finally:
        journal.actor = before


def _attach_link(session: Session10State, attach: Attach) -> None:
    try:
        if len(attach.name) > NAME_CHARACTERS_MAX:
            text = f"link name of {len(attach.name)} characters, at most {NAME_CHARACTERS_MAX} are allowed"
            raise PeerError(INVALID_FIELD, text)
        link_names(session.peer.server).steal(session, attach)
        if session.end_sent:  # by the answers that `steal` has sent
            return
        if awaits_log(session, attach):
            DelayedAttach(session, attach, attach_link).wait()
        elif attach.role:
            _attach_receiver(session, attach)
        else:
            _attach_sender(session, attach)
    except PeerError as error:
        refuse_link(session, attach, error)
    except AddressError as fault:
        journal_refusal(session, attach, NotFound(str(fault)))
        refuse_link(session, attach, PeerError(INVALID_FIELD, str(fault)))
    except BrokerError as refusal:
        journal_refusal(session, attach, refusal)
        refuse_link(session, attach, PeerError(condition_of(refusal), refusal.text))


# ---- the peer sends


def _attach_sender(session: Session10State, attach: Attach) -> None:
    """Answer the attach of a sender. Raises PeerError, AddressError and BrokerError."""
    target = attach.target
    if attach.initial_delivery_count is None:
        raise PeerError(INVALID_FIELD, "a sender's attach has no initial-delivery-count")
    if isinstance(target, Coordinator):
        _attach_coordinator(session, attach, attach.initial_delivery_count)
        return
    terminus_node = None
    address = None if target is None else target.address
    if target is not None and target.dynamic:
        terminus_node = create_dynamic_target(session, target)
        address = terminus_node.address
    node = node_of(address)
    exchange, key, new_queue = None, None, None
    if node.kind == addresses.MANAGEMENT:
        requests = RequestLink(
            session, pair_of(session, attach.name), attach.name, attach.handle, attach.initial_delivery_count
        )
        _attach_management(requests, attach)
        requests.grant_credit()
        return
    if node.kind != addresses.ANONYMOUS:
        exchange, key, new_queue = resolve_target(
            session, node, () if target is None else target.capabilities
        )
        routes_of(session.peer).check(exchange, key)
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
    answer = make_answer(attach)
    answer.source = source if source is not None else Source()
    answer.target = target if target is not None else Target()
    if terminus_node is not None:
        link.lifetime = terminus_node.lifetime
        answer.target.dynamic_node_properties = terminus_node.node_properties
    answer.target.address = address
    answer.target.durable = 0
    answer.target.timeout = link.expiry.seconds
    answer.max_message_size = size_max
    waiting = WaitingSender(link, attach, answer, new_queue)
    if new_queue is not None:
        waiting.wait()
    else:
        waiting.attach()


def _attach_management(link: Link10, attach: Attach) -> None:
    """Answer the attach of a link to the management node."""
    answer = make_answer(attach)
    answer.rcv_settle_mode = 0
    answer.source = attach.source if attach.source is not None else Source()
    answer.target = attach.target if isinstance(attach.target, Target) else Target()
    if link.receives:
        answer.max_message_size = REQUEST_BYTES_MAX
    else:
        answer.snd_settle_mode = SETTLED
        answer.initial_delivery_count = 0
    register_link(link.session, link, answer)


def _attach_coordinator(session: Session10State, attach: Attach, count: i64) -> None:
    """Answer the attach of a controller of transactions. [amqp-1.0 4.1]"""
    source = attach.source
    link = CoordinatorLink(
        session, attach.name, attach.handle, count, () if source is None else _outcomes(source)
    )
    answer = make_answer(attach)
    answer.rcv_settle_mode = 0
    answer.source = source if source is not None else Source()
    answer.target = Coordinator(capabilities=TXN_CAPABILITIES)
    register_link(session, link, answer)
    link.grant_credit()


def _outcomes(source: Source) -> tuple[str, ...]:
    """Return the outcomes that the sender supports, with its default outcome."""
    if not source.outcomes:
        return ()
    default = source.default_outcome
    if isinstance(default, Released):
        return (*source.outcomes, "amqp:released:list")
    return source.outcomes


# ---- the peer receives


def _attach_receiver(session: Session10State, attach: Attach) -> None:
    """Answer the attach of a receiver. Raises PeerError, AddressError and BrokerError."""
    source = attach.source
    mode = None if source is None else source.distribution_mode
    if mode is not None and mode not in (MOVE, COPY):
        raise PeerError(INVALID_FIELD, f"distribution-mode '{mode}' is neither move nor copy")
    if source is not None and not source.dynamic and node_of(source.address).kind == addresses.MANAGEMENT:
        pair = pair_of(session, attach.name)
        _attach_management(ResponseLink(session, pair, attach.name, attach.handle), attach)
        return
    check_states(attach.unsettled)
    vhost = session.vhost
    filters = filters_of(None if source is None else source.filter, vhost.schedule.date)
    dynamic = source is None or source.dynamic
    options = {} if source is None or dynamic else node_of(source.address).options
    requested = link_arguments(attach, filters.arguments, options)
    further: list[Queue] = []

    def check(name: str, subscribes: bool) -> None:
        if mode == COPY and not subscribes:  # a subscription has its own queue, whatever its mode
            requested.arguments.setdefault(BROWSE, True)
        requested.check(name, vhost.name)
        if requested.notified_queue and requested.notified_queue != name:
            check_notified_queue(session.peer.rights, vhost, requested.notified_queue, name)
        further.extend(_further_queues(session, name, requested))

    terminus_node = resolve_source(session, attach.name, source, filters, check)
    try:
        _attach_to_queues(session, attach, requested, filters, terminus_node, further)
    except (PeerError, BrokerError):
        delete_new_queue(session, terminus_node)
        raise


def _attach_to_queues(
    session: Session10State,
    attach: Attach,
    requested: LinkArguments,
    filters: SourceFilters,
    terminus_node: TerminusNode,
    further: list[Queue],
) -> None:
    """Attach a receiver to the queue of its source and to further queues. Raises PeerError, BrokerError."""
    source = attach.source
    vhost = session.vhost
    queue = terminus_node.queue
    subscribes = terminus_node.lifetime is not None
    if requested.notified_queue == queue.name:
        check_notified_queue(session.peer.rights, vhost, requested.notified_queue, queue.name)
    queues = [queue, *further]
    settled = attach.snd_settle_mode == SETTLED
    size_max = min(attach.max_message_size or 0, 2**62)
    link = OutgoingLink(session, attach.name, attach.handle, settled, attach.rcv_settle_mode == 1, size_max)
    link.lifetime = terminus_node.lifetime
    default = None if source is None else source.default_outcome
    if isinstance(default, Released):
        link.target.default_outcome = RELEASED
    link.target.arguments = requested.arguments
    entry_filter: EntryFilter | None = filters.entry_filter(queue.store, vhost.trouble)
    if size_max > 0:
        entry_filter = SizeFilter(entry_filter, size_max)
    try:
        consumers = [_make_consumer(link, each, requested, entry_filter, filters) for each in queues]
    except (PeerError, BrokerError):
        link.target.close()
        link.drop_target()
        raise
    copies = not consumers[0].acquires
    if not settled and not copies:
        link.expiry = _unsettled_expiry(source, terminus_node)
        tag_prefix = link_names(session.peer.server).next_tag_prefix()
        if link.expiry is not None:
            link.target.tag_prefix = tag_prefix
    answer = make_answer(attach)
    if requested.properties:
        answer.properties = {**requested.properties, **(answer.properties or {})}
    answer.snd_settle_mode = SETTLED if settled else UNSETTLED
    answer.source = _source_in_force(source or Source(), terminus_node, COPY if copies else MOVE)
    answer.source.timeout = 0 if link.expiry is None else link.expiry.seconds
    binds = subscribes and source is not None and not source.dynamic
    streams = any(each.stream is not None for each in queues)
    answer.source.filter = filters.in_force(binding=binds, no_local=terminus_node.no_local, stream=streams)
    answer.target = attach.target if isinstance(attach.target, Target) else Target()
    answer.initial_delivery_count = 0
    where = f"a consumer of queue '{queue.name}' in vhost '{queue.vhost}'"
    vhost.warn_of_unknown(attach.properties or {}, CONSUMER_NAMES, where)
    waiting = WaitingReceiver(link, consumers, attach, answer)
    if terminus_node.is_new and queue.durable:
        waiting.wait()
    else:
        waiting.attach()


def _further_queues(session: Session10State, first: str, requested: LinkArguments) -> list[Queue]:
    """Return the further queues of a link, besides the queue named `first`, which may not exist yet.

    Raises PeerError for a queue that is named twice, NotFound, ResourceLocked and AccessRefused.
    """
    names = requested.arguments.get(ALSO_CONSUME, [])
    assert isinstance(names, list), "arguments have been checked"
    known = {first}
    queues: list[Queue] = []
    for name in names:
        session.peer.rights.require(READ, QUEUE, name)
        if name in known:
            text = f"'{ALSO_CONSUME}' of the link names queue '{name}', from which the link already receives"
            raise PeerError(INVALID_FIELD, text)
        known.add(name)
        queues.append(session.vhost.declarations.find_queue(name, session.peer))
    return queues


def _make_consumer(
    link: OutgoingLink,
    queue: Queue,
    requested: LinkArguments,
    entry_filter: EntryFilter | None,
    filters: SourceFilters,
) -> QueueConsumer:
    """Return the consumer for a queue of the link. Raises PeerError, PreconditionFailed."""
    requested.check_for_queue(queue)
    session = link.session
    arguments = requested.arguments
    copies = browses(arguments) or is_non_destructive(queue.arguments)
    priority = arguments.get(PRIORITY, 0)
    assert isinstance(priority, int), "arguments have been checked"
    consumer = QueueConsumer(
        link.target, queue, not copies, priority, requested.exclusive, link.name, link.settled, entry_filter
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


def _unsettled_expiry(source: Source | None, terminus_node: TerminusNode) -> Expiry | None:
    """Return the expiry of unsettled deliveries after the link has ended; None: they are released at once.

    Until the expiry no other consumer gets these deliveries. So they are kept only if the source sets a
    timeout, or if the link is the only one of a subscription and its source has durable = unsettled-state.
    """
    expiry = expiry_of(source)
    if source is None or source.timeout > 0:
        return expiry if expiry.seconds > 0 else None
    subscribes = (
        terminus_node.lifetime is not None and not source.dynamic and SHARED not in source.capabilities
    )
    return expiry if subscribes and source.durable == UNSETTLED_STATE else None


def _source_in_force(source: Source, terminus_node: TerminusNode, mode: str) -> Source:
    """Return the source that is in force, for the answer to an attach. [amqp-1.0 3.5.3]"""
    lifetime = terminus_node.lifetime
    released = isinstance(source.default_outcome, Released)
    return Source(
        address=terminus_node.address,
        durable=min(source.durable, 1) if terminus_node.queue.durable and lifetime is not None else 0,
        expiry_policy=source.expiry_policy if lifetime is None else lifetime.until,
        dynamic=source.dynamic,
        dynamic_node_properties=terminus_node.node_properties,
        distribution_mode=mode,
        default_outcome=source.default_outcome if released else Modified(delivery_failed=True),
        outcomes=OUTCOMES,
        capabilities=tuple(name for name in source.capabilities if name in CAPABILITIES),
    )
