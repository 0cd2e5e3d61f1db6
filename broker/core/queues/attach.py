"""Attaching and detaching consumers, and requests for single messages.

[AMQP 0-9-1 basic.get]
"""

from __future__ import annotations

from mypy_extensions import i64

from broker.core.arguments.queue import CRASH
from broker.core.entries.cursor import Cursor
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.errors import InUse, PreconditionFailed
from broker.core.queues.browse_cursor import browser_cursor
from broker.core.queues.consumer import (
    ATTACHED,
    BLOCKED_BY_GATE,
    BLOCKED_BY_GROUPS,
    BLOCKED_BY_MEMBERS,
    BLOCKED_BY_PURGE,
    BLOCKED_BY_RETURNS,
    BLOCKED_BY_SIZE,
    BLOCKED_BY_STANDBY,
    BLOCKED_BY_STOP,
    BLOCKED_BY_TARGET,
    DETACHED,
    INTERESTED,
    NON_ACQUIRING,
    NOT_INTERESTED,
    REMOVED,
    QueueConsumer,
)
from broker.core.queues.consumers import forget_waiting, notify_consumer, pass_baton
from broker.core.queues.election import Election
from broker.core.queues.queue import (
    Queue,
    join_context,
    leave_context,
    next_in_time,
    open_browser_context,
    queue_of,
    stop_timer,
)
from broker.core.queues.returns import finish_returns, release_entries
from broker.core.queues.state import begin_browsing, count_get, end_browsing
from broker.core.queues.stops import check_dequeue


def attach(queue: Queue, consumer: QueueConsumer) -> None:
    """Attach `consumer` to `queue`, and to all members if it is partitioned.

    A consumer of a remote queue is attached to its inlet, and is a consumer of the inlet from then on.

    Raises:
        InUse: `consumer`, or an attached consumer, is exclusive.
        PreconditionFailed: the queue is remote, and the other broker cannot serve such a consumer.
    """
    if queue.partitions is not None:
        queue.partitions.attach(consumer)
    elif queue.remote is not None:
        consumer.queue = queue.remote.inlet_for(consumer)
        consumer.context = consumer.queue.context
        attach_here(queue_of(consumer), consumer)
    else:
        attach_here(queue, consumer)


def attach_here(queue: Queue, consumer: QueueConsumer) -> None:
    """Attach `consumer` to the entries of `queue` itself, also if it is remote. Raises as `attach`."""
    election = queue.election
    if election is not None:
        election.check_attach(consumer)
    everyone = queue.manager.all
    if everyone and not consumer.getting and (consumer.exclusive or next(iter(everyone)).exclusive):
        raise InUse(f"queue '{queue.name}' in vhost '{queue.vhost}' in exclusive use")
    if not consumer.acquires:
        if queue.stream is not None:
            consumer.context = queue.stream.open_cursor(consumer)
        elif consumer.extent is None:
            consumer.context = open_browser_context(queue, consumer.filter)
        else:
            consumer.context = browser_cursor(queue, consumer.extent, consumer.filter)
        begin_browsing(queue, consumer.context)
    else:
        consumer.context = join_context(queue, consumer.filter)
    consumer.blockers = 0 if consumer.target.desired else BLOCKED_BY_TARGET
    if election is None and consumer.candidate:
        election = queue.election = Election(queue, single_active=False, everyone=False)
    if election is not None and consumer.acquires and election.stands_by(consumer):
        consumer.blockers |= BLOCKED_BY_STANDBY
    if consumer.acquires:
        consumer.blockers |= _common_blockers(queue)
    _add(queue, consumer)


def _add(queue: Queue, consumer: QueueConsumer) -> None:
    """Add `consumer`, whose blockers but the gate's are set, and inform the features of the queue."""
    election = queue.election
    gate = None if consumer.getting else queue.manager.gate
    if gate is not None and not gate.is_open and consumer.acquires:
        consumer.blockers |= BLOCKED_BY_GATE
    queue.manager.add(consumer)
    consumer.target.consumers.append(consumer)
    if consumer.blockers != 0:
        queue.manager.move(consumer, NOT_INTERESTED)
    else:
        queue.manager.move(consumer, INTERESTED if consumer.acquires else NON_ACQUIRING)
        notify_consumer(queue, consumer)
    if consumer.acquires and consumer.blockers & BLOCKED_BY_STANDBY == 0:
        consumer.target.on_activity_changed(consumer, True, ATTACHED)
    if election is not None and consumer.acquires:
        election.note_attached(consumer)
    if gate is not None and consumer.acquires:
        gate.note_attached()
    if queue.discipline is not None and consumer.acquires:
        queue.discipline.note_attached(consumer)
    if queue.origin is not None:
        queue.origin.note_demand()


def _common_blockers(queue: Queue) -> i64:
    """Return the blockers that apply to all acquiring consumers."""
    blockers: i64 = 0
    if queue.stops is not None and queue.stops.dequeue:
        blockers |= BLOCKED_BY_STOP
    if queue.manager.purges:
        blockers |= BLOCKED_BY_PURGE
    if queue.manager.returns:
        blockers |= BLOCKED_BY_RETURNS
    if queue.discipline is not None and queue.discipline.pauses:
        blockers |= BLOCKED_BY_GROUPS
    return blockers


