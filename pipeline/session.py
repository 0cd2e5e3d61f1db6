"""The Spark session of a job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.errors import PipelineError

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
"""What holds where driver and workers are one process."""
BRIEF: Final = {"spark.driver.extraJavaOptions": f"{COLLECTOR} -XX:TieredStopAtLevel=1"}
"""And where most code runs too briefly to be worth the JVM's second compiler."""
PROBE: Final = """
import sys
sys.path += sys.argv[1:]
import pyarrow, pamqp, mypy_extensions, pipeline.errors
"""
"""The modules of the connector that a worker imports; `pyspark` itself comes with Spark."""


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


def check_workers(spark: SparkSession) -> None:
    """Raise PipelineError unless the interpreter of Spark's workers can import what this one does.

    Without PYSPARK_PYTHON the workers start the python3 of PATH. It is that of the system where the virtual
    environment of this interpreter is not activated; then Spark tells of a missing module at the first batch.
    What this interpreter imports from zips counts: Spark hands them to its workers. Nothing is checked with
    Spark Connect, whose clients cannot see the workers.
    """
    try:
        said = spark.sparkContext.pythonExec
    except PySparkException:
        return
    found = shutil.which(said)
    if found == sys.executable:
        return
    if found is None:
        raise PipelineError(f"Spark's workers start {said!r}, which is not there: {_remedy()}")
    words = [found, "-c", PROBE, *(path for path in sys.path if os.path.isfile(path))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        why = lines[-1] if lines else f"it ended with status {done.returncode}"
        raise PipelineError(
            f"Spark's workers start {found}, which cannot import the connector ({why}): {_remedy()}"
        )


def _remedy() -> str:
    return (
        f"activate the virtual environment of {sys.executable}, or set PYSPARK_PYTHON={sys.executable} "
        "before the Spark session is made"
    )
