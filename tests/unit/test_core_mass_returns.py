"""A client gives very many deliveries back, or is lost with them: they are back bit by bit."""

from typing import Any

import pytest
from pamqp.commands import Basic

from broker.core.arguments.queue import NACK
from broker.core.queues.consumer import BLOCKED_BY_RETURNS
from broker.core.queues.returns import DEAR, SLICE, requeue_runs
from broker.core.queues.returns import DISCARD_SLICE as DISCARDED
from tests.bench.loop import Site
from tests.returning import lose, nack, state, turn
from tests.yard import Yard, delivered, numbers

MOST, GIVEN_UP = int(SLICE), int(DISCARDED)
MANY = 2 * MOST + 1


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


def test_the_queue_is_deleted_meanwhile() -> None:
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
    requeue_runs(runs, NACK, client.session, yard.vhost)
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
