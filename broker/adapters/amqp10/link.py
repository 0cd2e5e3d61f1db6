"""What all links have: a name, a handle, and an end. [amqp-1.0 2.6]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog
from mypy_extensions import i64

from broker.adapters.amqp10.lifetimes import Lifetime
from broker.adapters.amqp10.opening import shortened
from protocol.amqp10.composites import Error
from protocol.amqp10.conditions import ERRANT_LINK, STOLEN
from protocol.amqp10.flows import Flow
from protocol.amqp10.performatives import Detach
from protocol.amqp10.transfers import Transfer
from protocol.amqp10.windows import LinkCredit

if TYPE_CHECKING:
    from broker.adapters.amqp10.destination import Destination
    from broker.adapters.amqp10.session import Session10

_log = structlog.get_logger("amqpd.link")


class Link10:
    """An attached link, or one that this side has detached and the peer not yet.

    `receives`: this side is the receiver. `credit`: what its sender may send. `leaving`: this side has
    detached it; what the peer sends on it, before it knows, is dropped.
    """

    def __init__(self, session: Session10, name: str, handle: i64, receives: bool, count: i64) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.receives = receives
        self.credit = LinkCredit(count)
        self.leaving = False
        self.lifetime: Lifetime | None = None  # of a queue that came with it
        self.destination: Destination | None = None  # of what its peer sends, if it is one

    # -- what a subclass does; a link that was refused at once does nothing

    def on_flow(self, flow: Flow) -> None:
        """The peer says the state of the link. [amqp-1.0 2.6.7]"""

    def on_transfer(self, transfer: Transfer, data: bytes, end: i64) -> None:
        """A part of a delivery, whose frame ends at `end` of `data`. [amqp-1.0 2.6.12]"""

    def silence(self) -> None:
        """Want nothing any more, before anything is given back."""

    def let_go(self, closed: bool) -> None:
        """The link ends: everything that it holds goes back, but for what the next of its name may resume.

        `closed`: there is to be none.
        """

    def rights_changed(self) -> None:
        """What the user may do has changed."""

    # -- the end

    def finish(self) -> None:
        """End the link from this side: there is nothing more to come on it. [amqp-1.0 2.6.6]"""
        self.session.owed.answers.end_turn()
        if not self.leaving:
            self.leave(True)
            self.session.say(Detach(handle=self.handle, closed=True))

    def detach(self, condition: str, text: str, info: Mapping[str, object] | None = None) -> None:
        """End the link from this side, and say why. [amqp-1.0 2.6.5]"""
        session = self.session
        session.owed.answers.end_turn()
        if self.leaving:  # perhaps as the session has been ended by that
            return
        connection = session.peer
        _log.warning(
            "link error",
            peer=connection.peer,
            user=connection.user,
            channel=session.channel,
            link=self.name,
            condition=condition,
            reason=text,
        )
        self.leave(condition != STOLEN)
        error = Error(condition=condition, description=shortened(text), info=info)
        session.say(Detach(handle=self.handle, closed=True, error=error))

    def leave(self, closed: bool) -> None:
        """Give back what it holds (`let_go`). What comes on it from now on is dropped."""
        self.leaving = True
        journal = self.session.vhost.journal
        before = journal.actor
        journal.actor = self.session
        try:
            self.session.peer.server.link_names.remove(self)
            self.silence()
            self.let_go(closed)
            if self.destination is not None:
                self.destination.left()
        finally:
            journal.actor = before
        if self.lifetime is not None:
            self.session.lifetimes[self.lifetime.queue] = self.lifetime

    def swallow(self) -> None:
        """Drop a delivery that was sent before the peer knew; more than its credit allowed is an error."""
        if self.credit.left <= 0:
            self.session.fail(ERRANT_LINK, f"transfer on link '{self.name}', which is detached")
            return
        self.credit.use()
