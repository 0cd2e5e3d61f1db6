"""Consumers of partitioned queues: shared, or one served consumer for each member."""

from collections import Counter
from typing import Any

import pytest

from broker.core.arguments.consumer import LAST, NEXT, BrowseRange
from broker.core.errors import InUse, QueueStopped, ResourceLocked
from broker.core.partitions.partitioned import LOOK_MS, get_next, share_out
from broker.core.queues.attach import attach, detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.election import activity_of
from broker.core.queues.purge import purge
from broker.core.queues.queue import queue_of
from broker.core.vhosts.alteration import stop_queue
from tests.support.core.partitioned_vhost import KEY, PartitionedBench, Taker
from tests.support.core.topology import KeepingTarget, consume

ALONE: dict[str, Any] = {"single_active_consumer": True}


def members(*takers: Taker) -> list[int]:
    return [len(taker.members) for taker in takers]


def test_a_consumer_gets_the_messages_of_all_members() -> None:
    bench = PartitionedBench()
    first, second = bench.consume(), bench.consume()
    numbers = [bench.publish(f"k{number}") for number in range(30)]
    assert sorted(first.pull() + second.pull()) == numbers
    assert (bench.front.consumer_count, bench.queue("a").consumer_count) == (2, 2)
    assert members(first, second) == [3, 3]


def test_a_detached_consumer_has_no_part_left() -> None:
    bench = PartitionedBench()
    taker = bench.consume()
    bench.publish("k")
    taker.pull()
    detach(bench.front, taker.consumer, [])
    assert (taker.target.consumers, taker.consumer.parts, bench.front.consumer_count) == ([], [], 0)
    assert sum(bench.queue(name).consumer_count for name in "abc") == 0
    taker.release()
    assert sum(bench.queue(name).ready for name in "abc") == 1
    detach(bench.front, taker.consumer, [])


def test_a_new_member_serves_the_present_consumers() -> None:
    bench = PartitionedBench("a")
    taker = bench.consume()
    bench.change("a", "b", k="b")
    number = bench.publish("k")
    assert taker.pull() == [number]


def test_a_consumer_of_a_member_that_refuses_goes_without() -> None:
    bench = PartitionedBench("a")
    taker = bench.consume()
    attach(bench.queue("b"), QueueConsumer(KeepingTarget(), bench.queue("b"), exclusive=True))
    bench.change("a", "b")
    assert taker.members == ["a"]
    assert "gets nothing from its new member 'b': queue 'b' in vhost '/' in exclusive use" in bench.warned[0]


def test_an_exclusive_consumer_is_alone() -> None:
    bench = PartitionedBench()
    only = QueueConsumer(KeepingTarget(), bench.front, exclusive=True)
    attach(bench.front, only)
    with pytest.raises(InUse, match="queue 'front'"):
        bench.consume()
    detach(bench.front, only, [])
    consume(bench.queue("b"))
    with pytest.raises(InUse, match="queue 'b'"):
        attach(bench.front, QueueConsumer(KeepingTarget(), bench.front, exclusive=True))
    assert (bench.front.consumer_count, bench.queue("a").consumer_count) == (0, 0), "all or nothing"


def test_single_active_consumers_share_the_members() -> None:
    bench = PartitionedBench("a", "b", "c", "d", **ALONE)
    first = bench.consume()
    assert members(first) == [4]
    second = bench.consume()
    assert members(first, second) == [2, 2]
    third = bench.consume()
    assert sorted(members(first, second, third)) == [1, 1, 2]
    more = [bench.consume() for _ in range(3)]
    assert sorted(members(first, second, third, *more)) == [0, 0, 1, 1, 1, 1]
    for taker in (first, second, third):
        detach(bench.front, taker.consumer, [])
    assert sorted(members(*more)) == [1, 1, 2]
    detach(bench.front, more[0].consumer, [])
    detach(bench.front, more[1].consumer, [])
    assert members(more[2]) == [4]


def test_a_member_changes_its_consumer_when_its_deliveries_are_settled() -> None:
    bench = PartitionedBench("a", "b", **ALONE)
    first = bench.consume()
    old = {name: bench.publish(bench.key_for(name)) for name in "ab"}
    assert sorted(first.pull()) == sorted(old.values())
    second = bench.consume()
    kept = first.members[0]
    moved = "b" if kept == "a" else "a"
    new = bench.publish(bench.key_for(moved))
    assert (first.members, second.members, second.pull(), first.pull()) == ([kept], [], [], [])
    first.settle(old[moved])
    assert second.members == [moved]
    assert second.pull() == [new]


def test_what_a_lost_consumer_had_comes_first() -> None:
    bench = PartitionedBench("a", **ALONE)
    first, second = bench.consume(), bench.consume()
    numbers = [bench.publish("k") for _ in range(3)]
    assert first.pull() == numbers
    detach(bench.front, first.consumer, [])
    numbers.append(bench.publish("k"))
    assert second.pull() == []
    first.release()
    assert second.pull() == numbers


