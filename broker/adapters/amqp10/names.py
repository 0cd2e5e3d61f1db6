"""The names of links, and suspended links that a later link may resume. [amqp-1.0 2.6.13, 3.5]

A link is suspended when it is detached without being closed, or when its session or connection ends. The
register has attached links, suspended links until their terminus expires, and links that wait for the log
before they are attached.

[amqp-1.0 2.6.1] A link is identified by the names of the containers, its own name, and its direction. Many
clients use the same names for containers and links by accident. So a link of another connection is stolen
only if its terminus is to outlive the connection.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.lifetimes import (
    CONNECTION_CLOSE,
    EXPIRY_SECONDS_MAX,
    LINK_DETACH,
    NEVER,
    SESSION_END,
    Expiring,
)
from broker.adapters.amqp10.link import Link10
from broker.adapters.amqp10.state import Session10State, SuspendedLink
from broker.adapters.peers.server import LinkRegister, Server
from broker.core.entries.entry import QueueEntry
from broker.core.ports import DurableWaiter
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import queue_of
from broker.core.queues.returns import release_entries
from broker.core.schedule import Schedule
from protocol.amqp10.composites import Source, Target
from protocol.amqp10.conditions import STOLEN
from protocol.amqp10.performatives import Attach

SUSPENDED_MAX: Final = 1000  # links of a user
KEPT_MAX: Final = 5000  # unsettled deliveries of a suspended link; further ones are released at once

SentDelivery = tuple[QueueConsumer, QueueEntry]
"""A sent delivery: its consumer and its queue's entry."""


@final
class Expiry:
    """The event that starts the expiry of a terminus (`policy`, as in `lifetimes`), and its seconds."""

    def __init__(self, policy: str, seconds: i64) -> None:
        self.policy = policy
        self.seconds = min(seconds, EXPIRY_SECONDS_MAX)


def expiry_of(terminus: Source | Target | None) -> Expiry:
    """Return the expiry of a terminus; without a terminus, the end of the session."""
    if terminus is None:
        return Expiry(SESSION_END, 0)
    return Expiry(terminus.expiry_policy, terminus.timeout)


@final
class SuspendedLink10(SuspendedLink):
    """A suspended link with its unsettled deliveries, by their tags.

    `sent`: deliveries of this side, which stay acquired. `received`: received deliveries with their encoded
    outcomes. `batch`: the outcomes are on disk when the log has synced this batch. `default_outcome`: the
    cause with which sent deliveries are released. `lease`: the milliseconds for which the link may be
    suspended, as its consumer or queue demands; 0: any number.
    """

    def __init__(self, schedule: Schedule, names: LinkNames, name: Name, expiry: Expiry) -> None:
        super().__init__()
        self.name = name
        self.sent: dict[bytes, SentDelivery] = {}
        self.received: dict[bytes, bytes] = {}
        self.batch: i64 = 0
        self.default_outcome: i64 = 0
        self.lease: i64 = 0
        self._expiry = expiry
        self._schedule = schedule
        self._names = names
        self._awaiting: dict[SuspendedLink, None] | None = None  # the links that wait for the same event

    def wait(self, session: Session10State) -> None:
        """Wait for the event that starts the expiry, or start the expiry at once.

        A link whose terminus never expires ends after EXPIRY_SECONDS_MAX.
        """
        policy = self._expiry.policy
        if self.lease > 0:
            self._end_within(self.lease)
        if policy == LINK_DETACH:
            self.expire()
        elif policy in (SESSION_END, CONNECTION_CLOSE):
            self._awaiting = session.suspended if policy == SESSION_END else session.peer.suspended
            self._awaiting[self] = None
        else:
            self._end_within(EXPIRY_SECONDS_MAX * 1000)

    def expire(self) -> None:
        """Start the time after which the link cannot be resumed."""
        self._stop_awaiting()
        if self._expiry.seconds == 0:
            self.end()
        else:
            self._end_within(self._expiry.seconds * 1000)

    def schedule_end(self) -> None:
        """End the suspended link in a later turn, so that many of them do not end in the same turn."""
        self._schedule.set(self, self._schedule.now())

    def do_due_work(self) -> None:
        """End the suspended link: it was not resumed in time."""
        self.end()

    def end_suspension(self) -> None:
        """Forget the suspension: a later link has resumed the link."""
        self._stop_awaiting()
        self._schedule.cancel(self)
        self._names.remove_suspended(self)

    def end(self) -> None:
        """End the suspended link and release its deliveries."""
        self.end_suspension()
        sent, self.sent = self.sent, {}
        release_deliveries(list(sent.values()), self.default_outcome)

    def _end_within(self, milliseconds: i64) -> None:
        due = self._schedule.after(milliseconds)
        if self.due == 0 or due < self.due:
            self._schedule.set(self, due)

    def _stop_awaiting(self) -> None:
        if self._awaiting is not None:
            self._awaiting.pop(self, None)
            self._awaiting = None


def release_deliveries(deliveries: list[SentDelivery], outcome: i64) -> None:
    """Release deliveries to their queues."""
    entries: dict[QueueConsumer, list[QueueEntry]] = {}
    for consumer, entry in deliveries:
        entries.setdefault(consumer, []).append(entry)
    for consumer, owned in entries.items():
        release_entries(queue_of(consumer), owned, consumer, outcome)


