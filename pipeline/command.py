"""The command `amqpd pipeline`. Exit status: 0 clean, 1 it did not come about, 2 findings."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pipeline.errors import PipelineError
from pipeline.journal.options import is_served, shown
from pipeline.requirements import missing

CLEAN: Final = 0
FAILED: Final = 1
FOUND: Final = 2
JOBS: Final = {
    "audit": "fate of each message, and whether the journal is whole and adds up",
    "latency": "time to the first delivery, in the queue, and with the consumer",
    "traffic": "rates, bytes and redeliveries by queue",
    "poison": "messages that are returned again and again",
    "order": "deliveries out of order",
    "lineage": "life of one message, its dead letters and its copies",
    "compact": "rewrite sealed files as few large files, by date and hour, into --out",
    "retain": "delete sealed files older than --keep that agree with the manifest",
    "export": "write events as Parquet, Delta or Iceberg into --out",
    "stream-to-parquet": "messages of streams and queues (--url, --subscribe) into --out, each once",
}
STORE: Final = "stream-to-parquet"
OF_EVENTS: Final = tuple(job for job in JOBS if job not in ("retain", STORE))
FLAGS: Final = {
    "live": OF_EVENTS,
    "since": OF_EVENTS,
    "out": tuple(job for job in JOBS if job not in ("lineage", "retain")),
    "report": ("audit",),
    "by_consumer": ("latency", "order"),
    "message_id": ("lineage",),
    "msg_uid": ("lineage",),
    "keep": ("retain",),
    "to": ("export",),
    "url": (STORE,),
    "subscribe": (STORE,),
}
"""The jobs that take a flag; flags with defaults may be said of any."""

MODES: Final = ("batch", "available-now", "continuous")
OURS: Final = re.compile(r"^pipeline\.[\w.]+Error: (.+)$", re.MULTILINE)
CLEAR: Final = "\r\x1b[K"  # of a terminal: this line is empty again
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def main(arguments: Sequence[str], submitted: bool = False) -> int:
    """Do what the arguments say and return the exit status; a JSON summary goes to standard output.

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


def parser() -> argparse.ArgumentParser:
    """What can be said on the command line."""
    top = argparse.ArgumentParser(
        prog="amqpd pipeline", description="Jobs on Spark over journals and messages."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    jobs = "\n".join(f"  {name:<17} {text}" for name, text in JOBS.items())
    run = commands.add_parser(
        "run",
        help="run a job on Spark",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"jobs:\n{jobs}\n\nexit status: 0 clean, 1 error, 2 findings",
    )
    run.add_argument("job", choices=JOBS, metavar="JOB", help="name of the job, see below")
    journal = "folder of the journal, or its broker: http://user:password@host:15672"
    run.add_argument("--journal", default="amqpd-data/journal", metavar="FOLDER|URL", help=journal)
    live = "read events that are not sealed yet too; always so by URL"
    run.add_argument("--live", action="store_true", help=live)
    run.add_argument(
        "--master", default="local[*]", help="master of Spark; spark-submit starts any but a local one"
    )
    run.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of Spark; may be given several times",
    )
    run.add_argument(
        "--since",
        type=duration,
        metavar="24h",
        help="only events of the last seconds (s), minutes (m), hours (h) or days (d)",
    )
    modes = "audit: modes other than batch go on in --out; stream-to-parquet: continuous does not end"
    run.add_argument("--mode", choices=MODES, default="batch", help=modes)
    run.add_argument("--out", metavar="FOLDER", help="folder of the results")
    run.add_argument("--report", metavar="FILE.html", help="audit: write a page with figures")
    run.add_argument(
        "--print-command", action="store_true", help="print the command instead of running the job"
    )
    run.add_argument(
        "--age",
        type=duration,
        default=3600.0,
        metavar="1h",
        help="audit: age at which an unsettled message is a finding",
    )
    run.add_argument(
        "--poison",
        type=int,
        default=5,
        metavar="N",
        help="audit and poison: number of deliveries that is a finding",
    )
    run.add_argument("--window", default="5 minutes", help="latency and traffic: length of a window")
    run.add_argument("--by-consumer", action="store_true", help="latency and order: figures by consumer too")
    run.add_argument("--message-id", help="lineage: property message-id of the message")
    run.add_argument("--msg-uid", type=int, help="lineage: number of the message in the journal")
    run.add_argument("--keep", type=duration, metavar="30d", help="retain: age of the files to delete")
    run.add_argument(
        "--to", choices=("parquet", "delta", "iceberg"), help="export: form of the files, parquet by default"
    )
    run.add_argument("--url", help="stream-to-parquet: the broker, amqp://user:password@host:5672/vhost")
    run.add_argument("--subscribe", metavar="NAMES", help="stream-to-parquet: names of streams and queues")
    option = 'an option of format("amqp") (stream-to-parquet), or "amqp-journal" (URL, --live)'
    run.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help=option)
    zipped = commands.add_parser("zip", help="write the sources that executors of a cluster need into a zip")
    zipped.add_argument("file", metavar="FILE.zip", help="file to write")
    return top