def test_consumers_of_the_highest_priority_share_the_members() -> None:
    bench = PartitionedBench("a", "b", **ALONE)
    low = bench.consume()
    high = bench.consume(priority=5)
    assert members(low, high) == [0, 2]
    other = bench.consume(priority=5)
    assert members(low, high, other) == [0, 1, 1]
    for taker in (high, other):
        detach(bench.front, taker.consumer, [])
    assert members(low) == [2]


def test_exclusive_candidates_share_the_members_of_an_ordinary_queue() -> None:
    bench = PartitionedBench("a", "b")
    shared = bench.consume()
    first, second = bench.consume(candidate=True), bench.consume(candidate=True)
    assert members(shared, first, second) == [0, 1, 1]
    detach(bench.front, first.consumer, [])
    assert members(shared, second) == [0, 2]
    detach(bench.front, second.consumer, [])
    assert members(shared) == [2]


def test_a_consumer_of_the_member_itself_with_a_higher_priority_is_served_first() -> None:
    bench = PartitionedBench("a")
    own = [QueueConsumer(KeepingTarget(), bench.queue("a"), priority=priority) for priority in (7, 5)]
    for consumer in own:
        consumer.candidate = True
        attach(bench.queue("a"), consumer)
    first, second = bench.consume(candidate=True), bench.consume(candidate=True)
    assert own[0].blockers == 0
    assert members(first, second) == [0, 0]
    detach(bench.queue("a"), own[0], [])
    assert own[1].blockers == 0
    assert members(first, second) == [0, 0]
    detach(bench.queue("a"), own[1], [])
    assert members(first, second) == [1, 0]
    detach(bench.front, first.consumer, [])
    assert members(second) == [1]


def test_a_new_member_is_shared_out_too() -> None:
    bench = PartitionedBench("a", **ALONE)
    first, second = bench.consume(), bench.consume()
    assert members(first, second) == [1, 0]
    bench.change("a", "b")
    assert members(first, second) == [1, 1]
    bench.change("b")
    bench.clock.advance(LOOK_MS)
    assert sorted(members(first, second)) == [0, 1]
    assert bench.queue("a").election is None


def test_the_rest_is_shared_out_again_when_a_member_is_deleted() -> None:
    bench = PartitionedBench("a", "b", "c", "d", **ALONE)
    first, second = bench.consume(), bench.consume()
    for name in list(first.members):
        bench.vhost.declarations.force_delete(bench.queue(name))
    assert members(first, second) == [1, 1]


def test_the_rest_is_shared_out_again_when_a_member_has_left() -> None:
    bench = PartitionedBench("a", "b", "c", "d", **ALONE)
    first, second = bench.consume(), bench.consume()
    gone = list(first.members)
    bench.change(*(name for name in "abcd" if name not in gone))
    bench.clock.advance(LOOK_MS)
    assert bench.partitions.leaving == []
    assert members(first, second) == [1, 1]


def test_the_activity_of_a_consumer_is_that_of_its_parts() -> None:
    bench = PartitionedBench("a", **ALONE)
    first, second = bench.consume(), bench.consume()
    assert [activity_of(taker.consumer) for taker in (first, second)] == ["single_active", "waiting"]
    assert activity_of(PartitionedBench().consume().consumer) == "up"


def test_a_get_takes_from_the_members_round_robin() -> None:
    bench = PartitionedBench("a", "b")
    for name in "ab":
        for _ in range(2):
            bench.publish(bench.key_for(name))
    found = [get_next(bench.front, KeepingTarget()) for _ in range(4)]
    assert [got.consumer.queue.name for got in found if got is not None] == list("abab")
    assert get_next(bench.front, KeepingTarget()) is None


def test_a_get_passes_members_that_have_no_message_for_it() -> None:
    bench = PartitionedBench("a", "b", "c")
    bench.declare("grouped", **{"x-group-key": KEY})
    bench.change("grouped", "b", "c", k="grouped", m="b", n="c")
    bench.publish("k")
    taker = bench.consume()
    assert taker.pull() == [1]
    taker.consumer.target.close()
    for key in "kmn":
        bench.publish(key)
    assert bench.queue("grouped").ready == 1
    stop_queue(bench.vhost.topology, bench.queue("b"), ["dequeue"])
    got = get_next(bench.front, KeepingTarget())
    assert got is not None
    assert got.consumer.queue.name == "c"
    assert get_next(bench.front, KeepingTarget()) is None


