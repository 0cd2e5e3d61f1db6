"""The documents name things that exist: the path of a message, the files, the commands."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.docs.documents import CODE, DOCS, PAGES, ROOT, blocks_of, name_of

README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (DOCS / "how/architecture.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| \d+ \|(.*)$", ARCHITECTURE, flags=re.MULTILINE)
PATH_OF_A_MESSAGE = re.findall(r"`(\w+\.\w+)`", "\n".join(ROWS))


@cache
def modules_with(name: str) -> list[str]:
    """The modules of the broker that define a class of this name, or that are called so."""
    found = []  # bench is a client
    for folder in ("broker", "protocol"):
        for path in sorted(set((ROOT / folder).rglob("*.py")) - set((ROOT / "broker/bench").rglob("*.py"))):
            text = path.read_text(encoding="utf-8")
            if path.stem == name or (
                f"class {name}" in text
                and any(isinstance(node, ast.ClassDef) and node.name == name for node in ast.parse(text).body)
            ):
                found.append(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return found


def test_the_table_has_all_three_ways() -> None:
    assert len(PATH_OF_A_MESSAGE) >= 7 + 5 + 9


@pytest.mark.parametrize("name", PATH_OF_A_MESSAGE)
def test_every_step_of_a_message_is_a_function(name: str) -> None:
    owner, function = name.split(".")
    [module] = modules_with(owner)
    found: object = importlib.import_module(module)
    if not module.endswith(f".{owner}"):
        found = getattr(found, owner)

    assert callable(getattr(found, function))


@pytest.mark.parametrize("document", [ROOT / "README.md", *PAGES], ids=name_of)
def test_files_that_are_named_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = re.findall(
        r"[`( ]((?:broker|protocol|config|pipeline|tests|docker|docs|\.ci)/[\w/.]*\w)[`) ,]", text
    )

    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_pages_name_files() -> None:
    text = (DOCS / "how/where-to-change.md").read_text(encoding="utf-8")
    assert len(re.findall(r"`[\w/]+\.py`", text)) > 100


def test_the_readme_gives_the_two_commands() -> None:
    commands = re.findall(r"^python3 -m venv .*$", README, flags=re.MULTILINE)

    assert commands == [
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/amqpd serve",
        "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && "
        ".venv/bin/python -m pytest -n 2 --dist worksteal",
    ]


def test_the_pages_give_the_commands_of_the_readme() -> None:
    for command in re.findall(r"^python3 -m venv .*$", README, flags=re.MULTILINE):
        assert any(f"\n{command}\n" in page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.parametrize("document", [ROOT / "README.md", *PAGES], ids=name_of)
def test_examples_are_python(document: Path) -> None:
    for block in blocks_of(document.read_text(encoding="utf-8")):
        if block.kind == CODE and block.language == "python":
            compile(block.text, document.name, "exec")
