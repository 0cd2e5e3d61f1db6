"""A pytest plugin for the clients' suites: write what became of each test, one JSON object a line.

The environment says where: SUITE_REPORT. A test that was skipped is left out; one that passes and then errs
while it is torn down has failed.
"""

import json
import os

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called for the set-up, the call and the tear-down of each test."""
    if report.failed or (report.passed and report.when == "call"):
        line = {"test": report.nodeid, "failure": report.longreprtext if report.failed else ""}
        with open(os.environ["SUITE_REPORT"], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
