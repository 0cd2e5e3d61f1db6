"""A client's connection of AMQP 1.0 with a single link: bytes in, calls and bytes out.

The client has no socket and no clock. Its owner passes received bytes to `receive`, writes the bytes of
`take_output` at the end of each turn, and calls `beat` from time to time. The client logs in, opens the
connection, begins a session, and attaches a link that either sends or receives. [amqp-1.0 2.4 to 2.7, 5.3]

Messages are numbered from 1, in the order in which they are sent or have arrived completely. A number is
never repeated, although the delivery-ids of the protocol wrap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from protocol.amqp10.composing import decode_composite, encode_composite
from protocol.amqp10.composites import Error, Released, Source, Target
from protocol.amqp10.conditions import (
    FRAME_SIZE_TOO_SMALL,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    UNATTACHED_HANDLE,
    UNAUTHORIZED_ACCESS,
    DecodeError,
    PeerError,
)
from protocol.amqp10.constructors import NONE, SMALL_ULONG
from protocol.amqp10.descriptors import (
    ACCEPTED,
    DISPOSITION,
    FLOW,
    MODIFIED,
    REJECTED,
    RELEASED,
    TRANSFER,
)
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.flows import Flow
from protocol.amqp10.frames import (
    AMQP_FRAME,
    EMPTY_FRAME,
    FRAME_HEADER_BYTES,
    FRAME_MAX_MIN,
    SASL_FRAME,
    Frames,
    frame,
)
from protocol.amqp10.outcomes import ACCEPTED_VALUE, RELEASED_VALUE
from protocol.amqp10.outgoing import SplitTransfer, TransferTemplate, disposition, flow
from protocol.amqp10.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from protocol.amqp10.serials import distance, forward
from protocol.amqp10.states import RELEASED_STATE, DeliveryState
from protocol.amqp10.transfers import MESSAGE_FORMAT, Transfer
from protocol.amqp10.types import Composite, Described, Symbol
from protocol.amqp10.windows import IncomingWindow, LinkCredit, OutgoingWindow
from protocol.amqp10.writing import NULL_VALUE
from protocol.errors import ProtocolError
from protocol.sasl import ANONYMOUS, EXTERNAL, PLAIN, Credentials
from protocol.sniff import AMQP_1_0, AMQP_1_0_SASL

MECHANISMS: Final = (PLAIN, EXTERNAL, ANONYMOUS)
"""The log-in mechanisms that a client of AMQP 1.0 can use."""

FRAME_MAX: Final = 131072  # bytes of the largest frame that a client takes and sends, if the peer allows it
WINDOW: Final = 4096  # transfers that the peer may send before this side's next flow
TRANSFERS_MAX: Final = 2**31 - 1  # the outgoing-window of a session without a limit of its own
CHANNEL_MAX: Final = 255  # the peer chooses its own numbers of channel and handle
HANDLE_MAX: Final = 255
TEXT_MAX: Final = 200  # bytes of a description, so that each frame fits the smallest max-frame-size
SILENT_BEATS: Final = 3  # beats in the idle-time-out of the peer, so that a frame is sent in time

SASL_HEADER: Final = "waiting for the protocol header of SASL"
LOGIN: Final = "waiting for the end of the log-in"
HEADER: Final = "waiting for the protocol header"
OPENING: Final = "waiting for open"
BEGINNING: Final = "waiting for begin"
ATTACHING: Final = "waiting for attach"
READY: Final = "ready"
CLOSING: Final = "waiting for close"
CLOSED: Final = "closed"

SELECTOR: Final = "apache.org:selector-filter:string"
SELECTOR_CODE: Final = 0x0000468C00000004
"""The descriptor of a filter that is a selector, as a symbol and as a number. [amqp-filters]"""

BROKEN: Final = "the peer has broken the protocol"
UNDESCRIBED: Final = "amqp:undefined-error"
"""The condition of a peer's error without a condition."""

_CHANNEL: Final = 0
_HANDLE: Final = 0
_SENDER: Final = False
_RECEIVER: Final = True
_SND_UNSETTLED: Final = 0
_SND_SETTLED: Final = 1
_TERMINAL: Final = (ACCEPTED, REJECTED, RELEASED, MODIFIED)
_CODES: Final = {0: "ok", 1: "auth", 2: "sys", 3: "sys-perm", 4: "sys-temp"}  # [amqp-1.0 5.3.3.6]


