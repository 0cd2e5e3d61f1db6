"""A small HTTP server that a dispatcher calls, in a thread; a test says how it answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext

from tests.support.daemon.daemon import PATIENCE_S


@dataclass
class Received:
    """A request that the server got."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Reply:
    """An answer; `until`: the server waits for this event first."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    until: threading.Event | None = None


class HookServer:
    """The server. `reply` makes the answer to a request; by default each request succeeds.

    `most`: the most requests that were in progress at once.
    """

    def __init__(self, tls: SSLContext | None = None, port: int = 0) -> None:
        self.requests: list[Received] = []
        self.reply: Callable[[Received], Reply] = lambda request: Reply()
        self.most = 0
        self._running = 0
        self._changed = threading.Condition()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                hook._serve(self)

            def log_message(self, *_: object) -> None:
                """Write nothing to standard error."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://localhost:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait_for(self, count: int) -> list[Received]:
        """Return the first `count` requests, after they have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, PATIENCE_S), self.requests
            return self.requests[:count]

    @property
    def bodies(self) -> list[str]:
        """The bodies of all requests."""
        with self._changed:
            return [request.body.decode() for request in self.requests]

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        assert "Content-Length" in handler.headers
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        received = Received(handler.path, dict(handler.headers.items()), body)
        with self._changed:
            self.requests.append(received)
            self._running += 1
            self.most = max(self.most, self._running)
            self._changed.notify_all()
        reply = self.reply(received)
        if reply.until is not None:
            reply.until.wait(PATIENCE_S)
        with self._changed:
            self._running -= 1
        try:
            handler.send_response(reply.status)
            for name, value in reply.headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(reply.body)))
            handler.end_headers()
            handler.wfile.write(reply.body)
        except OSError:  # the dispatcher has broken the call off
            handler.close_connection = True
