"""Every example of the documents runs as its page says, on a broker started for the page.

Python runs with the clients as they come, shell commands run in bash, `amqpd check-config` checks settings.
A block titled Output is what the example before it prints. The order on a page is the order of the run.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import pytest

from broker.ctl.command import control_line
from config.settings import Settings
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter
from tests.support.docs.documents import DOCS, PAGES
from tests.support.docs.examples import RUN, SHOWN, WITH_SPARK, code_of, examples_of, run

NOT_RUN = ("python3 -m venv ", "pip ", ". .venv/", "docker ", "AMQPD_DEFAULT_USER=")
"""Allowed beginnings of lines in a `console` block: commands that install or need a container engine."""

WITHOUT_EXAMPLE = {"index.md", "applications/index.md", "operators/index.md"}
OPTIONS = {
    "data/journal.md": ("--journal", "full"),
    "operators/dispatchers.md": ("--dispatch-allow", "/usr/bin/tee"),
}
"""Options of the broker, by page."""

STOPPED = {"operators/check-and-repair.md"}
"""Pages whose broker is stopped before their examples run."""


def path_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


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


def test_metrics_settings_and_commands_that_pages_name_exist(daemon: Daemon) -> None:
    with urlopen(f"{daemon.admin}/metrics/per-object", timeout=PATIENCE_S) as answer:
        metrics = answer.read().decode()
    commands = {
        command.callback.__name__ for command in control_line().registered_commands if command.callback
    }
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`((?:amqpd|rabbitmq)_[a-z0-9_*]+)`", text):
            assert f"# TYPE {name.partition('*')[0]}" in metrics, (path_of(page), name)
        for name in re.findall(r"`amqpctl ([a-z_]+)", text):
            assert name in commands, (path_of(page), name)
        for name in re.findall(r"[Ss]ettings? `([a-z_]+)`", text):
            assert name in Settings.model_fields, (path_of(page), name)
