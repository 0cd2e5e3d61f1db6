"""The examples of the documents, and how they are run against a broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.support.daemon.daemon import PATIENCE_S, ROOT, Daemon, clean_environment
from tests.support.docs.documents import CODE, Block, blocks_of

RUN = {"python", "sh", "toml", "json"}
OUTPUT = 'text title="Output"'
SHOWN = {OUTPUT, "console", "mermaid"}
WITH_SPARK = {
    "data/index.md",
    "data/spark-reading.md",
    "data/spark-writing.md",
    "data/spark-journal.md",
    "data/jobs.md",
}
"""Pages that tests in tests/pipeline run."""

PRELUDE = r"""
set -euo pipefail
amqpd() { if [ "$1" = serve ]; then shift; set -- check-config "$@"; fi; "$PYTHON" -m broker "$@"; }
curl() { command curl --fail-with-body "$@"; }
amqpctl() { "$PYTHON" -c 'from broker.__main__ import control; control()' "$@"; }
"""
"""`serve` checks the flags that a page gives it; the broker of the page is running already."""


def code_of(page: Path) -> list[Block]:
    return [block for block in blocks_of(page.read_text(encoding="utf-8")) if block.kind == CODE]


def examples_of(page: Path) -> Iterator[tuple[Block, str | None]]:
    """Yield each example with its expected output, None if the page has none."""
    blocks = [*code_of(page), Block(CODE, 0, "", "")]
    for block, following in pairwise(blocks):
        if block.language in RUN:
            yield block, following.text if following.language == OUTPUT else None


def run(block: Block, daemon: Daemon, folder: Path, patience: float = 2 * PATIENCE_S) -> str:
    """Run an example against the broker of the page; gives its standard output."""
    address, admin = daemon.address, daemon.admin.removeprefix("http://")
    text = block.text.replace("localhost:5672", f"{address.host}:{address.port}")
    text = text.replace("localhost:15672", admin)
    text = text.replace(
        'ConnectionParameters("localhost"', f'ConnectionParameters("{address.host}", {address.port}'
    )
    environment = clean_environment() | {
        "AMQPCTL_URL": daemon.admin,
        "AMQPCTL_PASSWORD": "guest",
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    match block.language:
        case "json":
            json.loads(text)
            return ""
        case "toml":
            (folder / "example.toml").write_text(text)
            words = [sys.executable, "-m", "broker", "check-config", "--config", "example.toml"]
        case "python":
            words = [sys.executable, "-c", text]
        case _:
            words = ["bash", "-c", PRELUDE + text]
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience,
    )
    assert done.returncode == 0, f"line {block.line}: {done.stdout}{done.stderr}"
    return done.stdout
