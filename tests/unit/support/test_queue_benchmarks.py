"""The benchmarks of queues run with few messages; their figures are not checked."""

import pytest

from tests.bench.benchmarks import BENCHMARKS, run
from tests.bench.loop import Figure


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "delays"])
def test_every_benchmark_works(name: str) -> None:
    figures = BENCHMARKS[name](0.004)
    assert figures
    for figure in figures:  # a figure near zero may be zero
        assert figure.value > 0 or (figure.value == 0 and figure.limit is not None), figure.line()


def test_a_benchmark_runs_in_a_process_of_its_own() -> None:
    assert len(run("purge", 0.001)) == 1


def test_a_figure_says_whether_it_is_in_its_limit() -> None:
    assert Figure("x", 1, "ms", 1).line().endswith("met")
    assert Figure("x", 1.1, "ms", 1).line().endswith("MISSED")
    assert Figure("x", 7, "ms").line().split() == ["x", "7.000", "ms"]
