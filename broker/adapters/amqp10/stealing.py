"""Links by their names: of two with the same one, the later may take the place of the other.

[amqp-1.0 2.6.1] A link is known by the names of the containers, its own, and the direction. Fleets of clients
use the same names for containers and links without meaning anything by it, so a link of another connection is
only taken if its terminus is to outlive it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.adapters.amqp10.lifetimes import NEVER
from protocol.amqp10.composites import Source, Target
from protocol.amqp10.conditions import STOLEN
from protocol.amqp10.performatives import Attach

if TYPE_CHECKING:
    from broker.adapters.amqp10.link import Link10
    from broker.adapters.amqp10.session import Session10

Name = tuple[str, str, str, str, bool]


@final
class LinkNames:
    """The links that are attached to the broker. Of several with one name the latest counts."""

    def __init__(self) -> None:
        self._links: dict[Name, Link10] = {}

    def steal(self, session: Session10, attach: Attach) -> None:
        """Detach the link whose place a new one takes, if there is one."""
        link = self._links.get(_name(session, attach.name, not attach.role))
        if link is None or link.leaving:
            return
        if link.session.peer is session.peer or _persists(attach):
            link.detach(STOLEN, f"link '{attach.name}' was attached again")
            if link.session.peer is not session.peer:
                link.session.peer.end_turn()

    def add(self, link: Link10) -> None:
        """It is attached."""
        self._links[_name(link.session, link.name, link.receives)] = link

    def remove(self, link: Link10) -> None:
        """It is so no longer."""
        name = _name(link.session, link.name, link.receives)
        if self._links.get(name) is link:
            del self._links[name]


def _name(session: Session10, name: str, receives: bool) -> Name:
    connection = session.peer
    return session.vhost.name, connection.user, connection.client_name, name, receives


def _persists(attach: Attach) -> bool:
    """Whether the peer's terminus is to outlive the connection."""
    terminus = attach.source if attach.role else attach.target
    if not isinstance(terminus, Source | Target):
        return False
    return terminus.durable > 0 or terminus.expiry_policy == NEVER
