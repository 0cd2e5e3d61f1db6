"""Output for the user while a job runs: lines on standard error, and Spark's progress."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, TextIO

CLEAR: Final = "\r\x1b[K"  # erases the present line of a terminal

ON_TERMINAL_S: Final = 0.5
ELSEWHERE_S: Final = 30.0


def print_line(text: str) -> None:
    """Write a line to standard error, in place of the progress line of a terminal."""
    begun = CLEAR if sys.stderr.isatty() else ""  # there may be a progress line
    sys.stderr.write(f"{begun}amqpd pipeline: {text}\n")
    sys.stderr.flush()


class Stage(Protocol):
    """A stage of a job, as Spark's status tracker describes it."""

    stageId: int  # noqa: N815 (Spark's name)
    numTasks: int  # noqa: N815
    numCompletedTasks: int  # noqa: N815


class Tracker(Protocol):
    """The part of Spark's status tracker that the progress line reads. This module imports no pyspark."""

    def getActiveStageIds(self) -> Sequence[int]:  # noqa: N802 (Spark's name)
        """Return the numbers of the stages that run now."""

    def getStageInfo(self, stageId: int, /) -> Stage | None:  # noqa: N802, N803
        """Return the state of a stage; None: Spark does not know the stage any more."""


class ProgressLine:
    """Shows the running tasks of Spark until the context ends: in one line of a terminal, else in a log."""

    def __init__(self, tracker: Tracker, job: str, out: TextIO, every: float | None = None) -> None:
        """`every`: seconds between two updates; None: the interval that fits `out`."""
        self._tracker = tracker
        self._job = job
        self._out = out
        self._on_terminal = out.isatty()
        self._every = every or (ON_TERMINAL_S if self._on_terminal else ELSEWHERE_S)
        self._began = time.monotonic()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress line", daemon=True)

    def __enter__(self) -> ProgressLine:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()
        if self._on_terminal:
            self._out.write(CLEAR)

    def _run(self) -> None:
        while not self._left.wait(self._every):
            text = f"amqpd pipeline: {self._job}, {time.monotonic() - self._began:.0f} s: {self._under_way()}"
            self._out.write(f"{CLEAR}{text}" if self._on_terminal else f"{text}\n")
            self._out.flush()

    def _under_way(self) -> str:
        stages = [self._tracker.getStageInfo(number) for number in self._tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        if not known:
            return "Spark plans"
        done, tasks = sum(each.numCompletedTasks for each in known), sum(each.numTasks for each in known)
        return f"{done} of {tasks} tasks of stage {known[-1].stageId}"
