"""Queues of every kind under random clients, beside a model: what holds at every step of every seed.

`python -m tests.simulation.queues SEED` does one again; a failure names it. The nightly seeds come with
`python -m pytest -m nightly tests/simulation/queues`, or `python -m tests.simulation.queues --seeds 0 10000`.
"""

import ast
from pathlib import Path

import pytest

from tests.simulation.queues import (
    book,
    delays,
    group_profiles,
    invariants,
    journal,
    model,
    notes,
    profiles,
    recall,
    sure_profiles,
    windows,
)
from tests.simulation.queues.coverage import SURE, missing, table
from tests.simulation.queues.driver import Run
from tests.simulation.queues.invariants import InvariantError, Seen
from tests.support.effort import cases

ORDINARY = cases(360)
RARE = (  # rare ways: a profile, or the profile that the seed chooses, and the seed
    ("", 124),
    ("", 227),
    ("log, limits", 12),
    ("delays", 1),
    ("ids", 5),
    ("operations", 380),
    ("redriven", 0),
    ("redriven, in the log", 2),
    ("groups, one consumer", 50670),
    ("renamed, in the log", 2),
    ("renamed, in the log", 4),
)
NIGHTLY = 10_000
CHUNK = 1_000
MODEL = (
    book,
    delays,
    group_profiles,
    invariants,
    journal,
    model,
    notes,
    profiles,
    recall,
    sure_profiles,
    windows,
)


def run(first: int, count: int) -> Seen:
    seen = Seen()
    for seed in range(first, first + count):
        Run(seed, seen).run()
    for profile, seed in RARE if count > 1 else ():
        Run(seed, seen, profile).run()
    return seen


def exercise_everything(first: int, count: int) -> None:
    seen = run(first, count)
    print(table(seen))
    assert not missing(seen)


def test_every_feature_is_exercised_and_every_invariant_holds() -> None:
    exercise_everything(0, ORDINARY)


def exercise_dead_letters(first: int, count: int) -> None:
    """The profiles of queues that dead-letter at least once."""
    seen = Seen()
    for profile in sure_profiles.SURE:
        for seed in range(first, first + count):
            Run(seed, seen, profile).run()
    assert [name for name in SURE if not seen[name]] == []


def test_dead_letters_that_wait_are_neither_lost_nor_doubled() -> None:
    exercise_dead_letters(0, cases(48))


def test_a_seed_does_the_same_again() -> None:
    assert run(17, 1) == run(17, 1)


def test_a_failure_says_how_to_see_it_again() -> None:
    again = Run(5, Seen())
    queue = next(iter(again.world.life.vhost.topology.queues.values()))
    queue.ready = 1
    with pytest.raises(
        InvariantError, match=r"I2: .*; step 0 \(.*\) of profile '.*'; again: .*queues 5 --profile '.*'$"
    ):
        again.run()


def test_the_model_shares_no_code_with_the_core() -> None:
    for module in MODEL:
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text())
        names = {
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        }
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        foreign = {name for name in names if name.split(".")[0] in ("broker", "protocol", "tests")}
        assert foreign <= {other.__name__ for other in MODEL}, module.__name__


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, NIGHTLY, CHUNK))
def test_many_seeds(first: int) -> None:
    exercise_everything(first, CHUNK)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, NIGHTLY // 5, CHUNK // 5))
def test_many_seeds_of_dead_letters_that_wait(first: int) -> None:
    exercise_dead_letters(first, CHUNK // 5)
