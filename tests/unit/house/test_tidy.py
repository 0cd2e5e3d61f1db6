"""Habits that a program can check: sizes, the places of coroutines, and words that text may not have."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FUNCTION_LINES_MAX = 80
COROUTINES = ("broker/daemon.py", "broker/net/", "broker/admin/", "broker/bench/", "tests/")

# Exceptions may be removed and may not be added; the tests fail for one that is no longer needed.
LONG_FUNCTIONS: set[str] = set()


def listed_files() -> list[str]:
    """Return the project's files: tracked or untracked ones of git, else all that are not hidden or built."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout:
        return sorted(name for name in set(done.stdout.split("\0")) - {""} if (ROOT / name).is_file())
    places = ("broker", "protocol", "config", "pipeline", "tests", "docker")
    found = [path for place in places for path in (ROOT / place).rglob("*") if path.is_file()]
    found += [path for path in ROOT.iterdir() if path.is_file()]
    unwanted = ("__pycache__", ".so", ".pyc")
    return sorted(str(path.relative_to(ROOT)) for path in found if not str(path).endswith(unwanted))


FILES = listed_files()
MODULES = [name for name in FILES if name.endswith(".py")]


def source(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def functions(name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(source(name))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def may_be_long(name: str) -> bool:
    """Whether a file must be parsed to tell that its functions are short enough.

    Definitions and their indentation say so for most files. Parsing all files would take many seconds.
    """
    lines = source(name).splitlines()
    starts: list[tuple[int, int]] = []
    in_text = False
    for number, line in enumerate(lines):
        if not in_text and line.lstrip().startswith(("def ", "async def ", "class ")):
            starts.append((number, len(line) - len(line.lstrip())))
        in_text ^= line.count('"""') % 2 == 1
    open_: list[tuple[int, int]] = []
    for number, depth in [*starts, (len(lines), 0)]:
        while open_ and open_[-1][1] >= depth:
            if number - open_.pop()[0] > FUNCTION_LINES_MAX:
                return True
        open_.append((number, depth))
    return False


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end."""
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def test_the_listing_finds_the_project() -> None:
    assert {"broker/__main__.py", "protocol/errors.py", "tests/unit/house/test_tidy.py", "setup.py"} <= set(
        MODULES
    )


def test_functions_are_short() -> None:
    long = {
        f"{name}:{function.name}"
        for name in MODULES
        if may_be_long(name)
        for function in functions(name)
        if length(function) > FUNCTION_LINES_MAX
    }

    assert long == LONG_FUNCTIONS


def test_coroutines_stay_at_the_edge() -> None:
    inside = {
        f"{name}:{function.name}"
        for name in MODULES
        if not name.startswith(COROUTINES) and "async def " in source(name)
        for function in functions(name)
        if isinstance(function, ast.AsyncFunctionDef)
    }

    assert inside == set()


def test_no_package_of_ours_shadows_the_standard_library() -> None:
    assert not (ROOT / "broker" / "queue").exists()
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_text_speaks_of_the_product_only() -> None:
    """No path of a developer's machine, which nobody else has, and no promise of later work."""
    homes = ("/wo" + "rk/", "/ho" + "me/", "/Us" + "ers/", "/ro" + "ot/", "../sha" + "red")
    promises = ("TO" + "DO", "FIX" + "ME", "XX" + "X")

    words = [word.encode() for word in (*homes, *promises)]

    texts = {name: (ROOT / name).read_bytes() for name in FILES if not name.endswith(".png")}

    assert [(name, word) for name, text in texts.items() for word in words if word in text] == []
