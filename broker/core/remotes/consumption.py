"""The consumption of the messages that a remote queue has sent: which of them the other broker still has.

A partitioned queue with a member in another broker must know this to keep the order of each key. [amqpd]

The link gives each message that it sends a position, which the message keeps as a header. The other queue
delivers its messages in their order. So a delivery shows that the messages with lower positions have been
delivered before: they have been consumed, except those that consumers here have not answered. An empty queue
shows that all messages have been consumed, also those that have expired or were consumed there.

A link that breaks loses its deliveries, and the other broker requeues them. The other broker may learn late
that the connection has ended, at the latest by its heartbeats. The positions of such deliveries therefore
count as not consumed until the deliveries have come again, or for `grace_ms`.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.schedule import Schedule

NO_POSITION: Final[i64] = -1
GRACE_MS: Final[i64] = 30_000


@mypyc_attr(allow_interpreted_subclasses=True)
class ConsumptionWatcher:
    """The part of a partitioned queue that waits for the consumption of messages elsewhere."""

    def on_consumed(self, number: i64) -> None:
        """Note that all messages with lower numbers have been consumed."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class PositionSource:
    """The part of a link that gives positions to messages."""

    def next_position(self) -> i64:
        """Return the position of the next message that the link sends."""
        raise NotImplementedError

    def note_demand(self) -> None:
        """Look soon what the other broker still has."""
        raise NotImplementedError


@final
class Consumption:
    """The consumption of the messages of one remote queue.

    Numbers: the first message that is sent after the start of the broker has the number 1, and the messages
    before have lower ones. `is_new`: the queue has sent nothing before. `consumed`: all messages with lower
    numbers have been consumed. `watcher`: None: nobody waits. `is_awaited`: a message waits for the
    consumption of others. `grace_ms`: the time after which the other broker has noticed a broken connection;
    the link may set a longer one.
    """

    def __init__(self, schedule: Schedule, is_new: bool) -> None:
        self.consumed: i64 = 1 if is_new else 0
        self.watcher: ConsumptionWatcher | None = None
        self.is_awaited = False
        self.grace_ms = GRACE_MS
        self._schedule = schedule
        self._source: PositionSource | None = None
        self._base: i64 = NO_POSITION  # the position of the message with the number 1
        self._highest: i64 = NO_POSITION  # among the deliveries of the present link
        self._open: set[int] = set()  # positions of deliveries without an answer, or that were requeued,
        self._order: deque[int] = deque()  # and these in the order of their arrival, with some others
        self._requeued: dict[int, int] = {}  # when to give up positions that consumers have requeued
        self._delivered_at: i64 = 0  # the time of the last delivery
        self._lost: set[int] = set()  # positions of deliveries that a link has lost,
        self._lost_until: i64 = 0  # and the time until which they may come again
        self._uncertain_until: i64 = 0  # the same for deliveries that are not known

    @property
    def sent(self) -> i64:
        """The number of the next message."""
        if self._base < 0 or self._source is None:
            return 1
        return self._source.next_position() - self._base + 1

    def begin(self, source: PositionSource) -> None:
        """Use the positions of a link. The first link has sent nothing since the start of the broker."""
        self._source = source
        if self._base >= 0:
            return
        self._base = source.next_position()
        if self._base == 0:
            self._advance(self._base)
        else:  # a link of a broker that has crashed may have lost deliveries
            self._uncertain_until = self._schedule.now() + self.grace_ms

    def note_awaited(self, is_awaited: bool) -> None:
        """Note whether messages wait. The link looks more often for the end of their wait."""
        self.is_awaited = is_awaited
        if is_awaited and self._source is not None:
            self._source.note_demand()

    # ---- deliveries

    def note_delivered(self, position: i64) -> None:
        """Note the delivery of a message with this position."""
        self._delivered_at = self._schedule.now()
        self._lost.discard(position)
        self._requeued.pop(position, None)
        if position not in self._open:
            self._open.add(position)
            self._order.append(position)
        if position > self._highest:
            self._highest = position
        self.look()

    def note_consumed(self, position: i64) -> None:
        """Note that a consumer has settled or rejected a delivery."""
        self._open.discard(position)
        self.look()

    def note_requeued(self, position: i64) -> None:
        """Note that a delivery was requeued. It comes again, before later messages."""
        self._requeued[position] = int(self._schedule.now() + self.grace_ms)

    def note_empty(self, position: i64) -> None:
        """Note that the other queue was empty when it had got all messages before this position."""
        if not self._is_uncertain():
            self._open.clear()
            self._order.clear()
            self._requeued.clear()
            self._advance(position)

    def note_broken(self) -> None:
        """Note that the link has broken, and has lost its deliveries."""
        if self._open:
            self._lost |= self._open
            self._lost_until = self._schedule.now() + self.grace_ms
        self._open.clear()
        self._order.clear()
        self._requeued.clear()
        self._highest = NO_POSITION

    def look(self) -> None:
        """Advance to the first message that is not known to be consumed."""
        if self._highest < 0 or self._is_uncertain():
            return
        order = self._order
        while order and (order[0] not in self._open or self._is_gone(order[0])):
            self._open.discard(order.popleft())
        self._advance(order[0] if order else self._highest + 1)

    # ---- steps

    def _is_gone(self, position: int) -> bool:
        """Whether a requeued message has not come again, although later messages have come."""
        until = self._requeued.get(position)
        if until is None or self._delivered_at < until:
            return False
        del self._requeued[position]
        return True

    def _is_uncertain(self) -> bool:
        """Whether a lost delivery may come again."""
        now = self._schedule.now()
        if self._lost and now >= self._lost_until:
            self._lost.clear()
        return bool(self._lost) or now < self._uncertain_until

    def _advance(self, position: i64) -> None:
        if self._base < 0 or position < self._base:
            return
        number = position - self._base + 1
        if number > self.consumed:
            self.consumed = number
            if self.watcher is not None:
                self.watcher.on_consumed(number)
