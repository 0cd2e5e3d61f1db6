"""A fault that is planted in a copy."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PARTS = ("broker", "protocol", "config", "tests")


def copy(root: Path) -> None:
    """The broker and its tests, sources only."""
    for part in PARTS:
        skipped = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / part, root / part, ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", root)


@dataclass(frozen=True)
class Mutant:
    """In `file` of the core, `old` becomes `new`. `seeds`: 0 if measures of F1 to F4 are to tell.

    `profile`: the only one of the simulation that is run, to find it sooner. `first`: the first seed,
    where few find it. `haste`: of clients where slices are short; 0: these are as they are.
    """

    file: str
    old: str
    new: str
    seeds: int = 360
    profile: str = ""
    first: int = 0
    haste: float = 0

    def plant(self, root: Path) -> None:
        """Change a copy of the broker. AssertionError if the text is not there, or more than once."""
        path = root / "broker" / self.file
        text = path.read_text()
        count = text.count(self.old)
        assert count == 1, f"{self.file} has this {count} times: {self.old}"
        path.write_text(text.replace(self.old, self.new))
