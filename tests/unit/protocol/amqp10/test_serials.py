"""Serial numbers across the wrap."""

import pytest

from protocol.amqp10.serials import distance, forward, precedes

LAST = 0xFFFFFFFF


def test_the_number_after_the_last_one_is_zero() -> None:
    assert forward(LAST, 1) == 0
    assert forward(LAST - 1, 5) == 3
    assert forward(0, -1) == LAST


@pytest.mark.parametrize(
    ("first", "last", "steps"),
    [
        (0, 0, 0),
        (0, 1, 1),
        (1, 0, -1),
        (LAST, 0, 1),
        (0, LAST, -1),
        (LAST - 9, 10, 20),
        (10, LAST - 9, -20),
        (0, 0x7FFFFFFF, 0x7FFFFFFF),
        (0, 0x80000000, -0x80000000),
        (0x80000000, 0, -0x80000000),
        (0, 0x80000001, -0x7FFFFFFF),
    ],
)
def test_distance_is_the_shorter_way_round(first: int, last: int, steps: int) -> None:
    assert distance(first, last) == steps
    assert forward(first, steps) == last
    assert precedes(first, last) == (steps > 0)
