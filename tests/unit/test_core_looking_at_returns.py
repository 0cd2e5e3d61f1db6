"""Somebody looks at a queue to which very much is on its way back."""

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.queues.attach import get_one
from broker.core.queues.returns import SLICE
from tests.dispatch import number_of
from tests.returning import lose, nack, state
from tests.yard import Yard, delivered, numbers

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
    purge = yard.vhost.declarations.purge_queue("q")
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
        yard.vhost.declarations.delete_queue("q", False, True)
    assert yard.vhost.topology.queues["q"] is queue


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
