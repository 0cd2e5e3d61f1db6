"""Jobs on a cluster: spark-submit with these sources in a zip."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parent
NOT_PASSED: Final = ("command", "job", "print_command")


def command(master: str, conf: Mapping[str, str], arguments: Sequence[str], sources: Path) -> list[str]:
    """The words that start a job on a cluster."""
    words = [spark_submit(), "--master", master, "--name", "amqpd", "--py-files", str(sources)]
    for key, value in conf.items():
        words += ["--conf", f"{key}={value}"]
    return [*words, str(PACKAGE / "main.py"), *arguments]


def submit(master: str, conf: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Start it, wait for it, and return its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder, "pipeline.zip")
        zip_sources(sources)
        environment = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": sys.executable} | os.environ
        words = command(master, conf, arguments, sources)
        return subprocess.run(words, env=environment, check=False).returncode  # noqa: S603


def zip_sources(target: Path) -> None:
    """Put this package into a zip that Python imports from."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(PACKAGE.rglob("*.py")):
            archive.write(path, Path("pipeline", path.relative_to(PACKAGE)))


def spark_submit() -> str:
    """Where spark-submit is: that of SPARK_HOME, else that of pyspark."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        found = find_spec("pyspark")
        home = str(Path(found.origin).parent) if found is not None and found.origin else ""
    return str(Path(home, "bin", "spark-submit"))


def arguments_of(options: argparse.Namespace) -> list[str]:
    """What the command line said, again."""
    words = ["run", options.job]
    for name, value in vars(options).items():
        flag = "--" + name.replace("_", "-")
        if name in NOT_PASSED or value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, list):
            words += [word for each in value for word in (flag, str(each))]
        else:
            words += [flag, f"{value}s" if isinstance(value, float) else str(value)]
    return words
