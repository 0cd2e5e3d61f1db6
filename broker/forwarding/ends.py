"""The ends of a shovel: connections that consume the source, and publish to the destination.

The connections of this module are of AMQP 0-9-1; `ends10` has the connections of AMQP 1.0. An end belongs to
one attempt of its shovel. It is opened once, reports that it is ready, works, and is closed or fails. Ends
have no state of messages besides the number of the last publish: the number of a delivery on the source's
channel is the number of its publish on the destination's channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar, final

from mypy_extensions import i64
from pamqp import base, commands

from broker.adapters.formats.either import Conversions
from broker.adapters.peers.server import MESSAGE_ORIGINS, MESSAGE_SELECTORS, RECEIPT_PATHS
from broker.core.arguments.consumer import ORIGIN_READER, SELECTOR
from broker.core.schedule import Schedule
from broker.forwarding.definition import EXACTLY_ONCE, Definition, DestinationEnd, SourceEnd
from broker.forwarding.line import Dialer, Line
from broker.forwarding.ports import EndOwner, Run, Timer, guard
from broker.forwarding.uri import Uri
from protocol.amqp091 import constants as c
from protocol.amqp091.client import CAPABILITIES, DURABLE, EXCLUSIVE, PASSIVE, Client, ClientHandler, Login
from protocol.amqp091.incoming import WHOLE_BYTES_MAX
from protocol.amqp091.table import EMPTY_TABLE, encode_table
from protocol.errors import DUPLICATE, NOT_FOUND, PRECONDITION_FAILED
from protocol.scram import MECHANISM as SCRAM
from protocol.scram import salt_password

SHORT: Final = 1  # the broker is short of memory or disk space [RabbitMQ connection.blocked]
STOPPED: Final = 2  # the broker has stopped the channel [amqp-0-9-1 1.5.2.3]
FULL: Final = 3  # the broker reads more slowly than the destination writes
OBSTACLES: Final = (SHORT, STOPPED, FULL)
"""The kinds of reasons for which a destination takes nothing, the first one that applies is shown."""

TAG: Final = "shovel"  # the tag of the consumer
FLOW: Final = "flow"
CHANNEL_FLOW: Final = "the broker has stopped the flow of the channel"
BODY_BYTES_MAX: Final = 2**31 - 1  # the destination has its own limit, and says so
CLOSE_MS: Final = 3000  # for the peer to answer a close and to take all output, before the line is aborted


@final
class EndHost:
    """The broker, as the ends of shovels see it. `version`: the version that other brokers see.

    `conversions`: the conversions of messages from AMQP 1.0. `cluster_name` returns the name of this broker.
    """

    def __init__(
        self,
        dialer: Dialer,
        schedule: Schedule,
        version: str,
        conversions: Conversions,
        cluster_name: Callable[[], str],
    ) -> None:
        self.dialer = dialer
        self.schedule = schedule
        self.version = version
        self.conversions = conversions
        self.cluster_name = cluster_name


class EndClient(Protocol):
    """A client of either protocol, without a socket and a clock. `state`: a text for people."""

    state: str

    @property
    def beat_ms(self) -> int:
        """The time between two calls of `beat`, 0: none are needed."""

    def start(self) -> None:
        """Begin the handshake."""

    def start_open(self, frame_max: int) -> None:
        """Begin on a connection whose peer needs no handshake, and takes frames up to this size."""

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the peer."""

    def take_output(self) -> bytes:
        """Return the bytes to send, and remove them from the client."""

    def beat(self, reads: bool = True) -> bool:
        """Note that `beat_ms` have passed; false: the peer is dead."""

    def close(self) -> None:
        """Begin to close the connection."""


C = TypeVar("C", bound=EndClient)


