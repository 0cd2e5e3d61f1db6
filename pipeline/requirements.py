"""Whether what Spark needs is there: Java, pyspark, and workers that can import the connector."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol

from pipeline.errors import PipelineError

PROBE: Final = """
import sys
sys.path += sys.argv[1:]
import pyarrow, pamqp, mypy_extensions, pipeline.errors
"""
"""The modules of the connector that a worker imports; `pyspark` itself comes with Spark."""

JAVA_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


class Context(Protocol):
    """Spark's context, as far as `check_workers` reads the context."""

    pythonExec: str  # noqa: N815 (Spark's name)


class Session(Protocol):
    """A Spark session. This module runs before it is known whether pyspark is installed."""

    @property
    def sparkContext(self) -> Context:  # noqa: N802 (Spark's name)
        """Return the context. Raises PySparkException in a client of Spark Connect."""


def check_workers(spark: Session) -> None:
    """Raise PipelineError unless the interpreter of Spark's workers can import what this one does.

    Without PYSPARK_PYTHON the workers start the python3 of PATH. It is that of the system where the virtual
    environment of this interpreter is not activated; then Spark tells of a missing module at the first batch.
    What this interpreter imports from zips counts: Spark hands them to its workers. Nothing is checked with
    Spark Connect, whose clients cannot see the workers.
    """
    from pyspark.errors import PySparkException

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


def missing() -> str:
    """Name in one line what is missing of pyspark and Java; empty if both are there."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'amqpd[pipeline]'"
    java = java_command()
    if java is None:
        return f"Java {JAVA_MIN} or later is not installed: no java in JAVA_HOME or PATH"
    version = java_version(java)
    if version < JAVA_MIN:
        return f"Java {JAVA_MIN} or later is wanted; {java} is {f'Java {version}' if version else 'no Java'}"
    return ""


def java_command() -> str | None:
    """The java that Spark would start: that of JAVA_HOME, else that of PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home, "bin", "java")
        return str(path) if path.is_file() else None
    return shutil.which("java")


def java_version(java: str) -> int:
    """The first number of its version; 0 if it does not say."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else 0
