"""Deliveries that are returned, rejected or settled, singly and very many at once."""

import random
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from pamqp.commands import Basic

from broker.core.arguments.queue import CRASH, NACK, RELEASED
from broker.core.entries.list import FifoEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.errors import PreconditionFailed
from broker.core.message import TELLS_CONSUMED
from broker.core.queues.attach import detach, get_one
from broker.core.queues.consumer import BLOCKED_BY_RETURNS
from broker.core.queues.election import Election
from broker.core.queues.purge import dispose
from broker.core.queues.queue import Queue
from broker.core.queues.returns import (
    DEAR,
    DISCARD_SLICE,
    SLICE,
    discard_all,
    release_entries,
    requeue_runs,
    settle_all,
    settle_runs,
)
from broker.core.queues.returns import DISCARD_SLICE as DISCARDED
from broker.store.restore import close
from tests.bench.loop import LoopBench
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import SimDisk
from tests.support.core.group_bench import GroupBench, NumberFilter
from tests.support.core.hand_clock import HandClock
from tests.support.core.mass_returns import close_client, nack_all, run_schedule, state
from tests.support.core.queue_bench import Client, MemoryStore, QueueBench, message, number_of
from tests.support.core.receipt_vhost import ReceiptBench
from tests.support.core.retry import retry_delay
from tests.support.core.timed_vhost import VhostBench, delivered_bench, entry_of, numbers
from tests.support.core.topology import RecordingStore


def test_a_release_is_no_try() -> None:
    bench, queue, client = delivered_bench(2)
    client.nack(1, outcome=RELEASED)
    client.nack(2, outcome=NACK)
    bench.run()

    first, second = entry_of(queue, 1), entry_of(queue, 2)
    assert (first.delivery_count, first.counted, first.redelivered) == (2, 1, True)
    assert (second.delivery_count, second.counted, second.redelivered) == (2, 2, True)


def test_a_released_entry_has_its_old_place() -> None:
    bench, queue, client = delivered_bench(4, prefetch=4)
    client.ack(2)
    client.cancel()
    client.nack(1, 3, 4, outcome=RELEASED)
    other = bench.client(queue)
    bench.run()

    assert other.numbers == [1, 3, 4]
    assert other.flags == [True, True, True]


@pytest.mark.parametrize(("outcome", "lasts"), [(RELEASED, True), (NACK, False), (CRASH, False)])
def test_no_number_of_releases_reaches_a_delivery_limit(outcome: int, lasts: bool) -> None:
    bench, queue, client = delivered_bench(delivery_limit=2)
    for _ in range(6):
        client.nack(outcome=outcome)
        bench.run()

    assert numbers(queue) == ([1] if lasts else [])
    assert bench.died() == ({} if lasts else {"delivery_limit": 1})


@pytest.mark.parametrize("kind", ["all", "failed", "returned"])
def test_a_release_does_not_count_in_a_queue_that_delays_retries(kind: str) -> None:
    bench, queue, client = delivered_bench(delayed_retry_type=kind, delayed_retry_min=10)
    for outcome, counted in ((RELEASED, 0), (NACK, 1), (RELEASED, 1), (CRASH, 2)):
        retry_delay(bench, queue, client, outcome)
        assert entry_of(queue, 1).counted - 1 == counted, "the delivery that runs is counted too"


@pytest.mark.parametrize(
    "arguments", [{"retry_min": 1}, {"delayed_retry_type": "all", "delayed_retry_min": 1}]
)
@pytest.mark.parametrize(("outcome", "lasts"), [(RELEASED, True), (NACK, False)])
def test_no_number_of_releases_reaches_a_delivery_limit_with_delayed_retries(
    arguments: dict[str, Any], outcome: int, lasts: bool
) -> None:
    bench, queue, client = delivered_bench(delivery_limit=2, **arguments)
    for _ in range(6):
        client.nack(outcome=outcome)
        bench.run()
        bench.clock.advance(20)
        bench.run()

    assert numbers(queue) == ([1] if lasts else [])
    assert bench.died() == ({} if lasts else {"delivery_limit": 1})