class End(Generic[C]):
    """A connection of a shovel to one of its brokers: time limits, heartbeats, and the end.

    `side`: `source` or `destination`, for texts. `client`: made by the subclass, which takes its calls.
    """

    client: C

    def __init__(
        self,
        owner: EndOwner,
        definition: Definition,
        uri: Uri,
        host: EndHost,
        side: str,
        capabilities: tuple[str, ...] = (),
    ) -> None:
        self.uri = uri
        self.side = side
        self.is_ready = False
        self.owner = owner
        self.capabilities = capabilities
        self._name = definition.client_name
        self._definition = definition
        self._dialer = host.dialer
        self._schedule = host.schedule
        self._line: Line | None = None
        self._ending: Line | None = None  # the line that was closed, and may have output that nobody takes
        self._limit = Timer(owner, self._on_limit)
        self._beat = Timer(owner, self._on_beat)
        self._closing = False
        self._holds = False  # nothing is to be taken from the broker, which then seems silent

    # -- the line

    def open(self) -> None:
        """Begin to connect."""
        self._line = self._dialer.dial(self.uri, self, f"{self._definition.where}, {self.side}")
        self._schedule.set(self._limit, self._schedule.after(self.uri.connection_timeout))

    def on_connected(self) -> None:
        """Start the handshake, or open the channel where no handshake is required."""
        guard(self.owner, self._start)

    def _start(self) -> None:
        frame_max = 0 if self._line is None else self._line.frame_max
        if frame_max:
            self.client.start_open(frame_max)
        else:
            self.client.start()
        self.flush()

    def on_bytes(self, data: bytes) -> None:
        """Take bytes from the broker."""
        try:
            self.client.receive(data)
            if self._closing:
                self.flush()
            else:
                self.owner.end_turn()
        except Exception:
            self.owner.on_broken()

    def on_writable(self, writable: bool) -> None:
        """Do nothing: only the destination writes much."""

    def on_lost(self, reason: str) -> None:
        """End the attempt: the line has ended."""
        self._line = None
        self._cancel_timers()
        guard(self.owner, lambda: self.fail(reason or "the broker has closed the connection"))

    def flush(self) -> None:
        """Write the output of the client."""
        line = self._line
        if line is not None:
            output = self.client.take_output()
            if output:
                line.write(output)

    def hold(self) -> None:
        """Take no more bytes from the broker, from the end of the set-up on."""
        self._holds = True
        if self._line is not None and self.is_ready:
            self._line.hold()

    def release(self) -> None:
        """Take bytes again."""
        self._holds = False
        if self._line is not None:
            self._line.release()

    def fail(self, reason: str) -> None:
        """End the attempt for a reason, unless it has ended."""
        if not self._closing:
            self.owner.on_failed(f"{self.side} {self.uri.place}: {reason}")

    def close(self) -> None:
        """Close the connection. The owner gets no more calls."""
        if self._closing:
            return
        self._closing = True
        self._cancel_timers()
        if self._line is None:
            return
        self.client.close()
        self.flush()
        self._line.release()
        self._schedule.set(self._limit, self._schedule.after(CLOSE_MS))
        if not self.is_ready:
            self._hang_up()

    def _hang_up(self) -> None:
        """Close the line; `_on_limit` aborts the line if its output is not taken."""
        line, self._line = self._line, None
        if line is not None:
            self._ending = line
            line.close()

    # -- time

    def _on_limit(self) -> None:
        """End a connection that was not ready, or closed, in time."""
        if self._closing:
            line, self._line = self._line or self._ending, None
            self._ending = None
            if line is not None:
                line.abort()
        else:
            seconds = self.uri.connection_timeout / 1000
            self.fail(f"not ready {seconds:g} s after the attempt to connect: {self.client.state}")

    def _on_beat(self) -> None:
        if not self.client.beat(not self._holds):
            self.fail(f"missed heartbeats, the interval is {self.client.beat_ms / 500:g} s")
            return
        self.flush()
        self._set_beat()

    def _set_beat(self) -> None:
        if self.client.beat_ms:
            self._schedule.set(self._beat, self._schedule.after(self.client.beat_ms))

    def _cancel_timers(self) -> None:
        self._schedule.cancel(self._limit)
        self._schedule.cancel(self._beat)

    def note_ready(self) -> None:
        """Note that the end is ready."""
        self.is_ready = True
        self._schedule.cancel(self._limit)
        self._set_beat()
        if self._holds and self._line is not None:
            self._line.hold()


