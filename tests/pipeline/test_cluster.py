"""Jobs on a cluster with executors: the sources come in a zip, and nothing of ours is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from pipeline.cluster import command, environment, zip_sources
from tests.bench.journals import Planted
from tests.support.pipeline.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

MASTER = "local-cluster[2,1,1024]"
NO_PANDAS = "raise ImportError('pandas is not to be asked for')\n"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Broker]:
    """Asks for Spark, so that this is skipped, saying so, where there is none."""
    broker = Broker(tmp_path_factory.mktemp("broker"))
    broker.declare_stream("orders", partitions=2)
    broker.publish("orders", [b"%d" % number for number in range(500)])
    yield broker
    broker.stop()


class Submitter:
    """Starts spark-submit in a folder, with a Python that has pyspark, and neither us nor pandas."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources = folder / "pipeline.zip"
        zip_sources(self.sources)
        without = folder / "without"
        without.mkdir()
        (without / "pandas.py").write_text(NO_PANDAS)
        packages = Path(pa.__file__).parents[1]  # files named .pth work in site folders only
        python = sys._base_executable if sys.prefix != sys.base_prefix else sys.executable  # type: ignore[attr-defined]
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "PYTHON"))
        }
        self.environment |= {"PYTHONPATH": f"{without}:{packages}", "PYSPARK_PYTHON": python}

    def submit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a job to its end."""
        words = command(MASTER, {"spark.ui.enabled": "false"}, arguments, self.sources)
        return self._run(words, environment(self.sources, self.environment))

    def imports(self, name: str) -> bool:
        """Whether workers would find a module without the zip."""
        words = [self.environment["PYSPARK_PYTHON"], "-c", f"import {name}"]
        return self._run(words, self.environment).returncode == 0

    def _run(self, words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )


def summary(done: subprocess.CompletedProcess[str]) -> Any:
    """Return the job's summary; spark-submit writes all output, errors too, to standard output."""
    (line,) = [line for line in done.stdout.splitlines() if line.startswith('{"job"')]
    return json.loads(line)


@pytest.fixture
def submitter(tmp_path: Path) -> Submitter:
    found = Submitter(tmp_path)
    assert found.imports("pyarrow")
    assert not found.imports("pandas")
    if find_spec("pipeline") is not None and found.imports("pipeline"):
        pytest.skip("the sources are installed in the folder where pyarrow is: a zip would prove nothing")
    return found


def test_messages_are_stored_by_executors(submitter: Submitter, broker: Broker, tmp_path: Path) -> None:
    options = broker.options_of_spark
    words = ["run", "stream-to-parquet", "--url", options["url"], "--option", f"apiUrl={options['apiUrl']}"]
    out = tmp_path / "out"
    done = submitter.submit(*words, "--subscribe", "orders", "--out", str(out))
    assert done.returncode == 0, done.stderr[-5000:]
    assert summary(done)["messages"] == 500
    values = ds.dataset(out / "data", partitioning="hive").to_table(["value"])["value"].to_pylist()
    assert sorted(map(int, values)) == list(range(500))
    failed = submitter.submit(*words, "--subscribe", "nothing", "--out", str(tmp_path / "none"))
    assert failed.returncode == 1
    assert "amqpd pipeline: stream-to-parquet has failed: no queue 'nothing' in vhost '/'" in failed.stdout


def test_findings_are_an_exit_status(submitter: Submitter, planted: tuple[Path, Planted]) -> None:
    done = submitter.submit(
        "run", "audit", "--journal", str(planted[0]), "--conf", "spark.sql.shuffle.partitions=2"
    )
    assert done.returncode == 2, done.stderr[-5000:]
    assert summary(done)["findings"]["lost"] == len(planted[1].uids["lost"])


def test_the_printed_command_can_be_run(planted: tuple[Path, Planted], tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pipeline", "run", "audit", "--master", MASTER]
    words += ["--journal", str(planted[0]), "--conf", "spark.sql.shuffle.partitions=2", "--print-command"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout

    done = subprocess.run(
        ["/bin/sh", "-c", printed], cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False
    )

    assert done.returncode == 2, done.stderr[-5000:]
    assert summary(done)["findings"]["lost"] == len(planted[1].uids["lost"])
