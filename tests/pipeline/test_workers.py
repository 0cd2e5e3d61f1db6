"""Spark's workers without an activated virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

JOB = """
from pyspark.sql import SparkSession
from pipeline.connector.source import register
from pipeline.journal.source import register as register_journal

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for name, known in (("amqp", register), ("amqp-journal", register_journal)):
    try:
        known(spark)
        print(name, "registered")
    except Exception as error:
        print(name, type(error).__name__, error)
"""


def run_job(path: Path, **environment: str) -> list[str]:
    """Return the output of the job, with this folder first in PATH."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    search = f"{path}{os.pathsep}{inherited['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        env=inherited | {"PATH": search} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an interpreter that has no packages."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    return folder / "bin"


def test_an_interpreter_without_the_package_is_named_with_a_remedy(bare: Path) -> None:
    words = (
        f"PipelineError Spark's workers start {bare}/python3, which cannot import the connector "
        "(ModuleNotFoundError: No module named 'pyarrow'): activate the virtual environment of "
        f"{sys.executable}, or set PYSPARK_PYTHON={sys.executable} before the Spark session is made"
    )
    assert run_job(bare) == [f"amqp {words}", f"amqp-journal {words}"]


def test_an_interpreter_that_is_not_there_is_named(bare: Path) -> None:
    words = "PipelineError Spark's workers start '/nowhere/python', which does not exist: activate"
    for line, name in zip(
        run_job(bare, PYSPARK_PYTHON="/nowhere/python"), ("amqp", "amqp-journal"), strict=True
    ):
        assert line.startswith(f"{name} {words}"), line


def test_a_given_interpreter_runs_the_job(bare: Path) -> None:
    assert run_job(bare, PYSPARK_PYTHON=sys.executable) == ["amqp registered", "amqp-journal registered"]
