"""The Spark session of a job, and the end of its streaming queries."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.codegen.cache.maxEntries": "1000",  # an audit has more than the 100 that there would be
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
COLLECTOR: Final = "-XX:+UseParallelGC"  # a fifth less CPU than G1, on two cores
LOCAL: Final = {
    "spark.sql.shuffle.partitions": "8",  # small results are put together again by adaptive execution
    "spark.driver.memory": "3g",
    "spark.driver.extraJavaOptions": COLLECTOR,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.shuffle.compress": "true",
}
"""Settings for a driver and workers in one process."""
BRIEF: Final = {"spark.driver.extraJavaOptions": f"{COLLECTOR} -XX:TieredStopAtLevel=1"}
"""And where most code runs too briefly to be worth the JVM's second compiler."""

LOOK_S: Final = 1
BATCH_S: Final = 30  # the longest wait for a pause between two batches
BATCH_LOOK_S: Final = 0.01


def build_session(master: str | None, conf: Mapping[str, str], brief: bool = False) -> SparkSession:
    """Make the session. `master`: None is that of spark-submit. `conf` goes before our defaults.

    `brief`: it makes many plans and runs each once, see BRIEF.

    Workers start this interpreter: otherwise they take whatever python3 is first in PATH.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("amqpd")
    settings = dict(DEFAULTS)
    if master is not None:
        builder = builder.master(master)
        if is_local(master):
            settings |= LOCAL | (BRIEF if brief else {})
    for key, value in (settings | dict(conf)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(conf.get("spark.log.level", "ERROR"))
    return spark


def is_local(master: str) -> bool:
    """Whether driver and workers are this process."""
    return master == "local" or master.startswith("local[")


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
