"""The clauses of AMQP 1.0 with tests, by their marks, and the clauses without tests.

`python -m tests.support.amqp10.clauses` prints them.
With the name of a document, or of a document and a clause, it prints the tests of these only.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.amqp10.clause_tables import DOCUMENTS, EXCEPTIONS

ROOT = Path(__file__).resolve().parents[3]


class Mark(NamedTuple):
    """`pytest.mark.spec(document, clause)`, of a test or of all tests of a module.

    A clause like "1.6.*" means all clauses below it.
    """

    document: str
    clause: str
    test: str


def marks() -> list[Mark]:
    """Return the marks of all tests, in the order of the files."""
    return [
        mark
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for mark in marks_in(ast.parse(path.read_text(encoding="utf-8")), str(path.relative_to(ROOT)))
    ]


def marks_in(module: ast.Module, name: str) -> Iterator[Mark]:
    """Yield the marks of a module. A mark that is not two strings is an error."""
    for statement in module.body:
        test = f"{name}::{statement.name}" if isinstance(statement, ast.FunctionDef) else name
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.spec":
                document, clause = (ast.literal_eval(argument) for argument in node.args)
                for each in meant(document, clause):
                    yield Mark(document, each, test)


def meant(document: str, clause: str) -> list[str]:
    """The clauses that a mark is for."""
    above = clause.removesuffix("*")
    if above == clause:
        return [clause]
    return [known for known in DOCUMENTS[document] if known.startswith(above)]


def untested(document: str, found: list[Mark]) -> list[str]:
    """The clauses of a document that no test is marked with, exceptions too."""
    tested = {mark.clause for mark in found if mark.document == document}
    return [clause for clause in DOCUMENTS[document] if clause not in tested]


def report(document: str, found: list[Mark]) -> Iterator[str]:
    """A line for each clause of a document: how many tests it has, or why none."""
    clauses, reasons = DOCUMENTS[document], EXCEPTIONS.get(document, {})
    yield f"{document}: {len(clauses)} clauses, {len(untested(document, found))} of them without tests"
    for clause, title in clauses.items():
        tests = [mark.test for mark in found if (mark.document, mark.clause) == (document, clause)]
        count_text = str(len(tests)) if tests else f"-  {reasons.get(clause, 'NO TEST')}"
        yield f"  {clause:8} {title:58} {count_text}"


def main(arguments: list[str]) -> None:
    """Print the report, or the tests of a document or clause."""
    found = marks()
    if arguments:
        for mark in found:
            if [mark.document, mark.clause][: len(arguments)] == arguments:
                print(f"{mark.clause:8} {mark.test}")
        return
    for document in DOCUMENTS:
        print("\n".join(report(document, found)))


if __name__ == "__main__":
    main(sys.argv[1:])
