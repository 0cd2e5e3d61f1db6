"""CPU time of processes, which says more than wall time where the machine is shared. Linux only."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Cpu(NamedTuple):
    """Seconds, user and system, that the parts of a benchmark have taken."""

    broker: float
    jvm: float
    workers: float

    def row_text(self, rows: int) -> str:
        """The same in microseconds for each row."""
        broker, jvm, workers = (1e6 * each / rows for each in self)
        return f"us of CPU per row: broker {broker:.2f}, JVM {jvm:.2f}, Python workers {workers:.2f}"


class _Process(NamedTuple):
    parent: int
    is_java: bool
    seconds: float


def spent(broker: int, work: Callable[[], object]) -> Cpu:
    """Return the CPU time that `work` takes in a broker and in the Spark that this process drives.

    A worker that ends meanwhile counts as far as Spark's daemon has waited for it.
    """
    before = until_now(broker)
    work()
    return since(before, broker)


def since(before: Cpu, broker: int | None = None) -> Cpu:
    """Return the CPU time since `before`, a result of `until_now`."""
    return Cpu(*(b - a for a, b in zip(before, until_now(broker), strict=True)))


def until_now(broker: int | None = None) -> Cpu:
    """Return the CPU time so far of a broker, if there is any, and of the Spark that this process drives."""
    found = {int(path.name): process for path in Path("/proc").glob("[0-9]*") if (process := _process(path))}
    serving = 0.0 if broker is None else found.pop(broker).seconds
    mine = {os.getpid()}
    while more := {pid for pid, each in found.items() if each.parent in mine} - mine:
        mine |= more
    java = sum(found[pid].seconds for pid in mine if found[pid].is_java)
    others = sum(found[pid].seconds for pid in mine - {os.getpid()} if not found[pid].is_java)
    return Cpu(serving, java, others)


def _process(path: Path) -> _Process | None:
    try:
        name, _, rest = (path / "stat").read_text(encoding="utf-8").rpartition(") ")
    except (FileNotFoundError, ProcessLookupError):  # the process has ended
        return None
    fields = rest.split()
    return _Process(int(fields[1]), name.endswith("(java"), sum(map(int, fields[11:15])) / _TICKS)
