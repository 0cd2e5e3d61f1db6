"""The measures of effort measure: pairs of values, lines executed, octets copied, work without an end."""

from itertools import combinations as pairs
from itertools import product

import pytest

from tests.support import effort
from tests.support.effort import CountedBytes, combinations, ending, lines_executed

PARAMETERS = ([0, 1, 2], ["a", "b", "c", "d"], [True, False], [None, ()])


def test_all_pairs_of_values_occur(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "THOROUGH", False)
    chosen = combinations(*PARAMETERS)
    assert len(chosen) < 24
    for one, other in pairs(range(len(PARAMETERS)), 2):
        together = {(row[one], row[other]) for row in chosen}
        assert together == set(product(PARAMETERS[one], PARAMETERS[other]))


def test_all_combinations_occur_in_a_thorough_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "THOROUGH", True)
    assert set(combinations(*PARAMETERS)) == set(product(*PARAMETERS))


def test_lines_are_counted() -> None:
    def work(turns: int) -> None:
        for _ in range(turns):
            pass

    assert lines_executed(lambda: work(100)) - lines_executed(lambda: work(10)) == 180


def test_a_copy_of_the_rest_is_counted_each_time() -> None:
    rest = whole = CountedBytes.of(bytes(100))
    while rest:
        rest = rest[1:]
    assert whole.copied == [sum(range(100))]


def test_work_without_an_end_is_given_up() -> None:
    def never() -> None:
        while True:
            pass

    with pytest.raises(TimeoutError, match=r"no end after 0\.1 s of CPU"), ending(0.1):
        never()
