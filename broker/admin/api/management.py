"""What the API has of the daemon."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from broker.adapters.peers.connections import Connections
from broker.adapters.peers.server import Server
from broker.admin.api.errors import ApiError
from broker.admin.api.rates import Rates
from broker.admin.state import AdminState
from broker.auth.gate import Gate
from broker.auth.passwords import Password
from broker.auth.users import Users
from broker.core.broker import Broker
from broker.core.ports import MessageStore
from broker.journal.catalogue import ServedJournal


@dataclass(frozen=True)
class Management:
    """Everything that the API shows and changes.

    `make_password` hashes a password off the event loop. `listeners` are the addresses that are listened on:
    protocol, host and port.
    """

    state: AdminState
    server: Server
    users: Users
    access: Gate
    make_password: Callable[[str], Awaitable[Password]]
    node: str
    journal: ServedJournal
    listeners: list[tuple[str, str, int]]
    rates: Rates = field(default_factory=Rates)
    started: float = field(default_factory=time.monotonic)

    @property
    def broker(self) -> Broker:
        """The virtual hosts and all that is in them."""
        return self.server.broker

    @property
    def store(self) -> MessageStore:
        """The log, as far as waiting for it goes."""
        return self.server.store

    @property
    def connections(self) -> Connections:
        """The connections that are open."""
        return self.server.connections


def require_memory(management: Management) -> None:
    """Refuse to add something while memory is short. Raises ApiError."""
    shortage = management.server.shortage
    if shortage.memory:
        reason = f"nothing new can be declared while the broker is {shortage.reason}"
        raise ApiError(503, "service_unavailable", reason)


def managed(request: Request) -> Management:
    """The daemon that a request is for."""
    management = request.app.state.management
    assert isinstance(management, Management)
    return management


Managed = Annotated[Management, Depends(managed)]
"""The daemon that a request is for."""
