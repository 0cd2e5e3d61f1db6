"""Each job on the journal of a real broker: its results are what happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pika
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from broker.journal.seal import seal
from pipeline.arguments import parser
from pipeline.errors import PipelineError
from pipeline.lake import export
from pipeline.lake.export import TABLE
from pipeline.runs import run
from tests.support.daemon.daemon import Daemon

pytestmark = pytest.mark.spark

MESSAGES = 20
POISON = 7
DELIVERIES = 5


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 messages come and go; a single one is delivered 5 times and then dead-lettered."""
    folder = tmp_path_factory.mktemp("daemon")
    daemon = Daemon(folder, ("--journal", "full")).wait_until_ready()
    where = pika.ConnectionParameters(daemon.address.host, daemon.address.port)
    with pika.BlockingConnection(where) as connection:
        channel = connection.channel()
        channel.queue_declare("dead", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("q", durable=True, arguments=arguments)
        for number in range(MESSAGES):
            properties = pika.BasicProperties(delivery_mode=2, message_id=f"m-{number}")
            channel.basic_publish("", "q", b"x" * 10, properties)
        for number in range(MESSAGES):
            for again in range(DELIVERIES if number == POISON else 1):
                method, _, _ = channel.basic_get("q")
                last = again == DELIVERIES - 1
                if number == POISON:
                    channel.basic_nack(method.delivery_tag, requeue=not last)
                else:
                    channel.basic_ack(method.delivery_tag)
    daemon.stop()
    list(seal(folder / "data" / "journal"))
    return folder / "data" / "journal"


def done(spark: SparkSession, journal: Path, *words: str) -> tuple[bool, dict[str, Any]]:
    """Whether a job has findings, and its summary, as it would be printed."""
    options = parser().parse_args(["run", *words, "--journal", str(journal)])
    found, summary = run(spark, options, None, lambda text: None)
    return found, json.loads(json.dumps(summary, default=str))


def test_the_audit_finds_the_poison_and_nothing_else(spark: SparkSession, journal: Path) -> None:
    found, summary = done(spark, journal, "audit")
    assert found
    assert {kind: count for kind, count in summary["findings"].items() if count} == {"poison": 1}
    assert summary["entries"] == MESSAGES + 1
    assert summary["not_judged"] == {}


def test_traffic(spark: SparkSession, journal: Path) -> None:
    found, summary = done(spark, journal, "traffic", "--window", "1 day")
    assert not found
    of_q = [row for row in summary["first"] if row["queue"] == "q"]
    sums = {name: sum(row[name] for row in of_q) for name in ("enqueued", "bytes", "delivered", "left")}
    assert sums == {
        "enqueued": MESSAGES,
        "bytes": 10 * MESSAGES,
        "delivered": MESSAGES + DELIVERIES - 1,
        "left": MESSAGES,
    }
    assert sum(row["redelivered"] for row in of_q) == sum(row["requeued"] for row in of_q) == DELIVERIES - 1


def test_latency(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    _, summary = done(spark, journal, "latency", "--window", "1 day", "--out", str(tmp_path / "out"))
    of_q = [row for row in summary["first"] if row["queue"] == "q"]
    assert sum(row["messages"] for row in of_q) == MESSAGES
    for row in of_q:
        assert 0 <= row["first_delivery_p50"] <= row["first_delivery_p99"] <= row["in_queue_p99"] < 60
        assert 0 <= row["processing_p50"] <= row["in_queue_p99"]
    assert pq.read_table(tmp_path / "out").num_rows == summary["rows"]


def test_poison(spark: SparkSession, journal: Path) -> None:
    found, summary = done(spark, journal, "poison", "--poison", str(DELIVERIES))
    (row,) = summary["first"]
    assert found
    assert (row["queue"], row["deliveries"]) == ("q", DELIVERIES)
    assert done(spark, journal, "poison", "--poison", str(DELIVERIES + 1)) == (
        False,
        {"rows": 0, "first": []},
    )


def test_order(spark: SparkSession, journal: Path) -> None:
    assert done(spark, journal, "order") == (False, {"rows": 0, "first": [], "not_judged": {}})


def test_lineage_goes_from_a_message_to_its_dead_letter(spark: SparkSession, journal: Path) -> None:
    _, summary = done(spark, journal, "lineage", "--message-id", f"m-{POISON}")
    assert summary["messages"] == 2
    ops = [line.split()[4] for line in summary["life"]]
    again = ["deliver", "requeue"] * (DELIVERIES - 1)
    assert ops == ["enqueue", *again, "deliver", "dead_letter", "enqueue"]
    assert f"delivered {DELIVERIES} times" in summary["life"][-3]


def test_lineage_of_a_missing_message_fails(spark: SparkSession, journal: Path) -> None:
    with pytest.raises(PipelineError, match="no message 'm-99'"):
        done(spark, journal, "lineage", "--message-id", "m-99")


@pytest.mark.parametrize("job", ["compact", "export"])
def test_all_events_are_there_in_fewer_files(
    spark: SparkSession, journal: Path, tmp_path: Path, job: str
) -> None:
    out = tmp_path / "out"
    _, summary = done(spark, journal, job, "--out", str(out))
    table = pq.read_table(out)
    assert summary["events"] == table.num_rows
    assert sorted(table["seq"].to_pylist()) == list(range(1, table.num_rows + 1))


def exported(spark: SparkSession, journal: Path, to: str, out: Path) -> list[int]:
    """The seqs of all events, which have been exported twice: the second time is appended."""
    words = ("export", "--to", to, "--out", str(out))
    first, again = (done(spark, journal, *words)[1]["events"] for _ in range(2))
    assert first == again
    return sorted(2 * list(range(1, first + 1)))


def test_delta(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the extra `delta` is not installed")
    seqs = exported(spark, journal, "delta", tmp_path / "lake")
    table = deltalake.DeltaTable(str(tmp_path / "lake")).to_pyarrow_table()
    assert sorted(table["seq"].to_pylist()) == seqs


def test_iceberg(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog.sql", reason="the extra `iceberg` is not installed")
    seqs = exported(spark, journal, "iceberg", tmp_path / "lake")
    catalog = catalogs.SqlCatalog("amqpd", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    assert sorted(catalog.load_table(TABLE).scan().to_arrow()["seq"].to_pylist()) == seqs


@pytest.mark.parametrize("to", ["delta", "iceberg"])
def test_a_format_takes_its_extra(
    spark: SparkSession, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with pytest.raises(PipelineError, match=rf"not installed: pip install 'amqpd\[{to}\]'"):
        done(spark, journal, "export", "--to", to, "--out", str(tmp_path / "lake"))
