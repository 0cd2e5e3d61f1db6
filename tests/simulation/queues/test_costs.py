"""The cost of an operation does not grow with unrelated entries and consumers."""

from collections.abc import Iterator

import pytest

from broker.core.entries.list import FifoEntryList
from tests.simulation.queues.costs import SITUATIONS, Situation, Steps, check_cost, cost
from tests.simulation.queues.invariants import InvariantError
from tests.support.core.queue_bench import QueueBench


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.__name__)
def test_costs_do_not_grow_with_unrelated_entries_and_consumers(situation: Situation) -> None:
    check_cost(situation)


def test_steps_are_the_same_in_every_run() -> None:
    assert cost(SITUATIONS[0], 50) == cost(SITUATIONS[0], 50) > 0


def test_growing_costs_are_detected() -> None:
    def walks(crowd: int, steps: Steps) -> Iterator[None]:
        entries = steps.through(FifoEntryList())
        bench = QueueBench(entries)
        bench.publish(crowd)
        yield
        entry = entries.next(entries.head)
        while entry is not None:
            entry = entries.next(entry)

    with pytest.raises(InvariantError, match=r"F4: what an operation costs .*: walks takes"):
        check_cost(walks)
