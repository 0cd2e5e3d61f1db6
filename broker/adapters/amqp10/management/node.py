"""The node `/management`, which finds the handlers of requests, and answers in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

from broker.adapters.amqp10.management import objects
from broker.adapters.amqp10.management.requests import (
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    Answer,
    Refused,
    RequestContext,
    Target,
)
from broker.adapters.peers.peer import ServedConnection
from broker.core.schedule import PAYLOAD, REQUEST
from broker.core.vhosts.vhost import VirtualHost

Handler = Callable[[RequestContext], Answer | None]
"""A function that handles a request and returns the answer, or None if the answer follows later.

Raises Refused, BrokerError.
"""

ANY: Final = ":name"

ROUTES: Final[dict[tuple[str, ...], dict[str, Handler]]] = {
    ("queues", ANY): {
        "PUT": objects.declare_queue,
        "GET": objects.show_queue,
        "DELETE": objects.delete_queue,
    },
    ("queues", ANY, "messages"): {"DELETE": objects.purge_queue},
    ("exchanges", ANY): {"PUT": objects.declare_exchange, "DELETE": objects.delete_exchange},
    ("bindings",): {"POST": objects.add_binding, "GET": objects.show_bindings},
    ("bindings", ANY): {"DELETE": objects.remove_binding},
    ("auth", "tokens"): {"PUT": objects.renew_token},
}
"""The methods of each path."""


@final
class Management:
    """The handler of the requests that come over a pair of links.

    Requests are answered one after the other, and each request sees the changes of earlier ones. The owner of
    the links limits the waiting requests by credit. `send`: a function that sends the sections of a response
    and raises no error.
    """

    def __init__(
        self, client: ServedConnection, virtual_host: VirtualHost, send: Callable[[bytes], None]
    ) -> None:
        self._client = client
        self._virtual_host = virtual_host
        self._send = send
        self._waiting: deque[bytes] = deque()
        self._context: RequestContext | None = None  # the current request
        self._is_handling = False

    def handle_request(self, request: bytes) -> None:
        """Handle a request, given as the sections of its message. No error is raised, whatever they are."""
        self._waiting.append(request)
        self._handle_waiting()

    def close(self) -> None:
        """Send no more responses: the links have ended. The current request is still completed."""
        self._waiting.clear()
        self._send = _drop_response
        if self._context is not None:
            self._context.dropped = True
            self._context = None

    def _handle_waiting(self) -> None:
        """Handle waiting requests until one is not answered at once."""
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._waiting and self._context is None:
                self._handle(self._waiting.popleft())
        finally:
            self._is_handling = False

    def _handle(self, data: bytes) -> None:
        self._virtual_host.schedule.allowance.use(REQUEST + len(data) // PAYLOAD)
        context = self._context = RequestContext(self._client, self._virtual_host, self._send_response)
        journal = self._virtual_host.journal
        before = journal.actor
        journal.actor = self._client
        try:
            context.run_step(lambda: _call_handler(context, data))
        except BaseException:
            self._context = None  # or no further request would ever begin
            raise
        finally:
            journal.actor = before

    def _send_response(self, response: bytes) -> None:
        self._context = None
        self._send(response)
        self._handle_waiting()


def _drop_response(response: bytes) -> None:
    """Send nothing: the links have ended."""


def _call_handler(context: RequestContext, data: bytes) -> Answer | None:
    """Read a request, and call its handler. Raises Refused, BrokerError."""
    request = context.request
    request.read(data)
    context.target = Target(request.target)
    segments = context.target.segments
    for route, methods in ROUTES.items():
        if len(route) == len(segments) and all(
            part in (ANY, segment) for part, segment in zip(route, segments, strict=True)
        ):
            handler = methods.get(request.method)
            if handler is None:
                allowed = ", ".join(methods)
                text = f"method {request.method} not allowed for '{request.target}', allowed: {allowed}"
                raise Refused(METHOD_NOT_ALLOWED, text)
            return handler(context)
    raise Refused(NOT_FOUND, f"there is no path '{request.target}'")
