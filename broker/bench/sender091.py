"""A sender over AMQP 0-9-1: one channel, in confirm mode if the plan has confirms."""

import struct
from typing import Final

from pamqp import commands

from broker.bench.client091 import CHANNEL, Client091, frame
from broker.bench.flow import Flow
from broker.bench.messages import Template, blank_body
from broker.bench.plan import Plan
from broker.bench.roles import Publishing
from broker.bench.topics import routing_key
from protocol.amqp091 import constants as c

KEY_TAIL: Final = 2  # octets behind the routing key in basic.publish: the bits, and the end of the frame
NO_BOUND: Final = 1 << 30

_FRAME_HEAD: Final = struct.Struct(">BHI")


def template(exchange: str, key: str, size: int, persistent: bool, frame_max: int) -> Template:
    """The frames of one publish."""
    publish = frame(CHANNEL, commands.Basic.Publish(0, exchange, key, False, False))
    key_end = len(publish) - KEY_TAIL
    properties = struct.pack(">HB", 0x1000, 2) if persistent else struct.pack(">H", 0)  # delivery-mode alone
    head = struct.pack(">HHQ", c.CLASS_BASIC, 0, size) + properties
    header = _FRAME_HEAD.pack(c.FRAME_HEADER, CHANNEL, len(head)) + head + b"\xce"
    body = blank_body(size)
    step = frame_max - c.FRAME_OVERHEAD
    pieces = [body[start : start + step] for start in range(0, size, step)]
    bodies = [_FRAME_HEAD.pack(c.FRAME_BODY, CHANNEL, len(piece)) + piece + b"\xce" for piece in pieces]
    stamp_at = len(publish) + len(header) + _FRAME_HEAD.size
    return Template(publish + header + b"".join(bodies), stamp_at, key_end)


class Sender091(Client091):
    """Publishes for a publisher."""

    def __init__(self, plan: Plan, flow: Flow, lanes: list[tuple[int, str]], exchange: str) -> None:
        super().__init__()
        self.publisher: Publishing | None = None
        self._plan = plan
        self._flow = flow
        self._lanes = lanes
        self._exchange = exchange
        self._templates: list[Template] = []

    async def prepare(self) -> None:
        """Select confirms if the plan has them (Sender)."""
        plan = self._plan
        for _, queue in self._lanes:
            key = routing_key(queue, 0) if self._exchange else queue
            self._templates.append(template(self._exchange, key, plan.size, plan.persistent, self.frame_max))
        if plan.confirm:
            await self.call(commands.Confirm.Select())

    def message_bytes(self, turn: int) -> int:
        """How long a message of a lane is (Sender)."""
        return len(self._templates[turn].data)

    def room(self, turn: int) -> int:
        """No bound: a broker that wants no more says so, and `paused` is set (Sender)."""
        return NO_BOUND

    def send(self, turn: int, count: int, sequence: int, now: int) -> None:
        """Publish (Sender)."""
        self.write(self._templates[turn].batch(count, self._lanes[turn][0], sequence, now, self._plan.keys))

    def confirm(self, tag: int, multiple: bool, nack: bool) -> None:
        """Tell the publisher (Client091)."""
        if self.publisher is not None:
            self.publisher.confirm(0 if multiple else tag, tag, nack)

    def resumed(self) -> None:
        """The socket or the broker takes messages again (Connection)."""
        if self.publisher is not None:
            self.publisher.resume()

    def failed(self) -> None:
        """End the run (Connection)."""
        self._flow.settled.set()
