"""The journal of events as the core sees it."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import OFF
from broker.core.delivery.session import Session
from broker.core.errors import AccessRefused, BrokerError, NotFound, QueueStopped, StoreFailed
from broker.core.message import Address, Message
from broker.core.queues.hooks import QueueJournal
from broker.core.queues.queue import Queue
from broker.core.queues.source import Source

# why a publish is refused
QUEUE_FULL: Final = 0
STOPPED: Final = 1  # an operator has stopped the queue's enqueues
NO_PERMISSION: Final = 2
NOT_FOUND: Final = 3
LOG_FAILED: Final = 4
INVALID: Final = 5
IMMEDIATE: Final = 6  # the message is immediate, and a last-value queue has its value

# events of a shovel or a federation link
STARTED: Final = 0  # by a definition, a restart, or the start of the broker
CONNECTED: Final = 1  # both ends are ready
DISCONNECTED: Final = 2  # an end has failed
PAUSED: Final = 3
RESUMED: Final = 4
SHUT: Final = 5  # by another definition, a restart, or the stop of the broker
FINISHED: Final = 6  # after the wanted number of messages
DELETED: Final = 7
CARRIED: Final = 8  # messages since the event before


def refusal_of(error: BrokerError) -> i64:
    """Return the journal's reason for a publish that `error` refuses."""
    if isinstance(error, AccessRefused):
        return NO_PERMISSION
    if isinstance(error, QueueStopped):
        return STOPPED
    if isinstance(error, StoreFailed):
        return LOG_FAILED
    return NOT_FOUND if isinstance(error, NotFound) else INVALID


@final
class Operator:
    """A user with a request over HTTP. `request`: the method and the path.

    `name` and `consumers` are the journal's names for the operator and for consumers that act for the
    operator.
    """

    def __init__(self, user: str, address: str, request: str) -> None:
        self.user = user
        self.address = address
        self.request = request
        self.name: object | None = None
        self.consumers: dict[str, object] = {}


class Journal:
    """The journal of events as the core sees it. The base class records nothing.

    `on`: some events may be recorded. `events`: the count of events since the start, as far as known. `lost`:
    the count of events that were not written. `actor`: the origin of the current request (a `Session`, a
    `Connection` or an `Operator`). None: no request, or the request of an operator whom only the journal
    knows.
    """

    def __init__(self) -> None:
        self.on: bool = False
        self.events: i64 = 0
        self.lost: i64 = 0
        self.actor: object | None = None

    def level_of(self, queue: Queue) -> str:
        """Return the journal level of `queue`, one of LEVELS."""
        return OFF

    def journal_of(self, queue: Queue) -> QueueJournal | None:
        """Return the journal of `queue`, whose arguments or policies have changed.

        None: nothing is recorded.
        """
        return None

    def current_actor(self) -> object | None:
        """Return the actor of the current step, for steps in later turns; None: the broker itself."""
        return None

    def unroutable(self, message: Message, source: Source) -> None:
        """Record that a message from `source` was routed to no queue."""

    def refused(
        self,
        source: Source,
        address: Address,
        message: Message | None,
        reason: i64,
        queue: object | None = None,
    ) -> None:
        """Record that a message from `source` was refused.

        `queue`: the `Queue` that refuses the message, if there is one.
        """

    def refused_by(self, source: Source, message: Message, error: BrokerError) -> None:
        """Record that `error` has refused a message from `source`."""
        queue = error.queue if isinstance(error, QueueStopped) else None
        self.refused(source, message.address, message, refusal_of(error), queue)

    def rolled_back(self, source: Source, publishes: i64, settlements: i64, why: str) -> None:
        """Record that a transaction of `source` was rolled back.

        `publishes`, `settlements`: how many of each it had.
        """

    def changed(self, change: dict[str, object]) -> None:
        """Record that a definition has changed; `change` is in the form of the log."""

    def forwarded(self, event: i64, count: i64, details: dict[str, object]) -> None:
        """Record an event of a shovel or a federation link.

        `event`: STARTED to CARRIED. `count`: the messages that were forwarded since the event before.
        `details`: the shovel with its ends, without log-ins, and the reason of a failure.
        """

    def confirmed(self, session: Session, count: i64) -> None:
        """Record that a client has received confirms for `count` messages, which came by `session`."""


SILENT: Final = Journal()
"""The journal of a broker that records no events."""
