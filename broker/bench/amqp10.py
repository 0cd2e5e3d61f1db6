"""The bench's client of AMQP 1.0: a connection with session, sender, consumer. [amqp-1.0 2.4 to 2.7, 5.3]"""

from __future__ import annotations

import asyncio
import struct
from time import monotonic_ns
from typing import Final, TypeVar

from mypy_extensions import mypyc_attr

from broker.bench.connection import BenchError, Connection
from broker.bench.messages import Receipts, Template, blank_body, routing_key
from broker.bench.plan import STAMP_BYTES, Address, Plan
from broker.bench.roles import PublisherPort
from broker.bench.traffic import Traffic
from protocol.amqp10.addresses import queue_address, quote
from protocol.amqp10.composing import decode_composite, encode_composite
from protocol.amqp10.composites import Header, Properties, Source, Target
from protocol.amqp10.constructors import BINARY32, NONE
from protocol.amqp10.descriptors import ACCEPTED, DATA, DISPOSITION, FLOW, TRANSFER
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.encoding import encode_described
from protocol.amqp10.flows import Flow
from protocol.amqp10.frames import AMQP_FRAME, EMPTY_FRAME, FRAME_HEADER_BYTES, SASL_FRAME, frame
from protocol.amqp10.outcomes import ACCEPTED_VALUE
from protocol.amqp10.outgoing import SplitTransfer, TransferTemplate, disposition, flow
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
from protocol.amqp10.sections import scan
from protocol.amqp10.serials import distance, forward
from protocol.amqp10.transfers import Transfer
from protocol.amqp10.types import Composite
from protocol.amqp10.windows import LinkCredit, OutgoingWindow

CHANNEL: Final = 0
FRAME_MAX: Final = 131072
WINDOW: Final = (1 << 31) - 1  # transfers that this side accepts; links have credit
NO_CREDIT_BOUND: Final = 1 << 30
ID_MASK: Final = (1 << 32) - 1  # for delivery-ids, which wrap

_SASL: Final = b"AMQP\x03\x01\x00\x00"
_AMQP: Final = b"AMQP\x00\x01\x00\x00"
_MAGIC: Final = b"AMQP"
_FRAME_HEAD: Final = struct.Struct(">IBBH")
_DESCRIBED: Final = b"\x00\x53"  # the descriptor follows, in one octet

Answer10 = Composite | bytes
C = TypeVar("C", bound=Composite)

_TAG_BYTES: Final = 4
_ID_AND_TAG: Final = struct.Struct(">IHI")  # delivery-id, constructor of the tag, and the tag: the id
_TAG_HEAD: Final = 0xA000 | _TAG_BYTES

_ACCEPTED: Final = disposition(CHANNEL, True, 0, 0, True, ACCEPTED_VALUE)
_FIRST_AT: Final = 16  # offset of the first delivery-id, behind its constructor
_FIRST_LAST: Final = struct.Struct(">IBI")
_UINT_HEAD: Final = struct.Struct(">BI")
_TRANSFER: Final = b"\x00\x53\x14"
_UINT: Final = 0x70
_MARK_BYTES: Final = 16  # the start of a frame: header, performative and handle
GROUPS_MAX: Final = 65536  # the most that a single read can fill
_TAIL_BYTES: Final = 8  # the end of the body
_DATA_HEAD_BYTES: Final = 8  # a data section of more than 255 bytes, as the bench sends


