"""Power cuts, killed processes, full disks and failing syncs at random instants of a log's life.

`AMQPD_SEED=n pytest tests/simulation/test_store_crash.py` replays one seed.
"""

import os

import pytest

from tests.simulation.store_machine import Machine

SEEDS = [int(os.environ["AMQPD_SEED"])] if "AMQPD_SEED" in os.environ else [*range(60), 5215, 5261]


def live(seed: int, steps: int) -> Machine:
    try:
        machine = Machine(seed)
        machine.run(steps)
    except BaseException:
        print(f"replay: AMQPD_SEED={seed} pytest tests/simulation/test_store_crash.py")
        raise
    return machine


@pytest.mark.parametrize("seed", SEEDS)
def test_durable_records_survive(seed: int) -> None:
    machine = live(seed, 1200)
    assert machine.recoveries > 1


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(1000, 4000, 300))  # so that several processes share them
def test_durable_records_survive_thousands_of_lives(first: int) -> None:
    for seed in range(first, first + 300):
        live(seed, 3000)
