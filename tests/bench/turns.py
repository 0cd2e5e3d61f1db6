"""`python -m tests.bench.turns PYTHON -m broker serve ...`: a broker that measures the turns of its loop.

A wrapper for `Daemon`. SIGUSR2 prints the CPU time in ms of the 20 longest turns since the last time, the
longest first. The loop never sleeps, so that each turn is seen.
"""

import asyncio
import heapq
import json
import runpy
import signal
import sys
import time
from typing import Final

import uvloop

KEPT: Final = 20


class Turns:
    """The longest turns of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._longest: list[float] = []
        self._began = time.thread_time()
        loop.call_soon(self._turn)
        loop.add_signal_handler(signal.SIGUSR2, self._print)

    def _turn(self) -> None:
        now = time.thread_time()
        took, self._began = now - self._began, now
        if len(self._longest) < KEPT:
            heapq.heappush(self._longest, took)
        elif took > self._longest[0]:
            heapq.heapreplace(self._longest, took)
        self._loop.call_soon(self._turn)

    def _print(self) -> None:
        longest, self._longest = self._longest, []
        print(f"turns: {json.dumps([each * 1e3 for each in sorted(longest, reverse=True)])}", flush=True)


def main() -> None:
    plain = uvloop.new_event_loop

    def new_event_loop() -> asyncio.AbstractEventLoop:
        loop = plain()
        Turns(loop)
        return loop

    uvloop.new_event_loop = new_event_loop  # type: ignore[assignment]  # broker/daemon.py looks it up there
    sys.argv = sys.argv[3:]
    runpy.run_module("broker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
