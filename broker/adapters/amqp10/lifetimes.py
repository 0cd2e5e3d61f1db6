"""Queues that come with a link and go when something ends. [amqp-1.0 3.5.2, 3.5.6, 3.5.10]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.queue import Queue
from broker.core.schedule import Alarm
from protocol.amqp10.composites import Error, Source, Target
from protocol.amqp10.conditions import INVALID_FIELD, NOT_IMPLEMENTED, RESOURCE_LOCKED, PeerError
from protocol.amqp10.descriptors import DELETE_ON_CLOSE
from protocol.amqp10.types import Described

if TYPE_CHECKING:
    from broker.core.vhost import VirtualHost

# until when there is one, unless its link is closed before
LINK_DETACH: Final = "link-detach"
SESSION_END: Final = "session-end"
CONNECTION_CLOSE: Final = "connection-close"
NEVER: Final = "never"
LIFETIME_POLICY: Final = "lifetime-policy"


EXPIRY_SECONDS_MAX: Final = 86400  # of what a peer may have wait for it

Expiring = dict[Queue, "Lifetime"]
"""Those whose time runs out. Of a queue that is shared the latest counts."""


@final
class Lifetime(Alarm):
    """That of one queue, as one link sees it.

    `until`: one of the above; the queue ends so many `seconds` later, unless somebody consumes from it then.
    Dynamic nodes belong to their connection and end with it in any case.
    """

    def __init__(
        self, vhost: VirtualHost, queue: Queue, until: str, seconds: i64 = 0, expiring: Expiring | None = None
    ) -> None:
        super().__init__()
        self.queue = queue
        self.until = until
        self._vhost = vhost
        self._seconds = min(seconds, EXPIRY_SECONDS_MAX)
        self._expiring = expiring

    def link_ended(self, closed: bool) -> Error | None:
        """Its link was detached, or closed, which is the end of what came with it.

        Returns why it is not, if it is a subscription that others use. [JMS mapping 5.2]
        """
        if closed:
            self._end()
            if self.until == NEVER and self.queue.consumer_count:
                text = f"subscription '{self.queue.name}' is in use"
                return Error(condition=RESOURCE_LOCKED, description=text)
        elif self.until == LINK_DETACH:
            self._expire()
        return None

    def session_ended(self) -> None:
        """The session of its link has ended."""
        if self.until in (LINK_DETACH, SESSION_END):
            self._expire()

    def connection_ended(self) -> None:
        """The connection of its link has ended."""
        if self.until == CONNECTION_CLOSE:
            self._expire()

    def ring(self) -> None:
        """Nobody came back in time (Alarm)."""
        self._end()

    def _expire(self) -> None:
        expiring = self._expiring
        if self._seconds == 0 or expiring is None:
            self._end()
            return
        schedule = self._vhost.schedule
        earlier = expiring.get(self.queue)
        if earlier is not None:
            schedule.cancel(earlier)
        expiring[self.queue] = self
        schedule.set(self, schedule.after(self._seconds * 1000))

    def _end(self) -> None:
        if self._expiring is not None and self._expiring.get(self.queue) is self:
            del self._expiring[self.queue]
        queue = self.queue
        vhost = self._vhost
        if vhost.queues.get(queue.name) is queue and not queue.consumer_count:  # others may share it
            vhost.delete_queue(queue.name, False, False, queue.exclusive_owner)


def check_dynamic(terminus: Source | Target) -> None:
    """A dynamic node has no address yet, and a lifetime that can be kept. Raises PeerError."""
    if terminus.address is not None:
        raise PeerError(INVALID_FIELD, f"a dynamic node has the address '{terminus.address}' already")
    properties = terminus.dynamic_node_properties
    policy = None if properties is None else properties.get(LIFETIME_POLICY)
    if policy is None:
        return
    if not isinstance(policy, Described):
        raise PeerError(INVALID_FIELD, f"{LIFETIME_POLICY} is no described value")
    if policy.descriptor not in (DELETE_ON_CLOSE, "amqp:delete-on-close:list"):
        raise PeerError(NOT_IMPLEMENTED, f"{LIFETIME_POLICY} is {policy.descriptor!s}, not delete-on-close")
