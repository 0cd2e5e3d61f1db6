"""Refusals by the core. Adapters map each class to a reply code; the text is the client's."""


class BrokerError(Exception):
    """A request that the broker refuses; `text` names the object and the value."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class NotFound(BrokerError):  # noqa: N818  these are the protocol's own words
    """The named queue, exchange or virtual host does not exist."""


class PreconditionFailed(BrokerError):  # noqa: N818
    """The object exists but not as asked, or an argument is malformed."""


class Inequivalent(PreconditionFailed):
    """The object exists, and is not as asked."""


class LimitReached(PreconditionFailed):
    """There are as many objects as there may be."""


class ResourceLocked(BrokerError):  # noqa: N818
    """The object belongs to somebody else."""


class AccessRefused(BrokerError):  # noqa: N818
    """The user may not do this, or nobody may."""


class InUse(AccessRefused):
    """A queue has an exclusive consumer, or has consumers and so cannot have one."""


class ExchangeReplaced(BrokerError):  # noqa: N818
    """A route was for an exchange whose name another one has now."""


class QueueStopped(BrokerError):  # noqa: N818
    """The operation is switched off for the queue. `queue`: the `Queue`, where the raiser knows it."""

    def __init__(self, text: str, queue: object | None = None) -> None:
        super().__init__(text)
        self.queue = queue


class Unsupported(BrokerError):  # noqa: N818
    """What was asked for is nothing that an object of this kind can do."""


class NotAllowed(BrokerError):  # noqa: N818
    """The request breaks a rule of the connection."""


class StoreFailed(BrokerError):  # noqa: N818
    """The log has stopped accepting appends; nothing that was confirmed is lost."""


def locked(queue: str) -> ResourceLocked:
    """The refusal of what somebody else owns; `queue` is its description, `queue 'q' in vhost '/'`."""
    return ResourceLocked(
        f"cannot obtain exclusive access to locked {queue}. It could be originally declared on another "
        "connection or the exclusive property value does not match that of the original declaration."
    )
