"""Which published messages the broker has confirmed, and how long each took."""

from bisect import bisect_right
from typing import Final

from broker.bench.histogram import Histogram

_KEEP: Final = 4096


class Confirms:
    """One channel's publisher confirms, which may come singly, multiply and in any order. [RabbitMQ confirms]

    Delivery tags count the channel's publishes from 1. Latency goes into `histogram`, in nanoseconds.
    """

    def __init__(self, histogram: Histogram) -> None:
        self.published = 0
        self.settled = 0  # acked and nacked
        self.nacked = 0
        self.wrong = 0  # confirms of tags that are unknown or were confirmed before
        self._histogram = histogram
        self._low = 0  # every tag up to here is settled
        self._early: set[int] = set()  # settled tags above it
        self._firsts: list[int] = []  # first tags of batches,
        self._times: list[int] = []  # and when each batch was published

    @property
    def outstanding(self) -> int:
        """Messages published and neither acked nor nacked."""
        return self.published - self.settled

    def sent(self, count: int, time: int) -> None:
        """The next `count` tags were published at `time` (nanoseconds)."""
        self._firsts.append(self.published + 1)
        self._times.append(time)
        self.published += count

    def settle(self, first: int, last: int, nack: bool, now: int) -> None:
        """The tags from `first` to `last` are acked or nacked.

        `first` 0: all up to `last`; both 0: all.
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
            settled = bisect_right(self._firsts, low) - 1  # the batch of `low` may not be over
            if settled > _KEEP // 2:
                del self._firsts[:settled]
                del self._times[:settled]