def duration(text: str) -> float:
    """Seconds of a text like 90s, 15m, 24h or 7d."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no time such as 90s, 15m, 24h or 7d")
    return float(found[1]) * UNITS[found[2]]


def settings(pairs: Sequence[str], flag: str = "--conf") -> dict[str, str]:
    """Settings out of KEY=VALUE. Raises PipelineError: one is not like that."""
    for pair in pairs:
        if not re.fullmatch(r"[^=\s]+=.*", pair, re.DOTALL):
            name = pair.partition("=")[0]  # the value may be a password
            raise PipelineError(f"{flag} '{name}' is not KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


def _zip(options: argparse.Namespace) -> int:
    from pipeline.submit import zip_sources

    try:
        zip_sources(Path(options.file))
    except OSError as error:
        raise PipelineError(f"cannot write {options.file}: {error.strerror}") from error
    return CLEAN


def _run(options: argparse.Namespace, submitted: bool) -> int:
    conf = settings(options.conf)
    _require(options)
    if submitted:
        return run_here(options, None)
    reason = missing()
    if reason:
        raise PipelineError(reason)
    from pipeline.session import is_local
    from pipeline.submit import arguments_of, script, submit

    local = is_local(options.master)
    if options.print_command:
        here = shlex.join([sys.executable, "-m", "pipeline", *arguments_of(options)])
        sys.stdout.write(f"{here if local else script(options.master, conf, arguments_of(options))}\n")
        return CLEAN
    if not local:
        return submit(options.master, conf, arguments_of(options))
    return run_here(options, options.master)


def run_here(options: argparse.Namespace, master: str | None) -> int:
    """Run the job in this process. `master`: None is that of spark-submit. Raises PipelineError."""
    from pyspark.errors import PySparkException

    from pipeline.progress_line import ProgressLine
    from pipeline.running import run
    from pipeline.session import build_session

    if options.report:
        _require_writable(Path(options.report))
    started = time.monotonic()
    spark = build_session(master, settings(options.conf), is_brief(options))
    source = options.subscribe if options.job == STORE else shown(options.journal)
    _tell(f"{options.job} of {source} on {spark.sparkContext.master}")
    since = None
    if options.since is not None:
        since = datetime.now(UTC) - timedelta(seconds=options.since)
    try:
        with ProgressLine(spark, options.job, sys.stderr):
            found, summary = run(spark, options, since, _tell)
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
    _tell(f"{options.job}: {'findings' if found else 'clean'}, {seconds} s")
    return FOUND if found else CLEAN


def is_live(options: argparse.Namespace) -> bool:
    """Whether events are read that are not sealed yet."""
    return options.live or is_served(options.journal)


def is_brief(options: argparse.Namespace) -> bool:
    """Whether the job makes many plans and runs each once. A page has figures that look at all events."""
    return options.job == "audit" and options.mode == "batch" and not options.report


def cause(error: str) -> str:
    """The line of an error of Spark that says what was wrong: our last one, or else the first."""
    ours: list[str] = OURS.findall(error)
    return ours[-1] if ours else error.splitlines()[0]


def _require(options: argparse.Namespace) -> None:
    """Raises PipelineError: the job wants what is not said, or does not take what is."""
    for name, jobs in FLAGS.items():
        said = getattr(options, name)
        if said is not None and said is not False and options.job not in jobs:
            flag = name.replace("_", "-")
            raise PipelineError(f"--{flag} is of {', '.join(jobs)}, not of {options.job}")
    if options.job == STORE:
        _require_of_store(options)
        return
    settings(options.option, "--option")
    if options.option and not is_live(options):
        raise PipelineError(f"--option is of {STORE}, and of journals that are read live (--live, or by URL)")
    if options.job == "retain" and is_live(options):
        raise PipelineError("retain deletes sealed files of a folder: it knows neither URLs nor --live")
    if options.job in ("compact", "export") and not options.out:
        raise PipelineError(f"{options.job} wants --out FOLDER")
    if options.job == "retain" and options.keep is None:
        raise PipelineError("retain wants --keep, such as 30d")
    if options.job == "lineage" and (options.message_id is None) == (options.msg_uid is None):
        raise PipelineError("lineage wants --message-id or --msg-uid, one of them")
    if options.mode != "batch" and (options.job != "audit" or not options.out):
        raise PipelineError(f"--mode {options.mode} is of audit, and wants --out FOLDER")
    for name in ("report", "since"):
        if getattr(options, name) is not None and options.mode != "batch":
            raise PipelineError(
                f"--{name} is of the mode batch: --mode {options.mode} goes on from where it was"
            )


def _require_writable(report: Path) -> None:
    """Raises PipelineError: the report could not be written, which is better known before the audit."""
    if report.is_dir():
        raise PipelineError(f"cannot write the report '{report}': it is a folder")
    there = report if report.exists() else report.parent
    if not os.access(there, os.W_OK):
        why = "there is no such folder" if not there.exists() else "that is not permitted"
        raise PipelineError(f"cannot write the report '{report}': {why}")


def _require_of_store(options: argparse.Namespace) -> None:
    for name in ("url", "subscribe", "out"):
        if not getattr(options, name):
            raise PipelineError(f"{STORE} wants --{name}")
    settings(options.option, "--option")


def _tell(text: str) -> None:
    begun = CLEAR if sys.stderr.isatty() else ""  # a progress line, perhaps
    sys.stderr.write(f"{begun}amqpd pipeline: {text}\n")
    sys.stderr.flush()
