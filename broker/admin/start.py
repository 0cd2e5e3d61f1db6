"""Serving admin HTTP for one daemon."""

import socket
import time
from collections.abc import Awaitable, Callable, Sequence

from broker.adapters.server import Server
from broker.admin.app import AdminApp, Application
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
    """Serve metrics, health and the API at `address`; return the server and its port.

    `bound` are the addresses on which AMQP listens, each with its protocol. Raises AdminError if the server
    cannot listen on `address`.
    """
    listeners = list(bound)
    started = time.monotonic()

    def load_api() -> Application:
        # imported here, in a thread: FastAPI and the routes take longer than the rest of the broker's start
        from broker.admin.api.management import Management
        from broker.admin.api.routes import create_api

        node = f"amqpd@{socket.gethostname()}"
        return create_api(
            state.version,
            Management(state, server, users, gate, make_password, node, journal, listeners, started=started),
        )

    admin = AdminServer(AdminApp(state, load_api), *address)
    port = await admin.start()
    listeners.append(("http", address[0], port))
    return admin, port
