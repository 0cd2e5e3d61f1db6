"""The connector as it is installed: Spark knows its formats without being told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.brokers import Broker
from tests.daemon import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PROGRAM = """
import os
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
options = {"url": os.environ["AMQP_URL"], "apiUrl": os.environ["API_URL"], "subscribe": "installed"}
frame = spark.read.format("amqp").options(**options).load()
print("rows", frame.count())
journal = spark.read.format("amqp-journal").option("url", os.environ["API_URL"]).load()
print("declared", journal.where("op = 'declare'").count())
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with what pip installs, and nothing else of ours."""
    target = tmp_path / "site"
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(target), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *words], env=os.environ | {"AMQPD_COMPILE": "0"}, check=True)
    return target


@pytest.fixture
def broker(tmp_path: Path, spark: SparkSession) -> Iterator[Broker]:
    """Asks for Spark, so that this is skipped, saying so, where there is none."""
    broker = Broker(tmp_path / "broker", "--journal", "full")
    broker.declare("queue")
    broker.declare_stream("installed")
    broker.publish("installed", [b"x"] * 10)
    yield broker
    broker.stop()


def test_the_format_is_known_without_being_registered(
    installed: Path, broker: Broker, tmp_path: Path
) -> None:
    said = broker.options_of_spark
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environment |= {
        "PYTHONPATH": str(installed),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "AMQP_URL": said["url"],
        "API_URL": said["apiUrl"],
    }
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert "rows 10" in done.stdout, done.stderr
    assert "declared 1" in done.stdout, done.stderr
