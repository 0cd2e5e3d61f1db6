"""A session of an AMQP 1.0 connection: its windows, its links and its unsettled deliveries. [amqp-1.0 2.5]"""

from __future__ import annotations

from typing import Final, final

import structlog
from mypy_extensions import i64

from broker.adapters.amqp10.answers import PendingFrames, pending_frames_of
from broker.adapters.amqp10.attach import attach_link
from broker.adapters.amqp10.link import Link10, shorten_description
from broker.adapters.amqp10.names import link_names
from broker.adapters.amqp10.settle import apply_disposition
from broker.adapters.amqp10.state import (
    OUTGOING_WINDOW,
    Connection10State,
    Session10State,
    SessionLink,
    expire_all,
)
from broker.adapters.amqp10.target import Target10
from broker.core.queues.consumer import ConsumerTarget
from broker.core.schedule import ENTRIES
from broker.core.vhosts.vhost import VirtualHost
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
from protocol.amqp10.performatives import Attach, Begin, Detach, End
from protocol.amqp10.serials import distance
from protocol.amqp10.transfers import Transfer
from protocol.amqp10.windows import IncomingWindow, OutgoingWindow

LINKS_MAX: Final = 255  # the highest handle
WINDOW_BYTES: Final[i64] = 16777216  # the size of the transfers that the peer may send before the next flow
WINDOW_MIN: Final[i64] = 16

_log = structlog.get_logger("amqpd.session")


