"""A pytest plugin for the clients' suites: deselect some tests, and write the results of the others.

The environment says which and where: SUITE_LEFT_OUT is a JSON list of names in which `*` matches anything,
SUITE_REPORT a file that gets one JSON object a line. A test that was skipped is not written; one that passes
and then errs while it is torn down has failed.
"""

import json
import os
import re

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that depend on something other than the broker."""
    patterns = [
        re.compile(".*".join(map(re.escape, name.split("*"))))
        for name in json.loads(os.environ["SUITE_LEFT_OUT"])
    ]
    left_out = [item for item in items if any(pattern.fullmatch(item.nodeid) for pattern in patterns)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called for the set-up, the call and the tear-down of each test."""
    if report.failed or (report.passed and report.when == "call"):
        line = {"test": report.nodeid, "failure": report.longreprtext if report.failed else ""}
        with open(os.environ["SUITE_REPORT"], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
