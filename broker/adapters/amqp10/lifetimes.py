"""Queues that come with a link and go when something ends. [amqp-1.0 3.5.2, 3.5.6, 3.5.10]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.core.queue import Queue
from protocol.amqp10.composites import Source, Target
from protocol.amqp10.conditions import INVALID_FIELD, NOT_IMPLEMENTED, PeerError
from protocol.amqp10.descriptors import DELETE_ON_CLOSE
from protocol.amqp10.types import Described

if TYPE_CHECKING:
    from broker.core.vhost import VirtualHost

# until when there is one, unless its link is closed before
LINK_DETACH: Final = "link-detach"
SESSION_END: Final = "session-end"
CONNECTION_CLOSE: Final = "connection-close"
NEVER: Final = "never"
POLICIES: Final = (LINK_DETACH, SESSION_END, CONNECTION_CLOSE, NEVER)
LIFETIME_POLICY: Final = "lifetime-policy"


@final
class Lifetime:
    """That of one queue. `until`: one of POLICIES; those that end with the connection belong to it."""

    def __init__(self, vhost: VirtualHost, queue: Queue, until: str) -> None:
        self.queue = queue
        self.until = until
        self._vhost = vhost

    def link_ended(self, closed: bool) -> None:
        """Its link was detached, or closed, which is the end of what came with it."""
        if closed or self.until == LINK_DETACH:
            self._end()

    def session_ended(self) -> None:
        """The session of its link has ended."""
        if self.until in (LINK_DETACH, SESSION_END):
            self._end()

    def _end(self) -> None:
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
