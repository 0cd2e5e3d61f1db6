"""Very many deliveries are settled by one step of their client."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.contexts import concerns_cursors
from broker.core.entry import ACQUIRED, DEQUEUED, QueueEntry
from broker.core.later import DEAR, Later, Run, are_few
from broker.core.message import TELLS_CONSUMED

if TYPE_CHECKING:
    from broker.core.session import Session
    from broker.core.topology import Topology


def settle_one(entry: QueueEntry, consumer: QueueConsumer) -> None:
    """ACQUIRED → DEQUEUED if `consumer` has acquired it; what a browser was shown it has seen."""
    if consumer.acquires:
        consumer.queue.settle(entry)
    elif consumer.context.progress is not None:
        consumer.context.progress.settled([entry])


def seen(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """`consumer`, if its stream keeps how far it is, is done with these."""
    if consumer.context.progress is not None:
        consumer.context.progress.settled(entries)


def settle_all(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """ACQUIRED → DEQUEUED of those of `entries` that `consumer` has; all of them restore its credit.

    As `Queue.settle` of each, in their order, but counted together and for less.
    """
    leave_all(entries, consumer)
    restore(entries, consumer)


def settle_runs(runs: list[Run], session: Session, topology: Topology) -> None:
    """The same for all of `runs`, which `session` had: a client may acknowledge 100,000 by one frame.

    They go in slices. What is too much for one turn stays with its consumer until turns to come, in which
    nobody else can settle it or give it back.
    """
    if are_few(runs):
        for consumer, entries in runs:
            settle_all(entries, consumer)
    else:
        SettledLater(runs, session, topology).begin()


@final
class SettledLater(Later):
    """Deliveries that a client has settled."""

    def take(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Settle these (Later)."""
        settle_all(entries, consumer)

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """A receipt is a message (Later)."""
        return DEAR if entry.message.marks & TELLS_CONSUMED else 1


def restore(entries: list[QueueEntry], consumer: QueueConsumer) -> None:
    """Give the credit back that these deliveries, which are settled or were given back, have used."""
    size: i64 = 0
    for entry in entries:
        size += entry.message.size
    consumer.target.restore_all(len(entries), size)


def leave_all(entries: list[QueueEntry], consumer: QueueConsumer, logged: bool = False) -> None:
    """ACQUIRED → DEQUEUED of those of `entries` that `consumer` has; nothing restores its credit.

    `logged`: the log knows that already.
    """
    queue = consumer.queue
    seen(entries, consumer)
    if not consumer.acquires or queue.deleted:
        return
    settled: list[QueueEntry] = []
    size: i64 = 0
    for entry in entries:
        if entry.state == ACQUIRED and entry.owner is consumer:
            entry.state = DEQUEUED
            entry.owner = None
            size += entry.message.size
            settled.append(entry)
    count: i64 = len(settled)
    consumer.inflight -= count
    queue.unacked -= count
    queue.unacked_bytes -= size
    if not consumer.no_ack:
        queue.acked += count
        queue.counters.acked += count
    linked = queue.entries
    told = queue.logged and not logged
    context = queue.context
    discipline = queue.discipline
    plain = discipline is None and not context.has_behind and not queue.filtered
    plain = plain and queue.index is None and queue.browsers is None and queue.places is None
    journal = queue.journal
    for entry in settled:
        message = entry.message
        if journal is not None:
            journal.settled(entry, consumer)
        if told and message.sequence != 0:
            queue.store.append_settle(message, queue)
        if context.last is entry or (not plain and concerns_cursors(queue, entry)):
            queue.unlink(entry)
        else:  # no cursor needs to know
            linked.unlink(entry)
        if discipline is not None:
            discipline.left(entry, consumer)
        if message.marks != 0 and queue.topology is not None:
            queue.topology.receipts.consumed(message, queue)
    if queue.election is not None:
        queue.election.delivery_ended()
