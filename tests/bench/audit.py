"""`python -m tests.bench.audit`: how long the audit takes, and whether it finds what was planted."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from pipeline.jobs.audit import Audit, audit
from pipeline.journal.reading import read_events
from pipeline.session import build_session
from tests.bench.journals import Planted, write

NOT_OF_AUDIT = ("reordered",)


def differences(found: Audit, planted: Planted) -> list[str]:
    """What was planted and not found, or found and not planted."""
    wrong = []
    for kind, count in found.findings.items():
        uids = {row["msg_uid"] for row in found.rows.get(kind, []) if "msg_uid" in row}
        wanted = planted.uids.get(kind, set())
        if count != len(wanted) or uids != wanted:
            wrong.append(f"{kind}: {count} found, {len(wanted)} planted; {sorted(uids ^ wanted)[:5]}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.audit", description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--faults", type=int, default=50, help="of each kind")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--folder", type=Path, help="where the journal is, or is put")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        started = time.perf_counter()
        planted = write(folder, chosen.events, chosen.faults)
        print(f"{planted.events} events written in {time.perf_counter() - started:.1f} s", flush=True)
        spark = build_session(chosen.master, {})
        wrong = []
        for run in ("cold", "warm"):
            started = time.perf_counter()
            found = audit(read_events(spark, str(folder)))
            took = time.perf_counter() - started
            wrong = differences(found, planted)
            print(
                f"audit, {run}: {took:.1f} s, {found.events / took:,.0f} events/s; {found.findings}",
                flush=True,
            )
        spark.stop()
    for line in wrong:
        print(line)
    return 2 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
