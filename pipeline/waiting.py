"""Queries that go on until somebody says that it is enough."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

LOOK_S: Final = 1
BATCH_S: Final = 30  # the longest wait for a pause between two batches
BATCH_LOOK_S: Final = 0.01


def until_told(query: StreamingQuery) -> None:
    """Wait for the end of a query, and end it on SIGINT and SIGTERM: between two batches.

    If no pause between two batches is seen for 30 seconds, the batch under way is broken off. The next start
    does that batch again.

    Raises what the query has failed with.
    """
    told = threading.Event()

    def tell(_number: int, _frame: FrameType | None) -> None:
        told.set()

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not query.awaitTermination(LOOK_S):
            if told.is_set():
                _await_end_of_batch(query)
                query.stop()
                return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _await_end_of_batch(query: StreamingQuery) -> None:
    """Return when no batch is under way, after BATCH_S at the latest."""
    end = time.monotonic() + BATCH_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < end:
        time.sleep(BATCH_LOOK_S)
