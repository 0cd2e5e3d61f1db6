"""The parts of the daemon that the API uses."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Request

from broker.adapters.peers.connections import Connections
from broker.adapters.peers.server import Server
from broker.admin.api.answers import ApiError, not_found
from broker.admin.sessions import Sessions
from broker.admin.state import AdminState
from broker.admin.statistics import Statistics
from broker.auth.access_control import AccessControl
from broker.auth.passwords import Password
from broker.auth.users import Users
from broker.core.broker import Broker
from broker.core.counters import Reading
from broker.core.ports import MessageStore
from broker.dispatch.dispatchers import Dispatchers
from broker.forwarding.federation import Federation
from broker.forwarding.shovels import Shovels
from broker.journal.catalogue import ServedJournal


@dataclass(frozen=True)
class Management:
    """All objects that the API shows and changes.

    `make_password` hashes a password off the event loop. `listeners` are the addresses that the daemon
    listens on: protocol, host and port.
    """

    state: AdminState
    server: Server
    users: Users
    access: AccessControl
    make_password: Callable[[str], Awaitable[Password]]
    journal: ServedJournal
    shovels: Shovels
    federation: Federation
    dispatchers: Dispatchers
    listeners: list[tuple[str, str, int]]
    statistics: Statistics
    sessions: Sessions

    def idle_since(self, reading: Reading | None) -> str:
        """Return when an object has last done something, to about 5 s: the start of the broker if never."""
        idle = time.monotonic() - (self.state.started if reading is None else reading.changed)
        return format_date(time.time() - idle)

    @property
    def broker(self) -> Broker:
        """The broker with its virtual hosts."""
        return self.server.broker

    @property
    def node(self) -> str:
        """The name of the node."""
        return self.broker.node

    def check_node(self, node: str) -> None:
        """Refuse a name that is not the node's. Raises ApiError."""
        if node != self.node:
            raise not_found(f"no node '{node}'")

    @property
    def store(self) -> MessageStore:
        """The log, to wait for syncs."""
        return self.server.store

    @property
    def connections(self) -> Connections:
        """The open connections."""
        return self.server.connections


def format_date(seconds: float) -> str:
    """Return a time in RabbitMQ's form, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def require_memory(management: Management) -> None:
    """Refuse an addition while memory is short. Raises ApiError."""
    shortage = management.server.shortage
    if shortage.memory:
        reason = f"nothing new can be declared while the broker is {shortage.reason}"
        raise ApiError(503, "service_unavailable", reason)


async def managed(request: Request) -> Management:
    """Return the daemon that serves a request."""
    management = request.app.state.management
    assert isinstance(management, Management)
    return management


Managed = Annotated[Management, Depends(managed)]
"""The daemon that serves the request."""
