"""Call-outs of queues to consumers must not call back into a queue: F5.

A call-out may make room again, as the last thing (ConsumerTarget). During a call-out, the interpreter reports
every function that is entered, so that a call into a queue is seen, by however many detours. In compiled code
only call-outs within call-outs are seen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tests.simulation.queues.invariants import Seen, check
from tests.support.core.queue_entrances import ENTRANCES, names_by_code

CODES = names_by_code(ENTRANCES)


class Calls:
    """The active call-outs, the innermost last."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.now: list[str] = []

    @contextmanager
    def out(self, name: str) -> Iterator[None]:
        """Record a call-out. In `notify_work` only further notifications are allowed."""
        nested = bool(self.now) and (name != "notify_work" or self.now[-1] == "notify_work")
        check(self.seen, "F5", not nested, f"{name} while in {self.now}")
        self.now.append(name)
        before = sys.getprofile()
        sys.setprofile(self._entered)
        try:
            yield
        finally:
            sys.setprofile(before)
            self.now.pop()

    def _entered(self, frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code in CODES:
            check(self.seen, "F5", False, f"{CODES[frame.f_code]} is called from {self.now[-1]}")