class RemoteError(Exception):
    """The end of a connection over an error. `event`: what has ended, and who has ended it.

    `condition` and `description` are the fields of the error. [amqp-1.0 2.8.14]
    """

    def __init__(self, event: str, condition: str, description: str) -> None:
        super().__init__(event, condition, description)
        self.event = event
        self.condition = condition
        self.description = description

    def __str__(self) -> str:
        """Return the error as part of a sentence."""
        return ": ".join(part for part in (self.event, self.condition, self.description) if part)


@final
class Terms:
    """The wishes of a client for its connection and its link.

    `hostname`: the peer's host, or `vhost:NAME` for a virtual host of amqpd or RabbitMQ. `container`: the
    container-id. `properties`: the properties of the connection. `idle_ms`: the idle-time-out of this side,
    0: none. `link`: the name of the link. `address`: the address of the node. `sends`: the link sends,
    instead of receiving. `settled`: the sender settles its deliveries. `credit`: the deliveries that the peer
    may send before this side settles. `message_max`: the bytes of the largest message that this side takes.
    `selector`: the peer sends only messages that match; "": all messages.
    """

    def __init__(
        self,
        credentials: Credentials,
        hostname: str,
        container: str,
        link: str,
        address: str,
        sends: bool,
        settled: bool = False,
        credit: i64 = 0,
        message_max: i64 = 0,
        properties: Mapping[str, object] | None = None,
        idle_ms: int = 0,
        frame_max: int = 0,
        selector: str = "",
    ) -> None:
        self.credentials = credentials
        self.hostname = hostname
        self.container = container
        self.link = link
        self.address = address
        self.sends = sends
        self.settled = settled
        self.credit = credit
        self.message_max = message_max
        self.properties = properties or {}
        self.idle_ms = idle_ms
        self.selector = selector
        self.frame_max = max(frame_max or FRAME_MAX, FRAME_MAX_MIN)


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientHandler10:
    """The owner of a client, which takes its calls. The calls may write to the client, and close it."""

    def on_ready(self) -> None:
        """Note that the link is attached."""
        raise NotImplementedError

    def on_delivery(self, number: i64, message: bytes, message_format: i64) -> None:
        """Take a message: its sections, unless the format is not MESSAGE_FORMAT."""
        raise NotImplementedError

    def on_outcome(self, first: i64, last: i64, outcome: DeliveryState) -> None:
        """Take the outcome of messages that were sent; the same message may have an outcome repeatedly."""
        raise NotImplementedError

    def on_sent(self, number: i64) -> None:
        """Note that the messages up to this one are written to the output."""
        raise NotImplementedError

    def on_sendable(self, sendable: bool) -> None:
        """Note that the next message is sent at once, or waits in memory for credit of the peer."""
        raise NotImplementedError

    def on_closed(self, error: RemoteError | None) -> None:
        """Note that the link has ended, and with it the connection; None: both sides agreed.

        The owner writes the rest of the output, and hangs up when this side has to wait no longer: after
        None, or after a while.
        """
        raise NotImplementedError


