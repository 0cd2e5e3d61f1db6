"""Plain integers that the hot path adds to, and readings of them over time."""

from typing import Final, final

from mypy_extensions import i64

REASONS: Final = 6  # reasons of deaths: `broker.core.queues.hooks.REASONS`
CAUSES: Final = 4  # causes of drops: `broker.core.queues.death.CAUSES`


@final
class Reading:
    """Numbers of an object at a time, in seconds, and their change per second since the reading before.

    `mark`: a number that changes when the object does anything, so that an idle object is not read again.
    `changed`: the time of the last reading that differed from the one before. `capacity`: for a queue with
    consumers, the share of recent readings at which it could deliver at once, from 0 to 1.
    """

    def __init__(self, time: float, mark: i64, numbers: list[int], rates: list[float]) -> None:
        self.time = time
        self.changed = time
        self.capacity = 1.0
        self.mark = mark
        self.numbers = numbers
        self.rates = rates


def rates_between(old: list[int], new: list[int], seconds: float) -> list[float]:
    """Return the change of each number per second, to a tenth."""
    return [round((after - before) / seconds, 1) for before, after in zip(old, new, strict=True)]


@final
class Counters:
    """Totals since start."""

    def __init__(self) -> None:
        self.published: i64 = 0
        self.confirmed: i64 = 0
        self.delivered: i64 = 0
        self.delivered_no_ack: i64 = 0  # the part for consumers that acknowledge nothing
        self.got: i64 = 0  # the part for basic.get with an acknowledgement,
        self.got_no_ack: i64 = 0  # and without one
        self.got_empty: i64 = 0  # answers that there is no message
        self.acked: i64 = 0
        self.redelivered: i64 = 0
        self.timed_out: i64 = 0  # requeued because the client did not settle them in time
        self.returned: i64 = 0
        self.unroutable: i64 = 0  # dropped: no queue, not mandatory
        self.replies_dropped: i64 = 0  # direct replies whose requester had left or did not read
        self.refused: i64 = 0  # nacked or refused because the log had failed
        self.logins_accepted: i64 = 0
        self.logins_refused: i64 = 0
        self.attempts: dict[str, tuple[int, int]] = {}  # by protocol: log-ins accepted and refused
        self.overflowed: i64 = 0  # refused because a queue was full
        self.duplicate: i64 = 0  # dropped by a queue that had received them before
        self.replaced: i64 = 0  # by later ones with the same value, in last-value queues
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

    def count_login(self, protocol: str, accepted: bool, is_lasting: bool = True) -> None:
        """Count a log-in. `is_lasting`: it is not for a single request, so it counts in the totals too."""
        right, wrong = self.attempts.get(protocol, (0, 0))
        self.attempts[protocol] = (right + accepted, wrong + (not accepted))
        if not accepted:
            self.logins_refused += 1
        elif is_lasting:
            self.logins_accepted += 1
