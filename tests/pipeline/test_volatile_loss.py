"""Messages that a restart loses, in the journal and in the audit."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pika
import pytest
from pyspark.sql import SparkSession

from broker.journal.reader import JournalReader
from broker.journal.seal import seal
from broker.journal.verification import Verification
from pipeline.digest.sources import sealed_journal_digest
from pipeline.jobs.audit import Audit, audit
from tests.support.daemon.daemon import PATIENCE_S, Daemon
from tests.support.journal.handmade_journal import wait_for

pytestmark = pytest.mark.spark

FULL = ("--journal", "full")
LOST = {"q": 2, "volatile": 3, "transient": 4}  # persistent but for two of q
STAGED = 2


def work(daemon: Daemon) -> None:
    """Fill queues of each kind, settle a message, and stage two."""
    where = pika.ConnectionParameters(daemon.address.host, daemon.address.port)
    with pika.BlockingConnection(where) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.queue_declare("volatile", durable=True, arguments={"x-volatile": True})
        channel.queue_declare("transient")
        for queue, mode, count in (("q", 2, 5), ("q", 1, 2), ("volatile", 2, 3), ("transient", 2, 4)):
            for _ in range(count):
                channel.basic_publish("", queue, b"", pika.BasicProperties(delivery_mode=mode))
        channel.basic_ack(channel.basic_get("q")[0].delivery_tag)
    with httpx.Client(
        base_url=f"{daemon.admin}/api/staged/%2F/q/r", auth=("guest", "guest"), timeout=PATIENCE_S
    ) as api:
        epoch = api.post("", json={}).json()["epoch"]
        wanted = {"epoch": epoch, "ack_upto": 0, "want_rows": STAGED}
        assert api.post("/advance", json=wanted).json()["next"] == STAGED


def verified(folder: Path) -> int:
    """Return the number of lost messages in the journal, which must pass its verification."""
    rows = list(JournalReader(folder).rows())
    found = Verification()
    found.take(rows)
    assert found.findings == []
    return sum(
        row.quantity or 0 for row in rows if row.op in ("lost", "queue_delete") and row.reason == "shutdown"
    )


def audited(spark: SparkSession, folder: Path) -> Audit:
    list(seal(folder))
    return audit(
        sealed_journal_digest(spark, str(folder)), age=3600, now=time.time_ns() // 1000 + 7_200_000_000
    )


def test_after_a_clean_stop_verify_and_audit_count_the_same_losses(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "data" / "journal"
    daemon = Daemon(tmp_path, FULL).wait_until_ready()
    work(daemon)
    daemon.stop()
    Daemon(tmp_path, FULL).wait_until_ready().stop()
    assert verified(folder) == sum(LOST.values())

    report = audited(spark, folder)

    assert report.others["lost_volatile"] == sum(LOST.values())
    assert {kind: count for kind, count in report.findings.items() if count} == {
        "stuck_unacked": STAGED,  # in two hours' time
        "undelivered": 2,
    }
    assert report.others["ok"] == 1


def test_after_a_kill_neither_is_sure(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "journal"
    daemon = Daemon(tmp_path, FULL).wait_until_ready()
    work(daemon)
    wait_for(folder, "stage")
    daemon.kill()
    Daemon(tmp_path, FULL).wait_until_ready().stop()
    assert verified(folder) == 0

    report = audited(spark, folder)

    assert report.others["lost_volatile"] == 0
    assert report.others["unsure"] == sum(LOST.values())
    assert {kind: count for kind, count in report.findings.items() if count} == {
        "stuck_unacked": STAGED,
        "undelivered": 2,
    }
