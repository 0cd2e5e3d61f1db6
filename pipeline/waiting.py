"""Queries that go on until somebody says that it is enough."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

LOOK_S: Final = 1


def until_told(query: StreamingQuery) -> None:
    """Wait for the end of a query, and end it on SIGINT and SIGTERM: between two batches.

    Raises what the query has failed with.
    """
    told = threading.Event()

    def tell(_number: int, _frame: FrameType | None) -> None:
        told.set()

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not query.awaitTermination(LOOK_S):
            if told.is_set():
                query.stop()
                return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