class End091(End[Client], ClientHandler):
    """A connection of AMQP 0-9-1."""

    def __init__(
        self,
        owner: EndOwner,
        definition: Definition,
        uri: Uri,
        host: EndHost,
        side: str,
        capabilities: tuple[str, ...] = CAPABILITIES,
    ) -> None:
        super().__init__(owner, definition, uri, host, side, capabilities)
        login = Login(
            uri.user,
            uri.password,
            uri.vhost,
            uri.mechanisms,
            0 if uri.is_local else uri.heartbeat,
            uri.frame_max,
            uri.channel_max,
            capabilities,
            host.dialer.make_nonce() if SCRAM in uri.mechanisms else "",
        )
        properties = {"product": "amqpd", "version": host.version, "connection_name": self._name}
        self.client = Client(self, login, properties, BODY_BYTES_MAX)

    def on_ready(self) -> None:
        """Set up the channel. Each subclass ends its set-up with `note_ready`."""
        raise NotImplementedError

    def on_salt(self, salt: bytes, iterations: int) -> None:
        """Salt the password beside the event loop, which this would stop for a while."""
        password = self.uri.password
        self._dialer.compute(lambda: salt_password(password, salt, iterations), self._on_salted)

    def _on_salted(self, salted: bytes) -> None:
        if not self._closing:
            guard(self.owner, lambda: self.client.continue_login(salted))
            self.flush()

    def has_capability(self, name: str) -> bool:
        """Whether the broker has a capability of amqpd, such as MESSAGE_ORIGINS."""
        if self.uri.is_local:
            return True
        capabilities = self.client.server_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

    def on_delivery(
        self, tag: i64, redelivered: bool, address: bytes, content: bytes, size: i64, traits: i64
    ) -> None:
        """Refuse a delivery: only a source consumes."""
        self.fail("the broker delivers without a consumer")

    def on_piece(self, frames: bytes, size: i64) -> None:
        """Ignore a piece of such a delivery."""

    def on_get_answer(self, found: bool) -> None:
        """Ignore the answer to a basic.get: shovels consume."""

    def on_confirm(self, tag: i64, multiple: bool, accepted: bool) -> None:
        """Ignore a confirm: only a destination has requested confirms."""

    def on_return(self, code: int, text: str) -> None:
        """Ignore a returned message: only a destination publishes."""

    def on_blocked(self, reason: str) -> None:
        """Ignore a shortage of the broker: only a destination publishes."""

    def on_flow(self, active: bool) -> None:
        """Ignore the flow of publishes: only a destination publishes."""

    def on_cancelled(self) -> None:
        """End the attempt: the queue of the source has been deleted."""
        self.fail("the broker has cancelled the consumer: its queue was deleted")

    def on_channel_closed(self, code: int, text: str) -> None:
        """End the attempt over the error of the broker."""
        self.fail(f"the broker has closed the channel: {code} {text}")

    def on_closed(self, code: int, text: str) -> None:
        """End the attempt over the end of the connection."""
        if self._closing:
            self._hang_up()
            return
        self.flush()
        self.fail(f"the connection was closed: {code} {text}")


@final
class _QueueSetup:
    """The declaration of a queue on the channel of an end: first passive, then durable. [RabbitMQ shovel]

    `passive`: the next declaration is passive. `predeclared`: a missing queue is not declared. `on_declared`
    gets the number of ready messages.
    """

    def __init__(
        self,
        end: End091,
        name: str,
        arguments: bytes,
        passive: bool,
        predeclared: bool,
        on_declared: Callable[[i64], None],
    ) -> None:
        self._client = end.client
        self._name = name
        self._arguments = arguments
        self._passive = passive
        self._predeclared = predeclared
        self._on_declared = on_declared

    def declare(self) -> None:
        """Declare the queue on the open channel."""
        flags, arguments = (PASSIVE, EMPTY_TABLE) if self._passive else (DURABLE, self._arguments)
        self._client.declare(self._name, flags, arguments, self._note_declared)

    def reopen_channel(self, code: int) -> bool:
        """Open the channel again if the error `code` says that the queue is missing, to declare the queue.

        Return whether the channel is being opened.
        """
        if not self._passive or self._predeclared or code != NOT_FOUND:
            return False
        self._passive = False
        self._client.open_channel()
        return True

    def _note_declared(self, frame: commands.Queue.DeclareOk) -> None:
        self._passive = False
        self._on_declared(frame.message_count or 0)


