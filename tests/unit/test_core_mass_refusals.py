"""A client refuses very many deliveries by one frame: they are dead-lettered bit by bit."""

from typing import Any

from pamqp.commands import Basic

from broker.core.queues.queue import Queue
from broker.core.queues.returns import DISCARD_SLICE, discard_all
from tests.bench.loop import Site
from tests.dispatch import Client
from tests.topology import RecordingStore
from tests.yard import Yard, delivered, numbers

MOST = int(DISCARD_SLICE)
MANY = 2 * MOST + 1
LETTERS: dict[str, Any] = {"dead_letter_exchange": "", "dead_letter_routing_key": "d"}


def refused(count: int = MANY) -> tuple[Yard, Queue, Client, Queue]:
    """A client has refused so many, and the dead letters are to go to the last queue."""
    yard, queue, client = delivered(count, **LETTERS)
    letters = yard.queue("d")
    refuse(client)
    return yard, queue, client, letters


def refuse(client: Client) -> None:
    entries, client.held = client.held, []
    discard_all(client.queue, entries, client.consumer)
    client.restore_all(len(entries), len(entries))


def turn(yard: Yard) -> None:
    """One call of the schedule."""
    yard.clock.wakes.clear()
    yard.clock.schedule.run()


def test_they_leave_in_slices_and_in_order() -> None:
    yard, queue, client, letters = refused()
    seen = [(int(letters.ready), int(queue.unacked), int(client.consumer.inflight))]
    while queue.manager.discards is not None:
        turn(yard)
        seen.append((int(letters.ready), int(queue.unacked), int(client.consumer.inflight)))
    assert seen == [(0, MANY, MANY), (MOST, MOST + 1, MOST + 1), (2 * MOST, 1, 1), (MANY, 0, 0)]
    assert numbers(letters) == list(range(1, MANY + 1))
    assert yard.died() == {"rejected": MANY}


def test_few_leave_at_once() -> None:
    _, queue, _, letters = refused(MOST)
    assert (letters.ready, queue.unacked, queue.manager.discards) == (MOST, 0, None)


def test_what_is_refused_later_leaves_later() -> None:
    yard, queue, client, letters = refused()
    yard.publish(count=2)
    yard.run()
    assert client.numbers[MANY:] == [MANY + 1, MANY + 2]
    refuse(client)
    assert letters.ready == 0
    yard.clock.advance(0)
    assert numbers(letters) == list(range(1, MANY + 3))
    assert queue.unacked == 0


def test_the_client_goes_meanwhile() -> None:
    yard, queue, client, letters = refused()
    other = yard.client(queue)
    client.vanish()
    yard.run()
    yard.clock.advance(0)
    assert (other.numbers, letters.ready, queue.unacked) == ([], MANY, 0)


def test_the_queue_is_deleted_meanwhile_and_loses_none_of_them() -> None:
    store = RecordingStore()
    yard = Yard(store)
    queue = yard.queue(durable=True, **LETTERS)
    letters = yard.queue("d", durable=True)
    client = yard.client(queue)
    yard.publish(count=MANY, persistent=True)
    yard.run()
    refuse(client)
    assert letters.ready == 0
    yard.vhost.declarations.delete_queue("q", False, False)
    assert (letters.ready, client.consumer.inflight) == (MANY, 0)
    assert (len(store.settled), store.forgotten) == (MANY, []), "the log knew the queue still"
    yard.clock.advance(1)
    assert letters.ready == MANY


def test_what_the_client_has_no_more_stays_where_it_is() -> None:
    yard, queue, client = delivered(MANY, **LETTERS)
    letters = yard.queue("d")
    held = list(client.held)
    client.nack(*range(1, 11))
    discard_all(queue, held, client.consumer)
    yard.clock.advance(0)
    assert (letters.ready, queue.ready) == (MANY - 10, 10)


def test_one_frame_that_refuses_many() -> None:
    site = Site()
    queue = site.declare("q", **LETTERS)
    letters = site.declare("d")
    site.fill(site.open(), "q", MANY)
    client = site.consumer("q", MANY)
    site.loop.run()
    site.ask(client, Basic.Nack(0, True, False))
    assert (letters.ready, queue.unacked) == (0, MANY)
    site.loop.run()
    assert (letters.ready, queue.unacked) == (MANY, 0)
