"""Faults that are planted one at a time are all found."""

from pathlib import Path

import pytest

from tests.simulation.queues.mutant import ROOT, Mutant, copy
from tests.simulation.queues.mutants import MUTANTS, ORDINARY, survives


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_up_to_date(name: str) -> None:
    """What it changes is there, once."""
    mutant = MUTANTS[name]
    assert (ROOT / "broker" / mutant.file).read_text().count(mutant.old) == 1


@pytest.mark.parametrize("name", ORDINARY)
def test_a_mutant_is_found(name: str, tmp_path: Path) -> None:
    assert not survives(MUTANTS[name], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in MUTANTS if name not in ORDINARY])
def test_every_other_mutant_is_found(name: str, tmp_path: Path) -> None:
    assert not survives(MUTANTS[name], tmp_path)


@pytest.mark.parametrize("seeds", [0, 1])
def test_a_mutant_that_does_not_run_is_not_found(seeds: int, tmp_path: Path) -> None:
    mutant = Mutant("core/queue.py", "from __future__", "from the_future", seeds)
    with pytest.raises(AssertionError, match="does not even run"):
        survives(mutant, tmp_path)


def test_a_mutant_that_is_not_up_to_date_is_told(tmp_path: Path) -> None:
    copy(tmp_path)
    mutant = MUTANTS["lost baton"]
    mutant.plant(tmp_path)
    with pytest.raises(AssertionError, match="has this 0 times"):
        mutant.plant(tmp_path)
