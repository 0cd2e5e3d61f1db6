"""Plain integers that the hot path adds to; the metrics collector reads them at scrape time."""

from typing import Final, final

from mypy_extensions import i64

REASONS: Final = 6  # reasons of deaths: `broker.core.queues.hooks.REASONS`
CAUSES: Final = 4  # causes of drops: `broker.core.queues.death.CAUSES`


@final
class Counters:
    """Totals since start."""

    def __init__(self) -> None:
        self.published: i64 = 0
        self.confirmed: i64 = 0
        self.delivered: i64 = 0
        self.acked: i64 = 0
        self.redelivered: i64 = 0
        self.timed_out: i64 = 0  # requeued because the client did not settle them in time
        self.returned: i64 = 0
        self.unroutable: i64 = 0  # dropped: no queue, not mandatory
        self.replies_dropped: i64 = 0  # direct replies whose requester had left or did not read
        self.refused: i64 = 0  # nacked or refused because the log had failed
        self.logins_accepted: i64 = 0
        self.logins_refused: i64 = 0
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
        self.consumer_wakeups: i64 = 0  # consumers notified of work,
        self.consumer_empty_wakeups: i64 = 0  # and consumers notified that got no message at all
        self.connections_opened: i64 = 0
        self.connections_closed: i64 = 0
        self.channels_opened: i64 = 0
        self.channels_closed: i64 = 0
