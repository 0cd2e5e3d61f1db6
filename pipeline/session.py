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
    "spark.sql.codegen.cache.maxEntries": "1000",  # an audit has more than the default of 100
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
COLLECTOR: Final = "-XX:+UseParallelGC"  # a fifth less CPU than G1, on two cores
LOCAL: Final = {
    "spark.sql.shuffle.partitions": "8",  # adaptive execution coalesces small results
    "spark.driver.memory": "3g",
    "spark.driver.extraJavaOptions": COLLECTOR,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.shuffle.compress": "true",
}
"""Settings for driver and workers in one process."""
BRIEF: Final = {"spark.driver.extraJavaOptions": f"{COLLECTOR} -XX:TieredStopAtLevel=1"}
"""Settings for jobs whose code runs too briefly for the JVM's second compiler."""

LOOK_S: Final = 1
BATCH_S: Final = 30  # longest wait for the end of a batch
BATCH_LOOK_S: Final = 0.01


def build_session(master: str | None, conf: Mapping[str, str], brief: bool = False) -> SparkSession:
    """Make the session. `master`: None: of spark-submit. `conf` takes precedence over the defaults here.

    `brief`: the job makes many plans and runs each once, see BRIEF.

    Workers start this interpreter. Otherwise they would start the first python3 in PATH.
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
    """Whether driver and workers run in this process."""
    return master == "local" or master.startswith("local[")


def await_query(query: StreamingQuery) -> None:
    """Wait for the end of a query; on SIGINT and SIGTERM end it between two batches.

    If no pause between two batches is found for 30 seconds, the present batch is cancelled. The next start
    repeats that batch. Raises the error of the query.
    """
    ended = threading.Event()

    def tell(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not query.awaitTermination(LOOK_S):
            if ended.is_set():
                _await_end_of_batch(query)
                query.stop()
                return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _await_end_of_batch(query: StreamingQuery) -> None:
    """Wait until no batch is running, at most BATCH_S."""
    end = time.monotonic() + BATCH_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < end:
        time.sleep(BATCH_LOOK_S)
