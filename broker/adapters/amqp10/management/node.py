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
    Asking,
    Refused,
    Target,
)
from broker.adapters.peers.peer import ServedConnection
from broker.core.schedule import PAYLOAD, REQUEST
from broker.core.vhosts.vhost import VirtualHost

Handler = Callable[[Asking], Answer | None]
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
    ("bindings",): {"POST": objects.bind, "GET": objects.show_bindings},
    ("bindings", ANY): {"DELETE": objects.unbind},
    ("auth", "tokens"): {"PUT": objects.renew},
}
"""The methods of each path."""


@final
class Management:
    """The handler of the requests that come over a pair of links.

    Requests are answered one after the other, and each request sees the changes of earlier ones. The owner of
    the links limits the waiting requests by credit. `say`: a function that sends the sections of a response
    and raises no error.
    """

    def __init__(
        self, client: ServedConnection, virtual_host: VirtualHost, say: Callable[[bytes], None]
    ) -> None:
        self._client = client
        self._virtual_host = virtual_host
        self._say = say
        self._waiting: deque[bytes] = deque()
        self._asking: Asking | None = None  # the current request
        self._beginning = False

    def ask(self, request: bytes) -> None:
        """Handle a request, given as the sections of its message. No error is raised, whatever they are."""
        self._waiting.append(request)
        self._go_on()

    def close(self) -> None:
        """Send no more responses: the links have ended. The current request is still completed."""
        self._waiting.clear()
        self._say = _drop
        if self._asking is not None:
            self._asking.dropped = True
            self._asking = None

    def _go_on(self) -> None:
        """Handle waiting requests until one is not answered at once."""
        if self._beginning:
            return
        self._beginning = True
        while self._waiting and self._asking is None:
            self._begin(self._waiting.popleft())
        self._beginning = False

    def _begin(self, data: bytes) -> None:
        self._virtual_host.schedule.allowance.use(REQUEST + len(data) // PAYLOAD)
        asking = self._asking = Asking(self._client, self._virtual_host, self._answered)
        journal = self._virtual_host.journal
        before = journal.actor
        journal.actor = self._client
        try:
            asking.attempt(lambda: _begun(asking, data))
        finally:
            journal.actor = before

    def _answered(self, response: bytes) -> None:
        self._asking = None
        self._say(response)
        self._go_on()


def _drop(response: bytes) -> None:
    """Send nothing: the links have ended."""


def _begun(asking: Asking, data: bytes) -> Answer | None:
    """Read a request, and call its handler. Raises Refused, BrokerError."""
    request = asking.request
    request.read(data)
    asking.target = Target(request.target)
    segments = asking.target.segments
    for route, methods in ROUTES.items():
        if len(route) == len(segments) and all(
            part in (ANY, segment) for part, segment in zip(route, segments, strict=True)
        ):
            handler = methods.get(request.method)
            if handler is None:
                allowed = ", ".join(methods)
                text = f"method {request.method} not allowed for '{request.target}', allowed: {allowed}"
                raise Refused(METHOD_NOT_ALLOWED, text)
            return handler(asking)
    raise Refused(NOT_FOUND, f"there is no path '{request.target}'")
