"""Serving admin HTTP for one daemon."""

import socket
import time
from collections.abc import Awaitable, Callable, Collection

from broker.adapters.peers.server import Server
from broker.admin.app import AdminApp, Application
from broker.admin.http import Bounds, Watcher
from broker.admin.server import AdminServer
from broker.admin.state import AdminState
from broker.auth.gate import Gate
from broker.auth.passwords import Password
from broker.auth.users import Users
from broker.journal.catalogue import ServedJournal


def admin_server(
    state: AdminState,
    server: Server,
    users: Users,
    gate: Gate,
    make_password: Callable[[str], Awaitable[Password]],
    journal: ServedJournal,
    listeners: list[tuple[str, str, int]],
    watcher: Watcher,
    bounds: Bounds,
    origins: Collection[str],
) -> AdminServer:
    """Make the server of metrics, health and the API, which listens nowhere yet.

    `listeners` are all addresses that the daemon listens on, each with its protocol; more may come later.
    Web pages of `origins` may change things.
    """
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

    return AdminServer(AdminApp(state, load_api, origins), watcher, bounds)