class Client10(Connection[Answer10]):
    """A connection.

    Subclasses handle messages in `transfers`, credit in `credit`, and settlement in `outcome`.

    `frame_max`: the largest frame that the broker accepts. `window`: the transfers that the broker accepts.
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
        opening = Open(
            container_id="amqpd bench", hostname=f"vhost:{address.virtual_host}", max_frame_size=FRAME_MAX
        )
        opened = await self.call(opening, Open)
        self.frame_max = min(opened.max_frame_size, FRAME_MAX)
        if opened.idle_time_out:
            self._keep_alive(opened.idle_time_out / 2000)
        begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
        begun = await self.call(begin, Begin)
        self.window = OutgoingWindow(begun.incoming_window)

    async def say_goodbye(self) -> None:
        """Close the connection."""
        self._closing = True
        await self.call(Close(), Close)

    async def call(self, performative: Composite, kind: type[C], frame_kind: int = AMQP_FRAME) -> C:
        """Send a performative and wait for the answer of type `kind`. Raises BenchError."""
        name = type(performative).__name__
        answer = await self.ask(frame(CHANNEL, encode_composite(performative), frame_kind), name)
        if not isinstance(answer, kind):
            raise BenchError(f"{_shown(answer)} in answer to {name}")
        return answer

    async def attach(self, attach: Attach) -> None:
        """Attach a link. Raises BenchError. [amqp-1.0 2.6.3]"""
        answer = await self.call(attach, Attach)
        if (answer.target if answer.role else answer.source) is None:
            await self.ask(b"", f"attach of {attach.name}")  # the detach follows, with the reason

    # -- methods of subclasses

    def transfers(self, start: int, end: int) -> int:
        """Handle the delivery at `start` of the buffer, and return the end of the delivery.

        The buffer is filled up to `end`. Return `start` while the delivery is incomplete.
        """
        raise BenchError("a delivery on a connection that does not consume")

    def credit(self, handle: int, count: int, credit: int) -> None:
        """Handle a flow: the broker accepts `credit` deliveries behind the first `count`. [amqp-1.0 2.6.7]"""

    def outcome(self, first: int, last: int, accepted: bool) -> None:
        """Handle the settlement of the deliveries from one delivery-id to another."""
        raise BenchError("an outcome on a connection that does not publish")

    # -- frames

    def consume(self, end: int) -> int:
        """Handle the frames from the beginning of the buffer."""
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
            self.on_resumed()
        else:
            self._take(decode_composite(body)[0])

    def _take(self, answer: Answer10) -> None:
        """Give an answer to the call that waits for it."""
        if isinstance(answer, SaslMechanisms):
            return  # the outcome says whether PLAIN is accepted
        if isinstance(answer, Close | End | Detach) and (answer.error is not None or not self._closing):
            error = answer.error
            why = f"{error.condition} {error.description or ''}" if error else type(answer).__name__
            raise BenchError(f"the broker says {why}")
        if not self.answered(answer):
            raise BenchError(f"an unexpected {_shown(answer)}")

    # -- helpers of the session

    async def _greet(self, header: bytes) -> None:
        """Exchange protocol headers for the next layer. [amqp-1.0 2.2]"""
        answer = await self.ask(header, "protocol header")
        if answer != header:
            raise BenchError(f"{_shown(answer)} in answer to the protocol header {_shown(header)}")

    def _keep_alive(self, seconds: float) -> None:
        """Send empty frames within the broker's idle timeout. [amqp-1.0 2.4.5]"""
        if self.failure is None and not self._closed:
            self.write(EMPTY_FRAME)
            asyncio.get_running_loop().call_later(seconds, self._keep_alive, seconds)


def _shown(answer: Answer10) -> str:
    return answer.hex() if isinstance(answer, bytes) else type(answer).__name__


def exchange_address(exchange: str, key: str) -> str:
    """Return the address of an exchange with a routing key. [RabbitMQ AMQP 1.0 addresses, version 2]"""
    return f"/exchanges/{quote(exchange)}/{quote(key)}"


class Transfers:
    """A message in the frames of a link; `to`: the message's address, if the link has no target address."""

    def __init__(self, handle: int, plan: Plan, to: str, frame_max: int) -> None:
        front = encode_composite(Header(durable=True)) if plan.persistent else b""
        if to:
            front += encode_composite(Properties(to=to))
        key_at = front.find(to.encode()) + len(to.encode())
        front += encode_described(DATA, bytes([BINARY32]) + plan.size.to_bytes(4, "big"))
        parts = [front, blank_body(plan.size)]
        link = TransferTemplate(CHANNEL, handle, frame_max)
        first, last = (_frames(link, number, not plan.confirm, parts) for number in (0, ID_MASK))
        self.frames = len(first)
        self._id_places: list[int] = []
        start = 0
        for one, other in zip(first, last, strict=True):
            self._id_places.append(start + next(at for at, octet in enumerate(one) if octet != other[at]))
            start += len(one)
        data = b"".join(first)
        front_at = data.index(front)
        self.template = Template(data, front_at + len(front), front_at + key_at)

    def number(self, batch: bytearray, first: int) -> None:
        """Write the delivery-ids and tags of the messages in `batch`, from `first` on."""
        pack, step = _ID_AND_TAG.pack_into, len(self.template.data)
        for place in self._id_places:
            for number, at in enumerate(range(place, len(batch), step), first):
                pack(batch, at, number & ID_MASK, _TAG_HEAD, number & ID_MASK)


def _frames(link: TransferTemplate, number: int, settled: bool, parts: list[bytes]) -> list[bytes]:
    """Return the frames of a delivery."""
    split = SplitTransfer(link, number, number.to_bytes(_TAG_BYTES, "big"), settled, parts)
    frames: list[bytes] = []
    last = False
    while not last:
        pieces: list[bytes] = []
        last = split.write(pieces)
        frames.append(b"".join(pieces))
    return frames


