"""Fixtures of the unit tests."""

import pytest

from tests.support.adapters.connection_without_socket import House


@pytest.fixture
def house() -> House:
    """A broker whose parts are all moved by hand, with nothing in it."""
    return House()
