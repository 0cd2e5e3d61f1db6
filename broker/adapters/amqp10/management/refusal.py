"""Which status of HTTP each refusal is. [RabbitMQ rabbit_amqp_management]"""

from typing import Final, final

from broker.core import errors

OK: Final = 200
CREATED: Final = 201
NO_CONTENT: Final = 204
BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
METHOD_NOT_ALLOWED: Final = 405
CONFLICT: Final = 409
TOO_LARGE: Final = 413
INTERNAL_ERROR: Final = 500
NOT_IMPLEMENTED: Final = 501
UNAVAILABLE: Final = 503

STATUSES: Final[dict[type[errors.BrokerError], int]] = {
    errors.NotFound: NOT_FOUND,
    errors.PreconditionFailed: BAD_REQUEST,
    errors.Inequivalent: CONFLICT,
    errors.LimitReached: FORBIDDEN,
    errors.ResourceLocked: BAD_REQUEST,
    errors.QueueStopped: BAD_REQUEST,
    errors.AccessRefused: FORBIDDEN,
    errors.InUse: FORBIDDEN,
    errors.NotAllowed: FORBIDDEN,
    errors.Unsupported: BAD_REQUEST,
    errors.StoreFailed: UNAVAILABLE,
}


@final
class Refused(Exception):  # noqa: N818  it is an answer
    """A request that is refused with a status; `text` is the client's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text


def status_of(error: errors.BrokerError) -> int:
    """The status of a refusal by the core."""
    return STATUSES.get(type(error), INTERNAL_ERROR)
