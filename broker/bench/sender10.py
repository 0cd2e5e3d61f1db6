"""A sender over AMQP 1.0: a link for each queue, as far as its credit and the session's window go.

[amqp-1.0 2.5.6, 2.6.7]
"""

import struct
from typing import Final

from mypy_extensions import mypyc_attr

from broker.bench.client10 import CHANNEL, ID_MASK, Client10
from broker.bench.connection import BenchError
from broker.bench.flow import Flow
from broker.bench.messages import Template, blank_body
from broker.bench.plan import Plan
from broker.bench.roles import Publishing
from broker.bench.topics import routing_key
from protocol.amqp10.addresses import queue_address, quote
from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import Header, Properties, Source, Target
from protocol.amqp10.constructors import BINARY32
from protocol.amqp10.descriptors import DATA
from protocol.amqp10.encoding import encode_described
from protocol.amqp10.outgoing import SplitTransfer, TransferTemplate
from protocol.amqp10.performatives import Attach
from protocol.amqp10.serials import distance, forward
from protocol.amqp10.windows import LinkCredit

_TAG_BYTES: Final = 4
_ID_AND_TAG: Final = struct.Struct(">IHI")  # delivery-id, how the tag is encoded, and the tag: the id again
_TAG_HEAD: Final = 0xA000 | _TAG_BYTES


def exchange_address(exchange: str, key: str) -> str:
    """The address of an exchange with a routing key. [RabbitMQ AMQP 1.0 addresses, version 2]"""
    return f"/exchanges/{quote(exchange)}/{quote(key)}"


class Transfers:
    """One message as it is sent on a link, in frames; `to`: where it goes, if the link does not say so."""

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
        """Give the messages in `batch` their delivery-ids and tags, from `first` on."""
        pack, step = _ID_AND_TAG.pack_into, len(self.template.data)
        for place in self._id_places:
            for number, at in enumerate(range(place, len(batch), step), first):
                pack(batch, at, number & ID_MASK, _TAG_HEAD, number & ID_MASK)


def _frames(link: TransferTemplate, number: int, settled: bool, parts: list[bytes]) -> list[bytes]:
    """The frames of a delivery."""
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
    """Publishes for a publisher: deliveries are settled at once, or by the broker with confirms."""

    def __init__(self, plan: Plan, flow: Flow, lanes: list[tuple[int, str]], exchange: str) -> None:
        super().__init__()
        self.publisher: Publishing | None = None
        self._plan = plan
        self._run_flow = flow
        self._lanes = lanes
        self._exchange = exchange
        self._links: list[Transfers] = []
        self._credits = [LinkCredit(0) for _ in lanes]
        self._sent = 0  # deliveries; their ids are the lowest 32 bits

    async def prepare(self) -> None:
        """Attach a link for every lane (Sender)."""
        plan = self._plan
        for handle, (_, queue) in enumerate(self._lanes):
            address = queue_address(queue)
            if self._exchange:
                address = exchange_address(self._exchange, routing_key(queue, 0))
            numbered = plan.keys != 1  # then each message says where it goes
            transfers = Transfers(handle, plan, address if numbered else "", self.frame_max)
            if transfers.frames > self.window.left:
                raise BenchError(f"--size: {transfers.frames} frames, the broker takes {self.window.left}")
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
        """How long a message of a lane is (Sender)."""
        return len(self._links[turn].template.data)

    def room(self, turn: int) -> int:
        """As many as credit and window allow (Sender)."""
        window: int = self.window.left
        credit: int = self._credits[turn].left
        return min(window // self._links[turn].frames, credit)

    def send(self, turn: int, count: int, sequence: int, now: int) -> None:
        """Publish (Sender)."""
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
        """Take more on a link (Client10)."""
        if handle < len(self._credits):
            self._credits[handle].grant(count, credit)

    def outcome(self, first: int, last: int, accepted: bool) -> None:
        """Tell the publisher (Client10)."""
        if self.publisher is not None:
            following = self._sent & ID_MASK
            low, high = (self._sent + distance(following, number) + 1 for number in (first, last))
            self.publisher.confirm(low, high, not accepted)

    def resumed(self) -> None:
        """The socket or the broker takes more (Connection)."""
        if self.publisher is not None:
            self.publisher.resume()

    def failed(self) -> None:
        """End the run (Connection)."""
        self._run_flow.settled.set()
