"""How links come to be, or do not: what the peer is told. [amqp-1.0 2.6.3]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.adapters.access import EXCHANGE as EXCHANGE_ACCESS
from broker.adapters.access import QUEUE
from broker.adapters.amqp10.destination import destination_of
from broker.adapters.amqp10.incoming import IncomingLink
from broker.adapters.amqp10.link import Link10
from broker.adapters.amqp10.opening import shortened
from broker.adapters.amqp10.outgoing import OutgoingLink
from broker.adapters.amqp10.refusing import condition_of
from broker.adapters.amqp10.taking_up import hear_again, take_up_received, take_up_sent
from broker.adapters.server import HELD_FOR_REPLY
from broker.auth.terms import READ, WRITE
from broker.core.errors import BrokerError, NotFound
from broker.core.message import Address, Message
from broker.core.names import DEFAULT_EXCHANGE
from broker.core.ports import DurableWaiter
from broker.core.queues.attach import attach, detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue
from protocol.amqp10.addresses import EXCHANGE, NAME, AddressError, node_of
from protocol.amqp10.composites import Error, Target
from protocol.amqp10.conditions import INTERNAL_ERROR, STOLEN, PeerError
from protocol.amqp10.performatives import Attach, Detach
from protocol.amqp10.types import Symbol

if TYPE_CHECKING:
    from broker.adapters.amqp10.session import Session10

NAME_CHARACTERS_MAX: Final = 512
PAIRED: Final = Symbol("paired")  # two links of one name are one


def answer_to(attach: Attach) -> Attach:
    """An attach that says the same, from the other side, but for the termini."""
    return Attach(
        name=attach.name,
        handle=attach.handle,
        role=not attach.role,
        snd_settle_mode=attach.snd_settle_mode,
        rcv_settle_mode=attach.rcv_settle_mode,
        properties={PAIRED: True} if attach.properties and attach.properties.get(PAIRED) is True else None,
    )


class Waiting(DurableWaiter):
    """A link to a queue that may have to be on disk before the peer hears of it. A subclass attaches it.

    `stolen`: a later link of its name has taken its place before it was attached. [amqp-1.0 2.6.1]
    """

    def __init__(self, session: Session10, attach: Attach, answer: Attach) -> None:
        self.session = session
        self.name = attach.name
        self.receives = not attach.role
        self.stolen = False
        self.waited = False
        self._attach = attach
        self._answer = answer

    def attach(self) -> None:
        """Attach the link. Raises BrokerError."""
        raise NotImplementedError

    def wait(self) -> None:
        """Establish the link when all that was appended is on disk, and take no frames before."""
        self.waited = True
        connection = self.session.peer
        connection.hold(HELD_FOR_REPLY)
        connection.server.link_names.begin_waiting(self)
        connection.server.store.wait(self)

    def on_durable(self, batch: i64) -> None:
        """It is on disk (DurableWaiter)."""
        session = self.session
        session.peer.server.link_names.end_waiting(self)
        if not session.gone:
            self._go_on()
        hear_again(session)

    def _go_on(self) -> None:
        """Attach the link now, or refuse the link."""
        session = self.session
        if self.stolen:
            why = PeerError(STOLEN, f"link '{self.name}' was attached again")
            refuse(session, self._answer, why, answered=True)
            return
        try:
            self.attach()
        except BrokerError as error:
            note_refusal(session, self._attach, error)
            why = PeerError(condition_of(error), error.text)
            refuse(session, self._answer, why, answered=True)

    def on_store_failed(self, reason: str) -> None:
        """It may not be (DurableWaiter)."""
        session = self.session
        session.peer.server.link_names.end_waiting(self)
        if not session.gone:
            session.fail(INTERNAL_ERROR, f"the log has failed: {reason}")
        hear_again(session)


@final
class WaitingSender(Waiting):
    """A link on which the peer sends, perhaps to a queue that has been made for it."""

    def __init__(self, link: IncomingLink, attach: Attach, answer: Attach, made: Queue | None) -> None:
        super().__init__(link.session, attach, answer)
        self._link = link
        self._made = made

    def attach(self) -> None:
        """Attach the link (Waiting)."""
        link = self._link
        session = link.session
        if self._made is not None:
            # the right may have been taken away while the link waited
            session.peer.rights.require(WRITE, EXCHANGE_ACCESS, DEFAULT_EXCHANGE)
            if self._made.deleted:
                session.vhost.queue(self._made.name)  # which says so, unless there is another one by now
        take_up_received(link, self._attach, self._answer)
        establish(session, link, self._answer)
        link.destination = destination_of(link)
        link.top_up()  # at once: deliveries may be right behind the attach


@final
class WaitingReceiver(Waiting):
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
            if self.waited:
                for consumer in self._consumers:
                    self._check(consumer.queue)
            for consumer in self._consumers:
                attach(consumer.queue, consumer)
        except BrokerError:
            link.target.close()
            for consumer in list(link.target.consumers):
                detach(consumer.queue, consumer, [])
            raise
        take_up_sent(link, self._consumers, self._attach, self._answer)
        establish(session, link, self._answer)

    def _check(self, queue: Queue) -> None:
        """Refuse a queue that has been deleted, or closed to the user, while the link waited.

        Raises NotFound, AccessRefused, and ResourceLocked if another connection has an exclusive queue of the
        same name by now.
        """
        session = self.session
        session.peer.rights.require(READ, QUEUE, queue.name)
        if queue.deleted:
            session.vhost.queue(queue.name, session.peer)
            raise NotFound(f"queue '{queue.name}' in vhost '{queue.vhost}' was deleted and declared again")


def establish(session: Session10, link: Link10, answer: Attach) -> None:
    """Say that the link is attached."""
    session.links[link.handle] = link
    session.peer.server.link_names.add(link)
    session.say(answer)


def note_refusal(session: Session10, attach: Attach, error: BrokerError) -> None:
    """Have the journal know of a sender whose link is refused, as none of its messages will be taken."""
    journal = session.vhost.journal
    target = attach.target
    if journal.on and not attach.role and isinstance(target, Target):
        journal.refused_by(session, Message(_address_of(session, target), None, 0, False, 0), error)


def _address_of(session: Session10, target: Target) -> Address:
    """Return where messages to `target` would go: to an exchange, or else to a queue."""
    try:
        node = node_of(target.address)
    except AddressError:
        return Address("", target.address or "")
    virtual_host = session.vhost
    is_exchange = node.name in virtual_host.exchanges and node.name not in virtual_host.queues
    if node.kind == EXCHANGE or (node.kind == NAME and is_exchange):
        return Address(node.name, node.key or "")
    return Address("", node.name)


def refuse(session: Session10, attach: Attach, why: PeerError, *, answered: bool = False) -> None:
    """Answer an attach without a terminus of this side, and detach at once. [amqp-1.0 2.6.3]

    `answered`: `attach` is the answer already.
    """
    answer = attach if answered else answer_to(attach)
    answer.name = attach.name[:NAME_CHARACTERS_MAX]
    answer.source = answer.target = None
    if not answer.role:
        answer.initial_delivery_count = 0
    session.say(answer)
    link = Link10(session, answer.name, attach.handle, answer.role, attach.initial_delivery_count or 0)
    link.leaving = True
    session.links[attach.handle] = link
    error = Error(condition=why.condition, description=shortened(why.text), info=why.info)
    session.say(Detach(handle=attach.handle, closed=True, error=error))
