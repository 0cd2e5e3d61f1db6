"""The arguments of the command `amqpd pipeline`: flags, the jobs that take them, and refusals."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.errors import PipelineError
from pipeline.journal.options import is_served

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
"""The jobs that accept a flag; every job accepts flags with defaults."""

MODES: Final = ("batch", "available-now", "continuous")
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
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
    """Return the seconds of a text like 90s, 15m, 24h or 7d."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no time such as 90s, 15m, 24h or 7d")
    return float(match[1]) * UNITS[match[2]]


def settings(pairs: Sequence[str], flag: str = "--conf") -> dict[str, str]:
    """Return settings from KEY=VALUE texts. Raises PipelineError for another text."""
    for pair in pairs:
        if not re.fullmatch(r"[^=\s]+=.*", pair, re.DOTALL):
            name = pair.partition("=")[0]  # not the value, which may be a password
            raise PipelineError(f"{flag} '{name}' is not KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


def is_live(options: argparse.Namespace) -> bool:
    """Whether the job reads events that are not sealed yet."""
    return options.live or is_served(options.journal)


def is_brief(options: argparse.Namespace) -> bool:
    """Whether the job makes many plans and runs each once. Figures of a report need all events."""
    return options.job == "audit" and options.mode == "batch" and not options.report


def check_arguments(options: argparse.Namespace) -> None:
    """Raise PipelineError for a missing flag, and for a flag that the job does not accept."""
    for name, jobs in FLAGS.items():
        value = getattr(options, name)
        if value is not None and value is not False and options.job not in jobs:
            flag = name.replace("_", "-")
            raise PipelineError(f"--{flag} is for {', '.join(jobs)}, not for {options.job}")
    if options.job == STORE:
        _require_of_store(options)
        return
    settings(options.option, "--option")
    if options.option and not is_live(options):
        raise PipelineError(
            f"--option is for {STORE}, and for journals that are read live (--live, or by URL)"
        )
    if options.job == "retain" and is_live(options):
        raise PipelineError("retain deletes sealed files in a local folder: no URL, and no --live")
    if options.job in ("compact", "export") and not options.out:
        raise PipelineError(f"{options.job} needs --out FOLDER")
    if options.job == "retain" and options.keep is None:
        raise PipelineError("retain needs --keep, such as 30d")
    if options.job == "lineage" and (options.message_id is None) == (options.msg_uid is None):
        raise PipelineError("lineage needs either --message-id or --msg-uid")
    if options.mode != "batch" and (options.job != "audit" or not options.out):
        raise PipelineError(f"--mode {options.mode} is for audit, and needs --out FOLDER")
    for name in ("report", "since"):
        if getattr(options, name) is not None and options.mode != "batch":
            raise PipelineError(
                f"--{name} is for the mode batch: --mode {options.mode} continues from its last batch"
            )


def check_report(report: Path) -> None:
    """Raise PipelineError if the report cannot be written, before the audit starts."""
    if report.is_dir():
        raise PipelineError(f"cannot write the report '{report}': it is a folder")
    there = report if report.exists() else report.parent
    if not os.access(there, os.W_OK):
        why = "there is no such folder" if not there.exists() else "that is not permitted"
        raise PipelineError(f"cannot write the report '{report}': {why}")


def _require_of_store(options: argparse.Namespace) -> None:
    for name in ("url", "subscribe", "out"):
        if not getattr(options, name):
            raise PipelineError(f"{STORE} needs --{name}")
    settings(options.option, "--option")
