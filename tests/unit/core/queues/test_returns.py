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
    give_back,
    release_entries,
    settle_all,
    settle_runs,
)
from broker.core.queues.returns import DISCARD_SLICE as DISCARDED
from broker.store.restore import close
from tests.bench.loop import Site
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import SimDisk
from tests.support.core.group_bench import GroupBench, Numbers
from tests.support.core.hand_clock import HandClock
from tests.support.core.mass_returns import lose, nack, state, turn
from tests.support.core.queue_bench import Bench, Client, MemoryStore, message, number_of
from tests.support.core.receipt_vhost import Office
from tests.support.core.retry import waits
from tests.support.core.timed_vhost import Yard, delivered, entry_of, numbers
from tests.support.core.topology import RecordingStore


def test_a_release_is_no_try() -> None:
    yard, queue, client = delivered(2)
    client.nack(1, outcome=RELEASED)
    client.nack(2, outcome=NACK)
    yard.run()

    first, second = entry_of(queue, 1), entry_of(queue, 2)
    assert (first.delivery_count, first.counted, first.redelivered) == (2, 1, True)
    assert (second.delivery_count, second.counted, second.redelivered) == (2, 2, True)


def test_what_is_released_stands_where_it_stood() -> None:
    yard, queue, client = delivered(4, prefetch=4)
    client.ack(2)
    client.cancel()
    client.nack(1, 3, 4, outcome=RELEASED)
    other = yard.client(queue)
    yard.run()

    assert other.numbers == [1, 3, 4]
    assert other.flags == [True, True, True]


@pytest.mark.parametrize(("outcome", "lasts"), [(RELEASED, True), (NACK, False), (CRASH, False)])
def test_no_number_of_releases_reaches_a_delivery_limit(outcome: int, lasts: bool) -> None:
    yard, queue, client = delivered(delivery_limit=2)
    for _ in range(6):
        client.nack(outcome=outcome)
        yard.run()

    assert numbers(queue) == ([1] if lasts else [])
    assert yard.died() == ({} if lasts else {"delivery_limit": 1})


@pytest.mark.parametrize("kind", ["all", "failed", "returned"])
def test_a_release_does_not_count_in_a_queue_that_delays_retries(kind: str) -> None:
    yard, queue, client = delivered(delayed_retry_type=kind, delayed_retry_min=10)
    for outcome, counted in ((RELEASED, 0), (NACK, 1), (RELEASED, 1), (CRASH, 2)):
        waits(yard, queue, client, outcome)
        assert entry_of(queue, 1).counted - 1 == counted, "the delivery that runs is counted too"


@pytest.mark.parametrize(
    "arguments", [{"retry_min": 1}, {"delayed_retry_type": "all", "delayed_retry_min": 1}]
)
@pytest.mark.parametrize(("outcome", "lasts"), [(RELEASED, True), (NACK, False)])
def test_no_number_of_releases_reaches_a_delivery_limit_with_delayed_retries(
    arguments: dict[str, Any], outcome: int, lasts: bool
) -> None:
    yard, queue, client = delivered(delivery_limit=2, **arguments)
    for _ in range(6):
        client.nack(outcome=outcome)
        yard.run()
        yard.clock.advance(20)
        yard.run()

    assert numbers(queue) == ([1] if lasts else [])
    assert yard.died() == ({} if lasts else {"delivery_limit": 1})


def test_a_release_counts_where_the_queue_says_so() -> None:
    yard, queue, client = delivered(
        delayed_retry_type="all", delayed_retry_min=10, delivery_count_on="released"
    )
    waits(yard, queue, client, RELEASED)
    waits(yard, queue, client, NACK)

    assert entry_of(queue, 1).counted == 2


def test_tries_between_releases_count() -> None:
    yard, queue, client = delivered(delivery_limit=2)
    for outcome in (RELEASED, NACK, RELEASED, NACK, RELEASED):
        client.nack(outcome=outcome)
        yard.run()
    assert numbers(queue) == [1]
    client.nack()
    yard.run()

    assert numbers(queue) == []


