"""The benchmarks by name, each run in a process of its own."""

import gc
import logging
import multiprocessing
from collections.abc import Callable
from typing import Final

import structlog

from broker.daemon import GC_THRESHOLDS
from tests.bench import bursts, depth, fairness, steps
from tests.bench.delays import delays
from tests.bench.forwarding import forwarding
from tests.bench.loop import Figure
from tests.bench.passing import partitioned, passing

BENCHMARKS: Final[dict[str, Callable[[float], list[Figure]]]] = {
    benchmark.__name__: benchmark
    for benchmark in (
        passing,
        partitioned,
        forwarding,
        depth.browser,
        depth.settle,
        depth.transact,
        depth.release,
        steps.selectors,
        steps.index,
        steps.purge,
        steps.delete,
        steps.expiry,
        steps.groups,
        bursts.vhost,
        bursts.declarations,
        bursts.receipts,
        delays,
        fairness.shares,
        fairness.wakeups,
        fairness.priorities,
    )
}


def run(name: str, scale: float) -> list[Figure]:
    """Run the benchmark `name` with a share of its messages, and return its figures."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (name, scale))


def _measure(name: str, scale: float) -> list[Figure]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    gc.set_threshold(*GC_THRESHOLDS)  # as the broker does
    return BENCHMARKS[name](scale)
