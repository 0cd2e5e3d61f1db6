"""Plain integers that the hot path adds to, and readings of them over time."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64

from broker.core.durations import WAITS, Latency, MessageSizes

REASONS: Final = 6  # reasons of deaths: `broker.core.queues.hooks.REASONS`
SECONDS_MIN: Final = 0.1  # between two readings
CAUSES: Final = 4  # causes of drops: `broker.core.queues.death.CAUSES`


@final
class Reading:
    """Numbers of an object at a time, in seconds, and their change per second since the reading before.

    `mark`: a number that changes when the object does anything, so that an idle object is not read again.
    `changed`: the time of the last reading that differed from the one before. `capacity`: for a queue with
    consumers, the share of recent readings at which it could deliver at once, from 0 to 1.
    """

    def __init__(self, time: float, numbers: list[int]) -> None:
        self.time = time
        self.changed = time
        self.capacity = 1.0
        self.mark: i64 = 0
        self.numbers = numbers
        self.rates: list[float] = [0.0] * len(numbers)

    def advance(self, time: float, numbers: list[int], mark: i64 = 0) -> None:
        """Take the next numbers, in the same order."""
        seconds = max(SECONDS_MIN, time - self.time)
        self.rates = [
            round((after - before) / seconds, 1) for before, after in zip(self.numbers, numbers, strict=True)
        ]
        if numbers != self.numbers:
            self.changed = time
        self.time = time
        self.numbers = numbers
        self.mark = mark


MARKS_MAX: Final = 24


@final
class Arrivals:
    """When messages have arrived in a queue, as far as readings of it show.

    The marks are pairs of a time, in seconds, and the number of the latest arrival then. With more than
    MARKS_MAX marks every other one of the older half is dropped, so old times are less exact.
    """

    def __init__(self) -> None:
        self._times: list[float] = []
        self._numbers: list[int] = []

    def note(self, time: float, number: i64) -> None:
        """Note the number of the latest arrival at this time."""
        if self._numbers and self._numbers[-1] >= number:
            return
        self._times.append(time)
        self._numbers.append(number)
        if len(self._times) > MARKS_MAX:
            del self._times[1 : MARKS_MAX // 2 : 2]
            del self._numbers[1 : MARKS_MAX // 2 : 2]

    def time_of(self, number: i64) -> float | None:
        """Return the time by which the message with this number had arrived; None: since the last reading."""
        slot = bisect_left(self._numbers, number)
        return self._times[slot] if slot < len(self._times) else None


def next_reading(
    before: Reading | None, time: float, seconds: float, numbers: list[int], mark: i64 = 0
) -> Reading:
    """Return the reading after `before`; None: the object had done nothing at the reading before.

    `seconds`: the time since the reading before; 0.0: this is the first reading of all objects, which has no
    rates, since objects from before a restart have their messages.
    """
    if before is None:
        before = Reading(time - seconds, numbers if seconds == 0.0 else [0] * len(numbers))
    before.advance(time, numbers, mark)
    return before


class Flows:
    """The counts of messages that have passed a queue, several queues, a channel or the broker.

    `delivered` has all deliveries. Parts of it are `delivered_no_ack`, to consumers that acknowledge nothing,
    `got` and `got_no_ack`, by basic.get, and `redelivered`. `got_empty` counts answers that there is no
    message. `replaced`: messages replaced by later ones with the same value, in last-value queues.
    """

    def __init__(self) -> None:
        self.published: i64 = 0
        self.delivered: i64 = 0
        self.delivered_no_ack: i64 = 0
        self.got: i64 = 0
        self.got_no_ack: i64 = 0
        self.got_empty: i64 = 0
        self.redelivered: i64 = 0
        self.acked: i64 = 0
        self.replaced: i64 = 0

    def add_past(self, other: Flows) -> None:
        """Add other counts."""
        self.published += other.published
        self.delivered += other.delivered
        self.delivered_no_ack += other.delivered_no_ack
        self.got += other.got
        self.got_no_ack += other.got_no_ack
        self.got_empty += other.got_empty
        self.redelivered += other.redelivered
        self.acked += other.acked
        self.replaced += other.replaced

    @property
    def delivered_by_hand(self) -> int:
        """The deliveries to consumers that acknowledge."""
        return int(self.delivered - self.delivered_no_ack - self.got - self.got_no_ack)

    def numbers(self) -> list[int]:
        """Return the counts in this order.

        They are: published, delivered by hand and without acknowledgement, got by hand and without
        acknowledgement, got empty, all deliveries, redelivered, acknowledged, replaced.
        """
        return [
            self.published,
            self.delivered_by_hand,
            self.delivered_no_ack,
            self.got,
            self.got_no_ack,
            self.got_empty,
            self.delivered,
            self.redelivered,
            self.acked,
            self.replaced,
        ]


@final
class Traffic(Flows):
    """The counts of a channel or session since it began, or of all those of a protocol.

    Publishes and acknowledgements in a transaction count at once. `to_confirm`: publishes whose publisher
    waits for a confirm. `confirmed`: the part that is answered. `returned`: messages that the publisher got
    back. `dropped`: messages that no queue took, and that the publisher did not want back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.to_confirm: i64 = 0
        self.confirmed: i64 = 0
        self.returned: i64 = 0
        self.dropped: i64 = 0
        self.reading: Reading | None = None
        self._counted: Traffic | None = None  # the part that the protocol has

    def flush(self, protocol: Traffic) -> None:
        """Add what was counted since the last call to the counts of the protocol.

        So these never decrease, whatever channels end while the counts of many are being added.
        """
        if self._counted is None:
            self._counted = Traffic()
        protocol.add_difference(self, self._counted)
        self._counted.add_difference(self, self._counted)

    def add_difference(self, after: Traffic, before: Traffic) -> None:
        """Add the counts of `after` without those of `before`."""
        self.published += after.published - before.published
        self.delivered += after.delivered - before.delivered
        self.delivered_no_ack += after.delivered_no_ack - before.delivered_no_ack
        self.got += after.got - before.got
        self.got_no_ack += after.got_no_ack - before.got_no_ack
        self.got_empty += after.got_empty - before.got_empty
        self.redelivered += after.redelivered - before.redelivered
        self.acked += after.acked - before.acked
        self.to_confirm += after.to_confirm - before.to_confirm
        self.confirmed += after.confirmed - before.confirmed
        self.returned += after.returned - before.returned
        self.dropped += after.dropped - before.dropped


