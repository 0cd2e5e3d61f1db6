"""The import contracts hold, and each detects a violation planted in a copy of the sources."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("broker", "protocol", "config", "pipeline")
PURE_CORE = "the queue core is pure: no I/O, clock, chance or protocol"
LOOPS = "event loops and threads only in daemon, net, admin and bench"
LAYERS = "broker is layered"
PORTS = "only the daemon and the command line know the log; others see the core's ports"
PROGRAM = "pipeline is a program of its own: it shares the formats of chunks and journals and nothing else"
PIPELINE_LAYERS = "pipeline is layered: jobs know the journal, the journal knows the connector"
NO_SPARK = "the broker runs without Spark, and nothing of it runs in the pipeline"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


PLANTED = [
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
    ("broker/dispatch/__init__.py", "import broker.net", LAYERS),
    ("broker/dispatch/answers.py", "import asyncio", LOOPS),
    ("broker/net/__init__.py", "import broker.store", PORTS),
    ("broker/forwarding/__init__.py", "import asyncio", LOOPS),
    ("broker/forwarding/__init__.py", "import broker.net", LAYERS),
    ("broker/forwarding/uri.py", "import broker.store", PORTS),
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
    ("pipeline/lake/__init__.py", "import broker.core", PROGRAM),
    ("pipeline/connector/schema.py", "import pipeline.journal.schema", PIPELINE_LAYERS),
    ("pipeline/errors.py", "import pipeline.poll", PIPELINE_LAYERS),
    ("broker/flavour.py", "import pyspark", NO_SPARK),
]
"""A module, an import that is planted in it, and the contract that must catch the import."""

VERDICT = re.compile(r"^(.*) (KEPT|BROKEN)(?: \(1 ignored import\))?$", re.MULTILINE)


def report(folder: Path) -> tuple[set[str], dict[str, str]]:
    """Return the contracts, and import-linter's text for each contract that is broken in `folder`."""
    program = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from importlinter.cli import lint_imports_command\n"
        "sys.exit(lint_imports_command(['--no-cache']))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    verdicts = VERDICT.findall(done.stdout)
    assert len(verdicts) == 12, done.stdout + done.stderr
    broken = [name for name, verdict in verdicts if verdict == "BROKEN"]
    assert (done.returncode != 0) == bool(broken)
    details = done.stdout.partition("Broken contracts")[2]
    starts = sorted((details.index(f"\n{name}\n---"), name) for name in broken)
    ends = [start for start, _ in starts[1:]] + [len(details)]
    details_by_name = {name: details[start:end] for (start, name), end in zip(starts, ends, strict=False)}
    return {name for name, _ in verdicts}, details_by_name


def test_contracts_hold(sources: Path) -> None:
    assert report(sources)[1] == {}


def test_each_contract_catches_a_planted_violation(sources: Path) -> None:
    for module, line, _ in PLANTED:
        with (sources / module).open("a", encoding="utf-8") as file:
            file.write(f"\n{line}\n")
    for package in ("broker", "pipeline"):
        (sources / package / "unplaced.py").write_text('"""A module that no layer lists."""\n')

    contracts, details_by_name = report(sources)

    for module, line, contract in PLANTED:
        importer = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        imported = line.replace("from ", "").replace("import ", "").replace(" ", ".")
        if "from concurrent" in line:
            imported = "concurrent"  # import-linter names other packages as a whole
        pattern = rf"{re.escape(importer)} -> {re.escape(imported)} \(l\.\d+"
        assert re.search(pattern, details_by_name.get(contract, "")), (module, line, details_by_name)
    assert "- broker.unplaced" in details_by_name[LAYERS]
    assert "- pipeline.unplaced" in details_by_name[PIPELINE_LAYERS]
    assert contracts == set(details_by_name)
