"""Sessions of jobs: which of them go without the JVM's second compiler."""

import subprocess
import sys

import pytest

from pipeline.arguments import is_brief, parser
from pipeline.requirements import find_missing

SHOWN = """
import sys
from pathlib import Path
from pipeline.session import build_session

conf = dict(each.split("=", 1) for each in sys.argv[2:])
spark = build_session("local[1]", conf, brief=sys.argv[1] == "brief")
print(Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/cmdline").read_text().replace(chr(0), " "))
spark.stop()
"""


def words_of_jvm(*arguments: str) -> list[str]:
    """Return the arguments with which a new session starts its JVM."""
    reason = find_missing()
    if reason:
        pytest.skip(f"tests of the pipeline did not run: {reason}")
    words = [sys.executable, "-c", SHOWN, *arguments]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=300).stdout.split()


@pytest.mark.parametrize(
    ("words", "brief"),
    [
        (["audit"], True),
        (["audit", "--live"], True),
        (["audit", "--report", "page.html"], False),
        (["audit", "--mode", "available-now", "--out", "audited"], False),
        (["latency"], False),
        (["traffic"], False),
    ],
)
def test_an_audit_at_once_is_brief_unless_a_page_is_wanted(words: list[str], brief: bool) -> None:
    assert is_brief(parser().parse_args(["run", *words, "--journal", "journal"])) is brief


@pytest.mark.spark
def test_a_brief_session_has_one_compiler() -> None:
    words = words_of_jvm("brief")
    assert "-XX:TieredStopAtLevel=1" in words
    assert "-XX:+UseParallelGC" in words


@pytest.mark.spark
def test_long_sessions_have_both_compilers() -> None:
    words = words_of_jvm("long")
    assert "-XX:TieredStopAtLevel=1" not in words
    assert "-XX:+UseParallelGC" in words


@pytest.mark.spark
def test_given_options_of_the_jvm_replace_the_defaults() -> None:
    words = words_of_jvm("brief", "spark.driver.extraJavaOptions=-Dsaid=1")
    assert "-Dsaid=1" in words
    assert "-XX:TieredStopAtLevel=1" not in words