def test_a_get_is_refused_by_all_members_only() -> None:
    bench = PartitionedBench("a", "b")
    for name in "ab":
        bench.publish(bench.key_for(name))
        stop_queue(bench.vhost.topology, bench.queue(name), ["dequeue"])
    with pytest.raises(QueueStopped, match="queue 'b'"):
        get_next(bench.front, KeepingTarget())


def test_a_get_is_refused_where_consumers_are_single() -> None:
    bench = PartitionedBench("a", **ALONE)
    with pytest.raises(ResourceLocked):
        get_next(bench.front, KeepingTarget())


def test_a_browser_sees_all_members_and_ends_with_its_snapshot() -> None:
    bench = PartitionedBench("a", "b")
    for number in range(10):
        bench.publish(f"k{number}")
    target = SnapshotTarget()
    browser = QueueConsumer(target, bench.front, acquires=False)
    browser.extent = BrowseRange(snapshot=True)
    attach(bench.front, browser)
    for part in list(browser.parts):
        while queue_of(part).deliver_single_message(part):
            pass
    assert len(target.taken) == 10
    assert (target.consumers, bench.front.consumer_count) == ([], 0)
    assert sum(bench.queue(name).ready for name in "ab") == 10


def browse(bench: PartitionedBench, extent: BrowseRange | None = None) -> QueueConsumer:
    """Attach a browser, and let it see all members."""
    browser = QueueConsumer(KeepingTarget(), bench.front, acquires=False)
    browser.extent = extent
    attach(bench.front, browser)
    return browser


def seen(bench: PartitionedBench, browser: QueueConsumer) -> list[int]:
    """Let a browser see all messages, and return the numbers of the messages that it has seen."""
    bench.run()
    for part in list(browser.parts):
        while queue_of(part).deliver_single_message(part):
            pass
    assert isinstance(browser.target, KeepingTarget)
    return [bench.number(entry) for entry in browser.target.taken]


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}, {"x-index": KEY}])
def test_a_browser_sees_a_message_that_waited_once(arguments: dict[str, object]) -> None:
    bench = PartitionedBench("a")
    queue = bench.declare("moved", **arguments)
    before = browse(bench)
    taker = bench.consume()
    old = bench.publish("k")
    bench.change("moved")
    first, passing = bench.publish("k"), bench.publish(to="moved", priority=4)
    assert seen(bench, before) == [old, passing]
    waiting = bench.publish("k", priority=3)
    assert taker.pull() == [old, passing]
    during = browse(bench)
    later = browse(bench, BrowseRange(NEXT))
    assert seen(bench, during) == []
    taker.settle(old)
    bench.run()
    assert queue.held == 0
    new = bench.publish("k")
    assert sorted(seen(bench, before)) == [old, first, passing, waiting, new]
    assert sorted(seen(bench, during)) == [first, waiting, new]
    assert seen(bench, later) == [new]
    taker.pull()
    taker.release()
    assert len(seen(bench, before)) == 5


def test_a_browser_from_the_last_message_sees_those_after_it_that_waited() -> None:
    bench = PartitionedBench("a")
    old = bench.publish("k")
    bench.change("b")
    early = bench.publish("k")
    last = bench.publish(to="b")
    late = bench.publish("k")
    browser = browse(bench, BrowseRange(LAST))
    assert sorted(seen(bench, browser)) == [old, last]
    purge(bench.queue("a"), bench.clock.schedule)
    assert early not in seen(bench, browser)
    assert seen(bench, browser)[2:] == [late]


class SnapshotTarget(KeepingTarget):
    def on_snapshot_end(self, consumer: QueueConsumer) -> None:
        detach(queue_of(consumer), consumer, [])


def test_the_gate_and_the_dispatch_order_are_those_of_the_partitioned_queue() -> None:
    bench = PartitionedBench("a", consumers_before_dispatch=2, dispatch="strict")
    number = bench.publish("k")
    first = bench.consume()
    assert first.pull() == []
    second = bench.consume()
    assert (second.pull(), first.pull()) == ([], [number]), "the one attached first is served first"


@pytest.mark.parametrize(("count", "consumers"), [(0, 1), (7, 1), (7, 3), (3, 7), (12, 5), (256, 10)])
def test_shares_differ_by_one_and_owners_stay(count: int, consumers: int) -> None:
    bench = PartitionedBench()
    everyone = [QueueConsumer(KeepingTarget(), bench.front) for _ in range(consumers)]
    owners = share_out([None] * count, everyone)
    shares = Counter(owners)
    assert sum(shares.values()) == count
    sizes = [shares[each] for each in everyone]
    assert max(sizes) - min(sizes) <= 1
    assert share_out(owners, everyone) == owners
    left = everyone[1:]
    if left:
        after = share_out(owners, left)
        assert all(one is other for one, other in zip(owners, after, strict=True) if one is not everyone[0])
    else:
        assert share_out(owners, left) == [None] * count
