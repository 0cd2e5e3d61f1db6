"""The simulation on a copy of the core whose slices have been shortened, so that turns to come do come.

`python -m tests.simulation.queues.short_slices [SEED | --seeds FIRST COUNT] [--haste P] ...`: as that of
`tests.simulation.queues`. A core as it is never has more than one slice with as few messages as there are
here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.simulation.queues.mutant import copy

LENGTH: Final = 2
SHORTENED: Final = {
    "partitions/runs.py": {"SLICE": LENGTH},
    "publishing/receipts.py": {"SLICE": LENGTH},
    "queues/duplicates.py": {"SLICE": LENGTH},
    "queues/groups.py": {"SLICE": LENGTH},
    "queues/lease.py": {"SLICE": LENGTH},
    "queues/limits.py": {"SLICE": LENGTH},
    "queues/purge.py": {"SLICE": LENGTH, "DEAD_SLICE": LENGTH, "CLEARING_SLICE": LENGTH},
    "queues/retry.py": {"SLICE": LENGTH},
    "queues/returns.py": {"SLICE": LENGTH, "DEAR": 1, "DISCARD_SLICE": LENGTH},
    "queues/undeliverable.py": {"SLICE": LENGTH},
    "routing/bindings.py": {"SLICE": LENGTH},
    "schedule.py": {"SLICE": LENGTH},
    "vhosts/deletion.py": {"SLICE": LENGTH, "DISPOSAL_SLICE": LENGTH},
    "vhosts/policies.py": {"SLICE": LENGTH},
}
"""By file of the core, the lengths of its slices and what else decides how much goes in one turn."""
LEFT: Final = {"vhosts/policies.py": {"SLICE_MS"}}
"""Names of lengths that stay unchanged: no time passes in a turn."""
CONSTANT: Final = re.compile(r"^(\w*SLICE\w*|DEAR)(: Final(?:\[i64\])?)? = (.*)$", re.MULTILINE)
NUMBER: Final = re.compile(r"[\d_]+(?=\s|$)")


def shorten(root: Path) -> None:
    """Shorten all slices of the copy of the core under `root`.

    AssertionError: a constant is not there or is no number, or there is one that is in neither of the lists.
    """
    core = root / "broker" / "core"
    for path in sorted(core.rglob("*.py")):
        name = str(path.relative_to(core))
        text = path.read_text()
        lengths, left = SHORTENED.get(name, {}), LEFT.get(name, set())
        defined = [match.group(1) for match in CONSTANT.finditer(text)]
        known = sorted([*lengths, *left])
        assert sorted(defined) == known, f"core/{name} has the lengths {sorted(defined)}, known are {known}"
        if lengths:
            path.write_text(_shortened(name, text, lengths))
    missing = [name for name in SHORTENED if not (core / name).is_file()]
    assert not missing, f"the core has no {missing}"


def _shortened(name: str, text: str, lengths: dict[str, int]) -> str:
    def short(match: re.Match[str]) -> str:
        constant, kind, value = match.groups()
        if constant not in lengths:
            return match.group()
        assert NUMBER.match(value), f"{constant} of core/{name} is {value}, which is no number"
        return f"{constant}{kind or ''} = {NUMBER.sub(str(lengths[constant]), value, count=1)}"

    return CONSTANT.sub(short, text)


def run(root: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The simulation with these arguments, of the copy under `root`."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.simulation.queues", *arguments]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        copy(Path(folder))
        shorten(Path(folder))
        done = run(Path(folder), sys.argv[1:])
    print(done.stdout, done.stderr, sep="", end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