@final
@final
class Source(End091):
    """The end that consumes a queue, or an exclusive queue that is bound to an exchange.

    `reader`: the name of the reader for which the broker gives messages their positions; "": there are none.
    """

    def __init__(
        self,
        owner: EndOwner,
        definition: Definition,
        uri: Uri,
        host: EndHost,
        no_ack: bool,
        reader: str = "",
    ) -> None:
        super().__init__(owner, definition, uri, host, "source")
        self._source: SourceEnd = definition.source
        self._no_ack = no_ack
        self._reader = reader
        self._missing: i64 = 0  # bytes of a large body that have not arrived
        self._ready: i64 = 0
        self._setup = _QueueSetup(
            self, self._source.queue, self._source.arguments, True, self._source.predeclared, self._found
        )

    def on_ready(self) -> None:
        """Declare the queue."""
        if self._source.selector is not None and not self.has_capability(MESSAGE_SELECTORS):
            self.fail(f"the broker selects no messages: no capability '{MESSAGE_SELECTORS}'")
        elif self._reader and not self.has_capability(MESSAGE_ORIGINS):
            self.fail(f"the broker gives messages no positions: no capability '{MESSAGE_ORIGINS}'")
        elif self._source.exchange:
            self.client.declare("", EXCLUSIVE, EMPTY_TABLE, self._bind)
        else:
            self._setup.declare()

    def on_channel_closed(self, code: int, text: str) -> None:
        """Declare a missing queue on another channel."""
        if not self._setup.reopen_channel(code):
            super().on_channel_closed(code, text)

    def settle(self, number: i64, multiple: bool) -> None:
        """Acknowledge a message, or all messages up to this one."""
        self.client.ack(number, multiple)

    def return_refused(self, runs: list[Run]) -> None:
        """Return refused messages to the queue."""
        for first, last in runs:
            for number in range(first, last + 1):
                self.client.requeue(number, False)

    def _bind(self, frame: commands.Queue.DeclareOk) -> None:
        queue = frame.queue or ""

        def bound(answer: base.Frame) -> None:
            self._found_queue(queue, 0)

        request = commands.Queue.Bind(0, queue, self._source.exchange, self._source.key, False, {})
        self.client.ask(request, c.QUEUE_BIND_OK, bound)

    def _found(self, ready: i64) -> None:
        self._found_queue(self._source.queue, ready)

    def _found_queue(self, queue: str, ready: i64) -> None:
        self._ready = ready
        self.owner.on_source_ready(ready)
        if self._closing:
            return  # nothing is to be forwarded
        if self._no_ack:
            self._consume(queue)
            return

        def limited(answer: base.Frame) -> None:
            self._consume(queue)

        self.client.ask(commands.Basic.Qos(0, self._source.prefetch, False), c.BASIC_QOS_OK, limited)

    def _consume(self, queue: str) -> None:
        arguments = self._source.consumer_arguments
        if self._reader:
            selects = {SELECTOR: self._source.selector_text} if self._source.selector is not None else {}
            arguments = encode_table({ORIGIN_READER: self._reader, **selects})
        self.client.consume(queue, TAG, self._no_ack, arguments, self._consuming)

    def give_up(self) -> None:
        """Cancel the reader, so that its messages return to the queue: the end of a connection keeps them."""
        if self._reader and self.is_ready:
            self.client.cancel(TAG)

    def _consuming(self, frame: base.Frame) -> None:
        self.note_ready()

    def on_piece(self, frames: bytes, size: i64) -> None:
        """Pass on a part of a large body."""
        self._missing -= size
        if not self._closing:
            self.owner.on_piece(frames, self._missing == 0)

    def on_delivery(
        self, tag: i64, redelivered: bool, address: bytes, content: bytes, size: i64, traits: i64
    ) -> None:
        """Pass a message on."""
        has_pieces = size > WHOLE_BYTES_MAX
        if has_pieces:
            self._missing = size
        if not self._closing:
            self.owner.on_message(tag, address, content, has_pieces, traits)


