"""`python -m tests.bench.audit`: the cost of the audit, and whether it finds the planted faults.

Beside the time there is the CPU: with two cores to itself an audit takes about half of that. The plain
`groupBy` is to compare with.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.arguments import parser
from pipeline.digest.sources import sealed_journal_digest
from pipeline.incremental_audit import follow
from pipeline.jobs.audit import Audit, audit
from pipeline.jobs.verdicts import MEANINGS
from pipeline.journal.frames import read_events
from pipeline.report.page import write_report
from pipeline.session import build_session
from tests.bench.cpu import since, until_now
from tests.bench.journals import Planted, write


def differences(found: Audit, planted: Planted) -> list[str]:
    """Return the differences between the findings of an audit and the planted faults."""
    wrong = []
    for kind, count in found.findings.items():
        uids = {row["msg_uid"] for row in found.rows.get(kind, []) if "msg_uid" in row}
        wanted = planted.uids.get(kind, set())
        if count != len(wanted) or uids != wanted:
            wrong.append(f"{kind}: {count} found, {len(wanted)} planted; {sorted(uids ^ wanted)[:5]}")
    return wrong


@contextmanager
def timed(spark: SparkSession, what: str, events: int) -> Iterator[None]:
    """Say how long something takes, how much CPU, and the most memory that the JVM ever had."""
    before, started = until_now(), time.perf_counter()
    yield
    took, cpu = time.perf_counter() - started, since(before)
    status = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/status").read_text()
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    taken = f"CPU of the JVM {cpu.jvm:.1f} s, of Python workers {cpu.workers:.1f} s"
    print(
        f"{what}: {took:.1f} s, {events / took:,.0f} events/s; {taken}; at most {int(peak) >> 10:,} MiB",
        flush=True,
    )


def at_once(spark: SparkSession, folder: Path, planted: Planted, report: Path | None) -> list[str]:
    """Audit the whole journal, twice; return the differences."""
    with timed(spark, "audit, cold", planted.events):
        wrong = differences(audit(sealed_journal_digest(spark, str(folder))), planted)
    with timed(spark, "audit, warm", planted.events):
        found = audit(sealed_journal_digest(spark, str(folder)))
    events = read_events(spark, str(folder))
    print(found.findings, flush=True)
    wrong += differences(found, planted)
    with timed(spark, "groupBy(queue_id, msg_uid).count()", planted.events):
        events.groupBy("queue_id", "msg_uid").count().write.format("noop").mode("overwrite").save()
    if report is not None:
        with timed(spark, "report", planted.events):
            write_report(report, found, events)
    return wrong


def in_portions(spark: SparkSession, folder: Path, out: Path, planted: Planted) -> list[str]:
    """Audit as `--mode available-now` does, twice; return the wrong verdicts."""
    wrong = []
    for run in ("cold", "warm"):
        words = ["run", "audit", "--journal", str(folder), "--out", str(out / run), "--mode", "available-now"]
        with timed(spark, f"audit in portions, {run}", planted.events):
            _, summary = follow(spark, parser().parse_args(words), lambda text: print(text, flush=True))
        for kind in MEANINGS:
            found, wanted = summary["verdicts"].get(kind, 0), len(planted.uids.get(kind, ()))
            if found != wanted:
                wrong.append(f"{kind} in portions: {found} found, {wanted} planted")
    return wrong


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.bench.audit", description=__doc__)
    words.add_argument("--events", type=int, default=10_000_000)
    words.add_argument("--faults", type=int, default=50, help="of each kind")
    words.add_argument("--master", default="local[2]")
    words.add_argument("--folder", type=Path, help="where the journal is put")
    words.add_argument("--report", type=Path, metavar="FILE.html", help="write the page too")
    words.add_argument("--portions", action="store_true", help="what is new only, instead of all at once")
    chosen = words.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary) / "journal"
        started = time.perf_counter()
        planted = write(folder, chosen.events, chosen.faults)
        print(f"{planted.events} events written in {time.perf_counter() - started:.1f} s", flush=True)
        spark = build_session(chosen.master, {}, brief=not (chosen.portions or chosen.report))
        if chosen.portions:
            wrong = in_portions(spark, folder, Path(temporary), planted)
        else:
            wrong = at_once(spark, folder, planted, chosen.report)
        spark.stop()
    for line in wrong:
        print(line)
    return 2 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
