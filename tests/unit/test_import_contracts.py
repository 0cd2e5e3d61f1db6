"""The import contracts hold, and each of them catches a violation planted in a copy of the sources."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("broker", "protocol", "config")
PURE_CORE = "the queue core is pure: no I/O, clock, chance or protocol"
LOOPS = "event loops and threads only in daemon, net, admin and bench"
LAYERS = "broker is layered"
PORTS = "only the daemon and the command line know the log; others see the core's ports"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def broken_contracts(folder: Path) -> set[str]:
    """The names of the contracts that import-linter reports as broken in `folder`."""
    program = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from importlinter.cli import lint_imports_command\n"
        "sys.exit(lint_imports_command(['--no-cache']))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    verdicts = re.findall(r"^(.*) (KEPT|BROKEN)(?: \(1 ignored import\))?$", done.stdout, re.MULTILINE)
    assert len(verdicts) == 11, done.stdout + done.stderr
    broken = {name for name, verdict in verdicts if verdict == "BROKEN"}
    assert (done.returncode != 0) == bool(broken)
    return broken


def test_contracts_hold(sources: Path) -> None:
    assert broken_contracts(sources) == set()


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("protocol/sniff.py", "import socket", "protocol is sans-IO: bytes in, calls and bytes out"),
        ("protocol/journal/rows.py", "import pyarrow", "protocol is sans-IO: bytes in, calls and bytes out"),
        ("config/__init__.py", "import broker.flavour", "config is a leaf"),
        ("broker/core/message.py", "import time", PURE_CORE),
        ("broker/core/message.py", "from protocol import sniff", PURE_CORE),
        ("broker/adapters/__init__.py", "import asyncio", LOOPS),
        ("broker/store/__init__.py", "from concurrent import futures", LOOPS),
        ("broker/auth/__init__.py", "import broker.net", LAYERS),
        ("broker/store/__init__.py", "import broker.adapters", LAYERS),
        ("broker/net/__init__.py", "import broker.admin", LAYERS),
        ("broker/unplaced.py", '"""A module that no layer lists."""', LAYERS),
        ("broker/net/__init__.py", "import broker.store", PORTS),
        (
            "broker/bench/__init__.py",
            "import broker.core",
            "bench is a client: it shares the codec and nothing else",
        ),
        (
            "broker/ctl/__init__.py",
            "import broker.core",
            "ctl is a client of the HTTP API: it shares nothing with the broker",
        ),
        (
            "broker/admin/definitions/items.py",
            "import broker.admin.api.limits",
            "definitions need no HTTP: a stopped broker has them too",
        ),
    ],
)
def test_each_contract_catches_a_planted_import(sources: Path, module: str, line: str, contract: str) -> None:
    with (sources / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")

    assert contract in broken_contracts(sources)
