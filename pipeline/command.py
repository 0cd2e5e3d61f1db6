"""The command `amqpd pipeline`. Exit status: 0 clean, 1 the job failed, 2 findings."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pipeline.arguments import STORE, check_arguments, check_report, is_brief, parser, settings
from pipeline.errors import PipelineError
from pipeline.journal.options import hide_password
from pipeline.requirements import find_missing
from pipeline.terminal import print_line

CLEAN: Final = 0
FAILED: Final = 1
FOUND: Final = 2
OURS: Final = re.compile(r"^pipeline\.[\w.]+Error: (.+)$", re.MULTILINE)


def main(arguments: Sequence[str], submitted: bool = False) -> int:
    """Run the command and return the exit status; a JSON summary goes to standard output.

    `submitted`: spark-submit has started this process, and has set up the session.
    """
    try:
        options = parser().parse_args(list(arguments))
    except SystemExit as end:
        return FAILED if end.code else CLEAN
    try:
        return _zip(options) if options.command == "zip" else _run(options, submitted)
    except PipelineError as error:
        sys.stderr.write(f"amqpd pipeline: {error}\n")
        return FAILED
    except BrokenPipeError:
        return FAILED


def _zip(options: argparse.Namespace) -> int:
    from pipeline.cluster import zip_sources

    try:
        zip_sources(Path(options.file))
    except OSError as error:
        raise PipelineError(f"cannot write {options.file}: {error.strerror}") from error
    return CLEAN


def _run(options: argparse.Namespace, submitted: bool) -> int:
    conf = settings(options.conf)
    check_arguments(options)
    if submitted:
        return run_here(options, None)
    reason = find_missing()
    if reason:
        raise PipelineError(reason)
    from pipeline.cluster import arguments_of, script, submit
    from pipeline.session import is_local

    local = is_local(options.master)
    if options.print_command:
        here = shlex.join([sys.executable, "-m", "pipeline", *arguments_of(options)])
        sys.stdout.write(f"{here if local else script(options.master, conf, arguments_of(options))}\n")
        return CLEAN
    if not local:
        return submit(options.master, conf, arguments_of(options))
    return run_here(options, options.master)


def run_here(options: argparse.Namespace, master: str | None) -> int:
    """Run the job in this process. `master`: None: of spark-submit. Raises PipelineError."""
    from pyspark.errors import PySparkException

    from pipeline.runs import run
    from pipeline.session import build_session
    from pipeline.terminal import ProgressLine

    if options.report:
        check_report(Path(options.report))
    started = time.monotonic()
    spark = build_session(master, settings(options.conf), is_brief(options))
    source = options.subscribe if options.job == STORE else hide_password(options.journal)
    print_line(f"{options.job} of {source} on {spark.sparkContext.master}")
    since = None
    if options.since is not None:
        since = datetime.now(UTC) - timedelta(seconds=options.since)
    try:
        with ProgressLine(spark.sparkContext.statusTracker(), options.job, sys.stderr):
            has_findings, summary = run(spark, options, since, print_line)
    except PySparkException as error:
        raise PipelineError(f"{options.job} has failed: {cause(str(error))}") from error
    except OSError as error:
        raise PipelineError(f"{options.job} has failed: {error}") from error
    finally:
        spark.stop()
    seconds = round(time.monotonic() - started, 1)
    of = "subscribe" if options.job == STORE else "journal"
    body = {"job": options.job, of: source, "seconds": seconds, **summary}
    sys.stdout.write(json.dumps(body, default=str) + "\n")
    sys.stdout.flush()
    print_line(f"{options.job}: {'findings' if has_findings else 'clean'}, {seconds} s")
    return FOUND if has_findings else CLEAN


def cause(error: str) -> str:
    """Return the line of Spark's error with the cause: the last one of this package, or else the first."""
    ours: list[str] = OURS.findall(error)
    return ours[-1] if ours else error.splitlines()[0]