Name = tuple[str, str, str, str, bool]


class WaitingLink(DurableWaiter):
    """A link that waits for the log before it is attached; `attach.WaitingAttach` extends this class.

    `stolen`: a later link of the same name was attached meanwhile. [amqp-1.0 2.6.1]
    """

    def __init__(self, session: Session10State, name: str, receives: bool) -> None:
        self.session = session
        self.name = name
        self.receives = receives
        self.stolen = False


@final
class LinkNames(LinkRegister):
    """The attached, waiting and suspended links of the broker; of attached links of one name the latest."""

    def __init__(self) -> None:
        self._links: dict[Name, Link10] = {}
        self._waiting: dict[Name, WaitingLink] = {}  # links whose new queue is not on disk yet
        self._suspended: dict[Name, SuspendedLink10] = {}
        self._of_user: dict[str, int] = {}  # the number of suspended links
        self._tag_prefixes: i64 = 0
        self.expiring: Expiring = {}  # queues that belong to links

    def steal(self, session: Session10State, attach: Attach) -> None:
        """Detach the link with the name of a new link, if there is one."""
        name = _name(session, attach.name, not attach.role)
        waiting = self._waiting.get(name)
        if waiting is not None and (waiting.session.peer is session.peer or _outlives_connection(attach)):
            waiting.stolen = True
        link = self._links.get(name)
        if link is None or link.is_detached:
            return
        if link.session.peer is session.peer or _outlives_connection(attach):
            link.detach(STOLEN, f"link '{attach.name}' was attached again")
            if link.session.peer is not session.peer:
                link.session.peer.end_turn()

    def begin_waiting(self, waiting: WaitingLink) -> None:
        """Register a link that waits to be attached, so that a later link may steal it."""
        self._waiting[_name(waiting.session, waiting.name, waiting.receives)] = waiting

    def end_waiting(self, waiting: WaitingLink) -> None:
        """Forget a waiting link: the link is about to be attached or refused, or its session has ended."""
        name = _name(waiting.session, waiting.name, waiting.receives)
        if self._waiting.get(name) is waiting:
            del self._waiting[name]

    def add(self, link: Link10) -> None:
        """Register an attached link."""
        self._links[_name(link.session, link.name, link.receives)] = link

    def remove(self, link: Link10) -> None:
        """Forget a link that has ended."""
        name = _name(link.session, link.name, link.receives)
        if self._links.get(name) is link:
            del self._links[name]

    # -- suspended links

    def next_tag_prefix(self) -> bytes:
        """Return the prefix of a link's delivery-tags, which differs from those of earlier links."""
        self._tag_prefixes = self._tag_prefixes + 1 & 0xFFFFFFFF
        number: int = self._tag_prefixes
        return number.to_bytes(4, "big")

    def suspend(
        self, session: Session10State, link: str, receives: bool, expiry: Expiry
    ) -> SuspendedLink10 | None:
        """Return a suspended link for a link that has ended; `SuspendedLink10.wait` starts the suspension.

        None if another link has this name, if the user has too many suspended links, or if the virtual host
        is deleted.
        """
        if session.peer.server.broker.vhosts.get(session.vhost.name) is not session.vhost:
            return None
        name = _name(session, link, receives)
        user = session.peer.user
        if name in self._links or name in self._suspended or self._of_user.get(user, 0) >= SUSPENDED_MAX:
            return None
        suspended = SuspendedLink10(session.vhost.schedule, self, name, expiry)
        self._suspended[name] = suspended
        self._of_user[user] = self._of_user.get(user, 0) + 1
        return suspended

    def find_suspended(self, session: Session10State, link: str, receives: bool) -> SuspendedLink10 | None:
        """Return the suspended link that a link with this name resumes, if there is one."""
        return self._suspended.get(_name(session, link, receives))

    def remove_suspended(self, suspended: SuspendedLink10) -> None:
        """Forget a suspended link."""
        name = suspended.name
        if self._suspended.get(name) is suspended:
            del self._suspended[name]
            user = name[1]
            self._of_user[user] -= 1
            if not self._of_user[user]:
                del self._of_user[user]

    def on_user_deleted(self, user: str) -> None:
        """End the suspended links of a deleted user."""
        if user in self._of_user:
            self._end_links(1, user)

    def on_vhost_deleted(self, vhost: str) -> None:
        """End the suspended links of a deleted virtual host."""
        self._end_links(0, vhost)

    def _end_links(self, part: int, value: str) -> None:
        """End the links whose names have this part, in later turns."""
        for suspended in list(self._suspended.values()):
            if suspended.name[part] == value:
                suspended.schedule_end()


def link_names(server: Server) -> LinkNames:
    """Return the register of links of a server, which this adapter has made."""
    names = server.link_names
    assert isinstance(names, LinkNames), "the daemon has made the register LinkNames"
    return names


def _name(session: Session10State, name: str, receives: bool) -> Name:
    connection = session.peer
    return session.vhost.name, connection.user, connection.client_name, name, receives


def _outlives_connection(attach: Attach) -> bool:
    """Whether the peer's terminus is to outlive the connection, or has outlived an earlier connection."""
    if attach.unsettled:
        return True
    terminus = attach.source if attach.role else attach.target
    if not isinstance(terminus, Source | Target):
        return False
    return terminus.durable > 0 or terminus.expiry_policy == NEVER