def test_a_release_counts_where_the_queue_says_so() -> None:
    bench, queue, client = delivered_bench(
        delayed_retry_type="all", delayed_retry_min=10, delivery_count_on="released"
    )
    retry_delay(bench, queue, client, RELEASED)
    retry_delay(bench, queue, client, NACK)

    assert entry_of(queue, 1).counted == 2


def test_tries_between_releases_count() -> None:
    bench, queue, client = delivered_bench(delivery_limit=2)
    for outcome in (RELEASED, NACK, RELEASED, NACK, RELEASED):
        client.nack(outcome=outcome)
        bench.run()
    assert numbers(queue) == [1]
    client.nack()
    bench.run()

    assert numbers(queue) == []


@pytest.mark.parametrize(("outcome", "counted"), [(RELEASED, 0), (CRASH, 1), (NACK, 1)])
def test_the_outcome_of_a_detach_decides_whether_its_deliveries_count(outcome: int, counted: int) -> None:
    bench, queue, client = delivered_bench(3, prefetch=3)
    client.session.connection.close_targets()
    detach(queue, client.consumer, client.held, outcome)

    assert [entry.counted for entry in queue.entries] == [counted] * 3
    other = bench.client(queue, prefetch=3)
    bench.run()
    assert other.numbers == [1, 2, 3]
    assert other.flags == [True] * 3
    assert [entry.counted for entry in queue.entries] == [counted + 1] * 3


def test_only_entries_of_the_consumer_are_returned() -> None:
    bench, queue, client = delivered_bench(2, prefetch=2)
    [first, second] = client.held
    client.ack(1)
    other = bench.client(queue)
    release_entries(queue, [first, second], other.consumer, RELEASED)
    assert (second.uncounted, queue.unacked) == (0, 1)
    release_entries(queue, [first, second], client.consumer, RELEASED)

    assert (second.uncounted, queue.unacked, queue.ready) == (1, 0, 1)


def test_a_released_outcome_is_not_counted_in_the_log() -> None:
    bench = VhostBench(store := MemoryStore())
    queue = bench.queue(durable=True, delivery_limit=9)
    client = bench.client(queue)
    new = message(1)
    new.sequence = 1
    queue.enqueue(new)
    bench.run()
    for outcome in (NACK, RELEASED, NACK):
        client.nack(outcome=outcome)
        bench.run()

    assert [count for _, _, count in store.counted] == [1, 2, 1, 2, 3]


MOST = int(SLICE)
MANY = 2 * MOST + 1


def test_a_browser_finds_all_entries() -> None:
    bench, queue, client = delivered_bench(MANY)
    close_client(queue, client)
    entry = get_one(queue, bench.client(queue).consumer)
    assert entry is not None
    assert (number_of(entry), state(queue)) == (1, (MANY - 1, 1, 0))
    assert (queue.manager.returns, bench.vhost.settlements) == ([], [])


def test_a_purge_drops_all_entries_that_return() -> None:
    bench, queue, client = delivered_bench(MANY)
    close_client(queue, client)
    purge = bench.vhost.declarations.purge_queue("q")
    assert (purge.over, queue.unacked) == (False, MOST + 1), "it waits for them"
    bench.clock.advance(0)
    assert (purge.over, purge.dropped, numbers(queue)) == (True, MANY, [])


def test_a_queue_with_returning_entries_is_not_empty() -> None:
    bench, queue, client = delivered_bench(MANY)
    close_client(queue, client)
    assert get_one(queue, bench.client(queue).consumer) is not None
    bench, queue, client = delivered_bench(MANY, max_length=1)
    close_client(queue, client)
    with pytest.raises(PreconditionFailed, match="not empty"):
        bench.vhost.declarations.delete_queue("q", False, True)
    assert bench.vhost.topology.queues["q"] is queue


