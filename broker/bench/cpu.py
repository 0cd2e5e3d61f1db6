"""CPU time of a process on this machine and of its descendants."""

import os
import time
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_CPUCLOCK_SCHED: Final = 2  # user and system time [Linux, include/linux/posix-timers.h]


def cpu_seconds(pid: int) -> float:
    """Return the user and system seconds of `pid` and its descendants, ended ones included.

    Raises ProcessLookupError if `pid` does not exist.
    """
    ended: dict[int, int] = {}  # ticks of ended processes that were waited for
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(entry)
            if fields:
                ended[int(entry.name)] = sum(map(int, fields[13:15]))
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    if pid not in ended:
        raise ProcessLookupError(f"no process {pid}")
    family = [pid]
    for member in family:
        family += children.get(member, [])
    return sum(_own(member) + ended[member] / _TICKS_PER_SECOND for member in family)


def _own(pid: int) -> float:
    """Return the CPU seconds of the threads of `pid`, to the nanosecond; 0 if the process has ended.

    /proc/PID/stat counts in ticks of 10 ms, which is too coarse for a short measurement. Python lacks
    clock_getcpuclockid(3), so the number of the clock is computed here.
    """
    try:
        return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return 0.0


def _stat(process: Path) -> list[str]:
    """Return the fields of /proc/PID/stat behind the name; empty if the process has ended. [proc(5)]"""
    try:
        text = (process / "stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
