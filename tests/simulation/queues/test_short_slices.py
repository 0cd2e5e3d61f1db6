"""All invariants hold with short slices, whether clients wait for pending slices or go on."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.queues.mutant import copy
from tests.simulation.queues.short_slices import run, shorten
from tests.support.effort import THOROUGH

HASTE = "0.6"
ORDINARY = 140  # fewer do not exercise everything
RESTARTED = 90
NIGHTLY = 10_000
CHUNK = 1_000


thorough = pytest.mark.skipif(
    not THOROUGH, reason="takes half a minute: with TESTS_THOROUGH=1 only, as `.ci/run` does"
)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the broker with short slices."""
    root = tmp_path_factory.mktemp("short")
    copy(root)
    shorten(root)
    return root


def exercise(root: Path, first: int, count: int, haste: str, *others: str) -> set[str]:
    """Run `count` seeds; return the features that were never exercised."""
    done = run(root, ["--seeds", str(first), str(count), "--haste", haste, *others])
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    never: list[str] = ast.literal_eval(done.stdout.rpartition("never seen: ")[2])
    return set(never)


@thorough
def test_every_invariant_holds_for_clients_that_do_not_wait(short: Path) -> None:
    never = exercise(short, 0, ORDINARY, HASTE)
    never &= exercise(short, 0, RESTARTED, HASTE, "--profile", "many at once, in the log")
    assert not [name for name in never if name.startswith("slices: ")]


@thorough
def test_every_invariant_holds_for_clients_that_wait(short: Path) -> None:
    exercise(short, ORDINARY, ORDINARY // 2, "0")


def test_a_seed_does_the_same_again(short: Path) -> None:
    commands = ["--seeds", "3", "8", "--haste", HASTE]
    one, other = (run(short, commands).stdout.partition("\n8 seeds, 0 failed") for _ in range(2))
    assert one[:2] == other[:2]
    assert one[1]


@pytest.mark.nightly
@pytest.mark.parametrize("haste", ["0", "0.3", "0.9"])
@pytest.mark.parametrize("first", range(0, NIGHTLY, CHUNK))
def test_many_seeds(short: Path, first: int, haste: str) -> None:
    exercise(short, first, CHUNK, haste)


# ---- shortening


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda text: text.replace("DEAR", "COSTLY"),
            r"returns.py has the lengths \['DISCARD_SLICE', 'SLICE'\]",
        ),
        (lambda text: text + "\nWAKE_SLICE: Final[i64] = 7\n", r"'WAKE_SLICE'\], known are"),
        (
            lambda text: text.replace("SLICE: Final[i64] = 5000", "SLICE: Final[i64] = most()"),
            "is no number",
        ),
    ],
)
def test_a_length_that_is_not_known_is_told(
    tmp_path: Path, change: Callable[[str], str], reason: str
) -> None:
    copy(tmp_path)
    path = tmp_path / "broker" / "core" / "queues" / "returns.py"
    path.write_text(change(path.read_text()))
    with pytest.raises(AssertionError, match=reason):
        shorten(tmp_path)


def test_a_file_with_lengths_that_is_gone_is_told(tmp_path: Path) -> None:
    copy(tmp_path)
    (tmp_path / "broker" / "core" / "queues" / "purge.py").unlink()
    with pytest.raises(AssertionError, match=r"the core has no \['queues/purge.py'\]"):
        shorten(tmp_path)
