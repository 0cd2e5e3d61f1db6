"""Progress bars on standard error: at a terminal only, for work that takes longer than two seconds."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

DELAY_SECONDS: Final = 2.0

Advance = Callable[[int, int], None]
"""Takes the amount of work that is done, and the amount of all work; 0: the amount is not known."""


def ignore_progress(done: int, total: int = 0) -> None:
    """Show nothing."""


@contextmanager
def show_progress(what: str) -> Iterator[Advance]:
    """Show the progress of a piece of work, such as "import"; the bar disappears at the end.

    Without a call of the yielded function the bar shows only that the work goes on.
    """
    if not sys.stderr.isatty():
        yield ignore_progress
        return
    from rich.console import Console  # here: most commands are over before Rich is imported
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    # Output at the same terminal is written above the bar. Output to a file must not go through the bar.
    bar = Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )
    task = bar.add_task(what, total=None)
    timer = threading.Timer(DELAY_SECONDS, bar.start)
    timer.daemon = True
    timer.start()

    def advance(done: int, total: int = 0) -> None:
        bar.update(task, completed=done, total=total or None)

    try:
        yield advance
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()
