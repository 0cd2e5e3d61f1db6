"""The lifetimes of queues that belong to a link. [amqp-1.0 3.5.2, 3.5.6, 3.5.10 to 3.5.13]"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.queues.queue import Queue
from broker.core.schedule import TimedTask
from broker.core.vhosts.deletion import Lifespan
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10.composites import (
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Error,
    Source,
    Target,
)
from protocol.amqp10.conditions import INVALID_FIELD, NOT_IMPLEMENTED, RESOURCE_LOCKED, PeerError
from protocol.amqp10.types import Described, Symbol

# the events that begin the end of a queue, unless its link is closed before
LINK_DETACH: Final = "link-detach"
SESSION_END: Final = "session-end"
CONNECTION_CLOSE: Final = "connection-close"
NEVER: Final = "never"
LIFETIME_POLICY: Final = Symbol("lifetime-policy")

Policy = DeleteOnClose | DeleteOnNoLinks | DeleteOnNoMessages | DeleteOnNoLinksOrMessages
POLICIES: Final[dict[str, type[Policy]]] = {
    "amqp:delete-on-close:list": DeleteOnClose,
    "amqp:delete-on-no-links:list": DeleteOnNoLinks,
    "amqp:delete-on-no-messages:list": DeleteOnNoMessages,
    "amqp:delete-on-no-links-or-messages:list": DeleteOnNoLinksOrMessages,
}

EXPIRY_SECONDS_MAX: Final = 86400  # the longest timeout of a terminus

Expiring = dict[Queue, "Lifetime"]
"""The lifetimes whose time runs, by queues. For a shared queue the latest counts."""


@final
class Lifetime(TimedTask):
    """The lifetime of a queue that belongs to a link.

    `until`: the event that starts the expiry, a constant above. The queue is deleted `seconds` after this
    event, unless it has consumers then. A dynamic node that is exclusive to its connection ends with the
    connection in any case. `lifespan`: the lifespan of a dynamic node that may outlive its link; if it is
    given, it is notified instead of deleting the queue.
    """

    def __init__(
        self,
        vhost: VirtualHost,
        queue: Queue,
        until: str,
        seconds: i64 = 0,
        expiring: Expiring | None = None,
        lifespan: Lifespan | None = None,
    ) -> None:
        super().__init__()
        self.queue = queue
        self.until = until
        self._vhost = vhost
        self._seconds = min(seconds, EXPIRY_SECONDS_MAX)
        self._expiring = expiring
        self._lifespan = lifespan

    def on_link_ended(self, closed: bool) -> Error | None:
        """Start the expiry of a queue whose link was detached, or delete the queue if the link was closed.

        Return an error if the queue is a subscription that other links use. [JMS mapping 5.2]
        """
        if closed:
            self._delete_queue()
            if self.until == NEVER and self.queue.consumer_count:
                text = f"subscription '{self.queue.name}' is in use"
                return Error(condition=RESOURCE_LOCKED, description=text)
        elif self.until == LINK_DETACH:
            self._start_expiry()
        return None

    def on_session_ended(self) -> None:
        """Start the expiry of the queue if it depends on the session of the link, which has ended."""
        if self.until in (LINK_DETACH, SESSION_END):
            self._start_expiry()

    def on_connection_ended(self) -> None:
        """Start the expiry of the queue if it depends on the connection of the link, which has ended."""
        if self.until == CONNECTION_CLOSE:
            self._start_expiry()

    def do_due_work(self) -> None:
        """Delete the queue: no link has attached to it in time."""
        self._delete_queue()

    def _start_expiry(self) -> None:
        expiring = self._expiring
        if self._seconds == 0 or expiring is None:
            self._delete_queue()
            return
        schedule = self._vhost.schedule
        earlier = expiring.get(self.queue)
        if earlier is not None:
            schedule.cancel(earlier)
        expiring[self.queue] = self
        schedule.set(self, schedule.after(self._seconds * 1000))

    def _delete_queue(self) -> None:
        if self._lifespan is not None:
            self._lifespan.end_maker()
            return
        if self._expiring is not None and self._expiring.get(self.queue) is self:
            del self._expiring[self.queue]
        queue = self.queue
        vhost = self._vhost
        owner = queue.exclusive_owner
        if vhost.topology.queues.get(queue.name) is queue and (owner is not None or not queue.consumer_count):
            vhost.declarations.delete_queue(queue.name, False, False, owner)  # else other links share it


def dynamic_policy(terminus: Source | Target) -> Policy:
    """Return the lifetime policy of a dynamic node, which has no address yet. Raises PeerError."""
    if terminus.address is not None:
        raise PeerError(
            INVALID_FIELD, f"a dynamic terminus has the address '{terminus.address}', expected none"
        )
    properties = terminus.dynamic_node_properties
    policy_value = None if properties is None else properties.get(LIFETIME_POLICY)
    if policy_value is None:
        return DeleteOnClose()
    if not isinstance(policy_value, Described):
        raise PeerError(INVALID_FIELD, f"{LIFETIME_POLICY} is not a described value")
    for name, policy in POLICIES.items():
        if policy_value.descriptor in (policy.DESCRIPTOR, name):
            return policy()
    raise PeerError(NOT_IMPLEMENTED, f"{LIFETIME_POLICY} is {policy_value.descriptor!s}, which is unknown")


def lifespan_of(vhost: VirtualHost, queue: Queue, policy: Policy) -> Lifespan | None:
    """Return the lifespan of a new queue with this policy; None for a queue that ends with its link."""
    if isinstance(policy, DeleteOnClose):
        return None
    links = not isinstance(policy, DeleteOnNoMessages)
    messages = not isinstance(policy, DeleteOnNoLinks)
    return Lifespan(vhost, vhost.dependents, queue, links, messages)
