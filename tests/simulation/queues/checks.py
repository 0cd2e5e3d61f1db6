"""The invariants at a delivery, a wake-up and at rest.

Other modules check the rest: `structure` the queue's own state (I2 to I8), `book` conservation (I1) and Q4,
`restarting` restarts (R1 to R5), `turns` slices (S1 to S3), `calling` call-outs (F5). F1 to F4 are measured:
`fairness`, `costs`.
"""

from __future__ import annotations

from broker.core.entries.entry import ACQUIRED, AVAILABLE, QueueEntry
from broker.core.queues.consumer import BLOCKED_BY_STANDBY, NOTIFIED, QueueConsumer
from broker.core.queues.election import Election
from broker.core.queues.groups import Groups
from broker.core.queues.queue import Queue
from tests.simulation.queues.clients import Client
from tests.simulation.queues.invariants import Seen, check
from tests.simulation.queues.model import READY, Item, Shelf, Taker


def check_delivery(
    seen: Seen, shelf: Shelf, taker: Taker, item: Item, entry: QueueEntry, now: int, getting: bool
) -> None:
    """`entry` is being given to `taker`, and the model does not know yet."""
    number = item.number
    check(seen, "D2", item.state == READY, f"{number} is with somebody")
    check(seen, "D2", not shelf.is_late(item, now), f"{number} is late")
    check(seen, "D2", taker.sees(item), f"{number} does not pass the selector")
    if not getting:
        check(seen, "D7", not taker.suspended() and taker.fits(item.note.size), f"{number} does not fit")
    if taker.browses:
        check(seen, "I3", entry.state == AVAILABLE, "a browser takes nothing")
        check(seen, "D6", number not in taker.shown, f"a browser saw {number} twice")
        missed = [other.number for other in shelf.unshown(taker) if other < item]
        check(seen, "D1", not missed, f"a browser was shown {number} before {missed}")
        return
    check(seen, "I3", entry.state == ACQUIRED, f"{number} is not acquired")
    check(seen, "D4", shelf.service.is_served(taker, now), f"{number} goes to one that stands by")
    if shelf.groups.key(item):
        check_group(seen, shelf, taker, item, now)
    first = shelf.first_for(taker, now)
    check(seen, "D1", first is item, f"{number} goes out before {first and first.number}")
    if shelf.spec.levels > 1:
        check(seen, "D8", first is item, f"{number} is not the most urgent")
    rivals = [] if getting else shelf.rivals(taker, item, now)
    check(seen, "D3", not rivals, f"{number} goes to priority {taker.priority}")
    redelivered, count = bool(entry.redelivered), int(entry.delivery_count)
    check(seen, "D9", redelivered == item.redelivered, f"{number} redelivered: {redelivered}")
    check(seen, "D9", count == item.count + 1, f"{number} is given out {count} times, not {item.count + 1}")


def check_group(seen: Seen, shelf: Shelf, taker: Taker, item: Item, now: int) -> None:
    """`item`, which is in a group, goes to `taker`."""
    number, groups = item.number, shelf.groups
    members, out = groups.members(groups.key(item)), groups.out(groups.key(item))
    with_others = [
        other.number
        for other in out
        if other.holder is not taker and not (other.holder and other.holder.operates)
    ]
    check(seen, "D5", not with_others, f"{number} goes out while others have {with_others}")
    closing = [other.number for other in out if groups.closes(other)]
    check(seen, "D5", not closing, f"{number} goes out past {closing}, which close the group")
    check(seen, "D5", not groups.withholds(item, taker), f"the group of {number} is another one's, or shut")
    passed = [
        other.number
        for other in members
        if other < item and other.state == READY and taker.sees(other) and not shelf.is_late(other, now)
    ]
    check(seen, "G1", not passed, f"{number} goes out before {passed}")
    if shelf.spec.strict_order:
        check(seen, "G1", not out and members[0] is item, f"{number} goes out though it is not its turn")


def check_end(seen: Seen, taker: Taker, now: int) -> None:
    """Check that there is nothing for the client whose end of messages is reported."""
    shelf = taker.queue
    if taker.browses:
        unseen = [item.number for item in shelf.unshown(taker)]
        check(seen, "N1", not unseen, f"a browser is told so before it has seen {unseen}")
        return
    first = shelf.first_for(taker, now)
    rank = shelf.urgency(taker)
    above = [other for other in shelf.takers if shelf.urgency(other) > rank and not other.suspended()]
    check(seen, "N1", first is None or bool(above), f"there is {first and first.number}")


def check_woken(seen: Seen, client: Client) -> None:
    """Check that the notified client has work."""
    acquiring = [taker for taker in client.takers.values() if not taker.browses and taker.attached]
    if acquiring:
        check(seen, "W3", not all(taker.suspended() for taker in acquiring), "it can take nothing")


def check_rest(seen: Seen, shelf: Shelf, queue: Queue, now: int) -> None:
    """Check the queue while no connection waits for a turn."""
    consumer: QueueConsumer
    for consumer in [*queue.manager.all, *queue.manager.gets]:
        check(seen, "Q2", consumer.state != NOTIFIED, "a consumer is")
    able = shelf.able(now)
    check(seen, "Q1", not able, f"{able and able[0][1].number} could be delivered")
    for taker in shelf.takers:
        if taker.browses and not taker.suspended():
            unseen = shelf.unshown(taker)
            ahead = [item for item in shelf.may_be_shown(taker) if not unseen or not unseen[0] < item]
            missed = bool(unseen) and all(taker.fits(item.note.size) for item in ahead)
            check(seen, "Q3", not missed, f"{unseen and unseen[0].number} was not shown")
    empty, wakeups = queue.manager.empty_wakeups, queue.manager.wakeups
    check(seen, "W2", empty <= wakeups, f"{empty} of {wakeups} wake-ups for nothing")


def lookers(queue: Queue) -> int:
    """How many may be woken by arrivals besides one for each: who lacks room for what comes later.

    Where groups become free, also who waits for what is not for it any more, and one of each context. Where
    a return may end what others stand by for, those.
    """
    election = queue.election
    count = len(queue.waiting)
    assert election is None or isinstance(election, Election)
    if election is not None and election.draining:
        count += sum(
            taker.blockers & BLOCKED_BY_STANDBY != 0 for taker in queue.manager.acquiring_consumers()
        )
    if isinstance(queue.discipline, Groups):
        count += len(queue.gated) + 1 + len(queue.filtered)
    return count


def check_arrivals(seen: Seen, arrivals: int, wakeups: int, waiting: int) -> None:
    """Check W1: `arrivals` entries became ready, and `waiting` consumers lacked room for them."""
    check(seen, "W1", wakeups <= arrivals + waiting, f"{arrivals} arrivals woke {wakeups} consumers")
