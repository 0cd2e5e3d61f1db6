"""Connections of python-qpid-proton to the broker. Its modules are had from here, if it is installed."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.daemon.daemon import PATIENCE_S, Address

MISSING = "python-qpid-proton is not installed"
proton: Any = pytest.importorskip("proton", reason=MISSING)
reactor: Any = pytest.importorskip("proton.reactor", reason=MISSING)
handlers: Any = pytest.importorskip("proton.handlers", reason=MISSING)
utils: Any = pytest.importorskip("proton.utils", reason=MISSING)

ProtonDial = Callable[..., Any]
"""Opens a connection: a `proton.utils.BlockingConnection`, with options of its container."""


def url(address: Address) -> str:
    """Return the URL for clients, with user and password."""
    return f"amqp://guest:guest@{address.host}:{address.port}"


def dialling(address: Address) -> Iterator[ProtonDial]:
    """Open connections, and close them all in the end: the body of a fixture."""
    opened: list[Any] = []

    def connect(**options: Any) -> Any:
        opened.append(utils.BlockingConnection(url(address), timeout=PATIENCE_S, **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


class Outcome(NamedTuple):
    """The outcome of a sent message, and its reason."""

    name: str
    condition: str = ""
    text: str = ""


ACCEPTED = Outcome("accepted")
RELEASED = Outcome("released")


class Sender:
    """A sender that records the outcomes of its messages. proton calls `on_...`."""

    def __init__(self, connection: Any, address: str | None) -> None:
        self.connection = connection
        self._outcomes: dict[str, Outcome] = {}
        handler = handlers.OutgoingMessageHandler(delegate=self)
        self._sender = connection.create_sender(address, handler=handler)

    def send(self, *messages: Any) -> list[Outcome]:
        """Send messages as fast as credit allows, and wait for the outcome of each."""
        link = self._sender.link
        tags: list[str] = []
        for message in messages:
            self.connection.wait(lambda: link.credit > 0, msg="waiting for credit")
            tags.append(link.send(message).tag)
        self.connection.wait(lambda: self._outcomes.keys() >= set(tags), msg="waiting for outcomes")
        return [self._outcomes.pop(tag) for tag in tags]

    def on_accepted(self, event: Any) -> None:
        """The broker has it."""
        self._outcomes[event.delivery.tag] = ACCEPTED

    def on_released(self, event: Any) -> None:
        """Record that no consumer got the message."""
        self._outcomes[event.delivery.tag] = RELEASED

    def on_rejected(self, event: Any) -> None:
        """The broker does not want it."""
        condition = event.delivery.remote.condition
        outcome = Outcome("rejected", str(condition.name), str(condition.description))
        self._outcomes[event.delivery.tag] = outcome


def take(receiver: Any, count: int) -> list[Any]:
    """Allow so many messages and wait for them; they are not settled yet."""
    receiver.flow(count)
    receiver.connection.wait(lambda: receiver.fetcher.has_message >= count, msg=f"taking {count}")
    return _popped(receiver)


def drain(receiver: Any, credit: int) -> list[Any]:
    """Drain up to `credit` messages; return when the broker reports the end."""
    receiver.drain(credit)
    receiver.connection.wait(lambda: receiver.link.credit == 0, msg=f"draining {credit}")
    return _popped(receiver)


def bodies(messages: list[Any]) -> list[Any]:
    """Return the bodies; proton's views of bytes last no longer than their message."""
    found = [message.body for message in messages]
    return [bytes(body) if isinstance(body, memoryview) else body for body in found]


def deliveries(receiver: Any) -> list[Any]:
    """Return the unsettled deliveries, oldest first, with their states."""
    return list(receiver.fetcher.unsettled)


def _popped(receiver: Any) -> list[Any]:
    return [receiver.fetcher.pop() for _ in range(receiver.fetcher.has_message)]
