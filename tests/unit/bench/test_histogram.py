"""The latency histogram is right within the width of a bucket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.bench.traffic import Histogram


@given(st.lists(st.integers(0, 2**45), min_size=1), st.floats(0.1, 100))
def test_percentiles_are_within_a_bucket_of_the_exact_ones(values: list[int], percent: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)

    ordered = sorted(values)
    exact = next(v for n, v in enumerate(ordered, 1) if n >= len(values) * percent / 100)

    assert exact <= histogram.percentile(percent) <= exact * (1 + 1 / 64) + 1


@pytest.mark.parametrize("value", [0, 1, 127, 128, 129, 255, 256, 2**20, 2**20 - 1, 2**20 + 1])
def test_a_lone_value_is_every_percentile(value: int) -> None:
    histogram = Histogram()
    histogram.add(value)

    assert histogram.percentile(50) == histogram.percentile(99.9) == histogram.greatest == value


def test_times_counts_a_value_more_than_once() -> None:
    histogram = Histogram()
    histogram.add(1, times=99)
    histogram.add(100)

    assert (histogram.percentile(99), histogram.percentile(99.9), histogram.count) == (1, 100, 100)


def test_a_clock_that_steps_back_counts_as_nothing() -> None:
    histogram = Histogram()
    histogram.add(-5)

    assert histogram.percentile(100) == 0


def test_a_percentile_of_an_empty_histogram_is_zero() -> None:
    assert Histogram().percentile(50) == 0