@final
class _Receiver:
    """The receiving end of a link: the incomplete delivery, and the deliveries that are not settled.

    `unsettled`: the number of deliveries that are not settled. Delivery-ids are kept as the beginnings of
    runs without gaps: only an aborted delivery makes a gap.
    """

    def __init__(self, terms: Terms, delivery_count: i64) -> None:
        self.credit = LinkCredit(delivery_count)
        self.received: i64 = 0
        self.unsettled: i64 = 0
        self._wanted: i64 = terms.credit
        self._message_max: i64 = terms.message_max
        self._settled = terms.settled
        self._parts: list[bytes] = []
        self._size: i64 = 0
        self._id: i64 = NONE  # the incomplete delivery; NONE: there is none
        self._is_settled = False
        self._format: i64 = MESSAGE_FORMAT
        self._runs: list[tuple[int, int]] = []  # the first number of each run, and its delivery-id
        self._next_id: i64 = NONE  # the delivery-id that continues the last run
        self._first: i64 = 0  # messages that are accepted, and have no disposition yet
        self._last: i64 = -1

    def add(self, transfer: Transfer, data: bytes, end: i64) -> bytes | None:
        """Take a transfer; return the message after its last transfer. Raises PeerError.

        `received` is then the number of the message, and `message_format` its format.
        """
        if self._id == NONE:
            if transfer.delivery_id == NONE:
                raise PeerError(INVALID_FIELD, "the first transfer of a delivery has no delivery-id")
            self.credit.use()
            self._id = transfer.delivery_id
            self._is_settled = False
            self._format = MESSAGE_FORMAT
        elif transfer.delivery_id not in (NONE, self._id):
            text = f"a transfer of delivery {transfer.delivery_id} before the end of delivery {self._id}"
            raise PeerError(ILLEGAL_STATE, text)
        if transfer.message_format != NONE:
            self._format = transfer.message_format
        self._is_settled = self._is_settled or transfer.settled
        if transfer.aborted:
            self._forget()
            return None
        self._size += end - transfer.payload
        if self._size > self._message_max > 0:
            text = f"a message of more than {self._message_max} bytes, which is the link's max-message-size"
            raise PeerError(MESSAGE_SIZE_EXCEEDED, text)
        self._parts.append(data[transfer.payload : end])
        if transfer.more:
            return None
        message = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._number(self._id)
        self._forget()
        if not self._settled:
            self.unsettled += 1  # the owner settles each message, also if the peer has done so
        elif not self._is_settled:  # against this side's wish
            self.unsettled += 1
            self.accept(self.received, self.received)
        return message

    @property
    def message_format(self) -> i64:
        """The format of the last message."""
        return self._format

    def _forget(self) -> None:
        self._parts = []
        self._size = 0
        self._id = NONE

    def _number(self, delivery_id: i64) -> None:
        self.received += 1
        if delivery_id != self._next_id:
            self._runs.append((self.received, delivery_id))
        self._next_id = forward(delivery_id, 1)

    def accept(self, first: i64, last: i64) -> bytes:
        """Accept messages; return dispositions of earlier ones that cannot wait. The others are in `rest`."""
        written = b""
        if self._first <= self._last and first != self._last + 1:
            written = self.rest()
        if self._first > self._last:
            self._first = first
        self._last = last
        self.unsettled -= last - first + 1
        return written

    def release(self, first: i64, last: i64) -> bytes:
        """Release messages; return dispositions."""
        written = self.rest() + self._dispositions(first, last, RELEASED_VALUE)
        self.unsettled -= last - first + 1
        return written

    def rest(self) -> bytes:
        """Return the dispositions of accepted messages that have none yet."""
        if self._first > self._last:
            return b""
        written = self._dispositions(self._first, self._last, ACCEPTED_VALUE)
        self._last = self._first - 1
        return written

    def _dispositions(self, first: i64, last: i64, state: bytes) -> bytes:
        """Return dispositions of messages, one for each run of delivery-ids."""
        parts: list[bytes] = []
        end = last
        for number, delivery_id in reversed(self._runs):
            begin = max(number, first)
            if begin <= end:
                ids = forward(delivery_id, begin - number), forward(delivery_id, end - number)
                parts.append(disposition(_CHANNEL, _RECEIVER, ids[0], ids[1], True, state))
                end = begin - 1
            if end < first:
                break
        return b"".join(reversed(parts))

    def grant(self) -> bool:
        """Grant new credit, if at least half of the wanted credit is free; whether a flow must say so."""
        free = self._wanted - self.unsettled - self.credit.left
        if self.unsettled == 0 and self._first > self._last:
            del self._runs[:-1]
        if free <= 0 or free * 2 < self._wanted:
            return False
        self.credit.left += free
        return True


@final
class _Message:
    """A message that is to be sent, in parts that are forgotten when they are sent. An iterator of the parts.

    `size`: the bytes of all parts. `given`: the bytes of the parts so far.
    """

    def __init__(self, first: bytes, size: i64, message_format: i64) -> None:
        self.size: i64 = size
        self.given: i64 = len(first)
        self.message_format: i64 = message_format
        self.parts: deque[bytes] = deque((first,))

    def add(self, part: bytes) -> None:
        """Take the next part."""
        self.parts.append(part)
        self.given += len(part)

    def __iter__(self) -> _Message:
        """Return this message."""
        return self

    def __next__(self) -> bytes:
        """Return the next part."""
        return self.parts.popleft()


