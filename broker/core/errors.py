"""Refusals by the core. Adapters map each class to a reply code; clients see the text."""


class BrokerError(Exception):
    """A request that the broker refuses; `text` names the object and the value."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class NotFound(BrokerError):  # noqa: N818  these are the protocol's own words
    """The named queue, exchange or virtual host does not exist."""


class PreconditionFailed(BrokerError):  # noqa: N818
    """The object exists but differs from the request, or an argument is malformed."""


class Inequivalent(PreconditionFailed):
    """The object exists, and differs from the request."""


class UnknownKind(PreconditionFailed):
    """The broker does not have this kind of object."""


class Protected(PreconditionFailed):
    """The object is protected from deletion."""


class LimitReached(PreconditionFailed):
    """The number of objects has reached its limit."""


class ResourceLocked(BrokerError):  # noqa: N818
    """The object belongs to another connection."""


class AccessRefused(BrokerError):  # noqa: N818
    """The user may not do this, or no user may."""


class InUse(AccessRefused):
    """The queue has an exclusive consumer, or has consumers and so cannot have an exclusive one."""


class ExchangeReplaced(BrokerError):  # noqa: N818
    """A route was for an exchange that has been replaced by another one of the same name."""


class QueueStopped(BrokerError):  # noqa: N818
    """The operation is switched off for the queue. `queue`: the `Queue`, where the raiser knows it."""

    def __init__(self, text: str, queue: object | None = None) -> None:
        super().__init__(text)
        self.queue = queue


class Unsupported(BrokerError):  # noqa: N818
    """An object of this kind does not support the operation."""


class NotAllowed(BrokerError):  # noqa: N818
    """The request breaks a rule of the connection."""


class StoreFailed(BrokerError):  # noqa: N818
    """The log has stopped accepting appends; no confirmed message is lost."""


def locked(queue: str) -> ResourceLocked:
    """Return the refusal of an object that another connection owns.

    `queue` describes it, `queue 'q' in vhost '/'`.
    """
    return ResourceLocked(
        f"cannot obtain exclusive access to locked {queue}. It could be originally declared on another "
        "connection or the exclusive property value does not match that of the original declaration."
    )