@final
class Session10(Session10State):
    """A session that the peer has begun."""

    def __init__(self, connection: Connection10State, vhost: VirtualHost, channel: i64, begin: Begin) -> None:
        window = max(WINDOW_BYTES // max(connection.server.frame_max, 512), WINDOW_MIN)
        incoming = IncomingWindow(begin.next_outgoing_id, window)
        outgoing = OutgoingWindow(begin.incoming_window)
        super().__init__(connection, vhost, channel, incoming, outgoing)
        self.pending = PendingFrames(self)
        self.handle_max: i64 = min(begin.handle_max, LINKS_MAX)
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
            outgoing_window=OUTGOING_WINDOW,
            handle_max=LINKS_MAX,
        )
        self.peer.write(answer, channel)

    # -- frames of the peer

    def on_attach(self, attach: Attach) -> None:
        """Attach a link. Raises PeerError for errors that end the connection. [amqp-1.0 2.6.3]"""
        if attach.handle > self.handle_max:
            raise PeerError(FRAMING_ERROR, f"handle is {attach.handle}, handle-max is {self.handle_max}")
        before = self.links.get(attach.handle)
        if before is not None and not before.is_detached:
            raise PeerError(HANDLE_IN_USE, f"handle {attach.handle} is in use")
        attach_link(self, attach)  # perhaps in the place of a link that this side has detached

    def on_flow(self, flow: Flow) -> None:
        """Take the peer's windows, and pass the state of a link to the link. [amqp-1.0 2.5.6]"""
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
            self._continue_drains()
        if flow.handle == NONE:
            if flow.echo:
                self.send_flow()
            return
        link = self.links.get(flow.handle)
        if link is None:
            self._refuse_handle(flow.handle)
        elif not link.is_detached:
            link.on_flow(flow)

    def on_transfer(self, transfer: Transfer, data: bytes, end: i64) -> None:
        """Take a transfer of a delivery. [amqp-1.0 2.6.12]"""
        link = self.links.get(transfer.handle)
        try:
            if self.incoming.count_transfer():
                self.send_flow()
        except PeerError as error:
            self.fail(error.condition, error.text)
            return
        if link is None:
            self._refuse_handle(transfer.handle)
        else:
            link.on_transfer(transfer, data, end)

    def fail_link(self, handle: i64, error: PeerError) -> None:
        """Detach the link of a transfer whose error concerns the link only."""
        link = self.links.get(handle)
        if link is None:
            self._refuse_handle(handle)
        elif not link.is_detached:
            link.detach(error.condition, error.text)

    def on_disposition(self, disposition: Disposition) -> None:
        """Take the states of deliveries; unknown deliveries are ignored. [amqp-1.0 2.7.6]"""
        if distance(disposition.first, disposition.last) < 0:
            text = f"disposition.last {disposition.last} precedes disposition.first {disposition.first}"
            self.fail(INVALID_FIELD, text)
        elif disposition.receiver:
            apply_disposition(self, disposition)
        elif disposition.settled:
            checked = pending_frames_of(self).unsettled_by_sender.settle(disposition.first, disposition.last)
            self.vhost.schedule.allowance.use(checked // ENTRIES)

    def on_detach(self, detach: Detach) -> None:
        """Detach a link; for a link that this side has detached, this is the answer. [amqp-1.0 2.6.5]"""
        self.pending.send_outcomes()  # outcomes of earlier deliveries precede the detach
        if self.end_sent:  # by these answers, because the log has failed
            return
        link = self.links.pop(detach.handle, None)
        if link is None:
            self._refuse_handle(detach.handle)
            return
        if link.is_detached:
            return
        error = None
        journal = self.vhost.journal
        actor = journal.actor
        journal.actor = self
        try:
            link.end(detach.closed)
            if link.lifetime is not None:
                error = link.lifetime.on_link_ended(detach.closed)
                if detach.closed:
                    self.lifetimes.pop(link.lifetime.queue, None)
        finally:
            journal.actor = actor
        self.send(Detach(handle=detach.handle, closed=detach.closed, error=error))

    def on_end(self) -> None:
        """End the session, and answer unless this side has ended it before. [amqp-1.0 2.5.7]"""
        self.pending.send_outcomes()
        if not self.end_sent:
            self.stop_deliveries()
            self.release_all()
            self.send(End())
        self.peer.on_session_ended(self.channel)

    def _continue_drains(self) -> None:
        """Continue the drains of receivers: the session's window is open again."""
        for target in list(self.targets):
            if isinstance(target, Target10) and target.draining:
                target.notify_work()

    # -- the end

    def fail(self, condition: str, text: str) -> None:
        """End the session with an error; other frames before the peer's end are ignored. [amqp-1.0 2.5.8]"""
        self.pending.send_outcomes()
        if self.end_sent:  # perhaps by these answers
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
        self.end_sent = True
        self.stop_deliveries()
        self.release_all()
        self.send(End(error=Error(condition=condition, description=shorten_description(text))))

    def forget_link(self, link: SessionLink) -> None:
        """Forget the name of a link that has ended."""
        assert isinstance(link, Link10), "a link of a session is a Link10"
        link_names(self.peer.server).remove(link)

    def stop_deliveries(self) -> None:
        """Stop all deliveries to the session before anything is requeued."""
        self.close_targets()

    def release_all(self) -> None:
        """Release everything that the session's links own, with the session as the actor in the journal."""
        journal = self.vhost.journal
        before = journal.actor
        journal.actor = self
        try:
            self._release_all()
        finally:
            journal.actor = before

    def _release_all(self) -> None:
        self.is_released = True
        links, self.links = self.links, {}
        self.unsettled_numbers = _numbers_by_target(self)  # computed here for all links
        for link in links.values():
            if not link.is_detached:
                link.end(False)
        self.unsettled_numbers = None
        for lifetime in self.lifetimes.values():
            lifetime.on_session_ended()
        self.peer.lifetimes.update(self.lifetimes)
        self.lifetimes = {}
        expire_all(self.suspended)
        pending_frames_of(self).clear()
        self.unsettled.holder = None
        if self.leases is not None:
            self.leases.stop()
            self.leases = None

    def on_rights_changed(self) -> None:
        """Check all links: the user's permissions have changed."""
        for link in list(self.links.values()):
            if not link.is_detached:
                link.on_rights_changed()

    def _refuse_handle(self, handle: i64) -> None:
        self.fail(UNATTACHED_HANDLE, f"there is no link with handle {handle}")


def _numbers_by_target(session: Session10State) -> dict[ConsumerTarget, list[i64]]:
    """Return the numbers of all deliveries that are not settled, oldest first, by their targets."""
    unsettled = session.unsettled
    numbers = unsettled.tags_up_to(0)
    session.vhost.schedule.allowance.use(len(numbers) // ENTRIES)
    by_target: dict[ConsumerTarget, list[i64]] = {}
    for number in numbers:
        unsettled.find(number)
        consumer = unsettled.holder
        if consumer is not None:
            by_target.setdefault(consumer.target, []).append(number)
    return by_target
