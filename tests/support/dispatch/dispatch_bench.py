"""Dispatchers without an event loop: time by hand, and calls that a test answers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from pamqp.commands import Basic

from broker.adapters.formats.either import Conversions, view_of, write_letter
from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.queues.queue import Queue
from broker.dispatch.answers import ACKNOWLEDGED, BUSY, FAILED, Answer
from broker.dispatch.definition import KIND, Definition, Reference, definition_of
from broker.dispatch.dispatcher import Call, Dispatcher, Services
from broker.dispatch.dispatchers import Dispatchers
from broker.dispatch.payload import SecretError
from config.targets import AllowList
from tests.support.amqp091.frames import body_frames, header_bytes
from tests.support.core.hand_clock import HandClock
from tests.support.core.queue_bench import HandScheduler
from tests.support.core.topology import RecordingStore

URL = "http://localhost/hooks/orders"
ALLOWED = ("http://localhost/hooks", "/bin/true")


def content_of(body: bytes, properties: Basic.Properties | None = None) -> bytes:
    """The content of a message, as a publisher of AMQP 0-9-1 sends it."""
    return header_bytes(len(body), properties, 1) + b"".join(body_frames(body, 1, 131072))


class HandCaller:
    """A caller whose calls wait for the answer of a test."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.begun: list[Call] = []
        self.cancelled: list[Call] = []

    def begin(self, call: Call) -> None:
        self.calls.append(call)
        self.begun.append(call)

    def cancel(self, call: Call) -> None:
        self.cancelled.append(call)
        if call in self.calls:
            self.calls.remove(call)


def body_of(call: Call) -> str:
    """The body of a call."""
    given = call.request or call.input
    assert given is not None
    return given.body.decode()


class DispatchBench:
    """A broker with dispatchers; the bodies of messages are short texts."""

    def __init__(self, store: MessageStore | None = None, allowed: tuple[str, ...] = ALLOWED) -> None:
        names = itertools.count(1)
        self.clock = HandClock()
        self.store = store or RecordingStore()
        self.broker = Broker(
            self.store, Counters(), lambda: str(next(names)), self.clock.schedule, view_of, write_letter
        )
        self.vhost = self.broker.declare_vhost("/")
        self.scheduler = HandScheduler()
        self.caller = HandCaller()
        self.secrets: dict[Reference, bytes] = {}
        self.logged: list[tuple[str, dict[str, object]]] = []
        self.allowed = AllowList(allowed)
        self.dispatchers = Dispatchers(self.broker, self.allowed)
        self.broker.appliers[KIND] = self.dispatchers.apply
        self.broker.definers.append(self.dispatchers.describe)
        self.broker.leaving.append(self.dispatchers.forget_vhost)
        self.dispatchers.start(self.services())

    def services(self) -> Services:
        return Services(
            self.broker,
            self.allowed,
            self.scheduler,
            Conversions(self.clock.schedule),
            self.caller,
            self.read_secret,
            ("log", "start"),
            lambda event, **values: self.logged.append((event, values)),
        )

    def read_secret(self, reference: Reference) -> bytes:
        if reference not in self.secrets:
            raise SecretError(f"no secret {reference.name}")
        return self.secrets[reference]

    def queue(self, name: str = "q", **arguments: object) -> Queue:
        """Declare a queue; `message_ttl=5` is its x-message-ttl, and so on."""
        held = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.vhost.declarations.declare_queue(name, False, None, False, held)

    def publish(
        self, *bodies: str, key: str = "q", headers: Mapping[str, Any] | None = None, **properties: Any
    ) -> None:
        """Publish messages, and run the turns that follow."""
        route = self.vhost.publisher.route("", key)
        given = Basic.Properties(headers=dict(headers) if headers else None, **properties)
        for body in bodies:
            content = content_of(body.encode(), given)
            message = Message(
                route.address, content, len(body.encode()), False, properties.get("priority", 0)
            )
            self.vhost.publisher.publish(route, message)
        self.run()

    def set(self, name: str = "d", **fields: Any) -> Dispatcher:
        """Set a dispatcher of the queue q, and return it."""
        if "command" not in fields:
            fields.setdefault("url", URL)
        fields.setdefault("queue", "q")
        self.dispatchers.set(definition_of("/", name, fields))
        self.run()
        return self.dispatcher(name)

    def definition(self, name: str = "d") -> Definition:
        return self.dispatchers.existing("/", name)

    def dispatcher(self, name: str = "d") -> Dispatcher:
        return next(each for each in self.dispatchers.working() if each.definition.name == name)

    def run(self) -> None:
        """Turns until nobody waits."""
        self.scheduler.run()

    def wait(self, milliseconds: int) -> None:
        """Let time pass."""
        self.clock.advance(milliseconds, after_each=self.run)
        self.run()

    # ---- calls

    @property
    def bodies(self) -> list[str]:
        """The bodies of the calls in progress, in the order of their beginnings."""
        return [body_of(call) for call in self.caller.calls]

    @property
    def begun(self) -> list[str]:
        """The bodies of all calls that have begun."""
        return [body_of(call) for call in self.caller.begun]

    def end(self, answer: Answer, body: str | None = None) -> None:
        """Answer the call with this body, or the earliest call."""
        call = next(each for each in self.caller.calls if body is None or body_of(each) == body)
        self.caller.calls.remove(call)
        call.end(answer)
        self.wait(0)

    def ack(self, *bodies: str) -> None:
        """Acknowledge the calls with these bodies, or the earliest call."""
        for body in bodies or (None,):
            self.end(Answer(ACKNOWLEDGED, "200"), body)

    def fail(self, body: str | None = None, status: str = "500", result: str = FAILED) -> None:
        """Let a call fail."""
        self.end(Answer(result, status, "no"), body)

    def busy(self, wait_ms: int, body: str | None = None) -> None:
        """Let a target ask to wait."""
        self.end(Answer(BUSY, "503", "later", wait_ms), body)
