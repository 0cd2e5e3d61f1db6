"""Run a client's own test suite and compare the failures with KNOWN.md.

A test that fails must be listed there, with the reason why it asserts what only RabbitMQ does; a test that is
listed must fail. So neither a broken broker nor a stale list passes.
"""

import json
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from os import killpg
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

KNOWN = Path(__file__).with_name("KNOWN.md")
PLUGINS = Path(__file__).with_name("plugins")
SUITE_SECONDS = 3600
TOLD_CHARACTERS = 3000  # for each failure
TEST_SECONDS = 180
ROW = re.compile(r"\| `(?P<test>[^`]+)` \| (?P<outcome>fails|not run) \| (?P<because>.+) \|")


class Outcome(NamedTuple):
    """The results of the tests that ran; `failed` has the messages."""

    passed: frozenset[str]
    failed: Mapping[str, str]

    def of(self, pattern: "Pattern") -> tuple[set[str], set[str]]:
        """Return the tests that match a pattern of KNOWN.md: the passed and the failed ones."""
        passed = {test for test in self.passed if pattern.matches(test)}
        return passed, {test for test in self.failed if pattern.matches(test)}


class Pattern(NamedTuple):
    """A row of KNOWN.md: a test or, with `*`, several."""

    text: str
    outcome: str

    def matches(self, test: str) -> bool:
        """Whether this row is about `test`."""
        return re.fullmatch(".*".join(map(re.escape, self.text.split("*"))), test) is not None


def known_failures(suite: str) -> list[Pattern]:
    """The rows of KNOWN.md in the section of a suite."""
    sections = re.split(r"^## ", KNOWN.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (section,) = [text for text in sections if text.partition("\n")[0] == suite]
    return [Pattern(row["test"], row["outcome"]) for row in ROW.finditer(section)]


def check(suite: str, outcome: Outcome, tests: int) -> None:
    """Compare with KNOWN.md; `tests` is how many must have run, so that none is lost silently."""
    patterns = [pattern for pattern in known_failures(suite) if pattern.outcome == "fails"]
    wrong: list[str] = []
    for test, why in sorted(outcome.failed.items()):
        if not any(pattern.matches(test) for pattern in patterns):
            wrong.append(f"fails, and KNOWN.md does not list it: {test}\n{why}")
    for pattern in patterns:
        passed, failed = outcome.of(pattern)
        wrong += [f"passes, although KNOWN.md lists it: {test}" for test in sorted(passed)]
        if not passed | failed:
            wrong.append(f"KNOWN.md lists what is no test of the suite: {pattern.text}")
    ran = len(outcome.passed) + len(outcome.failed)
    if ran != tests:
        wrong.append(f"{ran} tests ran and {tests} should have")
    assert not wrong, f"{suite}: {ran} tests, {len(outcome.failed)} failed\n\n" + "\n\n".join(wrong)


def run_pytest(
    suite: str,
    python: Path,
    folder: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    starter: Sequence[str | Path] = ("-m", "pytest"),
) -> Outcome:
    """Run pytest in the folder of an unpacked suite. `starter`: Python's arguments that start pytest."""
    report = folder / "report.jsonl"
    left_out = [pattern.text for pattern in known_failures(suite) if pattern.outcome == "not run"]
    options = ["-q", "-p", "no:cacheprovider", "-p", "suite_outcome", f"--timeout={TEST_SECONDS}"]
    variables = dict(environment) | {
        "PYTHONPATH": str(PLUGINS),
        "SUITE_LEFT_OUT": json.dumps(left_out),
        "SUITE_REPORT": str(report),
    }
    execute([python, *starter, *options, *arguments], folder, variables)
    assert report.exists(), f"the suite has not run:\n{output_of(folder)}"
    return outcome_of_pytest(report)


def run_node(
    suite: str,
    node: Path,
    folder: Path,
    files: Sequence[str],
    environment: Mapping[str, str],
    skip: Sequence[str],
) -> Outcome:
    """Run files of a suite for Node's own test runner, each alone."""
    passed: set[str] = set()
    failed: dict[str, str] = {}
    options = ["--test-force-exit", f"--test-timeout={TEST_SECONDS * 1000}", "--test-reporter=junit"]
    options += [f"--test-skip-pattern={name}" for name in skip]
    for file in files:
        report = folder / f"{Path(file).stem}.xml"
        execute([node, *options, f"--test-reporter-destination={report}", file], folder, environment)
        assert report.exists(), f"{file} has not run:\n{output_of(folder)}"
        outcome = outcome_of_node(ElementTree.parse(report).getroot(), Path(file).name)
        passed |= outcome.passed
        failed |= outcome.failed
    return Outcome(frozenset(passed), failed)


def outcome_of_node(suite: ElementTree.Element, path: str) -> Outcome:
    """Read the report of Node's test runner; a test's name has its file and its enclosing suites."""
    passed: set[str] = set()
    failed: dict[str, str] = {}
    for child in suite:
        name = f"{path} > {child.get('name', '')}"
        if child.tag == "testsuite":
            inner = outcome_of_node(child, name)
            passed |= inner.passed
            failed |= inner.failed
        elif child.tag == "testcase" and child.find("failure") is not None:
            failed[name] = (child.findtext("failure") or "")[:TOLD_CHARACTERS]
        elif child.tag == "testcase" and child.find("skipped") is None:
            passed.add(name)
    return Outcome(frozenset(passed), failed)


def execute(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> None:
    """Run a suite to its end, whatever fails; the output goes to `output.txt` beside it."""
    with (folder / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(SUITE_SECONDS)
        finally:
            if process.poll() is None:
                killpg(process.pid, signal.SIGKILL)
                process.wait()


def outcome_of_pytest(report: Path) -> Outcome:
    """Read the report of the plugin suite_outcome; a test may have failed more than once."""
    passed: set[str] = set()
    failed: dict[str, str] = {}
    for line in report.read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        if result["failure"]:
            failed[result["test"]] = failed.get(result["test"], "") + result["failure"][-TOLD_CHARACTERS:]
        else:
            passed.add(result["test"])
    return Outcome(frozenset(passed - failed.keys()), failed)


def output_of(folder: Path) -> str:
    """Return the end of a suite's output."""
    return (folder / "output.txt").read_text(encoding="utf-8", errors="replace")[-6000:]
