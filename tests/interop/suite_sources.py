"""Sources of the clients' own test suites: PyPI, npm and Debian. No part of the suites is kept here.

Each function unpacks one published package and returns its folder.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

FETCH_SECONDS = 600
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def run(command: Sequence[str | Path], folder: Path) -> None:
    """Run a command that downloads or installs; fails with its output."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=FETCH_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (
        f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-4000:]}"
    )


def environment(folder: Path, requirements: Sequence[str]) -> Path:
    """Make a virtual environment with `requirements`; returns its Python."""
    run([sys.executable, "-m", "venv", folder / "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    run([python, "-m", "pip", "install", "-q", *requirements], folder)
    return python


def from_pypi(folder: Path, package: str, version: str) -> Path:
    """The source distribution of a package."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", package]
    run([*pip, "--dest", folder / "sdist", f"{package}=={version}"], folder)
    return unpack(folder / "sdist", folder)


def from_debian(folder: Path, source: str, version: str, release: str) -> Path:
    """The upstream tarball of a Debian source package, for projects whose tests are published nowhere else.

    apt-get gets lists of its own, so that neither root nor the machine's configuration is needed.
    """
    apt = folder / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (apt / part).mkdir(parents=True)
    entry = f"deb-src [signed-by={KEYRING}] http://deb.debian.org/debian {release} main\n"
    (apt / "sources.list").write_text(entry)
    options = [
        f"Dir::Etc::SourceList={apt}/sources.list",
        "Dir::Etc::SourceParts=/dev/null",
        f"Dir::State::Lists={apt}/lists",
        f"Dir::Cache={apt}/cache",
        "APT::Sandbox::User=root",
        "Acquire::Languages=none",
        "Acquire::Retries=3",
    ]
    apt_get = ["apt-get", "-q", *(word for option in options for word in ("-o", option))]
    run([*apt_get, "update"], folder)
    (folder / "orig").mkdir()
    run([*apt_get, "source", "--tar-only", "--download-only", f"{source}={version}"], folder / "orig")
    return unpack(folder / "orig", folder)


def from_npm(folder: Path, packages: Sequence[str]) -> Path:
    """npm packages, installed; returns the folder `node_modules`."""
    npm = shutil.which("npm")
    assert npm is not None, "npm is not installed"
    run([npm, "install", "--no-save", "--no-fund", "--no-audit", "--prefix", str(folder), *packages], folder)
    return folder / "node_modules"


def unpack(archives: Path, folder: Path) -> Path:
    """Unpack the only tarball in `archives`; return its only folder."""
    (archive,) = archives.glob("*.tar.*")
    with tarfile.open(archive) as tar:
        (top,) = {name.partition("/")[0] for name in tar.getnames()}
        tar.extractall(folder, filter="data")
    return folder / top


def replace(file: Path, old: str, new: str) -> None:
    """Replace a fixed port or the like in a suite without an option for it; `old` must exist."""
    text = file.read_text(encoding="utf-8")
    assert old in text, f"{file} does not contain {old!r}"
    file.write_text(text.replace(old, new), encoding="utf-8")


def clean_environment(**added: str) -> dict[str, str]:
    """The environment of a suite: without this run's settings of pytest and the broker."""
    foreign = ("AMQPD_", "PYTEST_", "PYTHON", "COVERAGE_", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)} | added
