"""Links that take up earlier ones of their names, or forget them. [amqp-1.0 2.6.13]

An attach with a map of unsettled deliveries, be it empty, takes up what is suspended; one without a map
begins anew, and what was unsettled is so no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.remembered import Remembered
from broker.adapters.amqp10.resuming import Resuming
from broker.adapters.server import HELD_FOR_REPLY
from broker.core.ports import DurableWaiter
from broker.core.queues.consumer import QueueConsumer
from protocol.amqp10.composing import encode_composite
from protocol.amqp10.conditions import INTERNAL_ERROR
from protocol.amqp10.decoding import decode_typed
from protocol.amqp10.performatives import Attach

if TYPE_CHECKING:
    from broker.adapters.amqp10.incoming import IncomingLink
    from broker.adapters.amqp10.outgoing import OutgoingLink
    from broker.adapters.amqp10.session import Session10

FRAME_ROOM: Final = 64  # of a frame, for its header and what grows in the attach with a map
ITEM_ROOM: Final = 5  # of a tag in a map

Again = Callable[["Session10", Attach], None]


@final
class TakenUpLater(DurableWaiter):
    """An attach whose sender is to be told of outcomes that the log does not have yet."""

    def __init__(self, session: Session10, attach: Attach, again: Again) -> None:
        self._session = session
        self._attach = attach
        self._again = again

    def wait(self) -> None:
        """Take it when the log has what was appended, and no frames before."""
        connection = self._session.peer
        connection.hold(HELD_FOR_REPLY)
        connection.server.store.wait(self)

    def on_durable(self, batch: i64) -> None:
        """They are on disk (DurableWaiter)."""
        session = self._session
        handle = self._attach.handle
        before = session.links.get(handle)
        if not session.gone:
            self._again(session, self._attach)
        if session.gone or session.links.get(handle) is not before:
            hear_again(session)
        # else it has to wait once more: another link has come first, and it was taken from that

    def on_store_failed(self, reason: str) -> None:
        """They may not be (DurableWaiter)."""
        session = self._session
        if not session.gone:
            session.fail(INTERNAL_ERROR, f"the log has failed: {reason}")
        hear_again(session)


def hear_again(session: Session10) -> None:
    """An attach has its answer, or the session has ended meanwhile: frames are taken again, if any come."""
    if session.peer.is_open():
        session.peer.release(HELD_FOR_REPLY)


def is_ahead(session: Session10, attach: Attach) -> bool:
    """Whether what this takes up has outcomes that the log does not have yet."""
    server = session.peer.server
    suspended = server.link_names.suspended(session, attach.name, not attach.role)
    return suspended is not None and suspended.batch > server.store.durable


def take_up_received(link: IncomingLink, attach: Attach, answer: Attach) -> None:
    """Compare what the sender knows with what an earlier link has received, and tell it."""
    session = link.session
    suspended = session.peer.server.link_names.suspended(session, link.name, True)
    if suspended is None:
        return
    if attach.unsettled is None:
        suspended.end()
        return
    suspended.resumed()
    remembered = Remembered(suspended.received, attach.incomplete_unsettled)
    if not attach.incomplete_unsettled:
        remembered.keep_known(attach.unsettled)
    if not _tell(session, answer, remembered.outcomes):
        remembered.incomplete = True
    link.remembered = remembered


def take_up_sent(link: OutgoingLink, consumers: list[QueueConsumer], attach: Attach, answer: Attach) -> None:
    """Compare what the receiver knows with what an earlier link has sent, and tell it."""
    session = link.session
    suspended = session.peer.server.link_names.suspended(session, link.name, False)
    if suspended is None:
        return
    known = attach.unsettled
    queues = {consumer.queue: consumer for consumer in consumers}
    elsewhere = any(held[0].queue not in queues for held in suspended.sent.values())
    if known is None or link.expiry is None or elsewhere:
        suspended.end()
        return
    complete = _tell(session, answer, dict.fromkeys(suspended.sent))
    resuming = Resuming(link, attach.incomplete_unsettled, not complete)
    resuming.take_over(suspended, queues, known)
    if not resuming.is_over():
        link.resuming = resuming


def _tell(session: Session10, answer: Attach, states: Mapping[bytes, bytes | None]) -> bool:
    """Say what is unsettled here, as far as a frame of the peer holds it; whether that is all."""
    room: i64 = session.peer.frame_max - len(encode_composite(answer)) - FRAME_ROOM
    told: dict[bytes, object] = {}
    for tag, state in states.items():
        room -= len(tag) + ITEM_ROOM + (1 if state is None else len(state))
        if room < 0:
            answer.incomplete_unsettled = True
            break
        told[tag] = None if state is None else decode_typed(state)[0]
    answer.unsettled = told
    return not answer.incomplete_unsettled
