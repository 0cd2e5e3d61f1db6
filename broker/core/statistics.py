"""The counts of queues over time: what each queue and each virtual host has done, and how fast.

Somebody reads all queues at a steady pace with `QueueReader`, a part in each turn. A queue keeps its last
reading only: a first look at a queue shows its rates at once, whatever the number of queues. A queue that has
done nothing since the last reading costs a comparison.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.counters import Reading, rates_between
from broker.core.partitions.partitioned import Totals, totals_of
from broker.core.queues.queue import Queue
from broker.core.queues.state import Flows
from broker.core.remotes.remote import remote_of
from broker.core.vhosts.vhost import VirtualHost

COUNTERS: Final = (
    "publish",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "deliver_get",
    "redeliver",
    "ack",
    "replaced",
)
"""The counters of a queue under RabbitMQ's names: `deliver_get` is the sum of the four kinds
of deliveries, and `replaced` is amqpd's own."""

LENGTHS: Final = (
    "messages",
    "messages_ready",
    "messages_unacknowledged",
    "messages_held",
    "messages_dlx",
)
"""The numbers of messages that are in a queue, by their states."""

NAMES: Final = COUNTERS + LENGTHS
"""The names of the numbers of a reading."""


def flows_of(flows: Flows) -> list[int]:
    """Return counters in the order of COUNTERS."""
    got = flows.got + flows.got_no_ack
    return [
        flows.published,
        flows.delivered - flows.delivered_no_ack - got,
        flows.delivered_no_ack,
        flows.got,
        flows.got_no_ack,
        flows.got_empty,
        flows.delivered,
        flows.redelivered,
        flows.acked,
        flows.replaced,
    ]


def numbers_of(totals: Totals) -> list[int]:
    """Return counters and lengths in the order of NAMES."""
    ready, unacked, held, dead = totals.ready, totals.unacked, totals.held, totals.dead
    return [*flows_of(totals), ready + unacked + held + dead, ready, unacked, held, dead]


STILL: Final[list[float]] = [0.0] * len(NAMES)
"""The rates of a queue that does nothing. The list is not changed."""

NOTHING: Final[list[int]] = [0] * len(NAMES)
"""The numbers of a queue that has done nothing. The list is not changed."""


def _mark_of(queue: Queue) -> i64:
    """Return a number that changes when the queue does anything; it is 0 while nothing has happened."""
    done = queue.published + queue.delivered + queue.redelivered + queue.acked + queue.got_empty
    there = queue.ready + 1_299_709 * queue.unacked + 15_485_863 * queue.held + 32_452_843 * queue.dead
    return 982_451_653 * done + there


RECENT: Final = 0.3
"""The weight of the latest reading in a queue's capacity."""


def has_capacity(queue: Queue) -> bool:
    """Whether the queue, which has consumers, would deliver another message at once."""
    manager = queue.manager
    return queue.ready == 0 or manager.interested > 0 or manager.notified > 0


def _note_capacity(queue: Queue, reading: Reading) -> None:
    reading.capacity += RECENT * ((1.0 if has_capacity(queue) else 0.0) - reading.capacity)


@final
class QueueReader:
    """Reads the queues of a virtual host; `totals` has the sums of those that were read.

    `consumers`: the consumers of these queues. `now`: the time of a pass, which notes a reading of each
    queue; 0.0: only the sums are wanted. `seconds`: the time since the pass before. Queues that are made or
    deleted meanwhile do no harm.
    """

    def __init__(self, vhost: VirtualHost, now: float = 0.0, seconds: float = 0.0) -> None:
        self.totals = Totals()
        self.consumers: i64 = 0
        self._queues: list[Queue] = list(vhost.topology.queues.values())
        self._past = vhost.topology.past
        self._now = now
        self._seconds = seconds
        self._next: i64 = 0

    def read(self, most: i64) -> bool:
        """Read up to `most` more queues; return whether more are left."""
        queues = self._queues
        end = self._next + most
        if end > len(queues):
            end = len(queues)
        totals = self.totals
        for position in range(self._next, end):
            queue = queues[position]
            self.consumers += queue.subscription_count
            if queue.partitions is None and queue.remote is None:
                totals.add(queue)
                if self._now == 0.0:
                    continue
                mark = _mark_of(queue)
                reading = queue.reading
                if reading is None:
                    if mark != 0:
                        self._note(queue, None, mark)
                elif reading.mark != mark:
                    self._note(queue, reading, mark)
                else:
                    reading.time = self._now
                    reading.rates = STILL
                    _note_capacity(queue, reading)
            else:
                remote = remote_of(queue)
                if remote is not None:
                    totals.add_remote(queue, remote)
                else:  # the members of a partitioned queue have its other counts
                    totals.got_empty += queue.got_empty
                if self._now != 0.0:
                    self._note(queue, queue.reading, 0)
        self._next = end
        return end < len(queues)

    def finish(self) -> list[int]:
        """Return the sums of all queues and the counters of deleted queues, in the order of NAMES."""
        self.totals.add_past(self._past)
        return numbers_of(self.totals)

    def _note(self, queue: Queue, before: Reading | None, mark: i64) -> None:
        numbers = numbers_of(totals_of(queue))
        if before is None:
            rates = rates_between(NOTHING, numbers, self._seconds)
            before = queue.reading = Reading(self._now, mark, numbers, rates)
        else:
            if before.numbers != numbers:
                before.changed = self._now
            before.rates = rates_between(before.numbers, numbers, max(0.1, self._now - before.time))
            before.numbers = numbers
            before.time = self._now
            before.mark = mark
        _note_capacity(queue, before)
