"""The terminal shows Spark's progress while a job runs."""

from __future__ import annotations

import io
import re
import threading

import pytest
from pyspark.sql import SparkSession

from pipeline.terminal import ProgressLine

pytestmark = pytest.mark.spark
UNDER_WAY = r"amqpd pipeline: audit, \d+ s: (Spark plans|\d+ of \d+ tasks of stage \d+)"


class Screen(io.StringIO):
    """A terminal that keeps its output, and reports tasks."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal
        self.shown = threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        if "of 4 tasks" in text:
            self.shown.set()
        return super().write(text)


@pytest.mark.parametrize(
    ("terminal", "form"),
    [(True, rf"(\r\x1b\[K{UNDER_WAY})+\r\x1b\[K"), (False, rf"({UNDER_WAY}\n)+")],
    ids=["terminal", "file"],
)
def test_the_line_counts_tasks_until_the_job_is_done(spark: SparkSession, terminal: bool, form: str) -> None:
    screen = Screen(terminal)

    with ProgressLine(spark.sparkContext.statusTracker(), "audit", screen, every=0.02):
        for _ in range(1000):
            if screen.shown.is_set():
                break
            spark.sparkContext.parallelize(range(4), 4).map(lambda number: number).count()

    assert screen.shown.is_set()
    assert re.fullmatch(form, screen.getvalue())
