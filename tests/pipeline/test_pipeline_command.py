"""The command: its arguments, its output, and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import requirements
from pipeline.arguments import duration, parser
from pipeline.cluster import arguments_of
from pipeline.command import main
from pipeline.requirements import find_missing
from tests.bench.journals import Planted

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "broker", "pipeline", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.skipif(bool(find_missing()), reason=f"tests of the pipeline did not run: {find_missing()}")
def test_the_audit_of_a_faulty_journal_exits_with_2_and_a_report(
    planted: tuple[Path, Planted], tmp_path: Path
) -> None:
    report = tmp_path / "audit.html"
    words = ("--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2", "--report", str(report))

    done = run("run", "audit", "--journal", str(planted[0]), *words)

    assert done.returncode == 2, done.stderr
    summary = json.loads(done.stdout)
    assert summary["findings"]["lost"] == len(planted[1].uids["lost"])
    page = report.read_text()
    assert page.count("<svg") == 4
    assert 'id="lost"' in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["audit", "--mode", "available-now"], "needs --out"),
        (["compact"], "needs --out"),
        (["retain"], "needs --keep"),
        (["lineage"], "needs either --message-id or --msg-uid"),
        (["audit", "--conf", "nothing"], "'nothing' is not KEY=VALUE"),
        (["stream-to-parquet", "--subscribe", "s", "--out", "o"], "needs --url"),
        (["stream-to-parquet", "--url", "u", "--out", "o"], "needs --subscribe"),
        (["stream-to-parquet", "--url", "u", "--subscribe", "s"], "needs --out"),
        (
            ["stream-to-parquet", "--url", "u", "--subscribe", "s", "--out", "o", "--option", "x"],
            "--option 'x'",
        ),
        (["audit", "--subscribe", "s"], "--subscribe is for stream-to-parquet, not for audit"),
        (
            ["audit", "--since", "1d", "--mode", "available-now", "--out", "o"],
            "--since is for the mode batch",
        ),
        (
            ["audit", "--since", "1d", "--mode", "continuous", "--out", "o"],
            "--mode continuous continues",
        ),
        (
            ["audit", "--report", "r", "--mode", "continuous", "--out", "o"],
            "--report is for the mode batch",
        ),
        (["retain", "--keep", "1d", "--since", "1d"], "export, not for retain"),
        (["retain", "--keep", "1d", "--live"], "--live is for audit, "),
        (["retain", "--keep", "1d", "--out", "o"], "--out is for audit, "),
        (
            ["stream-to-parquet", "--url", "u", "--subscribe", "s", "--out", "o", "--since", "1d"],
            "export, not for stream-to-parquet",
        ),
        (
            ["stream-to-parquet", "--url", "u", "--subscribe", "s", "--out", "o", "--live"],
            "--live is for audit, ",
        ),
        (["traffic", "--report", "r"], "--report is for audit, not for traffic"),
        (["audit", "--by-consumer"], "--by-consumer is for latency, order, not for audit"),
        (["audit", "--msg-uid", "0"], "--msg-uid is for lineage, not for audit"),
        (["audit", "--keep", "30d"], "--keep is for retain, not for audit"),
        (["compact", "--out", "o", "--to", "delta"], "--to is for export, not for compact"),
        (["lineage", "--message-id", "m", "--msg-uid", "1"], "either --message-id or --msg-uid"),
        (["lineage", "--message-id", "m", "--out", "o"], "--out is for audit, "),
        (["audit", "--option", "failOnDataLoss=false"], "journals that are read live"),
        (["audit", "--live", "--option", "x"], "--option 'x' is not KEY=VALUE"),
        (
            ["retain", "--keep", "1d", "--journal", "http://h:1"],
            "retain deletes sealed files in a local folder",
        ),
    ],
)
def test_a_missing_requirement_is_reported_in_a_line(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words]) == 1

    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("report", "reason"),
    [("absent/r.html", "'absent/r.html': there is no such folder"), (".", "'.': it is a folder")],
)
def test_an_unwritable_report_is_refused_before_the_audit(report: str, reason: str) -> None:
    if find_missing():
        pytest.skip(f"tests of the pipeline did not run: {find_missing()}")
    done = run("run", "audit", "--report", report)
    assert (done.returncode, done.stderr) == (1, f"amqpd pipeline: cannot write the report {reason}\n")


@pytest.mark.parametrize("words", [["run", "nothing"], ["run", "audit", "--absent"], ["run", "compact"]])
def test_a_failed_spark_submit_ends_with_1_too(words: list[str]) -> None:
    """2 is for findings."""
    command = [sys.executable, str(ROOT / "pipeline" / "main.py"), *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert done.stderr


def test_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: name)  # also where there is no pyspark
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert "Java 17 or later" in find_missing()


def test_an_old_java_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_312\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setattr(requirements, "find_spec", lambda name: name)  # also where there is no pyspark
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert find_missing().endswith(f"{java} is Java 8")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("24h", 86_400), ("7d", 604_800)])
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def test_arguments_survive_being_passed_on() -> None:
    words = [
        "run",
        "audit",
        "--since",
        "30d",
        "--conf",
        "a=b",
        "--conf",
        "c=d",
        "--out",
        "x y",
        "--by-consumer",
        "--live",
    ]
    options = parser().parse_args(words)

    assert vars(parser().parse_args(arguments_of(options))) == vars(options)


def test_a_cluster_is_submitted_to(capsys: pytest.CaptureFixture[str]) -> None:
    if find_missing():
        pytest.skip(f"tests of the pipeline did not run: {find_missing()}")

    assert main(["run", "audit", "--print-command", "--master", "spark://host:7077", "--conf", "a=b"]) == 0

    zipping, submitting = capsys.readouterr().out.splitlines()
    assert zipping == f"{sys.executable} -m pipeline zip pipeline.zip &&"
    assert "PYTHONPATH=pipeline.zip" in submitting
    assert "spark-submit --master spark://host:7077" in submitting
    assert "--py-files pipeline.zip --conf a=b" in submitting


def test_a_zip_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "none" / "pipeline.zip"

    assert main(["zip", str(target)]) == 1

    assert f"cannot write {target}: No such file or directory" in capsys.readouterr().err


def test_sources_in_a_zip_can_be_imported(tmp_path: Path) -> None:
    assert main(["zip", str(tmp_path / "pipeline.zip")]) == 0
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "pipeline.zip")}
    program = (
        "import pipeline.command, protocol.streams.chunk as chunk, sys;"
        "sys.exit(not all('.zip' in each.__file__ for each in (pipeline.command, chunk)))"
    )

    done = subprocess.run([sys.executable, "-P", "-c", program], cwd=tmp_path, env=environment, check=False)

    assert done.returncode == 0
