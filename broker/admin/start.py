"""Serving admin HTTP for one daemon."""

import socket
from collections.abc import Awaitable, Callable, Sequence

from broker.adapters.server import Server
from broker.admin.api.management import Management
from broker.admin.app import create_app
from broker.admin.server import AdminServer
from broker.admin.state import AdminState
from broker.auth.gate import Gate
from broker.auth.passwords import Password
from broker.auth.users import Users
from broker.journal.serving import ServedJournal


async def serve_admin(
    address: tuple[str, int],
    state: AdminState,
    server: Server,
    users: Users,
    gate: Gate,
    make_password: Callable[[str], Awaitable[Password]],
    journal: ServedJournal,
    bound: Sequence[tuple[str, str, int]],
) -> tuple[AdminServer, int]:
    """Serve metrics, health and the API at `address`; returns who serves, and the port.

    `bound` are the addresses where AMQP is listened for, each with its protocol. Raises AdminError if it
    cannot be listened at `address`.
    """
    listeners = list(bound)
    management = Management(
        state,
        server,
        users,
        gate,
        make_password,
        f"amqpd@{socket.gethostname()}",
        journal,
        listeners,
    )
    admin = AdminServer(create_app(state, management), *address)
    port = await admin.start()
    listeners.append(("http", address[0], port))
    return admin, port
