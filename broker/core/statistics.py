"""The counts of queues over time: what each queue and each virtual host has done, and how fast.

`QueueReader` reads all queues of a virtual host, a part in each turn, and is used at a steady pace. A queue
keeps its last reading only, so its rates are there at any time, whatever the number of queues. A queue that
has done nothing since the last reading costs a comparison.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.counters import Arrivals, Reading, next_reading
from broker.core.partitions.partitioned import Totals, totals_of
from broker.core.queues.consumer import INTERESTED, NOTIFIED, QueueConsumer
from broker.core.queues.queue import Queue
from broker.core.remotes.remote import remote_of
from broker.core.vhosts.vhost import VirtualHost


def numbers_of(totals: Totals) -> list[int]:
    """Return the counts of a queue as `Flows.numbers`, and behind these the messages that are in it.

    The messages: in all, ready, unacknowledged, held, waiting to be dead-lettered.
    """
    ready, unacked, held, dead = totals.ready, totals.unacked, totals.held, totals.dead
    return [*totals.numbers(), totals.messages, ready, unacked, held, dead]


STILL: Final[list[float]] = [0.0] * len(numbers_of(Totals()))
"""The rates of a queue that does nothing. The list is not changed."""


def _mark_of(queue: Queue) -> i64:
    """Return a number that changes when the queue does anything; it is 0 while nothing has happened."""
    done = queue.published + queue.delivered + queue.redelivered + queue.acked + queue.got_empty
    there = queue.ready + 1_299_709 * queue.unacked + 15_485_863 * queue.held + 32_452_843 * queue.dead
    return 982_451_653 * done + there


UNKNOWN: Final[i64] = -1
"""The mark of a queue whose counts are in other queues too."""

RECENT: Final = 0.3
"""The weight of the latest reading in a queue's capacity."""


def has_capacity(queue: Queue) -> bool:
    """Whether the queue, which has consumers, would deliver another message at once."""
    manager = queue.manager
    return queue.ready == 0 or manager.interested > 0 or manager.notified > 0


def _note_capacity(queue: Queue, reading: Reading) -> None:
    reading.capacity += RECENT * ((1.0 if has_capacity(queue) else 0.0) - reading.capacity)


def _note_arrivals(queue: Queue, now: float) -> None:
    """Note the latest arrival in a queue that has messages."""
    if queue.depth == 0:
        queue.arrivals = None
        return
    if queue.arrivals is None:
        queue.arrivals = Arrivals()
    queue.arrivals.note(now, queue.entries.sequence)


def head_age(queue: Queue, now: float) -> float:
    """Return for how many seconds the first message of a queue has been there, 0.0 without a message.

    The age is counted from the first pass that found the message, so up to the interval of the passes is
    missing, and the time before a restart.
    """
    arrivals = queue.arrivals
    if arrivals is None or queue.stream is not None:
        return 0.0
    first = queue.entries.next(queue.entries.head)
    if first is None:
        return 0.0
    time = arrivals.time_of(queue.entries.arrival(first))
    return 0.0 if time is None else max(0.0, now - time)


@final
class ConsumerStates:
    """The consumers of some queues by their state. Each consumer of a partitioned queue counts once."""

    def __init__(self) -> None:
        self.browsers: i64 = 0
        self.interested: i64 = 0
        self.notified: i64 = 0
        self.not_interested: i64 = 0

    def add_consumers(self, queue: Queue) -> None:
        """Count the consumers of a queue, without those of the partitioned queue that has this member."""
        remote = remote_of(queue)
        manager = queue.manager if remote is None else remote.inlet.manager
        if manager.gets or queue.member is not None or queue.partitions is not None:
            for consumer in manager.all:
                if consumer.front is None:
                    self._add(consumer)
            return
        self.browsers += len(manager.all) - manager.acquiring
        self.interested += manager.interested
        self.notified += manager.notified
        self.not_interested += manager.acquiring - manager.interested - manager.notified

    def _add(self, consumer: QueueConsumer) -> None:
        """Count a consumer. That of a partitioned queue has the state of its busiest part."""
        states = [part.state for part in consumer.parts] or [consumer.state]
        if not consumer.acquires:
            self.browsers += 1
        elif NOTIFIED in states:
            self.notified += 1
        elif INTERESTED in states:
            self.interested += 1
        else:
            self.not_interested += 1

    def add(self, other: ConsumerStates) -> None:
        """Add the consumers of other queues."""
        self.browsers += other.browsers
        self.interested += other.interested
        self.notified += other.notified
        self.not_interested += other.not_interested


@final
class QueueReader:
    """Reads the queues of a virtual host; `totals` has the sums of those that were read.

    `consumers`: the consumers of these queues. `is_pass`: each queue takes a reading at the time `now`,
    `seconds` as for `next_reading`; otherwise only the sums are wanted. `is_thorough`: also count the
    consumers by their `states`, and find the age of the oldest first message, `head_age`, in seconds. Queues
    that are made or deleted meanwhile do no harm.
    """

    def __init__(
        self,
        vhost: VirtualHost,
        is_pass: bool = False,
        now: float = 0.0,
        seconds: float = 0.0,
        is_thorough: bool = False,
    ) -> None:
        self.totals = Totals()
        self.consumers: i64 = 0
        self.states = ConsumerStates()
        self.head_age = 0.0
        self._queues: list[Queue] = list(vhost.topology.queues.values())
        self._past = vhost.topology.past
        self._is_pass = is_pass
        self._is_thorough = is_thorough
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
            if queue.manager.all or queue.remote is not None:
                self.consumers += queue.subscription_count
                if self._is_thorough:
                    self.states.add_consumers(queue)
            if self._is_thorough and queue.arrivals is not None:
                self.head_age = max(self.head_age, head_age(queue, self._now))
            remote = remote_of(queue)
            if remote is not None:
                totals.add_remote(queue, remote)
            elif queue.partitions is None:
                totals.add(queue)
            else:  # the members have the other counts
                totals.got_empty += queue.got_empty
            if self._is_pass:
                self._take_reading(queue)
        self._next = end
        return end < len(queues)

    def finish(self) -> list[int]:
        """Return the sums of all queues and the counts of deleted queues, as `numbers_of`."""
        self.totals.add_past(self._past)
        return numbers_of(self.totals)

    def _take_reading(self, queue: Queue) -> None:
        """Read one queue. A queue with other queues behind it has no mark, and is read each time."""
        reading = queue.reading
        mark = _mark_of(queue) if queue.partitions is None and queue.remote is None else UNKNOWN
        if mark == (0 if reading is None else reading.mark) and mark != UNKNOWN:
            if reading is None:
                return
            reading.time = self._now
            reading.rates = STILL
        else:
            numbers = numbers_of(totals_of(queue))
            reading = next_reading(reading, self._now, self._seconds, numbers, mark)
            queue.reading = reading
            if queue.stream is None:
                _note_arrivals(queue, self._now)
        _note_capacity(queue, reading)
