"""A queue: entries in strict order, and consumers that pull them when they are notified.

An entry dies when it is rejected, when it expires, when the queue is over its length limit, or when it was
returned too often. A dead entry leaves its queue. If the queue has a dead-letter exchange, a dead letter is
published to that exchange. To the log both are one step: they are in one batch, and neither happens without
the other.

A queue dead-letters at most once or at least once (`Limits.sure`). With at most once, a dead letter that no
queue accepts is dropped. With at least once, the message waits in the `DeadLetterBacklog` of its queue
until all queues of its route accept it.

By default every returned delivery counts: returned by nack or reject, recovered, or lost with its channel,
its connection or the broker. `x-delivery-count-on` chooses among these. A message that was returned more
often than the delivery limit allows is dead-lettered.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import CRASH, is_stream
from broker.core.counters import Counters
from broker.core.durations import SAMPLE, Stopwatch
from broker.core.entries.cursor import SCAN_BUDGET, Cursor, PostingList
from broker.core.entries.entry import ACQUIRED, AVAILABLE, DEQUEUED, HELD, EntryFilter, QueueEntry
from broker.core.entries.list import Latest, QueueEntryList
from broker.core.errors import PreconditionFailed, Unsupported
from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.queues.consumer import BLOCKED_BY_TARGET, INTERESTED, NOT_INTERESTED, NOTIFIED, QueueConsumer
from broker.core.queues.consumers import (
    ConsumedQueue,
    found_nothing,
    is_outranked,
    next_entry,
    notify_browsers,
    notify_one,
    notify_watchers,
    notify_watchers_of_returns,
    set_blocker,
    share_work,
    wait_for_size,
    wake_contexts,
    wake_for_earlier,
    wake_for_some,
    wake_waiters,
)
from broker.core.queues.hooks import (
    EXHAUSTED,
    EXPIRED,
    REJECTED,
    BacklogHook,
    ElectionHook,
    MemberHook,
    MemoryHook,
    PartitionsHook,
    QueueJournal,
    QueueRetry,
    RemoteHook,
    Stops,
    StreamSink,
)
from broker.core.queues.source import BROKER, Source
from broker.core.queues.state import count_linked, count_no_ack, make_acquired, make_dequeued
from broker.core.queues.virtual_host import QueueHost
from broker.core.queues.volatile import Volatile


@final
class Queue(ConsumedQueue):
    """A queue: publishers link entries and notify; consumers pull in their turns.

    A queue is synchronous and single-threaded, so each method is atomic. Every method changes state first and
    lists second, and notifies last. A notification only requests a turn and never delivers.
    While entries are ready, the highest priority with an unblocked consumer has a NOTIFIED consumer. This
    consumer pulls until it gets nothing. If it drops out, `pass_baton` notifies another.

    `election`: elects the one served consumer, if the queue serves only one at a time. `backlog`: the `dead`
    messages, which wait to be dead-lettered. `retry`: the rules for returned entries. `memory`: the
    duplicates filter. `host`: the virtual host. `stops`: the operations that are switched off. `volatile`:
    counts the messages lost at restarts.
    `stream`: the stream of the queue, if it is one. `journal`: records every step, if the queue is journaled.
    `partitions`: the members of a partitioned queue, which has no entries itself. `member`: the membership of
    a queue in a partitioned queue. `remote`: the other broker's side of a remote queue, whose entries are the
    messages that wait for the other broker. `origin`: for the inlet of a remote queue, the same hook.
    `watch` times entries, by their `order`, until their first delivery.
    """

    def __init__(
        self,
        name: str,
        store: MessageStore,
        entries: QueueEntryList,
        counters: Counters,
        durable: bool = False,
        logged: bool = False,
        number: i64 = 0,
        vhost: str = "/",
    ) -> None:
        super().__init__(name, store, entries, counters, durable, logged, number, vhost)
        self.backlog: BacklogHook | None = None
        self.retry: QueueRetry | None = None
        self.memory: MemoryHook | None = None
        self.volatile: Volatile | None = None
        self.stream: StreamSink | None = None
        self.host: QueueHost | None = None
        self.election: ElectionHook | None = None
        self.stops: Stops | None = None
        self.journal: QueueJournal | None = None
        self.partitions: PartitionsHook | None = None
        self.member: MemberHook | None = None
        self.remote: RemoteHook | None = None
        self.origin: RemoteHook | None = None
        self.watch: Stopwatch | None = None

    @property
    def consumer_count(self) -> int:
        """The number of attached consumers, browsers included."""
        return len(self.manager.all) if self.remote is None else self.remote.consumer_count()

    @property
    def subscription_count(self) -> int:
        """The number of attached consumers, without those of the partitioned queue that has this member."""
        if self.member is None:
            return self.consumer_count
        if self.remote is not None:
            return self.remote.subscription_count()
        return len([consumer for consumer in self.manager.all if consumer.front is None])

    def enqueue(self, message: Message, source: Source = BROKER) -> QueueEntry:
        """Link `message` from `source` at its place and notify. The caller has appended it to the log."""
        entry = self.link(message)
        self.published += 1
        self.counters.made_ready += 1
        if self.published & SAMPLE == 1:
            _watch_entry(self, entry)
        if self.journal is not None:
            self.journal.enqueued(entry, source)
        if self.limits is not None and not self.limits.admit(entry):
            return entry
        if self.ready_watchers is not None:
            notify_watchers(self.ready_watchers)
        if self.manager.interested != 0 or self.manager.non_acquiring.head is not None or self.waiting:
            self.notify_work(entry)
        return entry

    def notify_work(self, entry: QueueEntry) -> None:
        """Notify the browsers of `entry`, which is new, and one consumer that can take it."""
        if entry.state == HELD:
            return  # an earlier message of its key is in another member of a partitioned queue
        if self.stream is None and self.manager.non_acquiring.head is not None:
            notify_browsers(self)
        if self.waiting and not self.entries.in_order:
            wake_for_earlier(self, entry)
        if self.manager.interested != 0:
            notify_one(self, entry)

    def set_notify_work_desired(self, consumer: QueueConsumer, desired: bool) -> None:
        """Set whether the consumer's target wants work. Called by targets only."""
        set_blocker(self, consumer, BLOCKED_BY_TARGET, not desired)
        if self.origin is not None:
            self.origin.note_demand()

    def deliver_single_message(self, consumer: QueueConsumer) -> bool:
        """Deliver the next entry to `consumer` by `consumer.target.deliver`, if the consumer may get one now.

        False while still NOTIFIED (a browser: `context.more`) means that the look-up is not complete: call
        again. True also if the next entry has expired and has left the queue, so that another entry is next.
        """
        if consumer.state <= NOT_INTERESTED:
            return False
        entry = next_entry(self, consumer)
        if entry is None:
            found_nothing(self, consumer)
            return False
        size = entry.message.size
        target = consumer.target
        # a consumer with an exhausted count window is NOT_INTERESTED: here only bytes can be missing
        if target.sized and not target.fits(size):
            wait_for_size(self, consumer, entry)
            return False
        manager = self.manager
        if (
            consumer.acquires
            and (self.index is not None or manager.levels[0] is not consumer.level)
            and is_outranked(self, consumer, entry)
        ):
            found_nothing(self, consumer)
            return False
        if entry.timer is not None and expire_if_late_for(self, entry, consumer):
            return True
        if consumer.acquires:
            self.acquire(entry, consumer)
            if consumer.state == INTERESTED:
                manager.move(consumer, NOTIFIED)
        else:
            consumer.context.move_past(entry)
            if self.stream is not None:
                self.delivered += 1
                self.counters.delivered += 1
                consumer.delivered += 1
                if self.journal is not None:
                    self.journal.shown(entry, consumer)
        target.use_credit(size)
        target.deliver(consumer, entry)
        if consumer.no_ack and consumer.acquires:
            if not consumer.getting:
                count_no_ack(self)
            self.settle(entry)
        if not self.alike and consumer.state == NOTIFIED:
            share_work(self, consumer)
        return True

    def acquire(self, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Acquire the next entry of the consumer's context for delivery: AVAILABLE → ACQUIRED."""
        context = consumer.context
        if context.behind or context.late is not None:
            context.move_past(entry)
        else:
            context.last = entry
        make_acquired(self, entry, consumer)
        entry.delivery_count += 1
        consumer.woken = False
        consumer.delivered += 1
        self.delivered += 1
        self.counters.delivered += 1
        watch = self.watch
        if watch is not None and entry.order == watch.number:
            watch.stop()
        if entry.redelivered:
            consumer.redelivered += 1
            self.redelivered += 1
            self.counters.redelivered += 1
        if self.journal is not None:
            self.journal.delivered(entry, consumer)
        if self.counts:
            note_delivery(self, entry, consumer)
        if self.discipline is not None:
            self.discipline.note_acquisition(entry, consumer)
        if self.waiters:
            wake_waiters(self, entry)

    def settle(self, entry: QueueEntry) -> None:
        """Settle `entry`: ACQUIRED → DEQUEUED. Ignored if the queue has taken it back, or was deleted."""
        owner = entry.owner
        if entry.state != ACQUIRED or owner is None or self.deleted:
            return
        message = entry.message
        make_dequeued(self, entry)
        if not owner.no_ack:
            self.acked += 1
            self.counters.acked += 1
        if self.journal is not None:
            self.journal.settled(entry, owner)
        if self.logged and message.sequence != 0:
            self.store.append_settle(message, self)
        if self.context.last is entry or concerns_cursors(self, entry):
            self.unlink(entry)
        else:  # no cursor is affected
            self.entries.unlink(entry)
        if self.election is not None:
            self.election.note_delivery_end()
        if self.discipline is not None:
            self.discipline.note_departure(entry, owner)
        if message.marks != 0 and self.host is not None:
            self.host.write_consumption_receipts(message, self)
        if self.member is not None:
            self.member.note_departure(entry)
        if self.origin is not None:
            self.origin.settle(entry)

    def discard(self, entry: QueueEntry) -> None:
        """Reject `entry`, which is dead-lettered: ACQUIRED → DEQUEUED. Ignored where `settle` is."""
        if entry.state == ACQUIRED and not self.deleted:
            dead_letter(self, entry, REJECTED)

    def link(self, message: Message) -> QueueEntry:
        """Put `message` at its place, without notifying."""
        entry = self.entries.append(message)
        count_linked(self, entry)
        if self.discipline is not None:
            self.discipline.note_arrival(entry)
        if self.places is not None:
            self.places.note_linked(entry)
        if self.member is not None:
            self.member.note_arrival(entry)
        if self.index is not None or not self.entries.in_order:
            place_entry(self, entry)
        return entry

    def unlink(self, entry: QueueEntry) -> None:
        """Remove a DEQUEUED entry, no longer counted, from the list and from under the cursors."""
        forget_everywhere(self, entry)
        self.entries.unlink(entry)


def _watch_entry(queue: Queue, entry: QueueEntry) -> None:
    """Time an entry until its first delivery, unless another entry is being timed."""
    host = queue.host
    if host is None or queue.stream is not None:
        return
    watch = queue.watch
    if watch is None:
        watch = queue.watch = Stopwatch(queue.counters.time_in_queue, host.schedule.clock)
    watch.start(entry.order)


def take_out(queue: Queue, entry: QueueEntry) -> None:
    """Remove `entry` from memory only: AVAILABLE, ACQUIRED or HELD → DEQUEUED. The caller updates the log."""
    assert entry.state != DEQUEUED, "an entry leaves its queue once"
    owner = entry.owner
    if entry.state == HELD and queue.retry is not None:
        queue.retry.forget_wait(entry)
    make_dequeued(queue, entry)
    watch = queue.watch
    if watch is not None and entry.order == watch.number:
        watch.cancel()
    timer = entry.timer
    if timer is not None and queue.limits is not None:
        queue.limits.timers.stop(timer)
    queue.unlink(entry)
    if queue.discipline is not None:
        queue.discipline.note_departure(entry, owner)
    if queue.waiters:
        wake_waiters(queue, entry)
    if owner is not None and queue.election is not None:
        queue.election.note_delivery_end()
    if queue.member is not None:
        queue.member.note_departure(entry)
    if queue.remote is not None:
        queue.remote.note_dropped(entry.message)


def drop(queue: Queue, entry: QueueEntry) -> None:
    """Remove `entry`, also from the log: AVAILABLE, ACQUIRED or HELD → DEQUEUED."""
    message = entry.message
    if queue.logged and message.sequence != 0:
        queue.store.append_settle(message, queue)
    take_out(queue, entry)


def place_entry(queue: Queue, entry: QueueEntry) -> None:
    """Add `entry`, which is new, to the index, or offer it to cursors that may have passed its place.

    A replaced entry is removed first, so that cursors stand on the entry before both entries.
    """
    if queue.index is not None:
        queue.index.add(entry)
        return  # an index needs a list in order: the entry is the last one
    latest = queue.entries.latest
    if latest is not None and latest.displaced is not None:
        old = latest.displaced
        latest.displaced = None
        replace(queue, latest, old, entry.message)
    if entry.state != HELD:  # else the cursors see the entry when it is released
        offer_everywhere(queue, entry)


def replace(queue: Queue, latest: Latest, old: QueueEntry, new: Message | None) -> None:
    """Remove `old`, which `new` replaces: AVAILABLE, ACQUIRED or HELD → DEQUEUED.

    `new` None: the replacing message has left already. `old` is not dead-lettered. The log holds it until
    `new` is durable, if `new` is persistent.
    """
    latest.replaced += 1
    queue.counters.replaced += 1
    message = old.message
    if queue.journal is not None:
        queue.journal.replaced(old)
    if queue.logged and message.sequence != 0:
        if new is None:
            queue.store.append_settle(message, queue)
        else:
            queue.store.append_replacement(new, message, queue)
    take_out(queue, old)


def replace_outdated(queue: Queue, old: QueueEntry) -> None:
    """Remove `old`, which is outdated: its consumer returns it, or it comes from before a restart."""
    latest = queue.entries.latest
    assert latest is not None, "only a last-value queue has outdated entries"
    new = latest.successor(old)
    replace(queue, latest, old, None if new is None else new.message)


def drop_outdated(queue: Queue) -> None:
    """Drop outdated entries after recovery, except those that readers have staged."""
    latest = queue.entries.latest
    if latest is None:
        return
    outdated = latest.outdated
    latest.outdated = []
    for old in outdated:
        if old.state not in (ACQUIRED, DEQUEUED):
            replace_outdated(queue, old)


TOLD_MAX: Final[i64] = 100  # entries announced to every filter now; consumers find the others in turns


def offer_again(queue: Queue, back: list[QueueEntry]) -> None:
    """Show `back`, AVAILABLE again and counted, to cursors, limits and consumers, but not to browsers."""
    queue.counters.made_ready += len(back)
    queue.counters.requeued += len(back)
    announce(queue, back)


def announce(queue: Queue, back: list[QueueEntry]) -> None:
    """Show `back`, AVAILABLE and counted, to cursors, limits and consumers, but not to browsers."""
    depth = queue.depth
    if len(back) > 8:
        queue.context.offer_many(back, depth)
    else:
        for entry in back:
            queue.context.offer(entry, depth)
    for context in queue.filtered:
        context.offer_many(back, depth)
    if queue.index is not None:
        queue.index.offer(back, depth)
    if queue.limits is not None:
        queue.limits.note_returns(back)  # some may leave with this
    if queue.waiting:
        if len(back) > TOLD_MAX:
            wake_for_some(queue, back)
        else:
            for entry in back:
                wake_for_earlier(queue, entry)
    if queue.ready_watchers is not None:
        notify_watchers_of_returns(queue.ready_watchers, back)
    if queue.election is not None:
        queue.election.note_delivery_end()
    discipline = queue.discipline
    asks = not queue.alike and (discipline is None or not discipline.personal)
    notified: i64 = 0
    for entry in back:
        if queue.manager.interested == 0:
            break
        if asks and notified >= TOLD_MAX:
            wake_contexts(queue)
            break
        if entry.state == AVAILABLE:
            notify_one(queue, entry)
            notified += 1


def offer_to_browsers(queue: Queue, released: list[QueueEntry]) -> None:
    """Show `released`, AVAILABLE entries that were HELD from their arrival on, to browsers for once."""
    if queue.browsers is None:
        return
    depth = queue.depth
    for entry in released:
        queue.browsers.offer_released(entry, depth)
    notify_browsers(queue)


FILTERS_MAX: Final = 64  # for a queue or a posting list of its index: each filter sees each message there


def join_context(queue: Queue, entry_filter: EntryFilter | None) -> Cursor:
    """Return the context for one more acquiring consumer with this filter.

    Raises:
        PreconditionFailed: the consumers of the queue have too many different filters.
    """
    if entry_filter is None:
        return queue.context
    postings = None if queue.index is None else queue.index.postings_for(entry_filter)
    contexts = queue.filtered if postings is None else postings.contexts
    for context in contexts:
        assert context.filter is not None, "every context in `filtered` has a filter"
        if context.filter.key == entry_filter.key:
            context.users += 1
            if postings is not None and queue.index is not None:
                queue.index.release(postings)  # each context counts as one user
            return context
    if len(contexts) >= FILTERS_MAX:
        if postings is not None and queue.index is not None:
            queue.index.release(postings)
        raise PreconditionFailed(
            f"queue '{queue.name}' in vhost '{queue.vhost}' has consumers with {FILTERS_MAX} different "
            "selectors, and no more are allowed"
        )
    context = Cursor(_entries(queue, postings), entry_filter)
    context.users = 1
    context.postings = postings
    contexts.append(context)
    if postings is not None and queue.index is not None:
        queue.index.served[postings] = None
    queue.alike = False
    return context


def open_browser_context(queue: Queue, entry_filter: EntryFilter | None) -> Cursor:
    """Return a cursor for browsing the entries that a filter lets pass, from the first one on."""
    postings = None if queue.index is None else queue.index.postings_for(entry_filter)
    context = Cursor(_entries(queue, postings), entry_filter)
    context.postings = postings
    return context


def leave_context(queue: Queue, context: Cursor) -> None:
    """Remove a consumer from the users of `context`."""
    if context is queue.context:
        return
    context.users -= 1
    if context.users > 0:
        return
    index = queue.index
    postings = context.postings
    if postings is None or index is None:
        queue.filtered.remove(context)
    else:
        postings.contexts.remove(context)
        if not postings.contexts:
            del index.served[postings]
            queue.manager.posting_levels.pop(postings, None)
        index.release(postings)
    queue.alike = not queue.filtered and queue.discipline is None and (index is None or not index.served)


def _entries(queue: Queue, postings: PostingList | None) -> QueueEntryList:
    return queue.entries if postings is None or postings.entries is None else postings.entries


def offer_everywhere(queue: Queue, entry: QueueEntry) -> None:
    """Show cursors an entry that may have been linked behind them."""
    depth = queue.depth
    queue.context.offer(entry, depth)
    for context in queue.filtered:
        context.offer(entry, depth)
    if queue.browsers is not None:
        queue.browsers.offer(entry, depth)


def concerns_cursors(queue: Queue, entry: QueueEntry) -> bool:
    """Whether the removal of `entry` affects cursors besides the shared cursor, or entries behind it."""
    if queue.context.has_behind or queue.filtered or queue.index is not None or queue.places is not None:
        return True
    browsers = queue.browsers
    return browsers is not None and (not queue.entries.in_order or entry.stood_on)


def forget_everywhere(queue: Queue, entry: QueueEntry) -> None:
    """Move all cursors off a DEQUEUED entry, no longer counted, which is about to be unlinked."""
    depth = queue.depth
    queue.context.forget(entry, depth)
    for context in queue.filtered:
        context.forget(entry, depth)
    if queue.browsers is not None:
        queue.browsers.forget(entry, depth)
    if queue.index is not None:
        queue.index.remove(entry, depth)
    if queue.places is not None:
        queue.places.note_unlinked(entry)


def dead_letter(queue: Queue, entry: QueueEntry, reason: i64) -> None:
    """Dead-letter `entry`, or discard it without an exchange: AVAILABLE, ACQUIRED or HELD → DEQUEUED."""
    limits = queue.limits
    if limits is None or not limits.moves(reason):
        queue.counters.discarded[reason] += 1
        if queue.journal is not None:
            queue.journal.discarded(entry, reason)
        drop(queue, entry)
        if queue.origin is not None:
            queue.origin.reject(entry)
        return
    limits.dead_letter(entry, reason)


def note_delivery(queue: Queue, entry: QueueEntry, consumer: QueueConsumer) -> None:
    """Append the present delivery of `entry` to the log, for a queue that counts.

    A delivery that is settled in the same step need not be recorded.
    """
    if not consumer.no_ack and (queue.retry is None or queue.retry.counted & CRASH != 0):
        append_count(queue, entry)


def append_count(queue: Queue, entry: QueueEntry) -> None:
    """Append to the log how many deliveries of `entry` count, and its annotations.

    A queue that does not count has no count after a restart.
    """
    if queue.logged and entry.message.sequence != 0:
        count = entry.counted if queue.counts else 0
        queue.store.append_count(entry.message, queue, count, queue.entries.annotations_of(entry))


def is_exhausted(queue: Queue, entry: QueueEntry) -> bool:
    """Whether an entry that is returned now has been returned too often."""
    return 0 <= queue.delivery_limit < entry.counted


def dead_letter_returned(queue: Queue, entry: QueueEntry) -> None:
    """Dead-letter an entry that was returned too often: AVAILABLE or ACQUIRED → DEQUEUED."""
    dead_letter(queue, entry, EXHAUSTED)


def dead_letter_exhausted(queue: Queue) -> None:
    """Dead-letter, after recovery, the entries whose last delivery has exceeded the delivery limit."""
    if queue.delivery_limit >= 0:
        for entry in [entry for entry in queue.entries if is_exhausted(queue, entry)]:
            if entry.state != DEQUEUED:  # else the dead letter of an earlier entry has pushed it out
                dead_letter_returned(queue, entry)


LATE_MAX: Final[i64] = 10_000  # expired entries that one look-up passes
EFFORT_MAX: Final[i64] = 20 * SCAN_BUDGET  # the budget of a look-up outside a turn


def expire_if_late(queue: Queue, entry: QueueEntry) -> bool:
    """Whether `entry`, which is AVAILABLE, has expired. If so, it has left the queue."""
    timer = entry.timer
    limits = queue.limits
    if timer is None or limits is None or timer.due > limits.schedule.now():
        return False
    dead_letter(queue, entry, EXPIRED)
    return True


def expire_if_late_for(queue: Queue, entry: QueueEntry, consumer: QueueConsumer) -> bool:
    """Whether `entry`, which has a timer and is about to be delivered to `consumer`, has expired.

    If true, the entry has left the queue, and `consumer` must look again.
    """
    if expire_if_late(queue, entry):
        if consumer.state == INTERESTED:
            queue.manager.move(consumer, NOTIFIED)
        return True
    if consumer.acquires:
        stop_timer(queue, entry)
    return False


def stop_timer(queue: Queue, entry: QueueEntry) -> None:
    """Stop the timer of `entry`, which is no longer AVAILABLE."""
    timer = entry.timer
    if timer is not None and queue.limits is not None:
        queue.limits.timers.stop(timer)


def next_in_time(queue: Queue, consumer: QueueConsumer) -> QueueEntry | None:
    """Return the next entry of `consumer` that has not expired. Expired entries leave the queue.

    None also if the look-up took too long; then a turn finds the entry.
    """
    context = consumer.context
    context.effort = 0
    for _ in range(LATE_MAX):
        entry = next_entry(queue, consumer)
        while entry is None and context.more and context.effort < EFFORT_MAX:
            entry = next_entry(queue, consumer)
        if entry is None or entry.timer is None or not expire_if_late(queue, entry):
            return entry
    return None


def refuse_stream(queue: Queue, what: str) -> None:
    """Refuse an operation that would remove messages from a queue, if the queue is a stream.

    `what` completes "cannot be" in the refusal.

    Raises:
        Unsupported: the queue is a stream.
    """
    if is_stream(queue.arguments):
        raise Unsupported(f"queue '{queue.name}' in vhost '{queue.vhost}' is a stream and cannot be {what}")


def queue_of(consumer: QueueConsumer) -> Queue:
    """Return the queue of a consumer, whose own field has a wider type, as its module lies below this one."""
    queue = consumer.queue
    assert isinstance(queue, Queue), "every QueueState is a Queue"
    return queue
