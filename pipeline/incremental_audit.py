"""The audit of a growing journal: each run, or each batch, reads only new events.

    <out>/checkpoint/                 of Spark: the files that were read, or the seqs
    <out>/batch=N/node=NAME/...       the state that batch N leaves to the next: `entries`, `told`, `queues`
    <out>/batch=N/node=NAME/findings  the findings among the entries of this batch
    <out>/batch=N/summary.json        the number of entries by verdict until now; written last

A batch reads only what the batch before has left, and writes only its own folder. So a repeated batch has the
same result.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pipeline.arguments import is_live, settings
from pipeline.jobs.facts import describe_lacking, not_judged
from pipeline.jobs.portions import (
    Carried,
    findings,
    fold_portion,
    is_over,
    join_portions,
    queues_of,
    verdicts_of,
)
from pipeline.jobs.verdicts import MEANINGS, Rules
from pipeline.journal.frames import FILES, as_events, sealed_folder
from pipeline.journal.options import journal_source
from pipeline.session import await_query

GRACE: Final = 600.0
FILES_OF_BATCH: Final = 100
KEPT_BATCHES: Final = 10
NOT_FOLLOWED: Final = dict.fromkeys(
    ("file", "hole", "imbalance", "forwarding_loss", "reordered"), "only --mode batch looks for these"
)
Summary = dict[str, Any]


def follow(
    spark: SparkSession, options: argparse.Namespace, tell: Callable[[str], None]
) -> tuple[bool, Summary]:
    """Audit new events, endlessly in the mode `continuous`.

    Returns whether there are findings, and the summary.
    """
    out = Path(options.out)
    batches = Batches(spark, out, options.age, options.poison, tell)
    events = _events(spark, options)
    writer = events.writeStream.foreachBatch(batches.take).option(
        "checkpointLocation", str(out / "checkpoint")
    )
    if options.mode == "available-now":
        query = writer.trigger(availableNow=True).start()
    else:
        query = writer.trigger(processingTime="5 seconds").start()
    await_query(query)
    summary = batches.latest()
    lacking = {name: node.get("lacking", "") for name, node in summary["nodes"].items()}
    return bool(summary["total_findings"]), summary | {"not_judged": not_judged(lacking) | NOT_FOLLOWED}


def _events(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    if is_live(options):
        from pipeline.journal.frames import live_stream

        return live_stream(spark, journal_source(options.journal) | settings(options.option, "--option"))
    stream = spark.readStream.schema(FILES).option("maxFilesPerTrigger", FILES_OF_BATCH)
    return as_events(stream.parquet(sealed_folder(options.journal)))


class Batches:
    """The results of batches in the folder `out`. `age`, `poison`: see Rules."""

    def __init__(
        self,
        spark: SparkSession,
        out: Path,
        age: float,
        poison: int,
        tell: Callable[[str], None],
        grace: float = GRACE,
    ) -> None:
        self.spark = spark
        self.out = out
        self.age = age
        self.poison = poison
        self.tell = tell
        self.grace = grace

    def take(self, events: DataFrame, number: int) -> None:
        """Audit the events of a batch. A repeated batch overwrites its own results."""
        folder = self.out / f"batch={number}"
        shutil.rmtree(folder, ignore_errors=True)
        before = self._before(number)
        events.persist()
        new = {row["node"] for row in events.select("node").distinct().collect()}
        nodes = {
            name: self._node(events, name, number, before) for name in sorted(new | set(before["nodes"]))
        }
        events.unpersist()
        verdicts: dict[str, int] = {}
        for each in nodes.values():
            for verdict, count in each["verdicts"].items():
                verdicts[verdict] = verdicts.get(verdict, 0) + count
        total = sum(count for verdict, count in verdicts.items() if verdict in MEANINGS)
        summary = {"batch": number, "verdicts": verdicts, "total_findings": total, "nodes": nodes}
        (folder / "summary.json").write_text(json.dumps(summary))
        self._forget(number)
        self.tell(f"batch {number}: {total} findings; {verdicts}")

    def latest(self) -> Summary:
        """Return the summary of the last complete batch."""
        return self._before(1 << 62)

    def _node(self, events: DataFrame, node: str, number: int, before: Summary) -> Summary:
        """Fold a node's part of a batch, and write the state for the next batch."""
        carried = fold_portion(events.where(F.col("node") == node))
        known = before["nodes"].get(node)
        if known is not None:
            carried = join_portions(self._read(before["batch"], node), carried)
        folder = self._folder(number, node)
        carried.fact_rows.coalesce(1).write.parquet(f"{folder}/fact_rows")
        carried.queues.coalesce(1).write.parquet(f"{folder}/queues")
        entries = carried.entries.persist()
        parts = ("fact_rows", "queues")
        read = Carried(entries, *(self.spark.read.parquet(f"{folder}/{part}") for part in parts))
        now = max(row["now"] or 0 for row in read.queues.agg(F.max("latest").alias("now")).collect())
        rows = verdicts_of(read, Rules(now, self.age, self.poison)).withColumn(
            "over", is_over(now, self.grace)
        )
        rows.persist()
        findings(rows).write.parquet(f"{folder}/findings")
        over = rows.where("over").select("queue_id", "msg_uid")
        entries.join(over, ["queue_id", "msg_uid"], "left_anti").write.parquet(f"{folder}/entries")
        counts = rows.groupBy("verdict", "over").count().collect()
        rows.unpersist()
        entries.unpersist()
        closed = dict(known["closed"]) if known is not None else {}
        verdicts: dict[str, int] = {}
        for row in counts:
            target = closed if row["over"] else verdicts
            target[row["verdict"]] = target.get(row["verdict"], 0) + row["count"]
        both = {name: verdicts.get(name, 0) + closed.get(name, 0) for name in {*verdicts, *closed}}
        return {"verdicts": both, "closed": closed, "now": now, "lacking": describe_lacking(queues_of(read))}

    def _read(self, number: int, node: str) -> Carried:
        folder = self._folder(number, node)
        return Carried(*(self.spark.read.parquet(f"{folder}/{part}") for part in Carried._fields))

    def _folder(self, number: int, node: str) -> str:
        return str(self.out / f"batch={number}" / f"node={quote(node, safe='@')}")

    def _before(self, number: int) -> Summary:
        """Return the summary of the last complete batch before `number`."""
        numbers = [
            int(path.parent.name.removeprefix("batch=")) for path in self.out.glob("batch=*/summary.json")
        ]
        earlier = [each for each in numbers if each < number]
        if not earlier:
            return {"batch": -1, "verdicts": {}, "total_findings": 0, "nodes": {}}
        summary: Summary = json.loads((self.out / f"batch={max(earlier)}" / "summary.json").read_text())
        return summary

    def _forget(self, number: int) -> None:
        """Delete the state of old batches; their findings and summaries stay."""
        for part in Carried._fields:
            for path in self.out.glob(f"batch={number - KEPT_BATCHES}/node=*/{part}"):
                shutil.rmtree(path, ignore_errors=True)
