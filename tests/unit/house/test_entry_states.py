"""A single module changes the states of entries and the counts of queues, so that they always agree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).parents[3] / "broker/core"
STATE = CORE / "queues/state.py"
COUNTS = {"ready", "ready_bytes", "unacked", "unacked_bytes", "held", "held_bytes", "dead", "dead_bytes"}
STATES = {"AVAILABLE", "ACQUIRED", "HELD", "DEQUEUED"}


def changes(tree: ast.AST) -> Iterator[str]:
    """Yield the assignments to a count of `queue`, or of an entry's state."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if not isinstance(target, ast.Attribute):
                continue
            of_queue = ast.unparse(target.value).split(".")[-1] == "queue"
            to_state = isinstance(node.value, ast.Name) and node.value.id in STATES
            if (target.attr in COUNTS and of_queue) or (target.attr == "state" and to_state):
                yield ast.unparse(node)


def test_only_one_module_changes_states_and_counts() -> None:
    # A new entry is AVAILABLE. A cursor stands on a place that is no message and is never AVAILABLE.
    new = {
        "entries/entry.py": ["self.state: u8 = AVAILABLE"],
        "entries/list.py": ["head.state = ACQUIRED"],
        "streams/list.py": ["entry.state = ACQUIRED"],
    }

    found = {
        str(path.relative_to(CORE)): sorted(changes(ast.parse(path.read_text())))
        for path in CORE.rglob("*.py")
        if path != STATE
    }

    assert {path: lines for path, lines in found.items() if lines} == new


@pytest.mark.parametrize(
    "line",
    ["queue.ready -= 1", "self.queue.dead_bytes = 0", "entry.state = HELD", "entry.state: int = DEQUEUED"],
)
def test_a_change_elsewhere_is_found(line: str) -> None:
    assert list(changes(ast.parse(line))) == [line]


def test_the_module_has_the_changes_of_all_counts() -> None:
    lines = "\n".join(changes(ast.parse(STATE.read_text())))

    assert all(f"queue.{count} " in lines for count in COUNTS)
    assert all(f"entry.state = {state}" in lines for state in STATES)
