"""Fixtures of the tests with clients."""

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_connection import Dial, connected
from tests.support.daemon.daemon import Address


@pytest.fixture
def pika_dial(address: Address) -> Iterator[Dial]:
    """Open connections."""
    opened: list[pika.BlockingConnection] = []

    def connect() -> pika.BlockingConnection:
        opened.append(connected(address))
        return opened[-1]

    yield connect
    for connection in opened:
        if connection.is_open:
            connection.close()


@pytest.fixture
def connection(pika_dial: Dial) -> pika.BlockingConnection:
    """A connection."""
    return pika_dial()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    """A channel that wants confirms."""
    channel = connection.channel()
    channel.confirm_delivery()
    return channel