@final
class _Sender:
    """The sending end of a link: messages that wait for credit, and the message that is being sent.

    `published`: the number of the last message. `begun`: the number of the last message with a transfer.
    """

    def __init__(self, terms: Terms, frame_max: i64, message_max: i64) -> None:
        self.credit = LinkCredit(0)
        self.published: i64 = 0
        self.begun: i64 = 0
        self.message_max: i64 = message_max
        self._settled = terms.settled
        self._template = TransferTemplate(_CHANNEL, _HANDLE, frame_max)
        self._waiting: deque[_Message] = deque()
        self._split: SplitTransfer | None = None
        self._current: _Message | None = None  # the message of `_split`
        self._newest: _Message | None = None

    def add(self, message: _Message) -> None:
        """Take a message that is to be sent."""
        self.published += 1
        self._waiting.append(message)
        self._newest = message

    def add_part(self, part: bytes) -> None:
        """Take the next part of the message that was added last."""
        assert self._newest is not None, "a part follows a message"
        self._newest.add(part)

    @property
    def sent(self) -> i64:
        """The number of the last message that is sent completely."""
        return self.begun - (0 if self._split is None else 1)

    def waits(self) -> bool:
        """Whether a message is not sent completely."""
        return self.sent < self.published

    def has_room(self, window: OutgoingWindow) -> bool:
        """Whether the next message, or the next part of the present message, is sent at once."""
        if window.left <= 0 or self._waiting:
            return False
        split = self._split
        return self.credit.left > 0 if split is None else not self._has_frame(split)

    def _has_frame(self, split: SplitTransfer) -> bool:
        """Whether the bytes of the next frame have been given."""
        message = self._current
        assert message is not None, "a transfer has a message"
        return message.given - (message.size - split.left) >= min(split.room, split.left)

    def send(self, window: OutgoingWindow, out: list[bytes]) -> None:
        """Append the transfers that credit and window allow."""
        while window.left > 0:
            split = self._split
            if split is None:
                if not self._waiting or self.credit.left <= 0:
                    return
                split = self._begin(self._waiting.popleft(), window, out)
                if split is None:
                    continue
                self._split = split
            if not self._has_frame(split):
                return
            window.count_transfer()
            if split.write(out):
                self._split = self._current = None

    def _begin(self, message: _Message, window: OutgoingWindow, out: list[bytes]) -> SplitTransfer | None:
        """Begin a delivery; None: a single frame has the whole message, and is appended."""
        self.credit.use()
        delivery_id = forward(self.begun, 0)
        self.begun += 1
        tag = int(delivery_id).to_bytes(4, "big")
        if message.message_format == MESSAGE_FORMAT and message.given == message.size:
            head = self._template.whole(delivery_id, tag, self._settled, message.size)
            if head is not None:
                window.count_transfer()
                out.append(head)
                out.extend(message.parts)
                return None
        self._current = message
        return SplitTransfer(
            self._template,
            delivery_id,
            tag,
            self._settled,
            [],
            message.message_format,
            further=message,
            further_bytes=message.size,
        )

    def number(self, delivery_id: i64) -> i64:
        """Return the number of the message with this delivery-id; it may be out of range."""
        return self.begun - distance(delivery_id, forward(self.begun, -1))


