"""One session of an AMQP 1.0 connection: its windows, its links and what is unsettled. [amqp-1.0 2.5]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
from mypy_extensions import i64

from broker.adapters.amqp10.answers import Halves, Owed
from broker.adapters.amqp10.attach import attach_link
from broker.adapters.amqp10.lifetimes import Lifetime
from broker.adapters.amqp10.link import Link10, shortened
from broker.adapters.amqp10.management.links import Pair
from broker.adapters.amqp10.names import Suspended, expire_all
from broker.adapters.amqp10.settle import SessionLeases, by_target, settle
from broker.adapters.amqp10.target import Target10
from broker.adapters.peers.unsettled import Unacked
from broker.core.delivery.session import Session
from broker.core.queues.consumer import ConsumerTarget
from broker.core.queues.queue import Queue
from broker.core.schedule import ENTRIES
from protocol.amqp10.composites import Error
from protocol.amqp10.conditions import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    INVALID_FIELD,
    UNATTACHED_HANDLE,
    PeerError,
)
from protocol.amqp10.constructors import NONE
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.flows import Flow
from protocol.amqp10.outgoing import flow as flow_frame
from protocol.amqp10.performatives import Attach, Begin, Detach, End
from protocol.amqp10.serials import distance
from protocol.amqp10.transfers import Transfer
from protocol.amqp10.types import Composite
from protocol.amqp10.windows import IncomingWindow, OutgoingWindow

if TYPE_CHECKING:
    from broker.adapters.amqp10.connection import Connection10
    from broker.adapters.amqp10.link import Sender
    from broker.core.vhosts.vhost import VirtualHost


LINKS_MAX: Final = 255  # the highest handle
WINDOW_BYTES: Final[i64] = 16777216  # of transfers that the peer may send before it hears of more
WINDOW_MIN: Final[i64] = 16
BOUNDLESS: Final[i64] = 2147483647  # nobody counts the transfers of this side

_log = structlog.get_logger("amqpd.session")


@final
class Session10(Session):
    """A session that the peer has begun. Its channel and its handles are the peer's, in both directions.

    `unsettled`: what it has been sent, by the numbers 1, 2, ... of which delivery-ids are the lowest 32 bits
    less one. `sending`: links of which a delivery is on its way in parts.
    """

    def __init__(self, connection: Connection10, vhost: VirtualHost, channel: i64, begin: Begin) -> None:
        super().__init__(connection, channel)
        self.peer = connection
        self.vhost = vhost
        self.channel = channel
        window = max(WINDOW_BYTES // max(connection.server.frame_max, 512), WINDOW_MIN)
        self.incoming = IncomingWindow(begin.next_outgoing_id, window)
        self.outgoing = OutgoingWindow(begin.incoming_window)
        self.handle_max: i64 = min(begin.handle_max, LINKS_MAX)
        self.links: dict[int, Link10] = {}
        self.unsettled = Unacked()
        self.owed = Owed(self)
        self.halves = Halves()
        self.lifetimes: dict[Queue, Lifetime] = {}  # that links have left behind
        self.suspended: dict[Suspended, None] = {}  # links, until it ends
        self.sending: dict[Sender, None] = {}
        self.pairs: dict[str, Pair] = {}  # of links to the node of management, by their names
        self.ending = False  # the peer has been told, and its own end is to come
        self.gone = False  # it holds nothing any more
        self.leases: SessionLeases | None = None
        self.let_go_of: dict[ConsumerTarget, list[i64]] | None = None  # unsettled, as the session ends
        if self.outgoing.left == 0:
            self.set_flow(False)

    def begin(self) -> None:
        """Answer the peer's begin. [amqp-1.0 2.5.1]"""
        channel: int = self.channel
        window: int = self.incoming.size
        answer = Begin(
            remote_channel=channel,
            next_outgoing_id=0,
            incoming_window=window,
            outgoing_window=BOUNDLESS,
            handle_max=LINKS_MAX,
        )
        self.peer.write(answer, channel)

    # -- what the peer says

    def on_attach(self, attach: Attach) -> None:
        """A link. Raises PeerError for what ends the connection. [amqp-1.0 2.6.3]"""
        if attach.handle > self.handle_max:
            raise PeerError(FRAMING_ERROR, f"handle {attach.handle} of at most {self.handle_max}")
        before = self.links.get(attach.handle)
        if before is not None and not before.leaving:
            raise PeerError(HANDLE_IN_USE, f"handle {attach.handle} is in use")
        attach_link(self, attach)  # in the place of one that this side has detached, if the peer says no more

    def on_flow(self, flow: Flow) -> None:
        """What the peer has received, and how much more it takes. [amqp-1.0 2.5.6]"""
        try:
            self.outgoing.update(flow.next_incoming_id, flow.incoming_window)
            self.incoming.follow(flow.next_outgoing_id)
        except PeerError as error:
            self.fail(error.condition, error.text)
            return
        if self.outgoing.left == 0:
            self.set_flow(False)
        elif not self.flow:
            self.set_flow(True)
            if self.sending:
                self.peer.schedule()
            self._drain_on()
        if flow.handle == NONE:
            if flow.echo:
                self.say_flow()
            return
        link = self.links.get(flow.handle)
        if link is None:
            self._unattached(flow.handle)
        elif not link.leaving:
            link.on_flow(flow)

    def on_transfer(self, transfer: Transfer, data: bytes, end: i64) -> None:
        """A part of a delivery. [amqp-1.0 2.6.12]"""
        link = self.links.get(transfer.handle)
        try:
            if self.incoming.received():
                self.say_flow()
        except PeerError as error:
            self.fail(error.condition, error.text)
            return
        if link is None:
            self._unattached(transfer.handle)
        else:
            link.on_transfer(transfer, data, end)

    def blame(self, handle: i64, error: PeerError) -> None:
        """A transfer that is wrong in a way that concerns its link only."""
        link = self.links.get(handle)
        if link is None:
            self._unattached(handle)
        elif not link.leaving:
            link.detach(error.condition, error.text)

    def on_disposition(self, disposition: Disposition) -> None:
        """What becomes of deliveries; of those that are not known nothing does. [amqp-1.0 2.7.6]"""
        if distance(disposition.first, disposition.last) < 0:
            text = f"disposition of deliveries {disposition.first} to {disposition.last}"
            self.fail(INVALID_FIELD, text)
        elif disposition.receiver:
            settle(self, disposition)
        elif disposition.settled:
            looked = self.halves.settle(disposition.first, disposition.last)
            self.vhost.schedule.allowance.use(looked // ENTRIES)

    def on_detach(self, detach: Detach) -> None:
        """The end of a link; of one that this side has detached it is the answer. [amqp-1.0 2.6.5]"""
        self.owed.answers.end_turn()  # what was published before is published
        if self.ending:  # by that, as the log has failed
            return
        link = self.links.pop(detach.handle, None)
        if link is None:
            self._unattached(detach.handle)
            return
        if link.leaving:
            return
        error = None
        journal = self.vhost.journal
        actor = journal.actor
        journal.actor = self
        try:
            link.leave(detach.closed)
            if link.lifetime is not None:
                error = link.lifetime.link_ended(detach.closed)
                if detach.closed:
                    self.lifetimes.pop(link.lifetime.queue, None)
        finally:
            journal.actor = actor
        self.say(Detach(handle=detach.handle, closed=detach.closed, error=error))

    def on_end(self) -> None:
        """The end of the session; answered, unless that was the answer. [amqp-1.0 2.5.7]"""
        self.owed.answers.end_turn()
        if not self.ending:
            self.silence()
            self.let_go()
            self.say(End())
        self.peer.mapped.ended(self.channel)

    # -- what is said to it

    def say(self, performative: Composite) -> None:
        """Say something about it, or one of its links."""
        channel: int = self.channel
        self.peer.write(performative, channel)

    def say_flow(self) -> None:
        """Say how much is taken from now on."""
        self.write_flow(NONE, NONE, NONE, NONE, False)

    def write_flow(self, handle: i64, count: i64, credit: i64, available: i64, drain: bool) -> None:
        """Say the state of the session, and that of a link. [amqp-1.0 2.7.4]"""
        incoming, outgoing = self.incoming, self.outgoing
        window = incoming.open()
        self.peer.out.write(
            flow_frame(
                self.channel,
                incoming.next_id,
                window,
                outgoing.next_id,
                BOUNDLESS,
                handle,
                count,
                credit,
                available,
                drain,
                False,
            )
        )

    def sent(self) -> None:
        """A transfer has been written: one less that the peer takes."""
        self.outgoing.sent()
        if self.outgoing.left <= 0:
            self.set_flow(False)

    def _drain_on(self) -> None:
        """The window is open again: find out whether there is something for those who drain."""
        for target in list(self.targets):
            if isinstance(target, Target10) and target.draining:
                target.notify_work()

    # -- settling

    def number_of(self, delivery_id: i64) -> i64:
        """The number of the delivery with this id, the nearest to the next one that there is."""
        following = self.unsettled.next_tag()
        return following + distance(following - 1 & 0xFFFFFFFF, delivery_id)

    # -- the end

    def fail(self, condition: str, text: str) -> None:
        """A session error: say why; whatever else comes before the peer's end is ignored. [amqp-1.0 2.5.8]"""
        self.owed.answers.end_turn()
        if self.ending:  # perhaps by that
            return
        connection = self.peer
        _log.warning(
            "session error",
            peer=connection.peer,
            user=connection.user,
            channel=self.channel,
            condition=condition,
            reason=text,
        )
        self.ending = True
        self.silence()
        self.let_go()
        self.say(End(error=Error(condition=condition, description=shortened(text))))

    def silence(self) -> None:
        """Want nothing any more, before anything is given back."""
        self.close_targets()

    def let_go(self) -> None:
        """Everything that its links hold goes back, and the session is the actor of that."""
        journal = self.vhost.journal
        before = journal.actor
        journal.actor = self
        try:
            self._let_go()
        finally:
            journal.actor = before

    def _let_go(self) -> None:
        self.gone = True
        links, self.links = self.links, {}
        self.let_go_of = by_target(self)  # once, and not for each link
        for link in links.values():
            if not link.leaving:
                link.leave(False)
        self.let_go_of = None
        for lifetime in self.lifetimes.values():
            lifetime.session_ended()
        self.peer.lifetimes.update(self.lifetimes)
        self.lifetimes = {}
        expire_all(self.suspended)
        self.owed.clear()
        if self.leases is not None:
            self.leases.stop()
            self.leases = None

    def rights_changed(self) -> None:
        """What the user may do has changed."""
        for link in list(self.links.values()):
            if not link.leaving:
                link.rights_changed()

    def _unattached(self, handle: i64) -> None:
        self.fail(UNATTACHED_HANDLE, f"there is no link with handle {handle}")
