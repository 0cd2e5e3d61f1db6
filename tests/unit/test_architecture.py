"""The documents name things that exist: the path of a message, the files, the commands."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PATH_OF_A_MESSAGE = re.findall(r"`((?:broker|protocol)\.[\w.]+)`", ARCHITECTURE)


def test_the_table_has_all_three_ways() -> None:
    assert len(PATH_OF_A_MESSAGE) >= 22


@pytest.mark.parametrize("name", PATH_OF_A_MESSAGE)
def test_every_step_of_a_message_is_a_function(name: str) -> None:
    parts = name.split(".")
    depth = next(
        n for n in range(len(parts), 0, -1) if (ROOT / Path(*parts[:n])).with_suffix(".py").is_file()
    )
    found: object = importlib.import_module(".".join(parts[:depth]))
    for part in parts[depth:]:
        found = getattr(found, part)

    assert callable(found)


@pytest.mark.parametrize("text", [ARCHITECTURE, README], ids=["ARCHITECTURE.md", "README.md"])
def test_files_that_are_named_exist(text: str) -> None:
    named = re.findall(r"[`( ]((?:broker|protocol|config|tests|docker|\.ci)/[\w/.]*\w)[`) ]", text)

    assert len(named) > 3
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_readme_gives_the_two_commands() -> None:
    commands = re.findall(r"^python3 -m venv .*$", README, flags=re.MULTILINE)

    assert commands == [
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/amqpd serve",
        "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && "
        ".venv/bin/python -m pytest -n 2 --dist worksteal",
    ]


def test_the_examples_in_the_readme_are_python() -> None:
    examples = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)

    assert len(examples) >= 3
    for example in examples:
        compile(example, "README.md", "exec")