@final
class Client10:
    """A client's connection with a link. `state`: one of this module's states.

    `beat_ms`: the time between two calls of `beat`, 0: none are needed. `peer_properties`: the properties of
    the peer's open.
    """

    def __init__(self, handler: ClientHandler10, terms: Terms) -> None:
        self.state = SASL_HEADER
        self.peer_properties: dict[str, object] = {}
        self.beat_ms = 0
        self._handler = handler
        self._terms = terms
        self._frames = Frames(SASL_FRAME, terms.frame_max, CHANNEL_MAX)
        self._frame_max: i64 = FRAME_MAX_MIN  # the limit of the peer
        self._mechanism = ""
        self._beats_max = 0  # beats without input until the peer is dead; 0: it may be silent
        self._peer_channel: i64 = 0
        self._peer_handle: i64 = 0
        self._incoming = IncomingWindow(0, WINDOW)
        self._outgoing = OutgoingWindow(0)
        self._receiver: _Receiver | None = None
        self._sender: _Sender | None = None
        self._transfer = Transfer()
        self._disposition = Disposition()
        self._flow = Flow()
        self._out = BytesWriter()
        self._is_refused = False  # the peer has attached the link without a node, and detaches it
        self._is_sendable = True
        self._has_sent = False
        self._has_received = False
        self._silent_beats = 0

    def start(self) -> None:
        """Send the protocol header of SASL. [amqp-1.0 5.3.2]"""
        self._out.write(AMQP_1_0_SASL)

    def start_open(self, frame_max: int) -> None:
        """Start on a connection that is open already, with a peer that takes frames up to this size."""
        self._frames.kind = AMQP_FRAME
        self._frame_max = min(frame_max, self._terms.frame_max)
        self._begin()

    @property
    def published(self) -> i64:
        """The number of the last message that was given to `publish`."""
        return 0 if self._sender is None else self._sender.published

    # -- bytes

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the peer. An error of the peer ends the connection and is not raised."""
        self._has_received = True
        if self.state == CLOSED:
            return
        self._frames.append(data)
        try:
            while self.state != CLOSED and self._read():
                pass
        except PeerError as error:
            self._fail(error)

    def take_output(self) -> bytes:
        """Return the bytes to send, and remove them from the client: dispositions and credit are due now."""
        receiver = self._receiver
        if receiver is not None and self.state == READY:
            self._out.write(receiver.rest())
            if receiver.grant():
                self._write_flow()
        if len(self._out) == 0:
            return b""
        self._has_sent = True
        output = self._out.getvalue()
        self._out = BytesWriter()
        return output

    def beat(self, reads: bool = True) -> bool:
        """Note that `beat_ms` have passed; false: the peer is dead. [amqp-1.0 2.4.5]

        `reads`: this side has taken what the peer has sent meanwhile; otherwise silence means nothing. Writes
        an empty frame if nothing has been sent meanwhile.
        """
        if self._has_received or not reads:
            self._silent_beats = 0
        else:
            self._silent_beats += 1
        self._has_received = False
        if not self._has_sent and self.state in (BEGINNING, ATTACHING, READY):
            self._out.write(EMPTY_FRAME)
        self._has_sent = False
        return self._beats_max == 0 or self._silent_beats < self._beats_max

    # -- requests

    def publish(self, message: bytes, message_format: i64 = MESSAGE_FORMAT, size: i64 = 0) -> i64:
        """Send a message, now or when the peer has granted credit; return its number.

        `size`: the bytes of a message of which `message` is only the first part; the others follow with
        `add_piece`. Raises ValueError for a message that is larger than the peer takes.
        """
        sender = self._sender
        assert sender is not None, f"a link that is {self.state} sends no message"
        size = max(size, len(message))
        if size > sender.message_max > 0:
            raise ValueError(
                f"the message has {size} bytes, the peer's max-message-size is {sender.message_max}"
            )
        sender.add(_Message(message, size, message_format))
        self._send(sender)
        self._report_room(sender)
        return sender.published

    def add_piece(self, part: bytes) -> None:
        """Send the next part of the message that was published last."""
        if self._sender is not None:
            self._sender.add_part(part)
            self._send(self._sender)
            self._report_room(self._sender)

    def accept(self, first: i64, last: i64) -> None:
        """Accept and settle messages that were received."""
        if self._receiver is not None and self.state == READY:
            self._out.write(self._receiver.accept(first, last))

    def release(self, first: i64, last: i64) -> None:
        """Release messages that were received: the peer delivers them again, to any receiver."""
        if self._receiver is not None and self.state == READY:
            self._out.write(self._receiver.release(first, last))

    def close(self) -> None:
        """Detach the link, and close the connection; everything but the peer's close is ignored now."""
        if self.state in (CLOSING, CLOSED):
            return
        if self.state in (SASL_HEADER, LOGIN, HEADER):
            self._end()
            return
        if self._receiver is not None:
            self._out.write(self._receiver.rest())
        if self.state == READY:
            self._write(Detach(handle=_HANDLE, closed=True))
        if self.state in (ATTACHING, READY):
            self._write(End())
        self._write(Close())
        self.state = CLOSING

    # -- frames

    def _read(self) -> bool:
        """Take the next protocol header or frame; false: it has not arrived. Raises PeerError."""
        frames = self._frames
        if self.state in (SASL_HEADER, HEADER):
            header = frames.take_protocol_header()
            if header is not None:
                self._on_header(header)
            return header is not None
        if not frames.advance():
            return False
        if frames.start < frames.end:  # an empty frame contains nothing
            self._on_frame(frames.channel, frames.data, frames.start, frames.end)
        return True

    def _on_header(self, header: bytes) -> None:
        expected = AMQP_1_0_SASL if self.state == SASL_HEADER else AMQP_1_0
        if header != expected:
            self._end()
            text = f"protocol header {header!r} instead of {expected!r}"
            self._handler.on_closed(RemoteError("the peer does not speak AMQP 1.0", FRAMING_ERROR, text))
        elif self.state == SASL_HEADER:
            self.state = LOGIN
        else:
            self.state = OPENING

    def _on_frame(self, channel: i64, data: bytes, start: i64, end: i64) -> None:
        code: i64 = data[start + 2] if end - start > 2 and data[start + 1] == SMALL_ULONG else NONE
        if self.state == READY and code in (TRANSFER, DISPOSITION, FLOW):
            self._check_channel(channel)
            if code == TRANSFER:
                self._on_transfer(data, start, end)
            elif code == DISPOSITION:
                self._disposition.read(data, start, end)
                self._on_disposition(self._disposition)
            else:
                self._flow.read(data, start, end)
                self._on_flow(self._flow)
            return
        if self.state == CLOSING and code in (TRANSFER, DISPOSITION, FLOW):
            return
        performative, after = decode_composite(data, int(start), int(end))
        if after != end:
            raise DecodeError(f"{_name(performative)}: bytes follow the performative")
        if self.state == CLOSING:
            if isinstance(performative, Close):
                self._end()
                self._handler.on_closed(None)
        elif self.state == LOGIN:
            self._on_sasl(performative)
        elif isinstance(performative, Close):
            self._on_close(performative)
        elif isinstance(performative, Open) and self.state == OPENING:
            self._on_open(performative)
        elif isinstance(performative, Begin) and self.state == BEGINNING:
            self._on_begin(channel, performative)
        else:
            self._check_channel(channel)
            self._on_session(performative)

    def _on_session(self, performative: Composite) -> None:
        """Take a performative of the session that is no transfer, disposition or flow."""
        if isinstance(performative, End):
            self._write(End())
            self._write(Close())
            self._leave("the peer has ended the session", performative.error)
        elif isinstance(performative, Attach) and self.state == ATTACHING:
            self._on_attach(performative)
        elif isinstance(performative, Detach) and (self.state == READY or self._is_refused):
            self._write(Detach(handle=_HANDLE, closed=True))
            self._write(End())
            self._write(Close())
            self._leave("the peer has detached the link", performative.error)
        else:
            text = f"{_name(performative)} on a connection that is {self.state}"
            raise PeerError(ILLEGAL_STATE, text)

    def _check_channel(self, channel: i64) -> None:
        if self.state not in (ATTACHING, READY) or channel != self._peer_channel:
            raise PeerError(ILLEGAL_STATE, f"a frame on channel {channel}, which has no session")

    # -- the log-in, and the opening of the layers

    def _on_sasl(self, performative: Composite) -> None:
        """Take a frame of the log-in. [amqp-1.0 5.3.3]"""
        credentials = self._terms.credentials
        if isinstance(performative, SaslMechanisms) and not self._mechanism:
            try:
                self._mechanism = credentials.choose(" ".join(performative.sasl_server_mechanisms))
            except ProtocolError as error:
                self._refuse_login(error.text)
                return
            response = credentials.respond(self._mechanism)
            init = SaslInit(mechanism=self._mechanism, initial_response=response)
            init.hostname = self._terms.hostname or None
            self._write_sasl(init)
        elif isinstance(performative, SaslChallenge) and self._mechanism in (EXTERNAL, ANONYMOUS):
            self._write_sasl(SaslResponse(response=b""))
        elif isinstance(performative, SaslOutcome) and self._mechanism:
            if performative.code != 0:
                code = _CODES.get(performative.code, "unknown")
                self._refuse_login(f"{self._mechanism} ends with the code {performative.code} ({code})")
                return
            self.state = HEADER
            self._frames.kind = AMQP_FRAME
            self._out.write(AMQP_1_0)
            self._open()
        else:
            raise PeerError(ILLEGAL_STATE, f"{_name(performative)} is not expected in the log-in")

    def _refuse_login(self, text: str) -> None:
        self._end()
        self._handler.on_closed(RemoteError("the log-in has failed", UNAUTHORIZED_ACCESS, text))

    def _open(self) -> None:
        terms = self._terms
        wished = Open(
            container_id=terms.container,
            hostname=terms.hostname or None,
            max_frame_size=terms.frame_max,
            channel_max=CHANNEL_MAX,
            idle_time_out=terms.idle_ms or None,
            properties={Symbol(name): value for name, value in terms.properties.items()} or None,
        )
        if len(encode_composite(wished)) + FRAME_HEADER_BYTES > FRAME_MAX_MIN:
            wished.properties = None  # the limit before the peer's open
        self._write(wished)

    def _on_open(self, peer: Open) -> None:
        if peer.max_frame_size < FRAME_MAX_MIN:
            text = f"max-frame-size is {peer.max_frame_size}, at least {FRAME_MAX_MIN} is needed"
            raise PeerError(INVALID_FIELD, text)
        self._frame_max = min(peer.max_frame_size, self._terms.frame_max)
        self.peer_properties = dict(peer.properties or {})
        own, others = self._terms.idle_ms, peer.idle_time_out or 0
        periods = [others // SILENT_BEATS] if others else []
        if own:
            periods.append(own // 2)
        self.beat_ms = max(min(periods), 1) if periods else 0
        self._beats_max = 2 * own // self.beat_ms + 1 if own else 0
        self._begin()

    def _begin(self) -> None:
        self.state = BEGINNING
        self._write(
            Begin(
                next_outgoing_id=0,
                incoming_window=WINDOW,
                outgoing_window=TRANSFERS_MAX,
                handle_max=HANDLE_MAX,
            )
        )

    def _on_begin(self, channel: i64, peer: Begin) -> None:
        if peer.remote_channel != _CHANNEL:
            text = f"begin.remote-channel is {peer.remote_channel}, and this side has begun session 0 only"
            raise PeerError(INVALID_FIELD, text)
        self._peer_channel = channel
        self._incoming = IncomingWindow(peer.next_outgoing_id, WINDOW)
        self._outgoing = OutgoingWindow(peer.incoming_window)
        self.state = ATTACHING
        terms = self._terms
        attach = Attach(
            name=terms.link,
            handle=_HANDLE,
            role=_SENDER if terms.sends else _RECEIVER,
            snd_settle_mode=_SND_SETTLED if terms.settled else _SND_UNSETTLED,
        )
        if terms.sends:
            attach.source = Source(default_outcome=Released())
            attach.target = Target(address=terms.address)
            attach.initial_delivery_count = 0
        else:
            attach.source = Source(address=terms.address)
            if terms.selector:
                attach.source.filter = {SELECTOR: Described(Symbol(SELECTOR), terms.selector)}
            attach.target = Target()
            attach.max_message_size = int(terms.message_max) or None
        self._write(attach)

    def _on_attach(self, peer: Attach) -> None:
        terms = self._terms
        if peer.name != terms.link or peer.role != terms.sends:
            raise PeerError(NOT_ALLOWED, f"the peer attaches link '{peer.name}', expected: '{terms.link}'")
        self._peer_handle = peer.handle
        if (peer.target if terms.sends else peer.source) is None:
            self._is_refused = True  # the peer detaches the link [amqp-1.0 2.6.3]
            return
        if terms.selector:
            reason = self._find_selector_fault(peer.source)
            if reason:
                self._write(Detach(handle=_HANDLE, closed=True))
                self._write(End())
                self._write(Close())
                self.state = CLOSING
                text = f"{reason}, and it would send all messages"
                self._handler.on_closed(RemoteError("the peer ignores the selector", NOT_IMPLEMENTED, text))
                return
        if terms.sends:
            sender = _Sender(terms, self._frame_max, peer.max_message_size or 0)
            self._sender = sender
            self.state = READY
            self._handler.on_ready()
            self._report_room(sender)
        else:
            receiver = _Receiver(terms, peer.initial_delivery_count or 0)
            self._receiver = receiver
            self.state = READY
            if receiver.grant():
                self._write_flow()
            self._handler.on_ready()

    def _find_selector_fault(self, source: Source | None) -> str:
        """Return why the selector is not in force at the peer, "" if it is. [amqp-1.0 3.5.3 filter]

        RabbitMQ 3 repeats all filters in its attach, and applies those of streams only.
        """
        properties = self.peer_properties
        version = str(properties.get("version"))
        if properties.get("product") == "RabbitMQ" and version.startswith("3."):
            return f"RabbitMQ {version} has no selectors"
        return "" if _selects(source) else f"filter '{SELECTOR}' is not in its attach"

    # -- the work of the link

    def _on_transfer(self, data: bytes, start: i64, end: i64) -> None:
        transfer = self._transfer
        transfer.read(data, start, end)
        is_due = self._incoming.count_transfer()
        receiver = self._receiver
        if receiver is None or transfer.handle != self._peer_handle:
            raise PeerError(UNATTACHED_HANDLE, f"a transfer on handle {transfer.handle}")
        message = receiver.add(transfer, data, end)
        if message is not None:
            self._handler.on_delivery(receiver.received, message, receiver.message_format)
        if is_due and self.state == READY:
            self._write_flow()

    def _on_disposition(self, peer: Disposition) -> None:
        """Take the outcomes of sent messages; dispositions of the peer's deliveries need no answer."""
        sender = self._sender
        if sender is None or not peer.receiver:
            return
        outcome = peer.state
        if outcome is None:
            if not peer.settled:
                return
            outcome = RELEASED_STATE  # the default-outcome of the link's source
        if outcome.code not in _TERMINAL:
            return
        first, last = max(sender.number(peer.first), 1), min(sender.number(peer.last), sender.begun)
        if first > last:
            return
        if not peer.settled:
            state = ACCEPTED_VALUE if outcome.code == ACCEPTED else NULL_VALUE
            ids = forward(first, -1), forward(last, -1)
            self._out.write(disposition(_CHANNEL, _SENDER, ids[0], ids[1], True, state))
        self._handler.on_outcome(first, last, outcome)

    def _on_flow(self, peer: Flow) -> None:
        self._outgoing.update(peer.next_incoming_id, peer.incoming_window)
        self._incoming.follow(peer.next_outgoing_id)
        if peer.handle not in (NONE, self._peer_handle):
            raise PeerError(UNATTACHED_HANDLE, f"a flow on handle {peer.handle}")
        receiver, sender = self._receiver, self._sender
        if receiver is not None and peer.handle != NONE and peer.delivery_count != NONE:
            receiver.credit.follow(peer.delivery_count)
        answers = peer.echo
        if sender is not None:
            if peer.handle != NONE and peer.link_credit != NONE:
                sender.credit.grant(peer.delivery_count, peer.link_credit)
            self._send(sender)
            if peer.handle != NONE and peer.drain and not sender.waits():
                sender.credit.drain()
                answers = True
            self._report_room(sender)
        if answers and self.state == READY:
            self._write_flow()

    def _send(self, sender: _Sender) -> None:
        if self.state != READY:
            return
        parts: list[bytes] = []
        before = sender.sent
        sender.send(self._outgoing, parts)
        for part in parts:
            self._out.write(part)
        if sender.sent > before:
            self._handler.on_sent(sender.sent)

    def _report_room(self, sender: _Sender) -> None:
        sendable = sender.has_room(self._outgoing)
        if sendable != self._is_sendable and self.state == READY:
            self._is_sendable = sendable
            self._handler.on_sendable(sendable)

    def _write_flow(self) -> None:
        """Write a flow with the states of the session and the link. [amqp-1.0 2.7.4]"""
        receiver, sender = self._receiver, self._sender
        credit = NONE
        count = NONE
        available = NONE
        if receiver is not None:
            credit, count = receiver.credit.left, receiver.credit.delivery_count
        elif sender is not None:
            credit, count = sender.credit.left, sender.credit.delivery_count
            available = sender.published - sender.begun
        self._out.write(
            flow(
                _CHANNEL,
                self._incoming.next_id,
                self._incoming.open(),
                self._outgoing.next_id,
                TRANSFERS_MAX,
                _HANDLE,
                count,
                credit,
                available,
                False,
                False,
            )
        )

    # -- output and the end

    def _write(self, performative: Composite) -> None:
        """Write a frame. Raises PeerError if it is too large for the peer."""
        written = frame(_CHANNEL, encode_composite(performative))
        if len(written) > self._frame_max:
            text = f"{_name(performative)} has {len(written)} bytes, max-frame-size is {self._frame_max}"
            raise PeerError(FRAME_SIZE_TOO_SMALL, text)
        self._out.write(written)

    def _write_sasl(self, performative: Composite) -> None:
        self._out.write(frame(0, encode_composite(performative), SASL_FRAME))

    def _on_close(self, peer: Close) -> None:
        self._write(Close())
        self._end()
        self._handler.on_closed(_remote_error("the peer has closed the connection", peer.error))

    def _leave(self, event: str, error: Error | None) -> None:
        """Report the end of the link or the session, and wait for the peer's close."""
        self.state = CLOSING
        self._handler.on_closed(_remote_error(event, error))

    def _fail(self, error: PeerError) -> None:
        """Close over an error of the peer, which is informed if it would understand."""
        if self.state == CLOSED:
            return
        if self.state == CLOSING:
            self._end()
            self._handler.on_closed(None)
            return
        if self.state not in (SASL_HEADER, LOGIN, HEADER):
            text = error.text.encode()[:TEXT_MAX].decode(errors="ignore")
            self._write(Close(error=Error(condition=error.condition, description=text)))
        self._end()
        self._handler.on_closed(RemoteError(BROKEN, error.condition, error.text))

    def _end(self) -> None:
        self.state = CLOSED
        self._frames = Frames(AMQP_FRAME, FRAME_MAX_MIN, CHANNEL_MAX)
        self._receiver = None


def _remote_error(event: str, error: Error | None) -> RemoteError:
    if error is None:
        return RemoteError(event, UNDESCRIBED, "")
    return RemoteError(event, error.condition, error.description or "")


def _selects(source: Source | None) -> bool:
    """Whether the source of the peer's attach names a selector."""
    filters = None if source is None else source.filter
    return any(
        isinstance(given, Described) and given.descriptor in (SELECTOR, SELECTOR_CODE)
        for given in (filters or {}).values()
    )


def _name(performative: Composite) -> str:
    return type(performative).__name__.lower()
