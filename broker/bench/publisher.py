"""A publisher: batches of messages that differ only in number and time, stamped into copies of a template."""

import asyncio
import struct
from time import monotonic_ns
from typing import Final

from pamqp import commands

from broker.bench.checker import LANE_SHIFT
from broker.bench.client import CHANNEL, Client, frame
from broker.bench.confirms import Confirms
from broker.bench.flow import Flow
from broker.bench.plan import STAMP_BYTES, Plan
from broker.bench.topics import KEY_DIGITS, KEYS_MAX, routing_key
from protocol.amqp091 import constants as c

BATCH_BYTES: Final = 64 * 1024
BATCH_MESSAGES: Final = 200
KEY_TAIL: Final = 2  # octets behind the routing key in basic.publish: the bits, and the end of the frame
TICK_S: Final = 0.001  # how often a publisher with a rate looks what is due
FILLER: Final = bytes(range(1, 256))

_FRAME_HEAD: Final = struct.Struct(">BHI")
_STAMP: Final = struct.Struct(">QQ")


def body_filler(size: int) -> bytes:
    """What follows the stamp in a body of `size` bytes."""
    length = size - STAMP_BYTES
    return (FILLER * (length // len(FILLER) + 1))[:length]


def template(exchange: str, key: str, size: int, persistent: bool, frame_max: int) -> tuple[bytes, int, int]:
    """Frames of one publish, where in them the stamp belongs, and where the routing key ends."""
    publish = frame(CHANNEL, commands.Basic.Publish(0, exchange, key, False, False))
    key_end = len(publish) - KEY_TAIL
    properties = struct.pack(">HB", 0x1000, 2) if persistent else struct.pack(">H", 0)  # delivery-mode alone
    head = struct.pack(">HHQ", c.CLASS_BASIC, 0, size) + properties
    header = _FRAME_HEAD.pack(c.FRAME_HEADER, CHANNEL, len(head)) + head + b"\xce"
    body = bytes(STAMP_BYTES) + body_filler(size)
    step = frame_max - c.FRAME_OVERHEAD
    pieces = [body[start : start + step] for start in range(0, size, step)]
    bodies = [_FRAME_HEAD.pack(c.FRAME_BODY, CHANNEL, len(piece)) + piece + b"\xce" for piece in pieces]
    return publish + header + b"".join(bodies), len(publish) + len(header) + _FRAME_HEAD.size, key_end


class Publisher(Client):
    """Publishes to its queues in turn, as much as confirm window, messages in flight and rate allow."""

    def __init__(self, plan: Plan, flow: Flow, lanes: list[tuple[int, str]], exchange: str = "") -> None:
        """`lanes` are the numbers of this publisher's lanes with the queue of each.

        `exchange`: the topic exchange to publish through; "": the default exchange.
        """
        super().__init__()
        self.confirms = Confirms(flow.confirmation)
        self._plan = plan
        self._flow = flow
        self._lanes = lanes
        self._exchange = exchange
        self._templates: list[tuple[int, bytes, int, int]] = []
        self._turn = 0
        self._rate = plan.rate / plan.publishers
        self._sent = 0
        self._began = 0
        self._scheduled = False
        self._ticking = False

    async def prepare(self) -> None:
        """Select confirms if the plan has them."""
        plan = self._plan
        for lane, queue in self._lanes:
            key = routing_key(queue, 0) if self._exchange else queue
            made = template(self._exchange, key, plan.size, plan.persistent, self.frame_max)
            self._templates.append((lane, *made))
        if plan.confirm:
            await self.call(commands.Confirm.Select())

    @property
    def held_up(self) -> bool:
        """Whether nothing is published for a good reason: the rate, or the broker asked for a stop."""
        return self._ticking or self.blocked

    def start(self) -> None:
        """Begin to publish."""
        self._began = monotonic_ns()
        self.pump()

    def resumed(self) -> None:
        """The socket or the broker takes messages again."""
        self.pump()

    def failed(self) -> None:
        """End the run."""
        self._flow.settled.set()

    def confirm(self, tag: int, multiple: bool, nack: bool) -> None:
        """Count what the broker confirmed, and publish that many more."""
        now = monotonic_ns()
        confirms = self.confirms
        before = confirms.settled
        confirms.settle(tag, multiple, nack, now)
        self._flow.confirmed_more(confirms.settled - before, now)
        self._schedule()

    def pump(self) -> None:
        """Publish one batch, and come back if more is allowed."""
        self._scheduled = False
        if self.paused or self.failure is not None:
            return
        one = self._templates[self._turn][1]
        allowed = min(self._allowance(), max(1, min(BATCH_MESSAGES, BATCH_BYTES // len(one))))
        if allowed > 0:
            self._publish(allowed)
            if len(self._templates) > 1:
                self._turn = (self._turn + 1) % len(self._templates)
            if not self.paused:
                self._schedule()

    def _allowance(self) -> int:
        """How many messages may be published now; where none, `pump` is called again when that changes."""
        allowed = self._flow.allowance()
        if allowed <= 0:
            if self._flow.publishing:
                self._flow.wait(self._schedule)
            return 0
        if self._plan.confirm:
            allowed = min(allowed, self._plan.confirm - self.confirms.outstanding)  # `confirm` comes back
        if self._rate and allowed > 0:
            allowed = min(allowed, int((monotonic_ns() - self._began) * self._rate / 1e9) - self._sent)
            if allowed <= 0:
                self._wait_a_tick()
        return allowed

    def _publish(self, count: int) -> None:
        lane, one, offset, key_end = self._templates[self._turn]
        flow = self._flow
        batch = bytearray(one * count)
        sequence = flow.sequences[lane]
        now = monotonic_ns()
        stamp, step = _STAMP.pack_into, len(one)
        for number, place in enumerate(range(offset, len(batch), step), lane << LANE_SHIFT | sequence):
            stamp(batch, place, number, now)
        if self._plan.keys != 1:
            self._number_keys(batch, key_end, step, sequence)
        flow.sequences[lane] = sequence + count
        flow.published += count
        self._sent += count
        if self._plan.confirm:
            self.confirms.sent(count, now)
        self.write(batch)

    def _number_keys(self, batch: bytearray, key_end: int, step: int, first: int) -> None:
        """Give the messages of a batch routing keys of their own."""
        modulus = self._plan.keys or KEYS_MAX
        for number, end in enumerate(range(key_end, len(batch), step), first):
            batch[end - KEY_DIGITS : end] = b"%0*d" % (KEY_DIGITS, number % modulus)

    def _wait_a_tick(self) -> None:
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self.pump()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.pump)