@mypyc_attr(allow_interpreted_subclasses=True)
class Sender10(Client10):
    """Publishes the messages of a publisher.

    Deliveries are settled when sent, or by the broker with confirms.
    """

    def __init__(self, plan: Plan, flow: Traffic, lanes: list[tuple[int, str]], exchange: str) -> None:
        super().__init__()
        self.publisher: PublisherPort | None = None
        self._plan = plan
        self._run_flow = flow
        self._lanes = lanes
        self._exchange = exchange
        self._links: list[Transfers] = []
        self._credits = [LinkCredit(0) for _ in lanes]
        self._sent = 0  # deliveries; their ids are the lowest 32 bits

    async def prepare(self) -> None:
        """Attach a link for every lane."""
        plan = self._plan
        for handle, (_, queue) in enumerate(self._lanes):
            address = queue_address(queue)
            if self._exchange:
                address = exchange_address(self._exchange, routing_key(queue, 0))
            numbered = plan.keys != 1  # then each message has its own address
            transfers = Transfers(handle, plan, address if numbered else "", self.frame_max)
            if transfers.frames > self.window.left:
                raise BenchError(
                    f"--size: {transfers.frames} frames a message, the broker allows {self.window.left}"
                )
            self._links.append(transfers)
            attach = Attach(
                name=f"bench-{handle:05d}",
                handle=handle,
                role=False,
                snd_settle_mode=0 if plan.confirm else 1,
                source=Source(),
                target=Target(address=None if numbered else address),
                initial_delivery_count=0,
            )
            await self.attach(attach)

    def message_bytes(self, turn: int) -> int:
        """Return the size of a lane's messages."""
        return len(self._links[turn].template.data)

    def room(self, turn: int) -> int:
        """Return the number of messages that credit and window allow."""
        window: int = self.window.left
        credit: int = self._credits[turn].left
        return min(window // self._links[turn].frames, credit)

    def send(self, turn: int, count: int, sequence: int, now: int) -> None:
        """Publish."""
        link, credit, window = self._links[turn], self._credits[turn], self.window
        batch = link.template.batch(count, self._lanes[turn][0], sequence, now, self._plan.keys)
        link.number(batch, self._sent)
        self._sent += count
        credit.left -= count
        credit.delivery_count = forward(credit.delivery_count, count)
        window.left -= count * link.frames
        window.next_id = forward(window.next_id, count * link.frames)
        self.write(batch)

    def credit(self, handle: int, count: int, credit: int) -> None:
        """Note the credit of a link."""
        if handle < len(self._credits):
            self._credits[handle].grant(count, credit)

    def outcome(self, first: int, last: int, accepted: bool) -> None:
        """Pass a settlement to the publisher."""
        if self.publisher is not None:
            following = self._sent & ID_MASK
            low, high = (self._sent + distance(following, number) + 1 for number in (first, last))
            self.publisher.confirm(low, high, not accepted)

    def on_resumed(self) -> None:
        """Resume publishing."""
        if self.publisher is not None:
            self.publisher.resume()

    def on_failed(self) -> None:
        """End the run."""
        self._run_flow.settled.set()


class _Link:
    """The link of a queue: its received deliveries, and its remaining credit."""

    def __init__(self) -> None:
        self.received = 0
        self.credit = 0


class Consumer10(Client10):
    """Consumes from its queues over links of one session."""

    def __init__(self, plan: Plan, flow: Traffic, queues: list[str]) -> None:
        super().__init__()
        self.receipts = Receipts(plan, flow, 0, ID_MASK)
        self._plan = plan
        self._run_flow = flow
        self._queues = queues
        self._links = [_Link() for _ in queues]
        self._link = self._links[0]  # the link of the delivery that was decoded last
        self._credit = plan.prefetch or NO_CREDIT_BOUND
        self._settled = 0  # every delivery before this one is settled
        self._incoming = 0  # transfers
        self._transfer = Transfer()

    async def start(self) -> None:
        """Attach a link to every queue and give it credit."""
        for handle, queue in enumerate(self._queues):
            attach = Attach(
                name=f"bench-{handle:05d}",
                handle=handle,
                role=True,
                snd_settle_mode=1 if self._plan.auto_ack else 0,
                source=Source(address=queue_address(queue)),
                target=Target(),
            )
            await self.attach(attach)
        self._replenish()

    def finish(self) -> None:
        """Settle the deliveries of an incomplete group of `ack_every`."""
        following = self.receipts.following
        if not self._plan.auto_ack and self._settled < following:
            self._settle([(self._settled, following - 1)])

    def on_failed(self) -> None:
        """End the run."""
        self._run_flow.settled.set()

    def transfers(self, start: int, end: int) -> int:
        """Handle all complete deliveries."""
        now = monotonic_ns()
        place, count = start, 0
        while True:
            after, more = self.receipts.walk(self._buffer, place, end, now)
            self._take_up(more, more)
            count += more
            if after == place:
                after = self._take_apart(place, end, now)
                count += after > place
            if after == place or not self._transfer_at(after, end):
                break
            place = after
        if count:
            if not self._plan.auto_ack:
                self._settle_groups()
            self._replenish()
            self._run_flow.took(count, now)
        return after

    def _take_up(self, deliveries: int, transfers: int) -> None:
        """Count deliveries that arrived on the link."""
        link = self._link
        link.received += deliveries
        link.credit -= deliveries
        self._incoming += transfers

    # -- a single delivery

    def _transfer_at(self, place: int, end: int) -> bool:
        """Whether a transfer with a complete head begins at `place`."""
        return end - place > _MARK_BYTES and self._buffer[place + 8 : place + 11] == _TRANSFER

    def _take_apart(self, start: int, end: int, now: int) -> int:
        """Handle one delivery frame by frame; return its end, or `start` if it is not complete."""
        transfer, place = self._transfer, start
        pieces: list[bytes] = []
        more, number, handle = True, NONE, NONE
        while more:
            if not self._transfer_at(place, end):
                return start
            size, words = struct.unpack_from(">IB", self._buffer, place)
            if place + size > end:
                return start
            data = bytes(self._buffer[place + words * 4 : place + size])
            transfer.read(data, 0, len(data))
            if not pieces:
                number, handle = transfer.delivery_id, transfer.handle
            if transfer.handle != handle or transfer.delivery_id not in (number, NONE):
                raise BenchError(f"a transfer of delivery {transfer.delivery_id} inside delivery {number}")
            pieces.append(data[transfer.payload :])
            more = transfer.more
            place += size
        if not 0 <= handle < len(self._links):
            raise BenchError(f"a delivery on link {handle}, which is not attached")
        self._link = self._links[handle]
        self._take_up(1, len(pieces))
        self.receipts.judge(number, self._body(b"".join(pieces)), now)
        if len(pieces) == 1:
            self._learn(start, place, number)
        return place

    def _body(self, payload: bytes) -> bytes:
        """Return the content of a message's data section; b"" if the body is not a single data section."""
        layout = scan(payload, 0, len(payload))
        if layout.body_code != DATA or layout.body_count != 1:
            return b""
        short = payload[layout.body + 3] == 0xA0
        return payload[layout.body + (5 if short else _DATA_HEAD_BYTES) : layout.body_end]

    def _learn(self, start: int, after: int, number: int) -> None:
        """Remember the shape of the delivery from `start` to `after`, if possible.

        The delivery-id must have four octets: a broker may encode small delivery-ids in one octet or none.
        """
        handle = self._links.index(self._link)
        id_at = _MARK_BYTES if handle == 0 else _MARK_BYTES + 1
        body = after - start - self._plan.size
        filler = self._plan.size - STAMP_BYTES
        tail = min(filler, _TAIL_BYTES)
        between = body - _DATA_HEAD_BYTES - id_at - 4
        encoded = _UINT_HEAD.pack(_UINT, number & ID_MASK)
        if between < 0 or handle > 255 or not self._buffer.startswith(encoded, start + id_at - 1):
            return
        shape = struct.Struct(f">{id_at}sI{between}x{_DATA_HEAD_BYTES}sQQ{filler - tail}x{tail}s")
        if shape.size == after - start:
            self.receipts.learn(shape, bytes(self._buffer[start:after]))

    # -- frames to the broker

    def _settle_groups(self) -> None:
        """Settle the deliveries up to the last one as the plan requires, in one write."""
        every, following = self._plan.ack_every, self.receipts.following
        firsts = range(self._settled, following - every + 1, every)
        if len(firsts) > GROUPS_MAX:  # the delivery-ids are not consecutive
            self._settle([(self._settled, following - 1)])
        elif firsts:
            self._settle([(first, first + every - 1) for first in firsts])

    def _settle(self, ranges: list[tuple[int, int]]) -> None:
        out = bytearray(_ACCEPTED * len(ranges))
        pack = _FIRST_LAST.pack_into
        for place, (first, last) in zip(range(_FIRST_AT, len(out), len(_ACCEPTED)), ranges, strict=True):
            pack(out, place, first & ID_MASK, _UINT, last & ID_MASK)
        self._settled = ranges[-1][1] + 1
        self.write(out)

    def _replenish(self) -> None:
        """Renew the credit of links that have used half of it, within the limit of unsettled deliveries."""
        waiting = 0 if self._plan.auto_ack else self.receipts.following - self._settled
        credit = self._credit - waiting
        for handle, link in enumerate(self._links):
            if link.credit * 2 <= self._credit and link.credit < credit:
                link.credit = credit
                count, incoming = link.received & ID_MASK, self._incoming & ID_MASK
                frame = flow(CHANNEL, incoming, WINDOW, 0, WINDOW, handle, count, credit, NONE, False, False)
                self.write(frame)
