"""Every planted fault is found."""

import builtins
import symtable
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.queues.mutant import ROOT, Mutant, copy
from tests.simulation.queues.mutants import MUTANTS, ORDINARY, survives


def test_mutants_are_up_to_date() -> None:
    """The replaced text of each mutant exists exactly once."""
    counts = {
        name: (ROOT / "broker" / mutant.file).read_text().count(mutant.old)
        for name, mutant in MUTANTS.items()
    }
    assert {name: count for name, count in counts.items() if count != 1} == {}


def test_mutants_use_only_names_that_their_module_has() -> None:
    unknown = {}
    for name, mutant in MUTANTS.items():
        text = (ROOT / "broker" / mutant.file).read_text().replace(mutant.old, mutant.new)
        module = symtable.symtable(text, mutant.file, "exec")
        known = {
            symbol.get_name()
            for symbol in module.get_symbols()
            if symbol.is_assigned() or symbol.is_imported()
        }
        known |= {*dir(builtins), "__name__", "__file__"}
        unknown[name] = set(global_names(module)) - known
    assert {name: names for name, names in unknown.items() if names} == {}


def global_names(scope: symtable.SymbolTable) -> Iterator[str]:
    """The names that a scope, or a scope in it, reads from the module."""
    for symbol in scope.get_symbols():
        if symbol.is_referenced() and symbol.is_global():
            yield symbol.get_name()
    for inner in scope.get_children():
        yield from global_names(inner)


@pytest.mark.parametrize("name", ORDINARY)
def test_a_mutant_is_found(name: str, tmp_path: Path) -> None:
    assert not survives(MUTANTS[name], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in MUTANTS if name not in ORDINARY])
def test_every_other_mutant_is_found(name: str, tmp_path: Path) -> None:
    assert not survives(MUTANTS[name], tmp_path)


@pytest.mark.parametrize("seeds", [0, 1])
def test_a_mutant_that_does_not_run_is_not_found(seeds: int, tmp_path: Path) -> None:
    mutant = Mutant("core/queues/queue.py", "from __future__", "from the_future", seeds)
    with pytest.raises(AssertionError, match="does not even run"):
        survives(mutant, tmp_path)


def test_a_mutant_that_is_not_up_to_date_is_told(tmp_path: Path) -> None:
    copy(tmp_path)
    mutant = MUTANTS["lost baton"]
    mutant.plant(tmp_path)
    with pytest.raises(AssertionError, match="has this 0 times"):
        mutant.plant(tmp_path)
