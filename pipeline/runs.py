"""Runs of jobs: their input, and the destination of their results."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from pipeline.arguments import STORE, is_live, settings
from pipeline.digest.sources import Digest, live_journal_digest, sealed_journal_digest
from pipeline.errors import PipelineError
from pipeline.jobs import lineage as lives
from pipeline.jobs.audit import audit
from pipeline.jobs.facts import describe_lacking_by_node, not_judged
from pipeline.jobs.order import order
from pipeline.jobs.statistics import latency, poison, traffic
from pipeline.journal.frames import read_events
from pipeline.journal.options import hide_password, journal_source
from pipeline.lake.export import compact, export
from pipeline.lake.retention import retain

Told = Callable[[str], None]
Outcome = tuple[bool, dict[str, Any]]
ROWS_SHOWN: Final = 100
FINDINGS: Final = {"at": TimestampType()} | dict.fromkeys(
    ("node", "vhost", "queue", "from_queue", "verdict", "op", "consumer", "what", "file", "text"),
    StringType(),
)
"""Columns of findings that are no numbers; each of them may be null in all rows."""
NEED_FULL: Final = {"latency": ("first_delivery", "processing"), "order": ("order",)}
"""The results of jobs that need the level `full`."""


def run(spark: SparkSession, options: argparse.Namespace, since: datetime | None, tell: Told) -> Outcome:
    """Run a job; return whether there are findings, and the summary. Raises PipelineError."""
    if options.job == STORE:
        return False, _store(spark, options, tell)
    if options.job == "retain":
        return False, retain(Path(options.journal), options.keep, datetime.now(UTC))
    if options.mode != "batch":
        from pipeline.incremental_audit import follow

        return follow(spark, options, tell)
    if options.job == "audit":
        return _audit(_digest(spark, options, since), options, tell)
    events = _events(spark, options, since)
    if options.job in ("compact", "export"):
        result = (
            compact(events, options.out)
            if options.job == "compact"
            else export(events, options.to or "parquet", options.out)
        )
        return False, result
    if options.job == "lineage":
        return _lineage(events, options)
    return _table(events, options)


def _events(spark: SparkSession, options: argparse.Namespace, since: datetime | None) -> DataFrame:
    if not is_live(options):
        return read_events(spark, options.journal, since)
    from pipeline.journal.frames import live_events

    return live_events(spark, _said(options), since)


def _digest(spark: SparkSession, options: argparse.Namespace, since: datetime | None) -> Digest:
    if not is_live(options):
        return sealed_journal_digest(spark, options.journal, options.poison, since)
    return live_journal_digest(spark, _said(options), options.poison, since)


def _said(options: argparse.Namespace) -> dict[str, str]:
    return journal_source(options.journal) | settings(options.option, "--option")


def _store(spark: SparkSession, options: argparse.Namespace, tell: Told) -> dict[str, Any]:
    from pipeline.connector.source import register
    from pipeline.lake.messages import store

    register(spark)
    source_options = {"url": options.url, "subscribe": options.subscribe, "startingOffsets": "earliest"}
    source_options |= settings(options.option, "--option")
    return store(spark, source_options, options.out, options.mode == "continuous", tell)


def _audit(digest: Digest, options: argparse.Namespace, tell: Told) -> Outcome:
    result = audit(digest, options.age)
    if options.report:
        from pipeline.report.page import write_report

        write_report(Path(options.report), result, digest.events)
        tell(f"report in {options.report}")
    if options.out:
        _write_findings(digest.rows.sparkSession, result.rows, options.out)
    return not result.clean, result.summary()


def _write_findings(spark: SparkSession, rows: dict[str, list[dict[str, Any]]], out: str) -> None:
    for kind, some in rows.items():
        names = list(some[0])
        schema = StructType([StructField(name, FINDINGS.get(name, LongType())) for name in names])
        values = [tuple(row[name] for name in names) for row in some]
        spark.createDataFrame(values, schema).coalesce(1).write.mode("overwrite").parquet(f"{out}/{kind}")


def _lineage(events: DataFrame, options: argparse.Namespace) -> Outcome:
    wanted = {options.msg_uid} if options.msg_uid is not None else lives.find_uids(events, options.message_id)
    name = options.msg_uid if options.msg_uid is not None else f"'{options.message_id}'"
    rows = [row.asDict() for row in lives.lineage(events, wanted).collect()] if wanted else []
    if not rows:
        raise PipelineError(f"no message {name} in '{hide_password(options.journal)}'")
    return False, {
        "messages": len({row["msg_uid"] for row in rows}),
        "life": [lives.format_event(row) for row in rows],
    }


def _table(events: DataFrame, options: argparse.Namespace) -> Outcome:
    """Run a job whose result is a table; rows of `poison` and `order` are findings."""
    job = options.job
    if job == "order" and not _has_deliveries(events):
        raise PipelineError(
            f"order needs deliveries, and '{hide_password(options.journal)}' has none: "
            "the level `full` records them"
        )
    frame = _frame(events, options)
    if options.out:
        frame.write.mode("overwrite").parquet(options.out)
        frame = events.sparkSession.read.parquet(options.out)
    rows = [row.asDict() for row in frame.limit(ROWS_SHOWN).collect()]
    total = len(rows) if len(rows) < ROWS_SHOWN else frame.count()
    summary: dict[str, Any] = {"rows": total, "first": rows}
    if job in NEED_FULL:
        summary["not_judged"] = not_judged(describe_lacking_by_node(events), NEED_FULL[job])
    return job in ("poison", "order") and total > 0, summary


def _has_deliveries(events: DataFrame) -> bool:
    return not events.where("op = 'deliver'").isEmpty()


def _frame(events: DataFrame, options: argparse.Namespace) -> DataFrame:
    if options.job == "latency":
        return latency(events, options.window, options.by_consumer)
    if options.job == "traffic":
        return traffic(events, options.window)
    if options.job == "poison":
        return poison(events, options.poison)
    return order(events, options.by_consumer)