@pytest.mark.parametrize(("outcome", "counted"), [(RELEASED, 0), (CRASH, 1), (NACK, 1)])
def test_a_consumer_that_goes_says_how_what_it_had_comes_back(outcome: int, counted: int) -> None:
    yard, queue, client = delivered(3, prefetch=3)
    client.session.connection.close_targets()
    detach(queue, client.consumer, client.held, outcome)

    assert [entry.counted for entry in queue.entries] == [counted] * 3
    other = yard.client(queue, prefetch=3)
    yard.run()
    assert other.numbers == [1, 2, 3]
    assert other.flags == [True] * 3
    assert [entry.counted for entry in queue.entries] == [counted + 1] * 3


def test_of_several_only_what_the_consumer_has_is_taken_back() -> None:
    yard, queue, client = delivered(2, prefetch=2)
    [first, second] = client.held
    client.ack(1)
    other = yard.client(queue)
    release_entries(queue, [first, second], other.consumer, RELEASED)
    assert (second.uncounted, queue.unacked) == (0, 1)
    release_entries(queue, [first, second], client.consumer, RELEASED)

    assert (second.uncounted, queue.unacked, queue.ready) == (1, 0, 1)


def test_the_log_is_told_that_it_was_no_try() -> None:
    yard = Yard(store := MemoryStore())
    queue = yard.queue(durable=True, delivery_limit=9)
    client = yard.client(queue)
    new = message(1)
    new.sequence = 1
    queue.enqueue(new)
    yard.run()
    for outcome in (NACK, RELEASED, NACK):
        client.nack(outcome=outcome)
        yard.run()

    assert [count for _, _, count in store.counted] == [1, 2, 1, 2, 3]


MOST = int(SLICE)
MANY = 2 * MOST + 1


def test_who_looks_finds_all_of_them() -> None:
    yard, queue, client = delivered(MANY)
    lose(queue, client)
    entry = get_one(queue, yard.client(queue).consumer)
    assert entry is not None
    assert (number_of(entry), state(queue)) == (1, (MANY - 1, 1, 0))
    assert (queue.manager.returns, yard.vhost.settlements) == ([], [])


def test_a_purge_takes_all_of_them() -> None:
    yard, queue, client = delivered(MANY)
    lose(queue, client)
    purge = yard.vhost.purge_queue("q")
    assert (purge.over, queue.unacked) == (False, MOST + 1), "it waits for them"
    yard.clock.advance(0)
    assert (purge.over, purge.dropped, numbers(queue)) == (True, MANY, [])


def test_a_queue_to_which_something_comes_back_is_not_empty() -> None:
    yard, queue, client = delivered(MANY)
    lose(queue, client)
    assert get_one(queue, yard.client(queue).consumer) is not None
    yard, queue, client = delivered(MANY, max_length=1)
    lose(queue, client)
    with pytest.raises(PreconditionFailed, match="not empty"):
        yard.vhost.delete_queue("q", False, True)
    assert yard.vhost.queues["q"] is queue


