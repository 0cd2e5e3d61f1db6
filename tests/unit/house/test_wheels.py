"""The configuration of wheels and of the build: Pythons, platforms and the lists of compiled modules."""

import ast
import re
import tomllib
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEELS: dict[str, Any] = PROJECT["tool"]["cibuildwheel"]
BUILT = [f"3.{minor}" for minor in re.findall(r"cp3(\d+)-\*", WHEELS["build"])]


def build_script() -> dict[str, Any]:
    """The constants of setup.py and its search for modules; the script itself would begin a build."""
    wanted = {"HERE", "HOT", "FAST", "COLD", "matching"}
    body: list[ast.stmt] = [
        node
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in wanted)
        or (isinstance(node, ast.FunctionDef) and node.name in wanted)
    ]
    names: dict[str, Any] = {"__file__": str(ROOT / "setup.py")}
    exec(compile(ast.Module(body, []), "setup.py", "exec"), names)
    return names


@pytest.fixture
def script() -> dict[str, Any]:
    pytest.importorskip("setuptools")
    return build_script()


def test_wheels_are_built_for_the_pythons_that_the_project_names() -> None:
    prefix = "Programming Language :: Python :: "
    named = [
        line.removeprefix(prefix) for line in PROJECT["project"]["classifiers"] if line.startswith(prefix)
    ]

    assert [version for version in named if "." in version] == BUILT


def test_the_oldest_wheel_is_for_the_oldest_python_that_is_required() -> None:
    assert PROJECT["project"]["requires-python"] == f">={BUILT[0]}"
    assert PROJECT["tool"]["mypy"]["python_version"] == BUILT[0]
    assert PROJECT["tool"]["ruff"]["target-version"] == "py" + BUILT[0].replace(".", "")


def test_wheels_are_for_two_processors_and_glibc() -> None:
    assert WHEELS["linux"]["archs"] == ["x86_64", "aarch64"]
    assert fnmatch("cp311-musllinux_x86_64", WHEELS["skip"])
    assert not fnmatch("cp311-manylinux_x86_64", WHEELS["skip"])


def test_a_wheel_is_compiled_and_shows_it() -> None:
    assert WHEELS["environment"] == {"AMQPD_COMPILE": "1"}
    command, check = WHEELS["test-command"]
    assert command == "amqpd version"
    assert "FLAVOUR == 'compiled'" in check


def test_each_pattern_of_the_build_matches_modules(script: dict[str, Any]) -> None:
    matching: Callable[[list[str]], set[str]] = script["matching"]

    hot = matching(script["HOT"])

    assert len(hot) > 200
    assert [pattern for pattern in script["FAST"] if not matching([pattern]) & hot] == []


def test_a_pattern_without_a_module_ends_the_build(script: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match=r"no module matches 'broker/nothing/\*\.py'"):
        script["matching"](["broker/core/*.py", "broker/nothing/*.py"])
