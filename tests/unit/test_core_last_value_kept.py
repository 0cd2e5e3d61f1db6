"""Which values are the same, and what recovery makes of a last-value queue."""

import pytest

from broker.core.delivery.session import taker_of
from broker.core.entries.last_value import LastValueEntryList
from broker.core.operators.operation import mark, unmark
from broker.core.queues.queue import drop_outdated
from broker.core.vhosts.definitions import restore_message
from broker.core.view import identity
from tests.dispatch import Bench, message
from tests.keyed import HEADERS, KEY
from tests.purging import purge


def new_bench(logged: bool = False) -> Bench:
    return Bench(LastValueEntryList(KEY, HEADERS), logged)


def test_recovery_keeps_the_newest_in_the_order_of_publication() -> None:
    bench = new_bench(logged=True)
    queue = bench.queue
    for number, key in enumerate((1, 2, 0, 1, 3, 1, 2), start=1):
        old = message(number, priority=key, persistent=True)
        old.sequence = number
        restore_message(queue, old, False)
    assert bench.store.settled == [], "the log takes no appends yet"
    drop_outdated(queue)
    assert bench.numbers() == [3, 5, 6, 7]
    assert [int(old.content or b"") for old, _ in bench.store.settled] == [1, 4, 2]
    assert (queue.ready, queue.ready_bytes) == (4, 4)
    drop_outdated(queue)
    client = bench.client()
    bench.run()
    assert client.numbers == [3, 5, 6, 7]


def test_what_recovery_replaces_may_have_gone_by_then() -> None:
    bench = new_bench()
    for number in (1, 2):
        restore_message(bench.queue, message(number, priority=1), False)
    assert purge(bench.queue) == 2
    drop_outdated(bench.queue)
    assert bench.queue.ready == 0
    assert bench.counters.replaced == 0


def test_what_a_reader_has_staged_stays_until_it_is_given_back() -> None:
    bench = new_bench(logged=True)
    queue = bench.queue
    for number in (1, 2):
        old = message(number, priority=1, persistent=True)
        old.sequence = number
        restore_message(queue, old, False)
    staged, _ = queue.entries
    taker = taker_of(queue, "r")
    mark(queue, staged, taker)
    drop_outdated(queue)
    assert (bench.numbers(), bench.store.settled) == ([1, 2], [])
    unmark(queue, [staged], taker)
    assert bench.numbers() == [2]
    assert [int(old.content or b"") for old, _ in bench.store.settled] == [1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a", b"a", True),
        (b"\xff", bytearray(b"\xff"), True),
        (1, 2**40 - 2**40 + 1, True),
        (1, 1.0, False),
        (1, True, False),
        (1, "1", False),
        (1.0, 1.0, True),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ([1], ["1"], False),
        ("[1]", [1], False),
    ],
)
def test_the_same_value(one: object, other: object, same: bool) -> None:
    assert (identity(one) == identity(other)) == same
    assert len({identity(one), identity(other)}) == (1 if same else 2)
