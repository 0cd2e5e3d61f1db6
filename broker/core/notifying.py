"""Who is told of work.

While entries are ready, the highest priority at which some consumer has no blocker has a NOTIFIED consumer,
which pulls until it gets nothing; if it drops out, another one takes over. So no wake-up is lost, and nobody
polls. Notifying only asks for a turn. It never delivers.

More consumers of a level are NOTIFIED where there is work for them too. Where all see the same, these are no
more than there are ready entries. Elsewhere nobody knows how many entries a consumer sees: a consumer that
has had its message has the next one of its level be NOTIFIED if there is another entry, see `share_work`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from broker.core.awaited import wait_for_turn
from broker.core.consumer import INTERESTED, NON_ACQUIRING, NOTIFIED, QueueConsumer
from broker.core.context import SCAN_BUDGET, QueueContext
from broker.core.discipline import next_entry
from broker.core.entry import QueueEntry

if TYPE_CHECKING:
    from broker.core.consumer_manager import ConsumerLevel
    from broker.core.queue import Queue


def notify(queue: Queue, consumer: QueueConsumer) -> None:
    """INTERESTED → NOTIFIED: from now on `consumer` is relied upon."""
    queue.manager.move(consumer, NOTIFIED)
    queue.manager.wakeups += 1
    queue.counters.consumer_wakeups += 1
    consumer.woken = True
    consumer.notify_work()


def notify_browsers(queue: Queue) -> None:
    """An entry is new: every browser is to see it."""
    browser = queue.manager.non_acquiring.head
    while browser is not None:
        browser.notify_work()
        browser = browser.next


def notify_one(queue: Queue, entry: QueueEntry) -> None:
    """`entry` is AVAILABLE now: somebody of the highest priority that wants it must end up NOTIFIED.

    An idle consumer is preferred to one that is on its way already, but never one of a lower priority.
    """
    if not queue.alike:
        _notify_taker(queue, entry)
        return
    levels = queue.manager.levels
    if levels:
        consumer = levels[0].interested.head
        if consumer is not None:
            notify(queue, consumer)


def notify_if_nobody_comes(queue: Queue, entry: QueueEntry) -> None:
    """As `notify_one`, where no more than one entry can be taken: who is on the way already will do."""
    rank: i64 = 0
    wanted = False
    for level in levels_for(queue, entry):
        if wanted and level.rank != rank:
            break  # whoever comes from below is not to be waited for
        if level.wants_work and level.context.sees(entry):
            if level.notified.head is not None:
                return
            wanted = True
            rank = level.rank
    notify_one(queue, entry)


def notify_consumer(queue: Queue, consumer: QueueConsumer, together: bool = False) -> None:
    """`consumer` has just become able to work: is there anything for it?

    `together`: so have others, which are to share from the first message on.
    """
    if consumer.state == NON_ACQUIRING:
        consumer.notify_work()
    elif consumer.state == INTERESTED and queue.ready != 0:
        level = consumer.level
        assert level is not None, "who is INTERESTED acquires"
        if not queue.alike:
            _look(queue, level, consumer, together)
        elif level.notified.count < queue.ready and not queue.manager.outranked(consumer):
            notify(queue, consumer)


def pass_baton(queue: Queue, left: QueueConsumer | None = None) -> None:
    """A consumer that was relied upon has dropped out: the next one takes over, if there is work.

    `left`: that consumer, if it is still attached and no other one has dropped out with it.
    """
    if queue.ready == 0:
        return
    if not queue.alike:
        level = None if left is None else left.level
        if level is None or not level.wants_work:
            wake_contexts(queue)
        elif level.notified.head is None:  # else that one sees the same
            _look(queue, level, level.interested.head)
        if queue.discipline is not None:
            queue.discipline.passed_on()
        return
    levels = queue.manager.levels
    if levels and levels[0].notified.head is None:
        consumer = levels[0].interested.head
        if consumer is not None:
            notify(queue, consumer)


def share_work(queue: Queue, consumer: QueueConsumer) -> None:
    """`consumer`, NOTIFIED, has had a message: if there is another one, an idle equal is NOTIFIED too."""
    level = consumer.level
    if level is None:  # a browser's
        return
    idle = level.interested.head
    if idle is not None and queue.ready != 0:
        entry = next_entry(queue, idle)
        if entry is not None and not _is_wanted_above(queue, idle, entry):
            notify(queue, idle)


def found_nothing(queue: Queue, consumer: QueueConsumer) -> None:
    """A pull found nothing: to the back of Interested, unless it has only used up its scan budget."""
    if consumer.context.more:
        if consumer.state == INTERESTED:
            queue.manager.move(consumer, NOTIFIED)
        return
    if consumer.state == NOTIFIED:
        queue.manager.move(consumer, INTERESTED)
    consumer.target.no_messages_available(consumer)
    extent = consumer.extent
    if extent is not None and extent.snapshot:
        consumer.target.shown_all(consumer)


def is_outranked(queue: Queue, consumer: QueueConsumer, entry: QueueEntry) -> bool:
    """Whether a consumer of higher priority wants `entry`, the next one of `consumer`.

    Where not all want the same, `consumer` then waits until the entry goes.
    """
    if queue.alike:
        return queue.manager.outranked(consumer)
    if not _is_wanted_above(queue, consumer, entry):
        return False
    wait_for_turn(queue, consumer, entry)
    return True


# ---- where consumers do not all see the same


def _notify_taker(queue: Queue, entry: QueueEntry) -> None:
    """Have one that sees `entry` be NOTIFIED: an idle one of the highest priority where there is any."""
    discipline = queue.discipline
    if discipline is not None:
        if not discipline.is_open(entry):
            return
        owner = discipline.owner(entry)
        if owner is not None:
            if owner.state == INTERESTED and owner.context.sees(entry):
                notify(queue, owner)
            return
    rank: i64 = 0
    relied = False
    for level in levels_for(queue, entry):
        if relied and level.rank != rank:
            return  # somebody is on the way who is not to be overtaken
        if not level.wants_work or not level.context.sees(entry):
            continue
        consumer = level.interested.head
        if consumer is not None:
            queue.manager.rotate(level)
            notify(queue, consumer)
            return
        relied = True
        rank = level.rank


def _is_wanted_above(queue: Queue, consumer: QueueConsumer, entry: QueueEntry) -> bool:
    if queue.discipline is not None and queue.discipline.owner(entry) is not None:
        return False  # it is the consumer's own
    for level in levels_for(queue, entry):
        if level.rank <= consumer.rank:
            return False
        if level.wants_work and level.context.sees(entry):
            return True
    return False


def _look(queue: Queue, level: ConsumerLevel, consumer: QueueConsumer | None, together: bool = False) -> None:
    """Is there something for `consumer`, INTERESTED, of `level`? Then it is NOTIFIED, or waits for its turn.

    A NOTIFIED consumer of the level takes whatever is not for `consumer` alone, so nobody looks then. But
    consumers that become able `together` do: that a group goes to one of them is for long.
    """
    if consumer is None:
        return
    relied = level.notified.head is not None and not together
    if relied and (consumer.holding is None or not consumer.holding.groups):
        return
    entry = next_entry(queue, consumer)
    if entry is None:
        if level.context.more:
            notify(queue, consumer)  # it goes on looking when it has its turn
    elif _is_wanted_above(queue, consumer, entry):
        wait_for_turn(queue, consumer, entry)
    else:
        notify(queue, consumer)


def wake_contexts(queue: Queue) -> None:
    """An idle consumer of each context looks whether there is something for it, if nobody else is to.

    One for all contexts would not do: it may not see what others see. When that has cost enough, the others
    look when they have their turns.
    """
    effort: i64 = 0
    seen: set[QueueContext] = set()
    for level in all_levels(queue):
        context = level.context
        if context in seen:
            continue
        if level.notified.head is not None:
            seen.add(context)
            continue
        consumer = level.interested.head
        if consumer is not None:
            seen.add(context)
            if effort >= SCAN_BUDGET:
                notify(queue, consumer)
                continue
            before = context.effort
            _look(queue, level, consumer)
            effort += context.effort - before


def levels_for(queue: Queue, entry: QueueEntry) -> list[ConsumerLevel]:
    """Return the consumers of `queue` that may see `entry`: by rank, then the longest waiting first."""
    everyone = queue.manager.levels
    if queue.index is None:
        return everyone
    found: list[ConsumerLevel] = []
    for row in queue.index.served_rows(entry):
        found += row.levels
    if not found:
        return everyone
    for level in everyone:
        found.append(level)
    found.sort(key=_rank_and_turn)
    return found


def all_levels(queue: Queue) -> list[ConsumerLevel]:
    """Return all consumers of `queue` for which there may be an entry."""
    found = list(queue.manager.levels)
    if queue.index is not None:
        for row in queue.index.served:
            if row.first is not None:
                found += row.levels
    return found


def _rank_and_turn(level: ConsumerLevel) -> tuple[int, int]:
    return -level.rank, level.turn
