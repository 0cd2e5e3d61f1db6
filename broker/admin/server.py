"""The HTTP server of the admin surface, inside the daemon's event loop."""

import asyncio
import errno
import socket
import time
from collections.abc import Awaitable, Callable, Collection
from email.utils import formatdate
from typing import Any, Final

import uvicorn
from uvicorn.server import ServerState

from broker.adapters.peers.server import Server
from broker.admin.app import AdminApp, Application
from broker.admin.http import Bounds, Front, HttpConnection, Watcher
from broker.admin.sessions import Sessions
from broker.admin.state import AdminState
from broker.admin.statistics import Statistics
from broker.auth.access_control import AccessControl
from broker.auth.passwords import Password
from broker.auth.users import Users
from broker.dispatch.dispatchers import Dispatchers
from broker.forwarding.federation import Federation
from broker.forwarding.shovels import Shovels
from broker.journal.catalogue import ServedJournal

BACKLOG: Final = 1024
ACCEPTED_AT_ONCE: Final = 8
"""Connections that are accepted in a turn of the event loop, which accepts one for each descriptor."""
TICK_S: Final = 0.5
GRACE_S: Final = 1
"""Seconds that a request in progress may still take when the server stops."""

ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""Errors of addresses that this machine does not have: localhost may mean ::1 on a machine without IPv6."""


class AdminError(OSError):
    """The server cannot listen on the admin address; the text names the address and the reason."""


class AdminServer:
    """Serves one ASGI application on any number of addresses.

    `watcher` counts the connections. `statistics` end with the server. `connection` makes a connection
    for a socket that another listener accepts, such as the TLS listener.
    """

    def __init__(
        self,
        app: Any,
        watcher: Watcher | None = None,
        bounds: Bounds = Bounds(),  # noqa: B008  immutable
        statistics: Statistics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._statistics = statistics
        self._config = uvicorn.Config(
            app,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        self._config.load()
        self._state: Any = ServerState()  # uvicorn types its connections as protocols of its own
        self._watcher = watcher
        self._bounds = bounds
        self._time = clock
        self._listening: list[asyncio.Server] = []
        self._clock: asyncio.TimerHandle | None = None
        self._stopping = False

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Listen on every address of `host` and serve. Returns the first address. Raises AdminError."""
        loop = asyncio.get_running_loop()
        sockets = await _bind(host, port)
        first = sockets[0].getsockname()
        for bound in sockets:
            for accepting in (bound, *(bound.dup() for _ in range(1, ACCEPTED_AT_ONCE))):
                server = await loop.create_server(
                    lambda: self.connection()[1], sock=accepting, backlog=BACKLOG
                )
                self._listening.append(server)
        return str(first[0]), int(first[1])

    def connection(self) -> tuple[HttpConnection, Front]:
        """Make a connection, and the protocol for it that the event loop calls."""
        if self._clock is None and not self._stopping:
            self._tick()
        connection = HttpConnection(
            self._config, self._state, self._watcher, self._bounds, self._time, lambda: not self._stopping
        )
        return connection, Front(connection)

    async def stop(self) -> None:
        """Stop listening, wait GRACE_S for requests in progress, then close.

        Harmless if nothing was served.
        """
        self._stopping = True  # the loop may still deliver accepted connections
        for listening in self._listening:
            listening.close()
        self._listening.clear()
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = list(self._state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.abort()
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        if self._statistics is not None:
            await self._statistics.stop()

    def _tick(self) -> None:
        """Set the date of the answers [RFC 9110 6.6.1], and close connections with slow peers."""
        self._clock = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        for connection in list(self._state.connections):
            connection.check()


async def _bind(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of `host`, on the same port. Raises AdminError."""
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in await _resolve(host, port):
            # Where the system chose a port for the first address, the other addresses get the same port.
            chosen = sockets[0].getsockname()[1] if sockets else port
            try:
                sockets.append(_listener(family, (address[0], chosen, *address[2:])))
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                missing = error
        if missing is not None and not sockets:
            raise missing
    except OSError as error:
        for listener in sockets:
            listener.close()
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise AdminError(
            f"cannot listen on {shown} for admin HTTP: {error.strerror}; set --admin HOST:PORT or --admin off"
        ) from error
    return sockets


async def _resolve(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    addresses = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return [(family, address) for family, _, _, _, address in dict.fromkeys(addresses)]


def _listener(family: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)  # two sockets may bind a port until one of them listens
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def admin_server(
    state: AdminState,
    server: Server,
    users: Users,
    access: AccessControl,
    make_password: Callable[[str], Awaitable[Password]],
    journal: ServedJournal,
    shovels: Shovels,
    federation: Federation,
    dispatchers: Dispatchers,
    listeners: list[tuple[str, str, int]],
    watcher: Watcher,
    bounds: Bounds,
    origins: Collection[str],
    metrics_per_object: bool,
    has_page: bool,
) -> AdminServer:
    """Make the server of metrics, health and the API; it listens nowhere yet.

    `listeners` has all addresses that the daemon listens on, each with its protocol; addresses may be added
    later. Web pages of `origins` may send requests that change something. `metrics_per_object`: `/metrics`
    shows each object instead of sums. `has_page`: browsers get the management page.
    """
    statistics = Statistics(server.broker, server.connections, state.measured)
    statistics.start()
    sessions = Sessions(users)

    def load_api() -> Application:
        # Imported here, in a thread: FastAPI and the routes take longer than the rest of the broker's start.
        from broker.admin.api.management import Management
        from broker.admin.api.routes import create_api

        return create_api(
            state.version,
            Management(
                state,
                server,
                users,
                access,
                make_password,
                journal,
                shovels,
                federation,
                dispatchers,
                listeners,
                statistics,
                sessions,
            ),
        )

    app = AdminApp(state, load_api, origins, metrics_per_object, has_page)
    return AdminServer(app, watcher, bounds, statistics)
