"""`amqpd pipeline run stream-to-parquet`: messages in files, each once, run after run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.arguments import parser
from pipeline.command import cause
from pipeline.errors import PipelineError
from pipeline.runs import run
from tests.support.daemon.daemon import ROOT
from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark


def words(broker: Broker, out: Path, names: str, *more: str) -> list[str]:
    options = broker.options_of_spark
    api = f"apiUrl={options['apiUrl']}"
    fixed = [
        "run",
        "stream-to-parquet",
        "--url",
        options["url"],
        "--option",
        api,
        "--option",
        "readerName=lake",
    ]
    return [*fixed, "--subscribe", names, "--out", str(out), *more]


def store(spark: SparkSession, *arguments: str) -> dict[str, Any]:
    found, summary = run(spark, parser().parse_args(list(arguments)), None, lambda text: None)
    assert not found
    return summary


def stored(out: Path) -> list[dict[str, Any]]:
    table = ds.dataset(out / "data", partitioning="hive").to_table(["queue", "value", "date"])
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def test_each_run_adds_only_new_messages(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.declare_stream("orders", partitions=2)
    broker.declare("work")
    broker.publish("orders", [b"o%d" % number for number in range(100)])
    broker.publish("work", [b"w%d" % number for number in range(50)])
    first = store(spark, *words(broker, tmp_path, "orders,work"))
    assert (first["messages"], first["batches"]) == (150, 1)
    assert store(spark, *words(broker, tmp_path, "orders,work"))["messages"] == 0
    broker.publish("orders", [b"more"])
    assert store(spark, *words(broker, tmp_path, "orders,work"))["messages"] == 1
    rows = stored(tmp_path)
    assert Counter(row["queue"] for row in rows) == {"orders": 101, "work": 50}
    assert len({row["value"] for row in rows}) == 151
    assert len({row["date"] for row in rows}) <= 2, "midnight may come"


def test_data_without_a_checkpoint_is_not_replaced(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    (tmp_path / "data" / "batch=0").mkdir(parents=True)
    with pytest.raises(PipelineError, match="has data but no checkpoint"):
        store(spark, *words(broker, tmp_path, "orders"))


@pytest.mark.nightly
def test_options_are_those_of_the_format(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.declare_stream("json")
    broker.publish("json", [b'{"id": 7}', b"no"])
    body = ("--option", "bodyFormat=json", "--option", "bodySchema=id int")
    store(spark, *words(broker, tmp_path, "json", *body))
    values = [row["value"] for row in stored(tmp_path)]
    assert values == [{"id": 7, "_corrupt_record": None}, {"id": None, "_corrupt_record": "no"}]


@pytest.mark.nightly
def test_unreadable_rows_are_an_error(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(PySparkException) as failed:
        store(spark, *words(broker, tmp_path, "nothing"))
    assert cause(str(failed.value)) == "no queue 'nothing' in vhost '/'"


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_the_job_continues_until_it_is_stopped(
    broker: Broker, tmp_path: Path, number: signal.Signals
) -> None:
    name = f"endless-{number.name}"
    broker.declare_stream(name)
    broker.publish(name, [b"1"])
    command = [sys.executable, "-m", "pipeline", *words(broker, tmp_path, name, "--mode", "continuous")]
    process = subprocess.Popen(
        [*command, "--master", "local[2]"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 120
    while not list(tmp_path.glob("data/batch=*/_SUCCESS")) and time.monotonic() < until:
        time.sleep(0.2)
    os.kill(process.pid, number)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert json.loads(out)["messages"] == 1
    assert "Traceback" not in errors