def test_a_get_does_not_have_others_be_pushed_out_in_its_turn() -> None:
    bench = VhostBench()
    queue = bench.queue(max_length=10)
    client = bench.client(queue)
    for _ in range(MOST // 10):
        bench.publish(count=10)
        bench.run()
    nack_all(client)
    before = bench.died()["maxlen"]
    entry = get_one(queue, bench.client(queue).consumer)
    assert entry is not None
    assert bench.died()["maxlen"] == before < MOST // 2
    bench.clock.advance(0)
    assert (queue.ready, number_of(entry) <= MOST) == (10, True)


DISCARDS_A_STEP = int(DISCARD_SLICE)
MANY_REFUSALS = 2 * DISCARDS_A_STEP + 1
LETTERS: dict[str, Any] = {"dead_letter_exchange": "", "dead_letter_routing_key": "d"}


def refused(count: int = MANY_REFUSALS) -> tuple[VhostBench, Queue, Client, Queue]:
    """A client has refused so many, and the dead letters are to go to the last queue."""
    bench, queue, client = delivered_bench(count, **LETTERS)
    letters = bench.queue("d")
    refuse(client)
    return bench, queue, client, letters


def refuse(client: Client) -> None:
    entries, client.held = client.held, []
    discard_all(client.queue, entries, client.consumer)
    client.restore_all(len(entries), len(entries))


def test_refused_entries_leave_in_slices_and_in_order() -> None:
    bench, queue, client, letters = refused()
    seen = [(int(letters.ready), int(queue.unacked), int(client.consumer.inflight))]
    while queue.manager.discards is not None:
        run_schedule(bench)
        seen.append((int(letters.ready), int(queue.unacked), int(client.consumer.inflight)))
    assert seen == [
        (0, MANY_REFUSALS, MANY_REFUSALS),
        (DISCARDS_A_STEP, DISCARDS_A_STEP + 1, DISCARDS_A_STEP + 1),
        (2 * DISCARDS_A_STEP, 1, 1),
        (MANY_REFUSALS, 0, 0),
    ]
    assert numbers(letters) == list(range(1, MANY_REFUSALS + 1))
    assert bench.died() == {"rejected": MANY_REFUSALS}


def test_few_refusals_leave_at_once() -> None:
    _, queue, _, letters = refused(DISCARDS_A_STEP)
    assert (letters.ready, queue.unacked, queue.manager.discards) == (DISCARDS_A_STEP, 0, None)


def test_later_refusals_leave_later() -> None:
    bench, queue, client, letters = refused()
    bench.publish(count=2)
    bench.run()
    assert client.numbers[MANY_REFUSALS:] == [MANY_REFUSALS + 1, MANY_REFUSALS + 2]
    refuse(client)
    assert letters.ready == 0
    bench.clock.advance(0)
    assert numbers(letters) == list(range(1, MANY_REFUSALS + 3))
    assert queue.unacked == 0


def test_rejected_deliveries_are_dead_lettered_when_the_client_disconnects() -> None:
    bench, queue, client, letters = refused()
    other = bench.client(queue)
    client.vanish()
    bench.run()
    bench.clock.advance(0)
    assert (other.numbers, letters.ready, queue.unacked) == ([], MANY_REFUSALS, 0)


def test_rejected_deliveries_are_dead_lettered_when_the_queue_is_deleted() -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    queue = bench.queue(durable=True, **LETTERS)
    letters = bench.queue("d", durable=True)
    client = bench.client(queue)
    bench.publish(count=MANY_REFUSALS, persistent=True)
    bench.run()
    refuse(client)
    assert letters.ready == 0
    bench.vhost.declarations.delete_queue("q", False, False)
    assert (letters.ready, client.consumer.inflight) == (MANY_REFUSALS, 0)
    assert (len(store.settled), store.forgotten) == (MANY_REFUSALS, []), "the log knew the queue still"
    bench.clock.advance(1)
    assert letters.ready == MANY_REFUSALS


def test_entries_that_the_client_does_not_own_stay() -> None:
    bench, queue, client = delivered_bench(MANY_REFUSALS, **LETTERS)
    letters = bench.queue("d")
    held = list(client.held)
    client.nack(*range(1, 11))
    discard_all(queue, held, client.consumer)
    bench.clock.advance(0)
    assert (letters.ready, queue.ready) == (MANY_REFUSALS - 10, 10)


def test_a_single_frame_refuses_many_deliveries() -> None:
    bench = LoopBench()
    queue = bench.declare("q", **LETTERS)
    letters = bench.declare("d")
    bench.fill(bench.open(), "q", MANY_REFUSALS)
    client = bench.consumer("q", MANY_REFUSALS)
    bench.loop.run()
    bench.ask(client, Basic.Nack(0, True, False))
    assert (letters.ready, queue.unacked) == (0, MANY_REFUSALS)
    bench.loop.run()
    assert (letters.ready, queue.unacked) == (MANY_REFUSALS, 0)


GIVEN_UP = int(DISCARDED)


def test_no_consumer_gets_messages_before_all_entries_are_requeued() -> None:
    bench, queue, client = delivered_bench(MANY)
    other = bench.client(queue, 10)
    close_client(queue, client)
    seen = []
    for _ in range(3):
        assert other.numbers == []
        seen.append(state(queue))
        if queue.unacked:
            bench.run()
            run_schedule(bench)
    assert seen == [(MOST, MOST + 1, 0), (2 * MOST, 1, 0), (MANY, 0, 0)]
    assert (client.consumer.inflight, queue.manager.returns, bench.vhost.settlements) == (0, [], [])
    bench.run()
    assert other.numbers == list(range(1, 11))
    assert all(other.flags)


def test_few_are_back_at_once() -> None:
    few = MOST // int(DEAR)
    bench, queue, client = delivered_bench(few)
    other = bench.client(queue)
    close_client(queue, client)
    assert (state(queue), other.consumer.blockers) == ((few, 0, 0), 0)


def test_credit_is_restored_as_they_are_back_and_the_client_gets_them_again_in_order() -> None:
    bench, _, client = delivered_bench(MANY, MANY)
    bench.publish(count=3)
    nack_all(client)
    seen = []
    for _ in range(3):
        seen.append(int(client.credit.used))
        run_schedule(bench)
    assert seen == [MOST + 1, 1, 0]
    bench.run()
    assert client.numbers[MANY:] == list(range(1, MANY + 1))


def test_a_new_consumer_waits_until_all_entries_are_requeued() -> None:
    bench, queue, client = delivered_bench(MANY)
    close_client(queue, client)
    other = bench.client(queue, 1)
    assert other.consumer.blockers & BLOCKED_BY_RETURNS
    bench.publish()
    bench.run()
    assert other.numbers == []
    bench.clock.advance(0)
    bench.run()
    assert other.numbers == [1]


def test_the_queue_is_deleted_while_deliveries_return() -> None:
    bench, queue, client = delivered_bench(MANY, MANY)
    nack_all(client)
    bench.vhost.declarations.delete_queue("q", False, False)
    bench.clock.advance(1000)
    used = client.credit.used + len(client.removed)  # this target restores it for what is removed, too
    assert (client.consumer.inflight, used) == (0, 0)
    assert (state(queue), numbers(queue), bench.vhost.settlements) == ((0, 0, 0), [], [])


def test_entries_that_a_browser_acknowledges_with_them_change_nothing() -> None:
    bench = VhostBench()
    queue = bench.queue()
    browser = bench.client(queue, acquires=False)
    bench.publish(count=MANY)
    bench.run()
    client = bench.client(queue, MANY)
    bench.run()
    other = bench.client(queue, 1)
    runs = [(each.consumer, each.held[:]) for each in (browser, client)]
    client.held = []
    requeue_runs(runs, NACK, client.session, bench.vhost)
    run_schedule(bench)
    run_schedule(bench)
    bench.run()
    assert (queue.unacked > 0, other.numbers) == (True, [])
    bench.clock.advance(0)
    bench.run()
    assert sorted(client.numbers[MANY:] + other.numbers) == list(range(1, MANY + 1))


def test_two_clients_are_lost_at_once() -> None:
    bench, queue, client = delivered_bench(MANY)
    second = bench.client(queue)
    bench.publish(count=MOST)
    client.close()
    bench.run()
    assert second.numbers
    other = bench.client(queue, 0)
    close_client(queue, client)
    close_client(queue, second)
    before = int(queue.ready)
    run_schedule(bench)
    bench.run()
    assert (queue.ready > before, other.numbers) == (True, [])
    bench.clock.advance(0)
    bench.run()
    assert other.numbers == list(range(1, MANY + MOST + 1))


@pytest.mark.parametrize("kind", [{"max_priority": 3}, {"strict_order": True}, {"group_kind": "sticky"}])
def test_queues_of_every_kind(kind: dict[str, Any]) -> None:
    count = MANY if "strict_order" not in kind else 1
    bench, queue, client = delivered_bench(count, **kind)
    close_client(queue, client)
    other = bench.client(queue, count)
    bench.clock.advance(0)
    bench.run()
    assert other.numbers == list(range(1, count + 1))


def test_a_queue_with_a_limit_is_never_above_it() -> None:
    bench, queue, client = delivered_bench(MANY)
    queue = bench.queue("small", max_length=10)
    client = bench.client(queue)
    for _ in range(30):
        bench.publish("small", count=10)
        bench.run()
    assert queue.unacked == 300
    other = bench.client(queue)
    first = client.numbers[0]
    nack_all(client)
    seen = [int(queue.ready)]
    while queue.unacked:
        bench.run()
        run_schedule(bench)
        seen.append(int(queue.ready))
    assert max(seen) == 10
    bench.run()
    assert sorted(other.numbers + client.numbers[300:]) == list(range(first + 290, first + 300))
    assert bench.died() == {"maxlen": 290}


def test_entries_that_wait_for_a_retry_keep_no_others_waiting() -> None:
    count = MOST + 1  # each as much work as two
    bench, queue, client = delivered_bench(count, retry_min=1000)
    half = MOST // 2
    nack_all(client)
    assert state(queue) == (0, count - half, half)
    bench.publish(count=2)
    bench.run()
    assert client.numbers[count:] == [count + 1, count + 2]
    bench.clock.advance(0)
    assert state(queue) == (0, 2, count)
    bench.clock.advance(1000)
    bench.run()
    assert client.numbers[count + 2 :] == list(range(1, count + 1))


def test_retry_may_be_switched_off_while_entries_return() -> None:
    bench, queue, client = delivered_bench(MOST, retry_min=1000)
    close_client(queue, client)
    assert queue.retry is not None
    queue.retry.apply({})
    bench.clock.advance(0)
    assert state(queue) == (MOST // 2, 0, MOST // 2)


def test_entries_beyond_the_delivery_limit() -> None:
    count = 2 * GIVEN_UP + 1
    bench, queue, client = delivered_bench(count, delivery_limit=0)
    other = bench.client(queue)
    close_client(queue, client)
    gone: list[int] = []
    while queue.unacked:
        assert len(gone) < 5
        bench.run()
        run_schedule(bench)
        gone.append(bench.died()["delivery_limit"])
    assert gone == [GIVEN_UP, 2 * GIVEN_UP, count]
    assert (client.consumer.inflight, other.numbers, numbers(queue)) == (0, [], [])


def test_too_often_and_the_queue_is_deleted() -> None:
    letters: dict[str, Any] = {"dead_letter_exchange": "", "dead_letter_routing_key": "d"}
    bench, queue, client = delivered_bench(MANY, delivery_limit=0, **letters)
    dead = bench.queue("d")
    close_client(queue, client)
    bench.vhost.declarations.delete_queue("q", False, False)
    bench.clock.advance(0)
    assert bench.died() == {"delivery_limit": MANY}
    assert (client.consumer.inflight, numbers(queue)) == (0, [])
    assert numbers(dead) == list(range(1, MANY + 1))


def test_entries_within_the_delivery_limit_are_back_at_once() -> None:
    count = GIVEN_UP + 50
    bench, queue, client = delivered_bench(count, delivery_limit=1)
    for entry in client.held[: GIVEN_UP + 10]:
        entry.delivery_count += 1
    other = bench.client(queue)
    close_client(queue, client)
    assert state(queue) == (40, GIVEN_UP + 10, 0)
    bench.run()
    assert other.numbers == list(range(GIVEN_UP + 11, count + 1))
    bench.clock.advance(0)
    assert state(queue) == (0, 40, 0)


def test_a_single_frame_of_a_channel_whose_consumers_have_several_queues() -> None:
    bench = LoopBench()
    queues = [bench.declare(name) for name in ("a", "b")]
    for queue in queues:
        bench.fill(bench.open(), queue.name, MANY)
    client = bench.consumer("a")
    bench.ask(client, Basic.Consume(queue="b", consumer_tag="d"))
    bench.loop.run()
    assert [int(queue.unacked) for queue in queues] == [MANY, MANY]
    client.frames()
    bench.ask(client, Basic.Cancel("c"))
    bench.ask(client, Basic.Cancel("d"))
    bench.ask(client, Basic.Nack(0, True, True))
    assert sum(int(queue.ready) for queue in queues) == MOST
    bench.loop.run()
    assert [int(queue.ready) for queue in queues] == [MANY, MANY]


def settle(*clients: Client) -> None:
    """Settle all deliveries of the clients by a single frame of their channel."""
    runs = [(client.consumer, client.held) for client in clients]
    for client in clients:
        client.held = []
    topology = clients[0].queue.host
    assert topology is not None
    settle_runs(runs, clients[0].session, topology)


def settled(count: int = MANY, prefetch: int = 0, **arguments: Any) -> tuple[VhostBench, Queue, Client]:
    """Return a bench whose client has settled `count` deliveries by a single frame."""
    bench, queue, client = delivered_bench(count, prefetch, **arguments)
    settle(client)
    return bench, queue, client


def test_settled_entries_leave_in_slices_and_make_room() -> None:
    bench, queue, client = settled(prefetch=MANY)
    assert bench.vhost.settlements
    seen = []
    for _ in range(3):
        seen.append((queue.acked, queue.unacked, client.consumer.inflight, client.credit.used))
        run_schedule(bench)
    assert seen == [(MOST, MOST + 1, MOST + 1, MOST + 1), (2 * MOST, 1, 1, 1), (MANY, 0, 0, 0)]
    assert not bench.vhost.settlements
    assert numbers(queue) == []


def test_few_settlements_leave_at_once() -> None:
    few = MOST // int(DEAR)
    bench, queue, client = settled(few)
    assert (queue.acked, queue.unacked, bench.vhost.settlements, client.credit.used) == (few, 0, [], 0)


def test_later_settlements_may_leave_before() -> None:
    bench, queue, client = settled()
    bench.publish()
    bench.run()
    client.ack(MANY + 1)
    assert queue.unacked == MOST + 1
    bench.publish(count=MANY)
    bench.run()
    settle(client)
    assert len(bench.vhost.settlements) == 2
    bench.clock.advance(0)
    assert (queue.acked, queue.unacked, numbers(queue)) == (2 * MANY + 1, 0, [])


def test_acknowledged_deliveries_stay_settled_when_the_client_disconnects() -> None:
    bench, queue, client = settled()
    other = bench.client(queue)
    client.vanish()
    bench.run()
    bench.clock.advance(0)
    assert (other.numbers, queue.acked, queue.unacked, numbers(queue)) == ([], MANY, 0, [])


@pytest.mark.parametrize("exclusive", [{"single_active_consumer": True}, {"strict_order": True}])
def test_a_consumer_that_waits_for_the_last_settlement_is_served_then(exclusive: dict[str, bool]) -> None:
    count = MANY if "strict_order" not in exclusive else 1
    bench, queue, client = settled(count, **exclusive)
    other = bench.client(queue)
    client.cancel()
    bench.publish()
    bench.run()
    bench.clock.advance(0)
    bench.run()
    assert other.numbers == [count + 1]


def test_the_queue_is_deleted_while_settlements_leave() -> None:
    bench, queue, client = settled(prefetch=MANY)
    bench.vhost.declarations.delete_queue("q", False, False)
    assert (bench.vhost.settlements, bench.counters.acked) == ([], MANY)
    bench.clock.advance(0)
    assert (client.consumer.inflight, numbers(queue)) == (0, [])


def test_a_turn_is_no_longer_where_consumers_take_turns() -> None:
    bench, queue, client = delivered_bench(MANY)
    runs = [(client.consumer, [entry]) for entry in client.held]
    settle_runs(runs, client.session, bench.vhost)
    assert queue.acked == MOST // 2
    bench.clock.advance(0)
    assert (queue.acked, queue.unacked) == (MANY, 0)


def test_an_ack_behind_an_unfinished_ack_waits() -> None:
    bench, queue, client = settled()
    bench.publish(count=MOST)
    bench.run()
    settle(client)
    assert queue.acked == MOST
    client.vanish()
    bench.clock.advance(0)
    assert (queue.acked, queue.unacked, numbers(queue)) == (MANY + MOST, 0, [])


def test_deleting_a_queue_finishes_only_its_own_settlements() -> None:
    bench, queue, client = delivered_bench(MANY)
    other = bench.queue("other")
    second = bench.client(other)
    bench.publish("other", count=MANY)
    third = bench.client(bench.queue("third"))
    bench.publish("third")
    bench.run()
    settle(client, second)
    before = int(queue.acked) + int(other.acked)
    bench.vhost.declarations.delete_queue("third", False, False)
    assert (third.consumer.inflight, int(queue.acked) + int(other.acked)) == (0, before)
    bench.vhost.declarations.delete_queue("other", False, False)
    assert bench.counters.acked == before + MANY
    assert bench.vhost.settlements
    bench.clock.advance(0)
    assert (queue.acked, bench.vhost.settlements) == (MANY, [])


def test_a_clean_stop_finishes_unfinished_settlements() -> None:
    disk = SimDisk(Random(1))
    life = Life(disk)
    life.declare("q")
    for number in range(MANY):
        life.publish("q", b"%d" % number)
    consumer, entries = life.take("q")
    settle_runs([(consumer, entries)], consumer.target.peers, life.vhost)
    assert consumer.queue.acked == MOST
    close(life.broker, life.log)
    again = Life(disk)
    assert again.held() == {"q": []}


def test_a_channel_window_made_during_an_ack_counts_new_deliveries() -> None:
    bench = LoopBench()
    queue = bench.declare("q")
    bench.fill(bench.open(), "q", MANY + 100)
    client = bench.consumer("q", MANY)
    bench.loop.run()
    client.send(Basic.Ack(0, True), 1)
    client.send(Basic.Qos(0, 10, True), 1)
    bench.loop.run()
    assert (queue.acked, queue.unacked) == (MANY, 10)


@pytest.mark.parametrize("deleted", [False, True])
def test_many_at_once_are_told_of_in_slices_and_before_their_queue_goes(deleted: bool) -> None:
    bench = ReceiptBench()
    most = int(SLICE // DEAR)
    for _ in range(2 * most + 1):
        bench.send(TELLS_CONSUMED, persistent=False)
    client = bench.client(bench.q)
    bench.run()
    settle(client)
    assert bench.q.acked == most
    if deleted:
        bench.vhost.declarations.delete_queue("q", False, False)
    for _ in range(5):
        bench.clock.advance(1)
    assert len(bench.receipts()) == 2 * most + 1
    assert bench.counters.acked == 2 * most + 1


def plain() -> QueueBench:
    return QueueBench(logged=True)


def ranked() -> QueueBench:
    return QueueBench(PriorityEntryList(3), logged=True)


def grouped() -> QueueBench:
    return GroupBench()


def elected() -> QueueBench:
    bench = QueueBench()
    bench.queue.election = Election(bench.queue)
    return bench


def one_by_one(client: Client, numbers: list[int]) -> None:
    for number in numbers:
        client.ack(number)


def at_once(client: Client, numbers: list[int]) -> None:
    chosen = [client.deliveries[client.numbers.index(number)] for number in numbers]
    assert client.consumer.acquires
    settle_all(chosen, client.consumer)
    client.held = [entry for entry in client.held if entry not in chosen]


def history(make: Callable[[], QueueBench], settle: Callable[[Client, list[int]], None], seed: int) -> object:
    """Return the remaining entries and all deliveries after many random turns."""
    chance = random.Random(seed)
    bench = make()
    clients = [bench.client(chance.choice([3, 10, 100])) for _ in range(2)]
    odd = bench.client(5, prefetch_bytes=9, entry_filter=NumberFilter(lambda number: number % 2 == 1))
    browser = bench.client(acquires=False)
    for _ in range(30):
        for new in range(chance.randrange(8)):
            if isinstance(bench, GroupBench):
                bench.send(str(chance.randrange(6)))
            else:
                bench.publish(priority=(bench.published + new) % 3)
        for each in bench.queue.entries:
            each.message.sequence = 1
        bench.run(chance.choice([1, 16]))
        client = chance.choice([*clients, odd])
        held = [client.numbers[client.deliveries.index(entry)] for entry in client.held]
        numbers = chance.choice([held, held[: len(held) // 2], chance.sample(held, len(held) // 2)])
        settle(client, numbers)
        if chance.random() < 0.2:
            clients[0].nack()
    bench.run()
    queue = bench.queue
    counts = (queue.ready, queue.unacked, queue.unacked_bytes, queue.acked, queue.counters.acked)
    settled = [message.content for message, _ in bench.store.settled]
    seen = [(client.numbers, client.credit.used, client.consumer.inflight) for client in bench.clients]
    return bench.numbers(), counts, settled, seen, browser.numbers


@pytest.mark.parametrize("make", [plain, ranked, grouped, elected])
@pytest.mark.parametrize("seed", range(6))
def test_a_mass_settlement_equals_single_settlements(make: Callable[[], QueueBench], seed: int) -> None:
    assert history(make, at_once, seed) == history(make, one_by_one, seed)


def test_only_entries_of_the_consumer_are_settled() -> None:
    bench = QueueBench(FifoEntryList())
    client, other = bench.client(2), bench.client(2)
    bench.publish(5)
    bench.run()
    mine, others = list(client.held), list(other.held)
    release_entries(bench.queue, [mine[0]], client.consumer)
    settle_all([*mine, *others, mine[1]], client.consumer)
    assert (bench.queue.acked, bench.queue.unacked, client.consumer.inflight) == (1, 2, 0)
    dispose(bench.queue, HandClock().schedule)
    settle_all(others, other.consumer)
    assert bench.queue.acked == 1


def test_a_single_frame_makes_the_client_look_for_more_once() -> None:
    bench = LoopBench()
    queue = bench.declare("q")
    bench.fill(bench.open(), "q", 300)
    client = bench.consumer("q", 100)
    bench.loop.run()
    woken, turns = int(queue.manager.wakeups), bench.loop.turns
    for tag in range(1, 51):
        bench.ask(client, Basic.Ack(tag))
    bench.ask(client, Basic.Ack(100, True))
    assert queue.acked == 100
    assert queue.manager.wakeups == woken + 1
    bench.loop.run()
    assert (queue.unacked, queue.ready) == (100, 100)
    assert bench.loop.turns - turns < 60
