"""The HTTP server of the admin surface, inside the daemon's event loop."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn

from broker.admin.zero_copy import ZeroCopyProtocol

GRACE_S: Final = 1
"""Seconds that a request in flight may still take when the server stops."""

ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""A name may stand for an address that this machine does not have, such as localhost for ::1 without IPv6."""


class AdminError(OSError):
    """The admin address cannot be listened on; the text names it and says why."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: signals are the daemon's."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell who waits for it."""
        await super().startup(sockets=sockets)
        self.up.set()


class AdminServer:
    """Serves one ASGI application on one address."""

    def __init__(self, app: Any, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._server = _Server(
            uvicorn.Config(
                app,
                http=ZeroCopyProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen and serve; returns the port. Raises AdminError if the address cannot be listened on."""
        sockets = await _bind(self._host, self._port)
        self._task = asyncio.create_task(self._server.serve(sockets=sockets), name="admin")
        up = asyncio.create_task(self._server.up.wait())
        await asyncio.wait((self._task, up), return_when=asyncio.FIRST_COMPLETED)
        if not up.done():
            up.cancel()
            await self._task  # raises what ended it
        return int(sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening, give requests in flight a moment, then close. Harmless if not started."""
        if self._task is not None:
            self._server.should_exit = True
            await self._task
            self._task = None


async def _bind(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of `host`, on the same port. Raises AdminError."""
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in await _resolve(host, port):
            # where the system chose a port for the first address, the others get the same
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
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return [(family, address) for family, _, _, _, address in dict.fromkeys(found)]


def _listener(family: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(128)  # bound is not taken: two sockets may be bound to a port until one listens
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
