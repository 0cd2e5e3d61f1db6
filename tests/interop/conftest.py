"""What the tests with clients share."""

from collections.abc import Iterator

import pika
import pytest

from tests.daemon import Address
from tests.interop.pika_worker import Dial


@pytest.fixture
def pika_dial(address: Address) -> Iterator[Dial]:
    """Open connections."""
    opened: list[pika.BlockingConnection] = []

    def connect() -> pika.BlockingConnection:
        opened.append(pika.BlockingConnection(pika.ConnectionParameters(address.host, address.port)))
        return opened[-1]

    yield connect
    for connection in opened:
        if connection.is_open:
            connection.close()
