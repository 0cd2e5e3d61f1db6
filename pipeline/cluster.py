"""Jobs on a cluster: spark-submit with these sources in a zip."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import protocol

PACKAGE: Final = Path(__file__).resolve().parent
NOT_PASSED: Final = ("command", "job", "print_command")


def command(master: str, conf: Mapping[str, str], arguments: Sequence[str], sources: Path) -> list[str]:
    """Return the command that starts a job on a cluster."""
    words = [spark_submit(), "--master", master, "--name", "amqpd", "--py-files", str(sources)]
    for key, value in conf.items():
        words += ["--conf", f"{key}={value}"]
    return [*words, str(PACKAGE / "main.py"), *arguments]


def submit(master: str, conf: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Start a job on a cluster, wait for it, and return its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder, "pipeline.zip")
        zip_sources(sources)
        words = command(master, conf, arguments, sources)
        return subprocess.run(words, env=environment(sources, os.environ), check=False).returncode  # noqa: S603


def script(master: str, conf: Mapping[str, str], arguments: Sequence[str]) -> str:
    """Return the command as lines of a shell, with the zip in the working folder."""
    sources = Path("pipeline.zip")
    added = [
        f"{name}={shlex.quote(value)}"
        for name, value in environment(sources, os.environ).items()
        if os.environ.get(name) != value
    ]
    zipped = shlex.join([sys.executable, "-m", "pipeline", "zip", str(sources)])
    return f"{zipped} &&\n{' '.join(added)} {shlex.join(command(master, conf, arguments, sources))}"


def environment(sources: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of spark-submit, with the sources on PYTHONPATH.

    Processes that plan streaming queries look for modules on PYTHONPATH only. [Spark 4.3]
    """
    pythons = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": sys.executable}
    paths = [str(sources), *filter(None, [given.get("PYTHONPATH")])]
    return pythons | dict(given) | {"PYTHONPATH": os.pathsep.join(paths)}


def zip_sources(target: Path) -> None:
    """Put this package, and the formats that it shares with the broker, into a zip."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (PACKAGE, Path(*protocol.__path__)):
            for path in sorted(package.rglob("*.py")):
                archive.write(path, Path(package.name, path.relative_to(package)))


def spark_submit() -> str:
    """Return the path of spark-submit: of SPARK_HOME, otherwise of pyspark."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        spec = find_spec("pyspark")
        home = str(Path(spec.origin).parent) if spec is not None and spec.origin else ""
    return str(Path(home, "bin", "spark-submit"))


def arguments_of(options: argparse.Namespace) -> list[str]:
    """Return the words of the command line for these options."""
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
