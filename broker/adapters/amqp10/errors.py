"""The error conditions of the core's refusals. [amqp-1.0 2.8.15]"""

from __future__ import annotations

from typing import Final

from broker.core import errors
from protocol.amqp10.conditions import (
    INTERNAL_ERROR,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_LIMIT_EXCEEDED,
    RESOURCE_LOCKED,
    UNAUTHORIZED_ACCESS,
)

CONDITIONS: Final[dict[type[errors.BrokerError], str]] = {
    errors.NotFound: NOT_FOUND,
    errors.PreconditionFailed: PRECONDITION_FAILED,
    errors.Inequivalent: PRECONDITION_FAILED,
    errors.Protected: PRECONDITION_FAILED,
    errors.UnknownKind: PRECONDITION_FAILED,
    errors.LimitReached: RESOURCE_LIMIT_EXCEEDED,
    errors.ResourceLocked: RESOURCE_LOCKED,
    errors.QueueStopped: PRECONDITION_FAILED,
    errors.AccessRefused: UNAUTHORIZED_ACCESS,
    errors.InUse: RESOURCE_LOCKED,
    errors.NotAllowed: NOT_ALLOWED,
    errors.Unsupported: NOT_IMPLEMENTED,
    errors.ExchangeReplaced: PRECONDITION_FAILED,
    errors.StoreFailed: PRECONDITION_FAILED,
}


def condition_of(error: errors.BrokerError) -> str:
    """Return the condition of a refusal."""
    return CONDITIONS.get(type(error), INTERNAL_ERROR)