def test_a_get_does_not_have_others_be_pushed_out_in_its_turn() -> None:
    yard = Yard()
    queue = yard.queue(max_length=10)
    client = yard.client(queue)
    for _ in range(MOST // 10):
        yard.publish(count=10)
        yard.run()
    nack(client)
    before = yard.died()["maxlen"]
    entry = get_one(queue, yard.client(queue).consumer)
    assert entry is not None
    assert yard.died()["maxlen"] == before < MOST // 2
    yard.clock.advance(0)
    assert (queue.ready, number_of(entry) <= MOST) == (10, True)


DISCARDS_A_STEP = int(DISCARD_SLICE)
MANY_REFUSALS = 2 * DISCARDS_A_STEP + 1
LETTERS: dict[str, Any] = {"dead_letter_exchange": "", "dead_letter_routing_key": "d"}


def refused(count: int = MANY_REFUSALS) -> tuple[Yard, Queue, Client, Queue]:
    """A client has refused so many, and the dead letters are to go to the last queue."""
    yard, queue, client = delivered(count, **LETTERS)
    letters = yard.queue("d")
    refuse(client)
    return yard, queue, client, letters


def refuse(client: Client) -> None:
    entries, client.held = client.held, []
    discard_all(client.queue, entries, client.consumer)
    client.restore_all(len(entries), len(entries))


def test_they_leave_in_slices_and_in_order() -> None:
    yard, queue, client, letters = refused()
    seen = [(int(letters.ready), int(queue.unacked), int(client.consumer.inflight))]
    while queue.manager.discards is not None:
        turn(yard)
        seen.append((int(letters.ready), int(queue.unacked), int(client.consumer.inflight)))
    assert seen == [
        (0, MANY_REFUSALS, MANY_REFUSALS),
        (DISCARDS_A_STEP, DISCARDS_A_STEP + 1, DISCARDS_A_STEP + 1),
        (2 * DISCARDS_A_STEP, 1, 1),
        (MANY_REFUSALS, 0, 0),
    ]
    assert numbers(letters) == list(range(1, MANY_REFUSALS + 1))
    assert yard.died() == {"rejected": MANY_REFUSALS}


def test_few_refusals_leave_at_once() -> None:
    _, queue, _, letters = refused(DISCARDS_A_STEP)
    assert (letters.ready, queue.unacked, queue.manager.discards) == (DISCARDS_A_STEP, 0, None)


def test_what_is_refused_later_leaves_later() -> None:
    yard, queue, client, letters = refused()
    yard.publish(count=2)
    yard.run()
    assert client.numbers[MANY_REFUSALS:] == [MANY_REFUSALS + 1, MANY_REFUSALS + 2]
    refuse(client)
    assert letters.ready == 0
    yard.clock.advance(0)
    assert numbers(letters) == list(range(1, MANY_REFUSALS + 3))
    assert queue.unacked == 0


def test_the_client_goes_meanwhile() -> None:
    yard, queue, client, letters = refused()
    other = yard.client(queue)
    client.vanish()
    yard.run()
    yard.clock.advance(0)
    assert (other.numbers, letters.ready, queue.unacked) == ([], MANY_REFUSALS, 0)


def test_the_queue_is_deleted_meanwhile_and_loses_none_of_them() -> None:
    store = RecordingStore()
    yard = Yard(store)
    queue = yard.queue(durable=True, **LETTERS)
    letters = yard.queue("d", durable=True)
    client = yard.client(queue)
    yard.publish(count=MANY_REFUSALS, persistent=True)
    yard.run()
    refuse(client)
    assert letters.ready == 0
    yard.vhost.delete_queue("q", False, False)
    assert (letters.ready, client.consumer.inflight) == (MANY_REFUSALS, 0)
    assert (len(store.settled), store.forgotten) == (MANY_REFUSALS, []), "the log knew the queue still"
    yard.clock.advance(1)
    assert letters.ready == MANY_REFUSALS


def test_what_the_client_has_no_more_stays_where_it_is() -> None:
    yard, queue, client = delivered(MANY_REFUSALS, **LETTERS)
    letters = yard.queue("d")
    held = list(client.held)
    client.nack(*range(1, 11))
    discard_all(queue, held, client.consumer)
    yard.clock.advance(0)
    assert (letters.ready, queue.ready) == (MANY_REFUSALS - 10, 10)


def test_one_frame_that_refuses_many() -> None:
    site = Site()
    queue = site.declare("q", **LETTERS)
    letters = site.declare("d")
    site.fill(site.open(), "q", MANY_REFUSALS)
    client = site.consumer("q", MANY_REFUSALS)
    site.loop.run()
    site.ask(client, Basic.Nack(0, True, False))
    assert (letters.ready, queue.unacked) == (0, MANY_REFUSALS)
    site.loop.run()
    assert (letters.ready, queue.unacked) == (MANY_REFUSALS, 0)


GIVEN_UP = int(DISCARDED)


def test_nobody_gets_any_before_all_are_back() -> None:
    yard, queue, client = delivered(MANY)
    other = yard.client(queue, 10)
    lose(queue, client)
    seen = []
    for _ in range(3):
        assert other.numbers == []
        seen.append(state(queue))
        if queue.unacked:
            yard.run()
            turn(yard)
    assert seen == [(MOST, MOST + 1, 0), (2 * MOST, 1, 0), (MANY, 0, 0)]
    assert (client.consumer.inflight, queue.manager.returns, yard.vhost.settlements) == (0, [], [])
    yard.run()
    assert other.numbers == list(range(1, 11))
    assert all(other.flags)


def test_few_are_back_at_once() -> None:
    few = MOST // int(DEAR)
    yard, queue, client = delivered(few)
    other = yard.client(queue)
    lose(queue, client)
    assert (state(queue), other.consumer.blockers) == ((few, 0, 0), 0)


def test_credit_is_restored_as_they_are_back_and_the_client_gets_them_again_in_order() -> None:
    yard, _, client = delivered(MANY, MANY)
    yard.publish(count=3)
    nack(client)
    seen = []
    for _ in range(3):
        seen.append(int(client.credit.used))
        turn(yard)
    assert seen == [MOST + 1, 1, 0]
    yard.run()
    assert client.numbers[MANY:] == list(range(1, MANY + 1))


def test_who_comes_meanwhile_waits_too() -> None:
    yard, queue, client = delivered(MANY)
    lose(queue, client)
    other = yard.client(queue, 1)
    assert other.consumer.blockers & BLOCKED_BY_RETURNS
    yard.publish()
    yard.run()
    assert other.numbers == []
    yard.clock.advance(0)
    yard.run()
    assert other.numbers == [1]


def test_the_queue_is_deleted_while_deliveries_return() -> None:
    yard, queue, client = delivered(MANY, MANY)
    nack(client)
    yard.vhost.delete_queue("q", False, False)
    yard.clock.advance(1000)
    used = client.credit.used + len(client.removed)  # this target restores it for what is removed, too
    assert (client.consumer.inflight, used) == (0, 0)
    assert (state(queue), numbers(queue), yard.vhost.settlements) == ((0, 0, 0), [], [])


def test_what_a_browser_puts_away_with_them_ends_nothing() -> None:
    yard = Yard()
    queue = yard.queue()
    browser = yard.client(queue, acquires=False)
    yard.publish(count=MANY)
    yard.run()
    client = yard.client(queue, MANY)
    yard.run()
    other = yard.client(queue, 1)
    runs = [(each.consumer, each.held[:]) for each in (browser, client)]
    client.held = []
    give_back(runs, NACK, client.session, yard.vhost)
    turn(yard)
    turn(yard)
    yard.run()
    assert (queue.unacked > 0, other.numbers) == (True, [])
    yard.clock.advance(0)
    yard.run()
    assert sorted(client.numbers[MANY:] + other.numbers) == list(range(1, MANY + 1))


def test_two_clients_are_lost_at_once() -> None:
    yard, queue, client = delivered(MANY)
    second = yard.client(queue)
    yard.publish(count=MOST)
    client.close()
    yard.run()
    assert second.numbers
    other = yard.client(queue, 0)
    lose(queue, client)
    lose(queue, second)
    before = int(queue.ready)
    turn(yard)
    yard.run()
    assert (queue.ready > before, other.numbers) == (True, [])
    yard.clock.advance(0)
    yard.run()
    assert other.numbers == list(range(1, MANY + MOST + 1))


@pytest.mark.parametrize("kind", [{"max_priority": 3}, {"strict_order": True}, {"group_kind": "sticky"}])
def test_queues_of_every_kind(kind: dict[str, Any]) -> None:
    count = MANY if "strict_order" not in kind else 1
    yard, queue, client = delivered(count, **kind)
    lose(queue, client)
    other = yard.client(queue, count)
    yard.clock.advance(0)
    yard.run()
    assert other.numbers == list(range(1, count + 1))


def test_a_queue_with_a_limit_is_never_above_it() -> None:
    yard, queue, client = delivered(MANY)
    queue = yard.queue("small", max_length=10)
    client = yard.client(queue)
    for _ in range(30):
        yard.publish("small", count=10)
        yard.run()
    assert queue.unacked == 300
    other = yard.client(queue)
    first = client.numbers[0]
    nack(client)
    seen = [int(queue.ready)]
    while queue.unacked:
        yard.run()
        turn(yard)
        seen.append(int(queue.ready))
    assert max(seen) == 10
    yard.run()
    assert sorted(other.numbers + client.numbers[300:]) == list(range(first + 290, first + 300))
    assert yard.died() == {"maxlen": 290}


def test_what_waits_for_its_next_try_keeps_nobody_waiting() -> None:
    count = MOST + 1  # each as much work as two
    yard, queue, client = delivered(count, retry_min=1000)
    half = MOST // 2
    nack(client)
    assert state(queue) == (0, count - half, half)
    yard.publish(count=2)
    yard.run()
    assert client.numbers[count:] == [count + 1, count + 2]
    yard.clock.advance(0)
    assert state(queue) == (0, 2, count)
    yard.clock.advance(1000)
    yard.run()
    assert client.numbers[count + 2 :] == list(range(1, count + 1))


def test_waits_were_switched_off_meanwhile() -> None:
    yard, queue, client = delivered(MOST, retry_min=1000)
    lose(queue, client)
    assert queue.retry is not None
    queue.retry.apply({})
    yard.clock.advance(0)
    assert state(queue) == (MOST // 2, 0, MOST // 2)


def test_what_came_back_too_often() -> None:
    count = 2 * GIVEN_UP + 1
    yard, queue, client = delivered(count, delivery_limit=0)
    other = yard.client(queue)
    lose(queue, client)
    gone: list[int] = []
    while queue.unacked:
        assert len(gone) < 5
        yard.run()
        turn(yard)
        gone.append(yard.died()["delivery_limit"])
    assert gone == [GIVEN_UP, 2 * GIVEN_UP, count]
    assert (client.consumer.inflight, other.numbers, numbers(queue)) == (0, [], [])


def test_too_often_and_the_queue_is_deleted() -> None:
    letters: dict[str, Any] = {"dead_letter_exchange": "", "dead_letter_routing_key": "d"}
    yard, queue, client = delivered(MANY, delivery_limit=0, **letters)
    dead = yard.queue("d")
    lose(queue, client)
    yard.vhost.delete_queue("q", False, False)
    yard.clock.advance(0)
    assert yard.died() == {"delivery_limit": MANY}
    assert (client.consumer.inflight, numbers(queue)) == (0, [])
    assert numbers(dead) == list(range(1, MANY + 1))


def test_what_did_not_come_back_too_often_is_back_at_once() -> None:
    count = GIVEN_UP + 50
    yard, queue, client = delivered(count, delivery_limit=1)
    for entry in client.held[: GIVEN_UP + 10]:
        entry.delivery_count += 1
    other = yard.client(queue)
    lose(queue, client)
    assert state(queue) == (40, GIVEN_UP + 10, 0)
    yard.run()
    assert other.numbers == list(range(GIVEN_UP + 11, count + 1))
    yard.clock.advance(0)
    assert state(queue) == (0, 40, 0)


def test_one_frame_of_a_channel_whose_consumers_have_several_queues() -> None:
    site = Site()
    queues = [site.declare(name) for name in ("a", "b")]
    for queue in queues:
        site.fill(site.open(), queue.name, MANY)
    client = site.consumer("a")
    site.ask(client, Basic.Consume(queue="b", consumer_tag="d"))
    site.loop.run()
    assert [int(queue.unacked) for queue in queues] == [MANY, MANY]
    client.frames()
    site.ask(client, Basic.Cancel("c"))
    site.ask(client, Basic.Cancel("d"))
    site.ask(client, Basic.Nack(0, True, True))
    assert sum(int(queue.ready) for queue in queues) == MOST
    site.loop.run()
    assert [int(queue.ready) for queue in queues] == [MANY, MANY]


def settle(*clients: Client) -> None:
    """All that they have, by one frame of a channel that has them all."""
    runs = [(client.consumer, client.held) for client in clients]
    for client in clients:
        client.held = []
    topology = clients[0].queue.host
    assert topology is not None
    settle_runs(runs, clients[0].session, topology)


def settled(count: int = MANY, prefetch: int = 0, **arguments: Any) -> tuple[Yard, Queue, Client]:
    """A client has settled so many by one frame."""
    yard, queue, client = delivered(count, prefetch, **arguments)
    settle(client)
    return yard, queue, client


def test_they_leave_in_slices_and_make_room_as_they_leave() -> None:
    yard, queue, client = settled(prefetch=MANY)
    assert yard.vhost.settlements
    seen = []
    for _ in range(3):
        seen.append((queue.acked, queue.unacked, client.consumer.inflight, client.credit.used))
        turn(yard)
    assert seen == [(MOST, MOST + 1, MOST + 1, MOST + 1), (2 * MOST, 1, 1, 1), (MANY, 0, 0, 0)]
    assert not yard.vhost.settlements
    assert numbers(queue) == []


def test_few_settlements_leave_at_once() -> None:
    few = MOST // int(DEAR)
    yard, queue, client = settled(few)
    assert (queue.acked, queue.unacked, yard.vhost.settlements, client.credit.used) == (few, 0, [], 0)


def test_what_is_settled_later_may_leave_before() -> None:
    yard, queue, client = settled()
    yard.publish()
    yard.run()
    client.ack(MANY + 1)
    assert queue.unacked == MOST + 1
    yard.publish(count=MANY)
    yard.run()
    settle(client)
    assert len(yard.vhost.settlements) == 2
    yard.clock.advance(0)
    assert (queue.acked, queue.unacked, numbers(queue)) == (2 * MANY + 1, 0, [])


def test_the_client_goes_meanwhile_and_nobody_else_gets_them() -> None:
    yard, queue, client = settled()
    other = yard.client(queue)
    client.vanish()
    yard.run()
    yard.clock.advance(0)
    assert (other.numbers, queue.acked, queue.unacked, numbers(queue)) == ([], MANY, 0, [])


@pytest.mark.parametrize("exclusive", [{"single_active_consumer": True}, {"strict_order": True}])
def test_who_waits_for_the_last_of_them_is_served_then(exclusive: dict[str, bool]) -> None:
    count = MANY if "strict_order" not in exclusive else 1
    yard, queue, client = settled(count, **exclusive)
    other = yard.client(queue)
    client.cancel()
    yard.publish()
    yard.run()
    yard.clock.advance(0)
    yard.run()
    assert other.numbers == [count + 1]


def test_the_queue_is_deleted_while_settlements_leave() -> None:
    yard, queue, client = settled(prefetch=MANY)
    yard.vhost.delete_queue("q", False, False)
    assert (yard.vhost.settlements, yard.counters.acked) == ([], MANY)
    yard.clock.advance(0)
    assert (client.consumer.inflight, numbers(queue)) == (0, [])


def test_a_turn_is_no_longer_where_consumers_take_turns() -> None:
    yard, queue, client = delivered(MANY)
    runs = [(client.consumer, [entry]) for entry in client.held]
    settle_runs(runs, client.session, yard.vhost)
    assert queue.acked == MOST // 2
    yard.clock.advance(0)
    assert (queue.acked, queue.unacked) == (MANY, 0)


def test_a_frame_behind_one_that_is_not_through_waits() -> None:
    yard, queue, client = settled()
    yard.publish(count=MOST)
    yard.run()
    settle(client)
    assert queue.acked == MOST
    client.vanish()
    yard.clock.advance(0)
    assert (queue.acked, queue.unacked, numbers(queue)) == (MANY + MOST, 0, [])


def test_a_queue_that_is_deleted_settles_what_it_has_and_nothing_else() -> None:
    yard, queue, client = delivered(MANY)
    other = yard.queue("other")
    second = yard.client(other)
    yard.publish("other", count=MANY)
    third = yard.client(yard.queue("third"))
    yard.publish("third")
    yard.run()
    settle(client, second)
    before = int(queue.acked) + int(other.acked)
    yard.vhost.delete_queue("third", False, False)
    assert (third.consumer.inflight, int(queue.acked) + int(other.acked)) == (0, before)
    yard.vhost.delete_queue("other", False, False)
    assert yard.counters.acked == before + MANY
    assert yard.vhost.settlements
    yard.clock.advance(0)
    assert (queue.acked, yard.vhost.settlements) == (MANY, [])


def test_a_clean_stop_takes_what_was_settled() -> None:
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


def test_a_window_that_is_made_meanwhile() -> None:
    site = Site()
    queue = site.declare("q")
    site.fill(site.open(), "q", MANY + 100)
    client = site.consumer("q", MANY)
    site.loop.run()
    client.send(Basic.Ack(0, True), 1)
    client.send(Basic.Qos(0, 10, True), 1)
    site.loop.run()
    assert (queue.acked, queue.unacked) == (MANY, 10)


@pytest.mark.parametrize("deleted", [False, True])
def test_many_at_once_are_told_of_in_slices_and_before_their_queue_goes(deleted: bool) -> None:
    office = Office()
    most = int(SLICE // DEAR)
    for _ in range(2 * most + 1):
        office.send(TELLS_CONSUMED, persistent=False)
    client = office.client(office.q)
    office.run()
    settle(client)
    assert office.q.acked == most
    if deleted:
        office.vhost.delete_queue("q", False, False)
    for _ in range(5):
        office.clock.advance(1)
    assert len(office.told()) == 2 * most + 1
    assert office.counters.acked == 2 * most + 1


def plain() -> Bench:
    return Bench(logged=True)


def ranked() -> Bench:
    return Bench(PriorityEntryList(3), logged=True)


def grouped() -> Bench:
    return GroupBench()


def elected() -> Bench:
    bench = Bench()
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


def history(make: Callable[[], Bench], settle: Callable[[Client, list[int]], None], seed: int) -> object:
    """Return the remaining entries and all deliveries after many random turns."""
    chance = random.Random(seed)
    bench = make()
    clients = [bench.client(chance.choice([3, 10, 100])) for _ in range(2)]
    odd = bench.client(5, prefetch_bytes=9, entry_filter=Numbers(lambda number: number % 2 == 1))
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
def test_it_is_the_same_as_one_after_the_other(make: Callable[[], Bench], seed: int) -> None:
    assert history(make, at_once, seed) == history(make, one_by_one, seed)


def test_only_what_the_consumer_has_is_settled() -> None:
    bench = Bench(FifoEntryList())
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


def test_one_frame_has_a_client_look_for_more_once() -> None:
    site = Site()
    queue = site.declare("q")
    site.fill(site.open(), "q", 300)
    client = site.consumer("q", 100)
    site.loop.run()
    woken, turns = int(queue.manager.wakeups), site.loop.turns
    for tag in range(1, 51):
        site.ask(client, Basic.Ack(tag))
    site.ask(client, Basic.Ack(100, True))
    assert queue.acked == 100
    assert queue.manager.wakeups == woken + 1
    site.loop.run()
    assert (queue.unacked, queue.ready) == (100, 100)
    assert site.loop.turns - turns < 60
