"""Classes of the broker that tests inherit from are open to that when they are compiled."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
OPEN = "allow_interpreted_subclasses=True"


def classes(path: Path) -> dict[str, str]:
    """The decorators of each class of a module."""
    found = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    return {node.name: " ".join(map(ast.unparse, node.decorator_list)) for node in found}


def inherited(path: Path) -> set[tuple[str, str]]:
    """Module and name of each class of the product that a class of this file inherits from."""
    origins: dict[str, tuple[str, str]] = {}
    bases: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.startswith(("broker.", "protocol."))
        ):
            origins |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            bases |= {ast.unparse(base) for base in node.bases}
    return {origins[base] for base in bases if base in origins}


def test_base_classes_of_tests_allow_interpreted_subclasses() -> None:
    used = set().union(*(inherited(path) for path in ROOT.glob("tests/**/*.py")))
    modules = {module: classes(ROOT / (module.replace(".", "/") + ".py")) for module, _ in used}
    assert len(used) > 10
    assert {(module, name) for module, name in used if OPEN not in modules[module].get(name, OPEN)} == set()
