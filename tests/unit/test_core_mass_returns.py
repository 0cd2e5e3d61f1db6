"""A client with very many deliveries is lost: what nobody gets now goes back bit by bit."""

from broker.core.queue import Queue
from broker.core.release import GIVEN_UP_SLICE, HELD_SLICE
from tests.dispatch import Client
from tests.yard import Yard, delivered, numbers

HELD, GIVEN_UP = int(HELD_SLICE), int(GIVEN_UP_SLICE)


def turn(yard: Yard) -> None:
    """One call of the schedule."""
    yard.clock.wakes.clear()
    yard.clock.schedule.run()


def lose(queue: Queue, client: Client) -> None:
    """As `Client.vanish`, which takes long with many."""
    entries, client.held = client.held, []
    client.close()
    queue.remove_consumer(client.consumer, entries)


def state(queue: Queue) -> tuple[int, int, int]:
    return queue.ready, queue.unacked, queue.held


def test_what_waits_for_its_next_try() -> None:
    count = 2 * HELD + 1
    yard, queue, client = delivered(count, retry_min=1000)
    lose(queue, client)
    other = yard.client(queue)
    seen = []
    for _ in range(3):
        seen.append(state(queue))
        yard.run()
        turn(yard)
    assert seen == [(0, HELD + 1, HELD), (0, 1, 2 * HELD), (0, 0, count)]
    assert (client.consumer.inflight, other.numbers) == (0, [])
    yard.clock.advance(1000)
    yard.run()
    assert other.numbers == list(range(1, count + 1))
    assert all(other.flags)


def test_what_is_nacked_by_a_client_that_lives() -> None:
    count = HELD + 10
    yard, queue, client = delivered(count, count, retry_min=1000)
    entries, client.held = client.held, []
    queue.release(entries, client.consumer)
    for entry in entries:
        client.restore_credit(entry.message.size)
    yard.publish(count=2)
    yard.run()
    assert client.numbers[count:] == [count + 1, count + 2]
    assert (client.consumer.inflight, state(queue)) == (12, (0, 12, HELD))
    client.vanish()
    yard.clock.advance(0)
    assert (client.consumer.inflight, state(queue)) == (0, (0, 0, count + 2))


def test_waits_were_switched_off_meanwhile() -> None:
    yard, queue, client = delivered(HELD + 2, retry_min=1000)
    lose(queue, client)
    assert queue.retry is not None
    queue.retry.apply({})
    yard.clock.advance(0)
    assert state(queue) == (2, 0, HELD)


def test_the_queue_is_deleted_meanwhile() -> None:
    yard, queue, client = delivered(HELD + 2, retry_min=1000)
    lose(queue, client)
    yard.vhost.delete_queue("q", False, False)
    assert client.consumer.inflight == 0
    yard.clock.advance(1000)
    assert (state(queue), numbers(queue)) == ((0, 0, 0), [])


def test_what_came_back_too_often() -> None:
    count = 2 * GIVEN_UP + 1
    yard, queue, client = delivered(count, delivery_limit=0)
    other = yard.client(queue)
    lose(queue, client)
    gone = [yard.died()["delivery_limit"]]
    while queue.unacked:
        assert len(gone) < 5
        yard.run()
        turn(yard)
        gone.append(yard.died()["delivery_limit"])
    assert gone == [GIVEN_UP, 2 * GIVEN_UP, count]
    assert (client.consumer.inflight, other.numbers, numbers(queue)) == (0, [], [])


def test_too_often_and_the_queue_is_deleted() -> None:
    yard, queue, client = delivered(GIVEN_UP + 5, delivery_limit=0)
    lose(queue, client)
    yard.vhost.delete_queue("q", False, False)
    yard.clock.advance(0)
    assert yard.died() == {"delivery_limit": GIVEN_UP}
    assert (client.consumer.inflight, numbers(queue)) == (0, [])


def test_what_did_not_come_back_too_often_is_back_at_once() -> None:
    count = GIVEN_UP + 50
    yard, queue, client = delivered(count, delivery_limit=1)
    for entry in client.held[: GIVEN_UP + 10]:
        entry.delivery_count += 1
    other = yard.client(queue)
    lose(queue, client)
    assert state(queue) == (40, 10, 0)
    yard.run()
    assert other.numbers == list(range(GIVEN_UP + 11, count + 1))
    yard.clock.advance(0)
    assert state(queue) == (0, 40, 0)
