"""Errors of the core, as errors of AMQP 1.0."""

from broker.adapters.amqp10.errors import CONDITIONS, condition_of
from broker.core import errors
from protocol.amqp10.conditions import PRECONDITION_FAILED, RESOURCE_LIMIT_EXCEEDED


def classes(base: type[errors.BrokerError]) -> set[type[errors.BrokerError]]:
    """Return all classes below `base`."""
    found = set(base.__subclasses__())
    return found.union(*[classes(each) for each in found])


def test_no_refusal_is_an_internal_error() -> None:
    known = {each for each in classes(errors.BrokerError) if each.__module__ == errors.__name__}
    assert known
    assert known == set(CONDITIONS)


def test_a_limit_is_told_as_a_limit() -> None:
    assert condition_of(errors.LimitReached("")) == RESOURCE_LIMIT_EXCEEDED
    assert condition_of(errors.Inequivalent("")) == PRECONDITION_FAILED
