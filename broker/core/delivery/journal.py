"""The journal of a broker, as the core knows it."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import OFF
from broker.core.delivery.session import Session
from broker.core.errors import AccessRefused, BrokerError, NotFound, QueueStopped, StoreFailed
from broker.core.message import Address, Message
from broker.core.queues.hooks import PUBLISHED, QueueJournal
from broker.core.queues.queue import Queue

# why a publish is refused
QUEUE_FULL: Final = 0
STOPPED: Final = 1  # the queue takes nothing
NO_PERMISSION: Final = 2
NOT_FOUND: Final = 3
LOG_FAILED: Final = 4
INVALID: Final = 5


def refusal_of(error: BrokerError) -> i64:
    """Return the reason that the journal has for a publish which `error` refuses."""
    if isinstance(error, AccessRefused):
        return NO_PERMISSION
    if isinstance(error, QueueStopped):
        return STOPPED
    if isinstance(error, StoreFailed):
        return LOG_FAILED
    return NOT_FOUND if isinstance(error, NotFound) else INVALID


@final
class Operator:
    """A user who asks for something over HTTP. `request`: the method and the path.

    `name` and `consumers` are what the journal calls the operator, and consumers that act for the operator.
    """

    def __init__(self, user: str, address: str, request: str) -> None:
        self.user = user
        self.address = address
        self.request = request
        self.name: object | None = None
        self.consumers: dict[str, object] = {}


class Journal:
    """The journal of a broker, as the core knows it: this one is switched off.

    `on`: something may be journaled. `events`: how many there were since the start, as far as is known, and
    `lost`: of how many nothing was written. `way`: how what is enqueued now comes into its queue, and what
    becomes of what is removed; `publisher`: who publishes it, if it is published. `actor`: whose request is
    being worked on (a `Session`, a `Connection` or an `Operator`), None: nobody's, or that of an operator
    whom only the journal knows.
    """

    def __init__(self) -> None:
        self.on: bool = False
        self.events: i64 = 0
        self.lost: i64 = 0
        self.way: i64 = PUBLISHED
        self.publisher: Session | None = None
        self.actor: object | None = None

    def level_of(self, queue: Queue) -> str:
        """Out of LEVELS, what holds for `queue`."""
        return OFF

    def of(self, queue: Queue) -> QueueJournal | None:
        """What is to be told of `queue`, whose arguments or policies are new; None: nothing."""
        return None

    def who(self) -> object | None:
        """Return the actor of what happens now, for steps in later turns; None: the broker itself."""
        return None

    def unroutable(self, message: Message) -> None:
        """A message was published to no queue."""

    def refused(
        self,
        session: Session | None,
        address: Address,
        message: Message | None,
        reason: i64,
        queue: object | None = None,
    ) -> None:
        """A message for this address was refused. `queue`: the `Queue` that is full or stopped, if one is."""

    def refused_by(self, session: Session | None, message: Message, error: BrokerError) -> None:
        """Tell that `error` has refused a message of `session`."""
        queue = error.queue if isinstance(error, QueueStopped) else None
        self.refused(session, message.address, message, refusal_of(error), queue)

    def rolled_back(self, session: Session | None, publishes: i64, settlements: i64, why: str) -> None:
        """A transaction with so many publishes and settlements has been rolled back."""

    def changed(self, change: dict[str, object]) -> None:
        """A definition has changed; `change` is as the log has it."""

    def confirmed(self, session: Session, count: i64) -> None:
        """A client has been told that `count` messages, which came by `session`, are safe."""


SILENT: Final = Journal()
"""That of a broker which journals nothing."""
