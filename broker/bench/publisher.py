"""A publisher: its batches are limited by the confirm window, messages in flight, the rate and the broker."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from time import monotonic_ns
from typing import Final

from broker.bench.plan import Plan
from broker.bench.roles import Sender
from broker.bench.traffic import Histogram, Traffic

_KEEP: Final = 4096

BATCH_BYTES: Final = 64 * 1024
BATCH_MESSAGES: Final = 200
TICK_S: Final = 0.001  # interval in which a publisher with a rate publishes due messages


class Confirms:
    """A channel's publisher confirms: single, multiple, and in any order. [RabbitMQ confirms]

    Delivery tags count the channel's publishes from 1. Latencies are added to `histogram`, in nanoseconds.
    """

    def __init__(self, histogram: Histogram) -> None:
        self.published = 0
        self.settled = 0  # acked and nacked
        self.nacked = 0
        self.wrong = 0  # confirms of unknown tags, and of tags confirmed before
        self._histogram = histogram
        self._low = 0  # every tag up to this one is settled
        self._early: set[int] = set()  # settled tags above `_low`
        self._firsts: list[int] = []  # first tags of batches,
        self._times: list[int] = []  # and the time of each batch

    @property
    def outstanding(self) -> int:
        """Return the number of messages that are neither acked nor nacked."""
        return self.published - self.settled

    def note_sent(self, count: int, time: int) -> None:
        """Note that the next `count` tags were published at `time` (nanoseconds)."""
        self._firsts.append(self.published + 1)
        self._times.append(time)
        self.published += count

    def settle(self, first: int, last: int, nack: bool, now: int) -> None:
        """Settle the tags from `first` to `last`.

        `first` 0: all tags up to `last`; both 0: all tags.
        """
        if first == 0 or (first == self._low + 1 < last and not self._early):
            count = self._settle_up_to(last or self.published, now)
        else:
            count = sum(self._settle_one(tag, now) for tag in range(first, last + 1))
        self.settled += count
        if nack:
            self.nacked += count

    def _settle_one(self, tag: int, now: int) -> int:
        if not self._low < tag <= self.published or tag in self._early:
            self.wrong += 1
            return 0
        index = bisect_right(self._firsts, tag) - 1
        self._histogram.add(now - self._times[index])
        self._early.add(tag)
        self._raise_low()
        return 1

    def _settle_up_to(self, tag: int, now: int) -> int:
        if not self._low < tag <= self.published:
            self.wrong += 1
            return 0
        early = {one for one in self._early if one <= tag} if self._early else set()
        self._early -= early
        index = bisect_right(self._firsts, self._low + 1) - 1
        first = self._low + 1
        while first <= tag:
            following = self._firsts[index + 1] if index + 1 < len(self._firsts) else self.published + 1
            after = min(following, tag + 1)
            late = after - first - (sum(first <= one < after for one in early) if early else 0)
            if late:
                self._histogram.add(now - self._times[index], late)
            first = after
            index += 1
        count = tag - self._low - len(early)
        self._low = tag
        self._raise_low()
        return count

    def _raise_low(self) -> None:
        early, low = self._early, self._low
        while low + 1 in early:
            low += 1
            early.remove(low)
        self._low = low
        if len(self._firsts) > _KEEP:
            settled = bisect_right(self._firsts, low) - 1  # the batch of `low` may be incomplete
            if settled > _KEEP // 2:
                del self._firsts[:settled]
                del self._times[:settled]


class Publisher:
    """Publishes to its queues round-robin, within the confirm window, messages in flight and the rate."""

    def __init__(self, plan: Plan, flow: Traffic, lanes: list[int], sender: Sender) -> None:
        """`lanes`: the numbers of this publisher's lanes, in the order of the indexes of `sender`."""
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
        """Whether publishing waits for the rate, or for a broker that has blocked publishers."""
        return self._ticking or self.sender.blocked

    def start(self) -> None:
        """Start to publish."""
        self._began = monotonic_ns()
        self.pump()

    def resume(self) -> None:
        """Resume publishing (Publishing)."""
        self._schedule()

    def confirm(self, first: int, last: int, nack: bool) -> None:
        """Count confirms, and publish as many messages again (Publishing)."""
        now = monotonic_ns()
        confirms = self.confirms
        before = confirms.settled
        confirms.settle(first, last, nack, now)
        self._flow.confirmed_more(confirms.settled - before, now)
        self._schedule()

    def pump(self) -> None:
        """Publish one batch, and schedule the next one if more is allowed.

        Nothing is published before `start`: the first links get credit while others are being attached.
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
        """Select the next lane for which the broker accepts messages; return how many it accepts."""
        for _ in self._lanes:
            room = self.sender.room(self._turn)
            if room > 0:
                return room
            self._turn = (self._turn + 1) % len(self._lanes)
        return 0

    def _allowance(self) -> int:
        """Return how many messages may be published now. If none, `pump` is called when that changes."""
        allowed = self._flow.allowance()
        if allowed <= 0:
            if self._flow.publishing:
                self._flow.wait(self._schedule)
            return 0
        if self._plan.confirm:
            allowed = min(allowed, self._plan.confirm - self.confirms.outstanding)  # `confirm` calls again
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
            self.confirms.note_sent(count, now)
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