@final
class Counters(Flows):
    """Totals since start."""

    def __init__(self) -> None:
        super().__init__()
        self.confirmed: i64 = 0
        self.timed_out: i64 = 0  # requeued because the client did not settle them in time
        self.returned: i64 = 0
        self.unroutable: i64 = 0  # dropped: no queue took them, and their publishers did not want them back
        self.replies_dropped: i64 = 0  # direct replies whose requester had left or did not read
        self.refused: i64 = 0  # nacked or refused because the log had failed
        self.logins_accepted: i64 = 0
        self.logins_refused: i64 = 0
        self.attempts: dict[str, tuple[int, int]] = {}  # by protocol: log-ins accepted and refused
        self.overflowed: i64 = 0  # refused because a queue was full
        self.duplicate: i64 = 0  # dropped by a queue that had received them before
        self.receipts_sent: i64 = 0
        self.receipts_dropped: i64 = 0  # their queue did not exist, or accepted no more
        # by reason of the death: messages that arrived in other queues as dead letters,
        self.dead_lettered: list[int] = [0] * REASONS
        self.dead_lettered_surely: list[int] = [0] * REASONS  # the part that died at-least-once,
        self.discarded: list[int] = [0] * REASONS  # and messages whose queue dead-letters none of the reason
        # dead letters that were dropped, at reason * CAUSES + cause
        self.letters_dropped: list[int] = [0] * (REASONS * CAUSES)
        self.dead_letters_failed: i64 = 0  # for example because the disk did not return the content
        self.made_ready: i64 = 0  # entries that became ready: enqueued or requeued
        self.requeued: i64 = 0  # the part that was requeued
        self.consumer_wakeups: i64 = 0  # consumers notified of work,
        self.consumer_empty_wakeups: i64 = 0  # and consumers notified that got no message at all
        self.connections_opened: i64 = 0
        self.connections_closed: i64 = 0
        self.channels_opened: i64 = 0
        self.channels_closed: i64 = 0
        self.disk_writes: i64 = 0  # persistent messages that were appended to the log
        self.queues_declared: i64 = 0  # declarations that were accepted, of new and of present queues
        self.queues_created: i64 = 0
        self.queues_deleted: i64 = 0
        self.message_sizes = MessageSizes()
        # durations of a sample of the messages:
        self.time_in_queue = Latency(WAITS)  # from the enqueue to the first delivery
        self.time_to_confirm = Latency(WAITS)  # from the publish to the confirm
        self.time_to_acknowledge = Latency(WAITS)  # from a delivery to its acknowledgement

    def count_publish(self, size: i64) -> None:
        """Count a message with a body of `size` bytes."""
        self.published += 1
        self.message_sizes.observe(size)

    def count_login(self, protocol: str, accepted: bool, is_lasting: bool = True) -> None:
        """Count a log-in. `is_lasting`: it is not for a single request, so it counts in the totals too."""
        right, wrong = self.attempts.get(protocol, (0, 0))
        self.attempts[protocol] = (right + accepted, wrong + (not accepted))
        if not accepted:
            self.logins_refused += 1
        elif is_lasting:
            self.logins_accepted += 1

    def forget_attempts(self) -> None:
        """Begin to count the log-ins by protocol again; the totals count on."""
        self.attempts.clear()
