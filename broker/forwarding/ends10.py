"""The ends of a shovel at nodes of AMQP 1.0. [RabbitMQ rabbit_amqp10_shovel]

Messages between two such ends keep their bare message. Between the protocols, messages are converted as the
broker converts them for its own clients.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.forwarding.definition import NO_ACK, ON_CONFIRM, Definition
from broker.forwarding.ends import BODY_BYTES_MAX, FLOW, End, EndHost
from broker.forwarding.ports import EndOwner, Run, Window, guard
from broker.forwarding.rewriting import Rewriting10
from broker.forwarding.uri import AMQP10, Uri
from protocol.amqp091.constants import FRAME_OVERHEAD
from protocol.amqp091.content import body_of_frames, body_size, header_frame_bytes
from protocol.amqp10.client import Client10, ClientHandler10, RemoteError, Terms
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import STRING8, STRING32, SYMBOL8
from protocol.amqp10.descriptors import ACCEPTED
from protocol.amqp10.entries import Entries
from protocol.amqp10.properties import SUBJECT
from protocol.amqp10.sections import scan_preamble
from protocol.amqp10.states import DeliveryState
from protocol.amqp10.transfers import MESSAGE_FORMAT
from protocol.conversion import names
from protocol.conversion.editing import property_fields
from protocol.conversion.opaque import enclose_payload
from protocol.conversion.to10 import content10, preamble10
from protocol.sasl import Credentials

NAME_MAX: Final = 150  # characters of a shovel's name in the names of its container and its link
NO_ADDRESS: Final = b"\0\0"  # the default exchange, and an empty routing key
SHORT_MAX: Final = 255  # bytes of a short string of AMQP 0-9-1
DATA_HEAD_BYTES: Final = 8  # before the bytes of a data section of any size [amqp-1.0 3.2.6]


class End10(End[Client10], ClientHandler10):
    """A connection of AMQP 1.0 with a single link."""

    def __init__(
        self,
        owner: EndOwner,
        definition: Definition,
        uri: Uri,
        host: EndHost,
        side: str,
        settled: bool,
    ) -> None:
        super().__init__(owner, definition, uri, host, side)
        source = definition.source
        sends = side == "destination"
        name = definition.where[:NAME_MAX]
        terms = Terms(
            Credentials(uri.user, uri.password, uri.mechanisms),
            uri.hostname,
            uri.container or name,
            f"{name}, {side}, {host.schedule.date()}",
            definition.destination.address if sends else source.address,
            sends,
            settled,
            0 if sends else source.prefetch,
            0 if sends else BODY_BYTES_MAX,
            {"product": "amqpd", "version": host.version, "connection_name": self._name},
            0 if uri.is_local else uri.idle_ms,
            uri.frame_max,
            "" if sends else source.selector_text,
        )
        self.client = Client10(self, terms)

    def on_delivery(self, number: i64, message: bytes, message_format: i64) -> None:
        """Ignore a delivery: only a source receives."""

    def on_outcome(self, first: i64, last: i64, outcome: DeliveryState) -> None:
        """Ignore an outcome: only a destination sends."""

    def on_sent(self, number: i64) -> None:
        """Ignore a sent message: only a destination sends."""

    def on_sendable(self, sendable: bool) -> None:
        """Ignore credit: only a destination sends."""

    def on_closed(self, error: RemoteError | None) -> None:
        """End the attempt over the end of the link or the connection."""
        if self._closing:
            self._hang_up()
            return
        self.flush()
        self.fail("the broker has closed the connection" if error is None else str(error))


@final
class Source10(End10):
    """The end that receives from a node."""

    def __init__(self, owner: EndOwner, definition: Definition, uri: Uri, host: EndHost) -> None:
        super().__init__(owner, definition, uri, host, "source", definition.ack_mode == NO_ACK)
        self._conversions = host.conversions
        destination = definition.destination
        self._converts = destination.protocol != AMQP10
        self._reads_address = destination.exchange is None or destination.key is None
        self._settled = Window()

    def on_ready(self) -> None:
        """Report that the link is attached."""
        self.owner.on_source_ready(0)
        if not self._closing:
            self.note_ready()

    def on_delivery(self, number: i64, message: bytes, message_format: i64) -> None:
        """Pass a message on."""
        if self._closing:
            return
        self._settled.sent = number
        if not self._converts:
            self.owner.on_message(number, b"", message, False, message_format)
            return
        if message_format != MESSAGE_FORMAT:
            message = enclose_payload(message, message_format)
        content = self._conversions.convert(message)
        address = address_in(message) if self._reads_address else NO_ADDRESS
        self.owner.on_message(number, address, content, False, 0)

    def settle(self, number: i64, multiple: bool) -> None:
        """Accept a message, or all messages up to this one."""
        for first, last in self._settled.confirm(number, multiple):
            self.client.accept(first, last)

    def give_up(self) -> None:
        """Do nothing: the end of the link returns the messages."""

    def return_refused(self, runs: list[Run]) -> None:
        """Release refused messages."""
        for refused in runs:
            for first, last in self._settled.confirm_between(refused[0], refused[1]):
                self.client.release(first, last)


@final
class Destination10(End10):
    """The end that sends to a node.

    A message has its answer when the broker has settled it. In the modes without confirms, a message has its
    answer when it is written: a message that waits for credit is not written.
    """

    def __init__(self, owner: EndOwner, definition: Definition, uri: Uri, host: EndHost) -> None:
        self._confirms = definition.ack_mode == ON_CONFIRM
        super().__init__(owner, definition, uri, host, "destination", not self._confirms)
        self._rewriting = Rewriting10(definition, host.cluster_name(), host.schedule)
        self._converts = definition.source.protocol != AMQP10
        self._sent: i64 = 0  # the number of the last message that is written
        self._reported: i64 = 0
        self._is_full = False  # the broker reads more slowly than this end writes
        self._lacks_credit = False

    def on_ready(self) -> None:
        """Report that the link is attached."""
        self.note_ready()
        self.owner.on_destination_ready()

    def send(self, address: bytes, content: bytes, has_pieces: bool, traits: i64) -> i64:
        """Send a message, or the part before a large body, when the broker has granted credit.

        Returns the number of the message. Raises ValueError for a message that cannot be changed, or is
        larger than the broker takes.
        """
        if not self._converts:
            if traits == MESSAGE_FORMAT:
                content = self._rewriting.sections_of(content)
            return self.client.publish(content, traits)
        exchange, key = split_address(address)
        if not has_pieces:
            return self.client.publish(self._rewriting.sections_of(content10(content, exchange, key)))
        size = int(body_size(content, 0, header_frame_bytes(content) - FRAME_OVERHEAD))
        preamble = preamble10(content, exchange, key, size)
        head = preamble[-DATA_HEAD_BYTES:]
        start = self._rewriting.sections_of(preamble[:-DATA_HEAD_BYTES]) + head
        return self.client.publish(start, MESSAGE_FORMAT, len(start) + size)

    def send_piece(self, frames: bytes) -> None:
        """Send a part of the body of the message that was sent last."""
        self.client.add_piece(body_of_frames(frames))

    def flush(self) -> None:
        """Write the output of the client, and report the messages that are written."""
        super().flush()
        if not self._confirms and self._reported < self._sent and not self._closing:
            self._reported = self._sent
            self.owner.on_outcomes(1, self._sent, True)

    def on_outcome(self, first: i64, last: i64, outcome: DeliveryState) -> None:
        """Report an outcome: all but accepted are refusals."""
        if not self._closing and self._confirms:
            self.owner.on_outcomes(first, last, outcome.code == ACCEPTED)

    def on_sent(self, number: i64) -> None:
        """Note that messages are written; `flush` reports them."""
        self._sent = number

    def on_writable(self, writable: bool) -> None:
        """Report that the broker reads too slowly, or has caught up."""
        self._is_full = not writable
        guard(self.owner, self._report_flow)

    def on_sendable(self, sendable: bool) -> None:
        """Report that the broker has granted no more credit, or new credit."""
        self._lacks_credit = not sendable
        self._report_flow()

    def _report_flow(self) -> None:
        self.owner.on_blocked(FLOW if self._is_full or self._lacks_credit else "")


def split_address(address: bytes) -> tuple[str, str]:
    """Return exchange and routing key of an encoded address; bytes that are not UTF-8 are replaced."""
    split: i64 = 1 + address[0]
    return address[1:split].decode(errors="replace"), address[split + 1 :].decode(errors="replace")


def address_in(message: bytes) -> bytes:
    """Return exchange and routing key, encoded, from the annotations of a message.

    Without annotations the exchange is the default exchange, and the routing key is the subject.
    """
    exchange, key = b"", b""
    try:
        layout = scan_preamble(message)
        key = _text(property_fields(message, layout)[SUBJECT])
    except DecodeError:
        return NO_ADDRESS
    entries = Entries(message, layout.annotations, layout.annotations_end, SYMBOL8)
    while entries.advance():
        if entries.has_key(names.EXCHANGE):
            exchange = _text(message[entries.key_end : entries.end])
        elif entries.has_key(names.ROUTING_KEY):
            key = _text(message[entries.key_end : entries.end])
    return bytes((len(exchange),)) + exchange + bytes((len(key),)) + key


def _text(value: bytes) -> bytes:
    """Return the bytes of an encoded string, b"" for another value or a text that is too long."""
    text = b""
    if value[0] == STRING8:
        text = value[2:]
    elif value[0] == STRING32:
        text = value[5:]
    return text if len(text) <= SHORT_MAX else b""