def change_filter(queue: Queue, consumer: QueueConsumer, entry_filter: EntryFilter) -> None:
    """Change the filter of `consumer`, which acquires and is attached.

    The consumer keeps its place among the consumers, its deliveries and its activity.

    Raises:
        PreconditionFailed: the consumers of the queue have too many different filters. Nothing has changed.
    """
    leave_context(queue, consumer.context)  # first, because the old filter may make room for the new one
    try:
        context = join_context(queue, entry_filter)
    except PreconditionFailed:
        _use_context(queue, consumer, join_context(queue, consumer.filter))
        raise
    consumer.filter = entry_filter
    _use_context(queue, consumer, context)


def _use_context(queue: Queue, consumer: QueueConsumer, context: Cursor) -> None:
    """Let `consumer` look for its next entry with the cursor `context`."""
    if consumer in queue.waiting:
        consumer.blockers &= ~BLOCKED_BY_SIZE
    forget_waiting(queue, consumer)
    queue.manager.change_context(consumer, context)
    if queue.discipline is not None:
        queue.discipline.note_context(consumer)
    notify_consumer(queue, consumer)
    pass_baton(queue)


def detach(queue: Queue, consumer: QueueConsumer, held: list[QueueEntry], outcome: i64 = CRASH) -> None:
    """Detach `consumer` and release `held`, the entries that `consumer` had acquired and loses.

    With basic.cancel `held` is empty: the channel keeps the deliveries. At the end of a session or a
    connection, call its `close_targets` first, or another of its consumers gets the released entries. If
    `consumer` is detached already, only `held` is released.

    A consumer of a partitioned queue is detached from all members. Its deliveries belong to its `parts`, the
    consumers of the members, whose callers release them. The browser of a snapshot ends with its last part.
    """
    if queue.partitions is not None:
        queue.partitions.detach(consumer)
        return
    if consumer.state != REMOVED:
        remove_consumer(queue, consumer)
        if consumer.acquires:
            leave_context(queue, consumer.context)
            if queue.manager.gate is not None and not consumer.getting:
                queue.manager.gate.note_detached()
        else:
            if consumer.context.progress is not None:
                consumer.context.progress.end()
            end_browsing(queue, consumer.context)
        if queue.limits is not None:
            queue.limits.touch()
    if held:
        release_entries(queue, held, consumer, outcome)
    if queue.discipline is not None:
        queue.discipline.note_detached(consumer)
    if queue.manager.undeliverable is not None:
        queue.manager.undeliverable.note_detached()
    if queue.election is not None:
        queue.election.note_detached()  # after the release: the successor gets the released entries first
    pass_baton(queue)
    if queue.origin is not None:
        queue.origin.note_demand()
    end_snapshot(consumer.front)


def end_snapshot(front: QueueConsumer | None) -> None:
    """Detach the consumer of a partitioned queue if it browses a snapshot and its last part has ended.

    The caller informs the target.
    """
    if front is None or front.parts or front.state == REMOVED:
        return
    if front.extent is not None and front.extent.snapshot:
        detach(queue_of(front), front, [])


def remove_consumer(queue: Queue, consumer: QueueConsumer) -> None:
    """Remove `consumer` from every list that contains it."""
    forget_waiting(queue, consumer)
    queue.manager.remove(consumer)
    consumer.target.consumers.remove(consumer)
    front = consumer.front
    if front is not None:
        front.parts.remove(consumer)
    if consumer.acquires and consumer.blockers & (BLOCKED_BY_STANDBY | BLOCKED_BY_MEMBERS) == 0:
        consumer.target.on_activity_changed(consumer, False, DETACHED)


def get_one(queue: Queue, consumer: QueueConsumer) -> QueueEntry | None:
    """Acquire the next entry of the consumer's context, O(1) without a filter; None if none is ready.

    A consumer that does not acquire, as on a non-destructive queue, only sees the entry.

    `consumer` is made for this queue but never attached: it only owns the entry, until `settle`, `discard` or
    `release(entries, consumer)`. Nothing is settled here, not even with no_ack. The windows of its target are
    charged. Raises ResourceLocked if the queue serves one consumer at a time, QueueStopped if its dequeues
    are stopped.
    """
    begin_get(queue)
    if queue.ready == 0:
        return None
    entry = next_in_time(queue, consumer)
    if entry is not None:
        _acquire_for_get(queue, consumer, entry)
    return entry


def begin_get(queue: Queue) -> None:
    """Check that messages may be taken without a subscription. Raises the errors of `get_one`."""
    if queue.stops is not None:
        check_dequeue(queue, queue.stops)
    if queue.election is not None:
        queue.election.check_get()
    if queue.limits is not None:
        queue.limits.touch()
    if queue.manager.returns:
        finish_returns(queue)


def get_chosen(queue: Queue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    """Acquire `entry`, which is AVAILABLE, whatever is before it; `consumer` as for `get_one`.

    The caller has called `begin_get` and `may_take`.
    """
    consumer.context = Cursor(queue.entries)  # no other cursor moves
    _acquire_for_get(queue, consumer, entry)


def _acquire_for_get(queue: Queue, consumer: QueueConsumer, entry: QueueEntry) -> None:
    if consumer.acquires:
        if entry.timer is not None:
            stop_timer(queue, entry)
        queue.acquire(entry, consumer)
        count_get(queue, consumer.no_ack)
    consumer.target.use_credit(entry.message.size)
