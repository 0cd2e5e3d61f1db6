"""Every example of the documents does what its page says, on a broker that is started for the page.

Python runs with the clients as they come, shell commands run in bash, `amqpd check-config` checks settings.
A block titled Output is what the example before it prints. The order on a page is the order of the run.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from tests.daemon import ROOT, Daemon, DaemonStarter, clean_environment
from tests.documents import CODE, DOCS, PAGES, Block, blocks_of

RUN = {"python", "sh", "toml", "json"}
OUTPUT = 'text title="Output"'
SHOWN = {OUTPUT, "console", "mermaid", "text"}
NOT_RUN = ("python3 -m venv ", "pip ", ". .venv/", "docker ", "AMQPD_DEFAULT_USER=")
"""What a `console` block may begin its lines with: commands that install or need a container engine."""

WITH_SPARK = {
    "data/index.md",
    "data/spark-reading.md",
    "data/spark-writing.md",
    "data/spark-journal.md",
    "data/jobs.md",
}
"""Pages that tests in tests/pipeline run."""

WITHOUT_EXAMPLE = {"index.md", "operators/index.md", "how/index.md", "develop.md"}
OPTIONS = {"data/journal.md": ("--journal", "full")}
"""Options of the broker, by page."""

STOPPED = {"operators/check-and-repair.md"}
"""Pages whose broker is stopped before their examples run."""

PRELUDE = r"""
set -euo pipefail
amqpd() { if [ "$1" = serve ]; then shift; set -- check-config "$@"; fi; "$PYTHON" -m broker "$@"; }
amqpctl() { "$PYTHON" -c 'from broker.__main__ import control; control()' "$@"; }
"""
"""`serve` checks the flags that a page gives it; the broker of the page is running already."""


def path_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def code_of(page: Path) -> list[Block]:
    return [block for block in blocks_of(page.read_text(encoding="utf-8")) if block.kind == CODE]


def examples_of(page: Path) -> Iterator[tuple[Block, str | None]]:
    """Each example with what it is to print, None if the page does not say it."""
    blocks = [*code_of(page), Block(CODE, 0, "", "")]
    for block, following in pairwise(blocks):
        if block.language in RUN:
            yield block, following.text if following.language == OUTPUT else None


def needs_example(page: Path) -> bool:
    path = path_of(page)
    return path not in WITHOUT_EXAMPLE and not path.startswith(("how/", "reference/"))


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_a_block_of_code_says_its_language(page: Path) -> None:
    for block in code_of(page):
        assert block.language in RUN | SHOWN, f"line {block.line}"
        if block.language == "console":
            assert all(line.startswith(NOT_RUN) for line in block.text.splitlines()), f"line {block.line}"


@pytest.mark.parametrize("page", [page for page in PAGES if needs_example(page)], ids=path_of)
def test_a_page_has_an_example(page: Path) -> None:
    assert list(examples_of(page))


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if list(examples_of(page)) and path_of(page) not in WITH_SPARK],
    ids=path_of,
)
def test_the_examples_of_a_page(page: Path, start_daemon: DaemonStarter, tmp_path: Path) -> None:
    examples = list(examples_of(page))
    wants_proton = any("from proton" in block.text for block, _ in examples)
    if wants_proton and find_spec("proton") is None:
        pytest.skip("needs python-qpid-proton, of the extra `peers`")
    daemon = start_daemon(*OPTIONS.get(path_of(page), ())).load_api()
    folder = tmp_path / "example"
    folder.mkdir()
    (folder / "amqpd-data").symlink_to(tmp_path / "data")
    if path_of(page) in STOPPED:
        daemon.stop()
    for block, wanted in examples:
        printed = run(block, daemon, folder)
        if wanted is not None:
            assert printed.strip() == wanted.strip(), f"line {block.line}"


def run(block: Block, daemon: Daemon, folder: Path) -> str:
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
        timeout=120,
    )
    assert done.returncode == 0, f"line {block.line}: {done.stdout}{done.stderr}"
    return done.stdout