@final
class Destination(End091):
    """The end that publishes.

    `confirms`: the broker confirms each message. `mandatory`: a message without a queue ends the attempt.
    """

    def __init__(
        self,
        owner: EndOwner,
        definition: Definition,
        uri: Uri,
        host: EndHost,
        confirms: bool,
    ) -> None:
        names_origins = definition.ack_mode == EXACTLY_ONCE or definition.destination.names_origins
        capabilities = (*CAPABILITIES, MESSAGE_ORIGINS) if names_origins else CAPABILITIES
        super().__init__(owner, definition, uri, host, "destination", capabilities)
        self._destination: DestinationEnd = definition.destination
        self._confirms = confirms
        self.mandatory = self._destination.queue != ""
        self._setup = _QueueSetup(
            self,
            self._destination.queue,
            self._destination.arguments,
            not self._destination.declares,
            self._destination.predeclared,
            self._found,
        )
        self._receipts: _QueueSetup | None = None
        if self._destination.receipt_queue:
            queue = self._destination.receipt_queue
            self._receipts = _QueueSetup(self, queue, EMPTY_TABLE, True, False, self._receipts_found)
        self._obstacles: dict[int, str] = {}  # the reason of each kind for which the broker takes nothing

    def on_ready(self) -> None:
        """Declare the queues, first the queue of receipts."""
        if self._definition.ack_mode == EXACTLY_ONCE and not self.has_capability(MESSAGE_ORIGINS):
            self.fail(f"the broker does not store messages exactly once: no capability '{MESSAGE_ORIGINS}'")
            return
        if self._receipts is None:
            self._declare()
        elif not self.has_capability(RECEIPT_PATHS):
            self.fail(f"the broker returns no receipts: no capability '{RECEIPT_PATHS}'")
        else:
            self._receipts.declare()

    def _receipts_found(self, ready: i64) -> None:
        self._receipts = None
        self._declare()

    def _declare(self) -> None:
        if not self._destination.queue:
            self._found(0)
        else:
            self._setup.declare()

    def on_channel_closed(self, code: int, text: str) -> None:
        """Declare a missing queue on another channel."""
        setup = self._setup if self._receipts is None else self._receipts
        if not setup.reopen_channel(code):
            super().on_channel_closed(code, text)

    def send(self, address: bytes, content: bytes, has_pieces: bool, traits: i64) -> i64:
        """Publish a message, or the header of one; return its number.

        Raises ValueError if the header does not fit.
        """
        self.client.publish(address, content, self.mandatory)
        return self.client.published

    def send_piece(self, frames: bytes) -> None:
        """Send body frames of the message that was published last."""
        self.client.add_piece(frames)

    def on_writable(self, writable: bool) -> None:
        """Report that the broker reads too slowly, or has caught up."""
        guard(self.owner, lambda: self._set_obstacle(FULL, "" if writable else FLOW))

    def on_blocked(self, reason: str) -> None:
        """Report a shortage of the broker, or its end."""
        self._set_obstacle(SHORT, reason)

    def on_flow(self, active: bool) -> None:
        """Report that the broker has stopped or restarted the channel."""
        self._set_obstacle(STOPPED, "" if active else CHANNEL_FLOW)

    def _set_obstacle(self, kind: int, reason: str) -> None:
        """Set or remove the reason of a kind, and report the reason that is left."""
        self._obstacles[kind] = reason
        self.owner.on_blocked(next((text for text in map(self._obstacles.get, OBSTACLES) if text), ""))

    def on_confirm(self, tag: i64, multiple: bool, accepted: bool) -> None:
        """Report a confirm."""
        if not self._closing:
            self.owner.on_confirm(tag, multiple, accepted)

    def on_return(self, code: int, text: str) -> None:
        """End the attempt: no queue has the message, whose confirm must not acknowledge it.

        A returned duplicate is in its queue.
        """
        if code == PRECONDITION_FAILED and text == DUPLICATE:
            return
        self.fail(f"a message was returned: {code} {text}, queue '{self._destination.queue}'")

    def _found(self, ready: i64) -> None:
        if not self._confirms:
            self._select(commands.Confirm.SelectOk())
            return
        self.client.ask(commands.Confirm.Select(), c.CONFIRM_SELECT_OK, self._select)

    def _select(self, frame: base.Frame) -> None:
        self.note_ready()
        self.owner.on_destination_ready()
