"""Every kind of exception that a compiled function catches has a variable name of its own.

mypyc gives a variable one type. `except A as error` and `except B as error` of one function can share a
variable: the second that is caught raises TypeError then instead of being handled. Interpreted, all is well.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]


def compiled() -> list[Path]:
    """The modules that setup.py compiles."""
    lists: dict[str, list[str]] = {}
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("HOT", "COLD"):
            lists[ast.unparse(node.targets[0])] = list(ast.literal_eval(node.value))
    paths = {path for pattern in lists["HOT"] for path in ROOT.glob(pattern)}
    return sorted(path for path in paths if path.name not in lists["COLD"])


def handlers(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names and kinds of a function's handlers, without the functions inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(child, ast.ExceptHandler) and child.name and child.type:
            yield child.name, ast.unparse(child.type)
        yield from handlers(child)


def shared(source: str) -> set[str]:
    """Return the functions in which a name has two kinds."""
    found = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            caught = set(handlers(function))
            for name in {name for name, _ in caught}:
                if len({kind for each, kind in caught if each == name}) > 1:
                    found.add(function.name)
    return found


def test_no_compiled_function_does() -> None:
    modules = compiled()

    assert len(modules) > 100
    assert {path.name: names for path in modules if (names := shared(path.read_text()))} == {}


TWO = """
def function(items):
    for item in items:
        try:
            item()
        except ValueError as error:
            print(error)
        except OSError as {name}:
            print({name})
"""


def test_a_repeated_name_is_found() -> None:
    assert shared(TWO.format(name="error")) == {"function"}
    assert shared(TWO.format(name="fault")) == set()
    assert shared(TWO.format(name="error").replace("for item in items", "if True")) == {"function"}
    assert shared(TWO.format(name="error").replace("OSError", "ValueError")) == set()
