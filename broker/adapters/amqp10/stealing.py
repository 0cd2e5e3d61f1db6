"""Links by their names: of two with the same one, the later may take the place of the other.

[amqp-1.0 2.6.1] A link is known by the names of the containers, its own, and the direction. Fleets of clients
use the same names for containers and links without meaning anything by it, so a link of another connection is
only taken if its terminus is to outlive it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.adapters.amqp10.lifetimes import NEVER, Expiring
from broker.adapters.amqp10.suspended import SUSPENDED_MAX, Expiry, Suspended
from protocol.amqp10.composites import Source, Target
from protocol.amqp10.conditions import STOLEN
from protocol.amqp10.performatives import Attach

if TYPE_CHECKING:
    from broker.adapters.amqp10.establishing import Waiting
    from broker.adapters.amqp10.link import Link10
    from broker.adapters.amqp10.session import Session10

Name = tuple[str, str, str, str, bool]


@final
class LinkNames:
    """The links that are attached to the broker, or suspended. Of several with one name the latest counts."""

    def __init__(self) -> None:
        self._links: dict[Name, Link10] = {}
        self._waiting: dict[Name, Waiting] = {}  # links whose queue has to be on disk before
        self._suspended: dict[Name, Suspended] = {}
        self._of_user: dict[str, int] = {}  # how many links are suspended
        self._generations: i64 = 0
        self.expiring: Expiring = {}  # queues that came with links

    def steal(self, session: Session10, attach: Attach) -> None:
        """Detach the link whose place a new one takes, if there is one."""
        name = _name(session, attach.name, not attach.role)
        waiting = self._waiting.get(name)
        if waiting is not None and (waiting.session.peer is session.peer or _persists(attach)):
            waiting.stolen = True
        link = self._links.get(name)
        if link is None or link.leaving:
            return
        if link.session.peer is session.peer or _persists(attach):
            link.detach(STOLEN, f"link '{attach.name}' was attached again")
            if link.session.peer is not session.peer:
                link.session.peer.end_turn()

    def begin_waiting(self, waiting: Waiting) -> None:
        """Know a link before it is attached, so that a later one may take its place."""
        self._waiting[_name(waiting.session, waiting.name, waiting.receives)] = waiting

    def end_waiting(self, waiting: Waiting) -> None:
        """Forget a link that waits no longer: it is attached now, or refused, or lost."""
        name = _name(waiting.session, waiting.name, waiting.receives)
        if self._waiting.get(name) is waiting:
            del self._waiting[name]

    def add(self, link: Link10) -> None:
        """It is attached."""
        self._links[_name(link.session, link.name, link.receives)] = link

    def remove(self, link: Link10) -> None:
        """It is so no longer."""
        name = _name(link.session, link.name, link.receives)
        if self._links.get(name) is link:
            del self._links[name]

    # -- those that may come back

    def next_generation(self) -> bytes:
        """What no link had, to tell its delivery-tags from those of earlier ones of its name."""
        self._generations = self._generations + 1 & 0xFFFFFFFF
        number: int = self._generations
        return number.to_bytes(4, "big")

    def suspend(self, session: Session10, link: str, receives: bool, expiry: Expiry) -> Suspended | None:
        """Have a link wait to be taken up again, which it begins with `Suspended.wait`.

        None if another one of its name is there, or too many of its user's wait already; or if its virtual
        host is gone.
        """
        if session.peer.server.broker.vhosts.get(session.vhost.name) is not session.vhost:
            return None
        name = _name(session, link, receives)
        user = session.peer.user
        if name in self._links or name in self._suspended or self._of_user.get(user, 0) >= SUSPENDED_MAX:
            return None
        suspended = Suspended(session.vhost.schedule, self, name, expiry)
        self._suspended[name] = suspended
        self._of_user[user] = self._of_user.get(user, 0) + 1
        return suspended

    def suspended(self, session: Session10, link: str, receives: bool) -> Suspended | None:
        """The link that one with this name takes up, if there is one."""
        return self._suspended.get(_name(session, link, receives))

    def resumed(self, suspended: Suspended) -> None:
        """It waits no longer."""
        name = suspended.name
        if self._suspended.get(name) is suspended:
            del self._suspended[name]
            user = name[1]
            self._of_user[user] -= 1
            if not self._of_user[user]:
                del self._of_user[user]

    def user_deleted(self, user: str) -> None:
        """Nobody comes back for the links of this user."""
        if user in self._of_user:
            self._end(1, user)

    def vhost_deleted(self, vhost: str) -> None:
        """There is nothing to come back for in this virtual host."""
        self._end(0, vhost)

    def _end(self, part: int, whose: str) -> None:
        """Have those end soon of whose names this is a part."""
        for suspended in list(self._suspended.values()):
            if suspended.name[part] == whose:
                suspended.end_soon()


def _name(session: Session10, name: str, receives: bool) -> Name:
    connection = session.peer
    return session.vhost.name, connection.user, connection.client_name, name, receives


def _persists(attach: Attach) -> bool:
    """Whether the peer's terminus is to outlive the connection, or has outlived one."""
    if attach.unsettled:
        return True
    terminus = attach.source if attach.role else attach.target
    if not isinstance(terminus, Source | Target):
        return False
    return terminus.durable > 0 or terminus.expiry_policy == NEVER
