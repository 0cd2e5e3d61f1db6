"""CPU time of a process on this machine, its descendants included."""

import os
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system seconds of `pid`, of its living descendants and of those it has waited for.

    Raises ProcessLookupError if there is no such process.
    """
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(entry)
            if fields:
                ticks[int(entry.name)] = sum(map(int, fields[11:15]))
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    if pid not in ticks:
        raise ProcessLookupError(f"no process {pid}")
    family = [pid]
    for member in family:
        family += children.get(member, [])
    return sum(ticks[member] for member in family) / _TICKS_PER_SECOND


def _stat(process: Path) -> list[str]:
    """The fields of /proc/PID/stat behind the command's name; none if the process has ended. [proc(5)]"""
    try:
        text = (process / "stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
