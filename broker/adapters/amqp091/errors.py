"""The reply codes of the core's refusals, and whether a code ends the connection. [amqp-0-9-1 1.1]"""

from __future__ import annotations

from typing import Final

from broker.core import errors
from protocol.errors import (
    ACCESS_REFUSED,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
)

REPLY_CODES: Final[dict[type[errors.BrokerError], int]] = {
    errors.NotFound: NOT_FOUND,
    errors.PreconditionFailed: PRECONDITION_FAILED,
    errors.Inequivalent: PRECONDITION_FAILED,
    errors.Protected: PRECONDITION_FAILED,
    errors.UnknownKind: PRECONDITION_FAILED,
    errors.LimitReached: PRECONDITION_FAILED,
    errors.ResourceLocked: RESOURCE_LOCKED,
    errors.QueueStopped: PRECONDITION_FAILED,
    errors.AccessRefused: ACCESS_REFUSED,
    errors.InUse: ACCESS_REFUSED,
    errors.NotAllowed: NOT_ALLOWED,
    errors.Unsupported: NOT_IMPLEMENTED,
    errors.ExchangeReplaced: PRECONDITION_FAILED,
    # a soft error: the connection's consumers continue while publishes are refused
    errors.StoreFailed: PRECONDITION_FAILED,
}


def reply_code(error: errors.BrokerError) -> int:
    """Return the reply code of a refusal."""
    return REPLY_CODES.get(type(error), INTERNAL_ERROR)


def connection_ends(code: int) -> bool:
    """Whether the specification makes this code a connection exception."""
    return code >= 500
