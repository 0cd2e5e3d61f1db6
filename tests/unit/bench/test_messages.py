"""The bench's checker finds every kind of wrong: lost, duplicated, reordered, foreign; and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.bench.traffic import LANE_SHIFT, Checker


class Receiver:
    """Receives sequences as a consumer does: expected ones on the fast path, others through the checker."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.last: dict[int, int] = {}

    def take(self, *sequences: int, lane: int = 0) -> None:
        for sequence in sequences:
            number = lane << LANE_SHIFT | sequence
            if self.checker.expected.get(lane) == number:
                self.checker.expected[lane] = number + 1
            else:
                self.checker.see(number, self.last)


def verdict(checker: Checker, *published: int) -> dict[str, int]:
    found = {
        "lost": checker.lost(list(published)),
        "duplicates": checker.duplicates,
        "reordered": checker.reordered,
        "foreign": checker.foreign,
    }
    return {name: count for name, count in found.items() if count}


@pytest.mark.parametrize(
    ("sequences", "expected"),
    [
        ([0, 1, 2, 3, 4], {}),
        ([0, 1, 3, 4], {"lost": 1}),
        ([1, 2, 3, 4], {"lost": 1}),
        ([0, 1, 2, 3], {"lost": 1}),
        ([], {"lost": 5}),
        ([0, 1, 2, 2, 3, 4], {"duplicates": 1}),
        ([0, 1, 2, 3, 4, 0], {"duplicates": 1}),
        ([0, 2, 2, 1, 3, 4], {"duplicates": 1, "reordered": 1}),
        ([0, 2, 1, 3, 4], {"reordered": 1}),
        ([1, 0, 2, 4, 3], {"reordered": 2}),
        ([0, 4, 1, 2, 3], {"reordered": 3}),
        ([0, 2, 1, 1, 4], {"lost": 1, "duplicates": 1, "reordered": 1}),
    ],
)
def test_a_single_consumer(sequences: list[int], expected: dict[str, int]) -> None:
    checker = Checker(1)

    Receiver(checker).take(*sequences)

    assert verdict(checker, 5) == expected


def test_order_is_judged_again_after_a_gap_has_closed() -> None:
    checker = Checker(1)
    receiver = Receiver(checker)

    receiver.take(0, 2, 1, 3, 4, 6, 5)

    assert verdict(checker, 7) == {"reordered": 2}


def test_lanes_are_independent() -> None:
    checker = Checker(3)
    receiver = Receiver(checker)

    receiver.take(0, 1, lane=0)
    receiver.take(0, 2, lane=2)
    receiver.take(2, lane=0)

    assert verdict(checker, 3, 0, 3) == {"lost": 1}


def test_a_number_of_no_lane_is_foreign() -> None:
    checker = Checker(1)

    Receiver(checker).take(0, lane=1)

    assert verdict(checker, 0) == {"foreign": 1}


def test_consumers_that_share_a_queue_see_gaps_but_each_in_order() -> None:
    checker = Checker(1, shared=True)
    one, other = Receiver(checker), Receiver(checker)

    one.take(0, 3)
    other.take(1, 2, 5)
    one.take(4)

    assert verdict(checker, 6) == {}


def test_order_within_one_of_several_consumers_is_judged() -> None:
    checker = Checker(1, shared=True)
    one, other = Receiver(checker), Receiver(checker)

    one.take(0, 3)
    other.take(1, 2)
    one.take(5, 4)

    assert verdict(checker, 6) == {"reordered": 1}


def test_a_duplicate_at_another_consumer_is_found() -> None:
    checker = Checker(1, shared=True)
    one, other = Receiver(checker), Receiver(checker)

    one.take(0, 1)
    other.take(1, 2)

    assert verdict(checker, 3) == {"duplicates": 1}


@given(st.lists(st.integers(0, 12), max_size=40))
def test_the_checker_agrees_with_counting(sequences: list[int]) -> None:
    checker = Checker(1)

    Receiver(checker).take(*sequences)

    firsts = list(dict.fromkeys(sequences))
    assert checker.lost([13]) == 13 - len(firsts)
    assert checker.duplicates == len(sequences) - len(firsts)
    assert checker.reordered == sum(any(e > s for e in firsts[:i]) for i, s in enumerate(firsts))
