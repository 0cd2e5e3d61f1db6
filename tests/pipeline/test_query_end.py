"""Endless queries end between two batches when they are stopped."""

import os
import signal
import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.session import await_query

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_batch_that_is_under_way_is_finished(
    spark: SparkSession, tmp_path: Path, number: signal.Signals
) -> None:
    finished: list[str] = []

    def take(batch: DataFrame, batch_number: int) -> None:
        if batch_number == 0:
            os.kill(os.getpid(), number)
            for _ in range(6):  # jobs that go on for longer than the pause between two looks for signals
                batch.count()
                time.sleep(0.5)
        finished.append(str(batch_number))

    stream = spark.readStream.format("rate").load()
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="10 seconds").start()

    await_query(query)

    assert not query.isActive
    assert query.exception() is None
    assert finished
    for names in ("offsets", "commits"):  # begun batches and finished batches
        assert sorted(path.name for path in (tmp_path / names).glob("[0-9]*")) == finished
