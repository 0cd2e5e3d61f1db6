"""A publisher: batches as large as confirm window, messages in flight, rate and the broker allow."""

import asyncio
from time import monotonic_ns
from typing import Final

from broker.bench.confirms import Confirms
from broker.bench.flow import Flow
from broker.bench.plan import Plan
from broker.bench.roles import Sender

BATCH_BYTES: Final = 64 * 1024
BATCH_MESSAGES: Final = 200
TICK_S: Final = 0.001  # how often a publisher with a rate looks what is due


class Publisher:
    """Publishes to its queues in turn, as much as confirm window, messages in flight and rate allow."""

    def __init__(self, plan: Plan, flow: Flow, lanes: list[int], sender: Sender) -> None:
        """`lanes` are the numbers of this publisher's lanes, in the order of the turns of `sender`."""
        self.confirms = Confirms(flow.confirmation)
        self.sender = sender
        sender.publisher = self
        self._plan = plan
        self._flow = flow
        self._lanes = lanes
        self._turn = 0
        self._rate = plan.rate / plan.publishers
        self._sent = 0
        self._began = 0
        self._scheduled = False
        self._ticking = False

    @property
    def held_up(self) -> bool:
        """Whether nothing is published for a good reason: the rate, or the broker asked for a stop."""
        return self._ticking or self.sender.blocked

    def start(self) -> None:
        """Begin to publish."""
        self._began = monotonic_ns()
        self.pump()

    def resume(self) -> None:
        """The socket or the broker takes messages again (Publishing)."""
        self._schedule()

    def confirm(self, first: int, last: int, nack: bool) -> None:
        """Count what the broker confirmed, and publish that many more (Publishing)."""
        now = monotonic_ns()
        confirms = self.confirms
        before = confirms.settled
        confirms.settle(first, last, nack, now)
        self._flow.confirmed_more(confirms.settled - before, now)
        self._schedule()

    def pump(self) -> None:
        """Publish one batch, and come back if more is allowed.

        Nothing is published before `start`: credit for the first links comes while others are attached.
        """
        self._scheduled = False
        sender = self.sender
        if self._began == 0 or sender.paused or sender.failure is not None:
            return
        room = self._find_room()
        batch = max(1, min(BATCH_MESSAGES, BATCH_BYTES // sender.message_bytes(self._turn)))
        allowed = min(self._allowance(), batch, room)
        if allowed > 0:
            self._publish(allowed)
            self._turn = (self._turn + 1) % len(self._lanes)
            if not sender.paused:
                self._schedule()

    def _find_room(self) -> int:
        """Go on to the next lane for which the broker takes messages; return how many it takes."""
        for _ in self._lanes:
            room = self.sender.room(self._turn)
            if room > 0:
                return room
            self._turn = (self._turn + 1) % len(self._lanes)
        return 0

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
        flow, lane = self._flow, self._lanes[self._turn]
        sequence = flow.sequences[lane]
        now = monotonic_ns()
        flow.sequences[lane] = sequence + count
        flow.published += count
        self._sent += count
        if self._plan.confirm:
            self.confirms.sent(count, now)
        self.sender.send(self._turn, count, sequence, now)

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
