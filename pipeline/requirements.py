"""The check of Spark's requirements: Java, pyspark, and workers that can import the connector."""

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
"""The modules that a worker imports for the connector; Spark brings `pyspark` itself."""

JAVA_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


class Context(Protocol):
    """The part of Spark's context that `check_workers` reads."""

    pythonExec: str  # noqa: N815 (Spark's name)


class Session(Protocol):
    """A Spark session, as a protocol: this module must work without pyspark."""

    @property
    def sparkContext(self) -> Context:  # noqa: N802 (Spark's name)
        """Return the context. Raises PySparkException in a client of Spark Connect."""


def check_workers(spark: Session) -> None:
    """Raise PipelineError if the interpreter of Spark's workers cannot import the connector.

    Without PYSPARK_PYTHON the workers start the python3 of PATH. If the virtual environment of this
    interpreter is not activated, that is the system's python3, and Spark reports a missing module only at the
    first batch. Zips on this interpreter's path count, as Spark passes them to its workers. With Spark
    Connect nothing is checked, as its clients cannot see the workers.
    """
    from pyspark.errors import PySparkException

    try:
        executable = spark.sparkContext.pythonExec
    except PySparkException:
        return
    interpreter = shutil.which(executable)
    if interpreter == sys.executable:
        return
    if interpreter is None:
        raise PipelineError(f"Spark's workers start {executable!r}, which does not exist: {_remedy()}")
    words = [interpreter, "-c", PROBE, *(path for path in sys.path if os.path.isfile(path))]
    process = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        why = lines[-1] if lines else f"it ended with status {process.returncode}"
        raise PipelineError(
            f"Spark's workers start {interpreter}, which cannot import the connector ({why}): {_remedy()}"
        )


def _remedy() -> str:
    return (
        f"activate the virtual environment of {sys.executable}, or set PYSPARK_PYTHON={sys.executable} "
        "before the Spark session is made"
    )


def find_missing() -> str:
    """Return one line that says whether pyspark or Java is missing; "" if both are present."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'amqpd[pipeline]'"
    java = java_command()
    if java is None:
        return f"Java {JAVA_MIN} or later is not installed: no java in JAVA_HOME or PATH"
    version = java_version(java)
    if version < JAVA_MIN:
        return (
            f"Java {JAVA_MIN} or later is required; {java} is {f'Java {version}' if version else 'no Java'}"
        )
    return ""


def java_command() -> str | None:
    """Return the java that Spark would start: of JAVA_HOME, otherwise of PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home, "bin", "java")
        return str(path) if path.is_file() else None
    return shutil.which("java")


def java_version(java: str) -> int:
    """Return the major version of a java; 0 if it is unknown."""
    try:
        process = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(process.stderr + process.stdout)
    return int(match[1]) if match else 0
