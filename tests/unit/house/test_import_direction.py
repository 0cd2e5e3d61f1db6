"""No modules import each other, tests included, and packages import downwards; imports for types count."""

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("broker", "protocol", "config", "pipeline")

# The layers of a package, from the top; modules of one layer import each other only where a line names one.
CORE = (
    ("broker", "statistics"),
    ("operators",),
    ("vhosts", "transactions"),
    ("publishing",),
    ("routing",),
    ("streams", "delivery", "partitions"),
    ("remotes",),
    ("queues",),
    ("entries", "policies"),
    ("arguments",),
    ("selector",),
    (
        "message_view",
        "ports",
        "schedule",
        "message",
        "values",
        "names",
        "errors",
        "counters",
        "durations",
        "cron",
        "hashing",
    ),
)
STORE = (
    ("restore", "repair"),
    ("log", "file_commit"),
    ("start",),
    ("group_commit",),
    ("upkeep",),
    ("space",),
    ("substitutes", "held", "appender"),
    ("streams",),
    ("commit", "state"),
    ("recovery",),
    ("batch", "content", "counts"),
    ("segment_files",),
    ("segment", "sync"),
    ("scan", "definition_text", "format", "disk", "errors", "sync_helper"),
)
ADAPTERS = (
    ("extensions",),
    ("amqp10",),
    ("amqp091",),
    ("peers",),
    ("formats",),
    ("access",),
)


def modules() -> dict[str, Path]:
    """Return the files of the product's modules and of the tests' modules, by module name."""
    paths = {}
    for package in (*PACKAGES, "tests"):
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            paths[name.removesuffix(".__init__")] = path
    return paths


MODULES = modules()


def imported(name: str, tree: ast.Module) -> Iterator[str]:
    """The modules of the project that a module imports, anywhere in its text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{name} has a relative import"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [target if target in MODULES else node.module for target in targets]
        else:
            continue
        for target in targets:
            if target in MODULES and target != name:
                yield target


TREES = {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}
GRAPH = {name: set(imported(name, tree)) for name, tree in TREES.items()}


def knows_type_checking(tree: ast.Module) -> bool:
    """Whether a module names `TYPE_CHECKING`, with which imports can be hidden from the interpreter."""
    return any(
        isinstance(node, ast.Name | ast.Attribute | ast.alias)
        and "TYPE_CHECKING" in (getattr(node, field, None) for field in ("id", "attr", "name"))
        for node in ast.walk(tree)
    )


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that import each other, by the algorithm of Tarjan."""
    numbers: dict[str, int] = {}
    lows: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        numbers[name] = lows[name] = len(numbers)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in numbers:
                visit(target)
                lows[name] = min(lows[name], lows[target])
            elif target in stack:
                lows[name] = min(lows[name], numbers[target])
        if lows[name] == numbers[name]:
            circle = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for name in graph:
        if name not in numbers:
            visit(name)
    return found


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_no_modules_import_each_other() -> None:
    assert circles(GRAPH) == []


@pytest.mark.parametrize(
    "text",
    [
        "from typing import TYPE_CHECKING",
        "import typing\nif typing.TYPE_CHECKING:\n    import ast",
        "import typing as t\nif not t.TYPE_CHECKING:\n    pass\nelse:\n    import ast",
    ],
)
def test_hidden_imports_are_found(text: str) -> None:
    assert knows_type_checking(ast.parse(text))
    assert not knows_type_checking(ast.parse(text.replace("TYPE_CHECKING", "Final")))


def test_no_module_hides_an_import_from_the_interpreter() -> None:
    assert [name for name, tree in TREES.items() if knows_type_checking(tree)] == []


@pytest.mark.parametrize(
    ("package", "layers"),
    [("broker.core", CORE), ("broker.store", STORE), ("broker.adapters", ADAPTERS)],
    ids=["core", "store", "adapters"],
)
def test_packages_import_downwards(package: str, layers: tuple[tuple[str, ...], ...]) -> None:
    place = {part: number for number, layer in enumerate(layers) for part in layer}
    upwards = []
    for name, targets in GRAPH.items():
        if not name.startswith(f"{package}."):
            continue
        part = name.split(".")[2]
        assert part in place, f"{name} is in no layer"
        for target in sorted(target for target in targets if target.startswith(f"{package}.")):
            other = target.split(".")[2]
            is_bottom = place[part] == len(layers) - 1
            if other != part and (
                place[other] < place[part] or (place[other] == place[part] and not is_bottom)
            ):
                upwards.append(f"{name} -> {target}")

    assert upwards == []


def test_layers_are_named_once() -> None:
    for layers in (CORE, STORE, ADAPTERS):
        names = [part for layer in layers for part in layer]
        assert len(names) == len(set(names))
        assert all(upper and lower for upper, lower in pairwise(layers))


@pytest.mark.parametrize(
    ("package", "modules_max"), [("broker.core", 121), ("broker.store", 35), ("broker.adapters", 75)]
)
def test_a_package_has_few_modules_of_a_readable_length(package: str, modules_max: int) -> None:
    lengths = {
        name: len(path.read_text("utf-8").splitlines())
        for name, path in MODULES.items()
        if name.startswith(f"{package}.") and path.name != "__init__.py"
    }

    assert len(lengths) <= modules_max
    assert median(lengths.values()) > 150
    assert [name for name, length in lengths.items() if length > 900] == []
