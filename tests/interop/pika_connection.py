"""Connections of pika to the broker."""

from collections.abc import Callable
from typing import Any

import pika

from tests.support.daemon.daemon import PATIENCE_S, Address

Dial = Callable[[], pika.BlockingConnection]


def connected(address: Address, **options: Any) -> pika.BlockingConnection:
    """A connection that does not wait forever while publishers are held back."""
    parameters = pika.ConnectionParameters(
        address.host, address.port, blocked_connection_timeout=PATIENCE_S, **options
    )
    return pika.BlockingConnection(parameters)
