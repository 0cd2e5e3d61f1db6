"""Fixtures of the unit tests."""

import pytest

from tests.support.adapters.connection_without_socket import BrokerBench


@pytest.fixture
def bench() -> BrokerBench:
    """A broker whose parts are all moved by hand, with nothing in it."""
    return BrokerBench()
