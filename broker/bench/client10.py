"""The client's end of one AMQP 1.0 connection with one session, as lean as a load generator needs it.

[amqp-1.0 2.4, 2.5, 5.3]
"""

import asyncio
import struct
from typing import Final, TypeVar

from broker.bench.connection import BenchError, Connection
from broker.bench.plan import Address
from protocol.amqp10.composing import decode_composite, encode_composite
from protocol.amqp10.constructors import NONE
from protocol.amqp10.descriptors import ACCEPTED, DISPOSITION, FLOW, TRANSFER
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.flows import Flow
from protocol.amqp10.frames import AMQP_FRAME, EMPTY_FRAME, FRAME_HEADER_BYTES, SASL_FRAME, frame
from protocol.amqp10.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
)
from protocol.amqp10.types import Composite
from protocol.amqp10.windows import OutgoingWindow

CHANNEL: Final = 0
FRAME_MAX: Final = 131072
WINDOW: Final = (1 << 31) - 1  # transfers that this side takes: links have credit
NO_CREDIT_BOUND: Final = 1 << 30
ID_MASK: Final = (1 << 32) - 1  # of delivery-ids, which wrap

_SASL: Final = b"AMQP\x03\x01\x00\x00"
_AMQP: Final = b"AMQP\x00\x01\x00\x00"
_MAGIC: Final = b"AMQP"
_FRAME_HEAD: Final = struct.Struct(">IBBH")
_DESCRIBED: Final = b"\x00\x53"  # and the descriptor follows, in one octet

Answer10 = Composite | bytes
C = TypeVar("C", bound=Composite)


class Client10(Connection[Answer10]):
    """Subclasses take the data plane in `transfers`, `credit` and `outcome`.

    `frame_max`: the largest frame that the broker takes. `window`: the transfers that it takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.frame_max = 512
        self.window = OutgoingWindow(0)
        self._disposition = Disposition()
        self._flow = Flow()
        self._closing = False

    async def open(self, address: Address) -> None:
        """Connect, log in and begin the session. Raises BenchError."""
        await self.connect(address)
        await self._greet(_SASL)
        response = f"\0{address.user}\0{address.password}".encode()
        init = SaslInit(mechanism="PLAIN", initial_response=response)
        outcome = await self.call(init, SaslOutcome, SASL_FRAME)
        if outcome.code != 0:
            raise BenchError(f"the broker refuses the login of {address.user} with SASL code {outcome.code}")
        await self._greet(_AMQP)
        said = Open(
            container_id="amqpd bench", hostname=f"vhost:{address.virtual_host}", max_frame_size=FRAME_MAX
        )
        opened = await self.call(said, Open)
        self.frame_max = min(opened.max_frame_size, FRAME_MAX)
        if opened.idle_time_out:
            self._keep_alive(opened.idle_time_out / 2000)
        begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
        begun = await self.call(begin, Begin)
        self.window = OutgoingWindow(begun.incoming_window)

    async def say_goodbye(self) -> None:
        """Close the connection (Connection)."""
        self._closing = True
        await self.call(Close(), Close)

    async def call(self, performative: Composite, kind: type[C], frame_kind: int = AMQP_FRAME) -> C:
        """Send a performative and wait for the answer, which is of this kind. Raises BenchError."""
        name = type(performative).__name__
        answer = await self.ask(frame(CHANNEL, encode_composite(performative), frame_kind), name)
        if not isinstance(answer, kind):
            raise BenchError(f"{_shown(answer)} in answer to {name}")
        return answer

    async def attach(self, attach: Attach) -> None:
        """Attach a link. Raises BenchError. [amqp-1.0 2.6.3]"""
        answer = await self.call(attach, Attach)
        if (answer.target if answer.role else answer.source) is None:
            await self.ask(b"", f"attach of {attach.name}")  # the detach follows, which says why

    # -- what a subclass does

    def transfers(self, start: int, end: int) -> int:
        """Take the delivery at `start` of the buffer, which is filled up to `end`; return where it is over.

        Returning `start` means that the delivery is not complete yet.
        """
        raise BenchError("a delivery on a connection that does not consume")

    def credit(self, handle: int, count: int, credit: int) -> None:
        """The broker takes `credit` deliveries behind the first `count` of a link. [amqp-1.0 2.6.7]"""

    def outcome(self, first: int, last: int, accepted: bool) -> None:
        """The broker has settled deliveries, from one delivery-id to another."""
        raise BenchError("an outcome on a connection that does not publish")

    # -- frames

    def consume(self, end: int) -> int:
        """Take the frames from the beginning of the buffer (Connection)."""
        buffer, start = self._buffer, 0
        while end - start >= FRAME_HEADER_BYTES:
            if buffer.startswith(_MAGIC, start):
                after = start + FRAME_HEADER_BYTES
                self._take(bytes(buffer[start:after]))
            else:
                size, offset, _, _ = _FRAME_HEAD.unpack_from(buffer, start)
                body, after = start + offset * 4, start + size
                if not FRAME_HEADER_BYTES <= offset * 4 <= size:
                    raise BenchError(f"a frame of {size} bytes with its body at {offset * 4}")
                if buffer.startswith(_DESCRIBED, body) and body + 3 <= end and buffer[body + 2] == TRANSFER:
                    after = self.transfers(start, end)
                    if after == start:
                        break
                elif after > end:
                    break
                elif body < after:
                    self._performative(bytes(buffer[body:after]))
            start = after
        return start

    def _performative(self, body: bytes) -> None:
        code = body[2] if body.startswith(_DESCRIBED) else 0
        if code == DISPOSITION:
            disposition = self._disposition
            disposition.read(body, 0, len(body))
            if disposition.receiver:
                accepted = disposition.state is not None and disposition.state.code == ACCEPTED
                self.outcome(disposition.first, disposition.last, accepted)
        elif code == FLOW:
            flow = self._flow
            flow.read(body, 0, len(body))
            self.window.update(flow.next_incoming_id, flow.incoming_window)
            if flow.handle != NONE and flow.link_credit != NONE:
                self.credit(flow.handle, flow.delivery_count, flow.link_credit)
            self.resumed()
        else:
            self._take(decode_composite(body)[0])

    def _take(self, answer: Answer10) -> None:
        """Give an answer to who waits for it."""
        if isinstance(answer, SaslMechanisms):
            return  # whether PLAIN is one of them the outcome says
        if isinstance(answer, Close | End | Detach) and (answer.error is not None or not self._closing):
            error = answer.error
            why = f"{error.condition} {error.description or ''}" if error else type(answer).__name__
            raise BenchError(f"the broker says {why}")
        if not self.answered(answer):
            raise BenchError(f"{_shown(answer)} out of the blue")

    # -- the rest

    async def _greet(self, header: bytes) -> None:
        """Agree on the layer of the protocol that is to follow. [amqp-1.0 2.2]"""
        answer = await self.ask(header, "protocol header")
        if answer != header:
            raise BenchError(f"{_shown(answer)} in answer to the protocol header {_shown(header)}")

    def _keep_alive(self, seconds: float) -> None:
        """Let the broker hear something as often as it wants to. [amqp-1.0 2.4.5]"""
        if self.failure is None and not self._closed:
            self.write(EMPTY_FRAME)
            asyncio.get_running_loop().call_later(seconds, self._keep_alive, seconds)


def _shown(answer: Answer10) -> str:
    return answer.hex() if isinstance(answer, bytes) else type(answer).__name__
