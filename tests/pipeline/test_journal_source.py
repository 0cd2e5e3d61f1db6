"""`format("amqp-journal")`: events of a running broker, over HTTP and out of its folder, sealed and live."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker.journal.seal import delete_sealed, seal
from pipeline.arguments import parser
from pipeline.errors import PipelineError
from pipeline.journal.frames import read_events
from pipeline.journal.schema import EVENTS
from pipeline.runs import run
from tests.support.admin.api import Api
from tests.support.daemon.daemon import PATIENCE_S
from tests.support.journal.handmade_journal import OF_THE_BROKER
from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark

NODE = "n-1"
OPTIONS = (
    "--journal",
    "full",
    "--node-name",
    NODE,
    "--journal-file-bytes",
    "64KiB",
    "--journal-file-s",
    "3600",
)


@pytest.fixture
def broker(tmp_path: Path, spark: SparkSession) -> Iterator[Broker]:
    """A broker with a journal in small files, which Spark knows how to reach."""
    from pipeline.journal.source import register

    register(spark)
    broker = Broker(tmp_path / "broker", *OPTIONS)
    yield broker
    broker.stop()


def folder_of(broker: Broker) -> Path:
    return broker.folder / "data" / "journal"


def sources(broker: Broker) -> list[dict[str, str]]:
    """The two ways to the same journal."""
    url = broker.daemon.admin.replace("http://", "http://guest:guest@")
    return [{"url": url}, {"path": str(folder_of(broker))}]


def work(broker: Broker, messages: int, queue: str = "q") -> int:
    """Publish messages to a queue and consume half of them; return the number of written events."""
    broker.declare(queue)
    with broker.channel() as channel:
        for number in range(messages):
            channel.basic_publish("", queue, b"%d" % number)
            if number % 2:
                channel.basic_get(queue, auto_ack=True)
    return written(broker)


def written(broker: Broker) -> int:
    """Return the number of events, once all can be read."""
    api = Api(broker.daemon.admin)
    late = time.monotonic() + PATIENCE_S
    while (answer := api.get("journal"))["written"] + 1 < answer["next"]:
        assert time.monotonic() < late, answer
    api.close()
    return int(answer["written"])


def read(spark: SparkSession, **options: Any) -> list[Any]:
    reader_options = {name: str(value) for name, value in options.items()}
    frame = spark.read.format("amqp-journal").options(**reader_options).load()
    assert frame.schema == EVENTS
    return sorted(frame.collect(), key=lambda row: row["seq"])


def seqs(rows: list[Any]) -> list[int]:
    return [row["seq"] for row in rows]


def require_dense(found: list[int], first: int, last: int) -> None:
    """Check that all events of a range occur once; a checkpoint may follow."""
    assert found == list(range(first, first + len(found)))
    assert found[-1] >= last


class Job:
    """A streaming query whose batches are gathered; it may be run again with the same checkpoint."""

    def __init__(self, spark: SparkSession, checkpoint: Path, **options: Any) -> None:
        self.spark = spark
        self.options = {name: str(value) for name, value in options.items()}
        self.checkpoint = checkpoint
        self.batches: dict[int, list[Any]] = {}
        self.fail_in: int | None = None

    def start(self, **trigger: Any) -> Any:
        stream = self.spark.readStream.format("amqp-journal").options(**self.options).load()
        writer = stream.writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()

    def run(self) -> list[int]:
        """Take all available events, and return their seqs."""
        before = set(self.batches)
        self.start(availableNow=True).awaitTermination()
        return [seq for number in sorted(set(self.batches) - before) for seq in seqs(self.batches[number])]

    def seqs(self) -> list[int]:
        """Return the seqs of all batches."""
        return [seq for number in sorted(self.batches) for seq in seqs(self.batches[number])]

    def sizes(self) -> list[int]:
        """Return the number of rows of each batch."""
        return [len(rows) for _, rows in sorted(self.batches.items())]

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = frame.orderBy("seq").collect()
        if number in self.batches:
            assert rows == self.batches[number], "a batch that is done again is the same"
        self.batches[number] = rows
        if number == self.fail_in:
            self.fail_in = None
            raise RuntimeError("this batch fails")


def test_the_same_rows_come_from_everywhere(spark: SparkSession, broker: Broker) -> None:
    count = work(broker, 600)
    end = {"endingOffsets": json.dumps({NODE: count + 1})}
    with_url, with_path = (read(spark, **source, **end) for source in sources(broker))
    assert seqs(with_url) == list(range(1, count + 1))
    assert with_path == with_url
    ops = {"declare", "enqueue", "confirm", "deliver", "ack", *OF_THE_BROKER}
    assert {row["op"] for row in with_url} == ops
    assert {(row["node"], row["queue"]) for row in with_url if row["op"] == "enqueue"} == {(NODE, "q")}

    folder = folder_of(broker)
    sealed = [each.sealed for each in seal(folder)]
    assert sealed
    behind = sealed[-1].last + 1
    native = read_events(spark, str(folder)).orderBy("seq").collect()
    assert native == with_url[: behind - 1], "sealed files, as Spark itself reads them"
    for source in sources(broker):
        assert read(spark, **source, **end) == with_url, "each file is there twice"
    assert delete_sealed(folder, time.time() + 10, 0)
    for source in sources(broker):
        assert read(spark, **source, **end) == with_url, "sealed, and what is live"
        begin = {"startingOffsets": json.dumps({NODE: behind - 7})}
        assert seqs(read(spark, **source, **begin, **end)) == list(range(behind - 7, count + 1))
    late = {"startingTimestamp": int(with_url[-1]["ts"].timestamp() * 1000) + 1}
    assert read(spark, **sources(broker)[0], **late, **end) == []


@pytest.mark.parametrize("way", [0, 1], ids=["url", "path"])
def test_batches_are_done_again_as_they_were(
    spark: SparkSession, broker: Broker, tmp_path: Path, way: int
) -> None:
    count = work(broker, 400)
    source = sources(broker)[way]
    job = Job(spark, tmp_path / "checkpoint", **source, startingOffsets="earliest", maxEventsPerTrigger=500)
    job.fail_in = 1
    with pytest.raises(PySparkException):
        job.run()
    more = work(broker, 100)
    folder = folder_of(broker)
    assert list(seal(folder))
    assert delete_sealed(folder, time.time() + 10, 0), "what was read live is there sealed only"
    job.run()
    seqs = job.seqs()
    require_dense(seqs, 1, more)
    assert count < more
    assert max(job.sizes()) == 500
    last = work(broker, 10)
    require_dense(job.run(), len(seqs) + 1, last)


def test_a_journal_stream_begins_with_new_events(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    before = work(broker, 50)
    job = Job(spark, tmp_path / "checkpoint", **sources(broker)[0])
    query = job.start(processingTime="0 seconds")
    try:
        late = time.monotonic() + PATIENCE_S
        while query.lastProgress is None:
            assert time.monotonic() < late
            query.awaitTermination(0.1)
        count = work(broker, 50)
        late = time.monotonic() + PATIENCE_S
        while not job.batches or max(job.seqs(), default=0) < count:
            assert time.monotonic() < late, job.sizes()
            assert not query.awaitTermination(0.1)
        while (shown := json.loads(query.lastProgress["sources"][0]["latestOffset"]))["nodes"][NODE] <= count:
            assert time.monotonic() < late, shown
            assert not query.awaitTermination(0.1)
    finally:
        query.stop()
    seqs = job.seqs()
    assert seqs[0] > before
    require_dense(seqs, seqs[0], count)
    assert sum(row["op"] == "enqueue" for rows in job.batches.values() for row in rows) == 50


def test_a_killed_broker_continues_at_the_end_of_its_journal(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    work(broker, 100)
    job = Job(spark, tmp_path / "checkpoint", **sources(broker)[0], startingOffsets="earliest")
    first = job.run()
    broker.restart(kill=True)
    count = work(broker, 100)
    second = job.run()
    require_dense(first + second, 1, count)
    assert "gap" in {row["op"] for row in job.batches[max(job.batches)]}


def done(spark: SparkSession, *words: str) -> tuple[bool, dict[str, Any]]:
    """Run a job, and return its success and its summary."""
    return run(spark, parser().parse_args(["run", *words]), None, lambda text: None)


@pytest.mark.nightly
def test_jobs_read_live_events(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    with broker.channel() as channel:
        channel.queue_declare("poison", durable=True)
        channel.basic_publish("", "poison", b"poison")
        for _ in range(6):
            method, _, _ = channel.basic_get("poison")
            channel.basic_nack(method.delivery_tag)
    work(broker, 389)
    folder = folder_of(broker)
    assert list(seal(folder))
    count = work(broker, 10)
    url, path = sources(broker)[0]["url"], str(folder)
    for words in ([url], [path, "--live"]):
        found, summary = done(spark, "audit", "--journal", *words)
        assert (found, summary["entries"]) == (True, 400)
        assert summary["events"] >= count, "there may be a checkpoint meanwhile"
        assert {kind: number for kind, number in summary["findings"].items() if number} == {"poison": 1}
    assert done(spark, "audit", "--journal", path)[1]["events"] < count, "only what is sealed"
    with pytest.raises(PipelineError, match=r"no message 'none' in 'http://127.0.0.1:[0-9]*'"):
        done(spark, "lineage", "--journal", url, "--message-id", "none")

    words = ["audit", "--journal", url, "--mode", "available-now", "--out", str(tmp_path / "out")]
    first = done(spark, *words)[1]["verdicts"]
    work(broker, 100)
    second = done(spark, *words)[1]["verdicts"]
    assert (sum(first.values()), sum(second.values())) == (400, 500)


def test_removed_events_are_a_loss(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    work(broker, 600)
    for path in (folder_of(broker) / "live").glob("*.ajl"):
        path.unlink()
    count = work(broker, 10)  # the first events may have been all
    for number, source in enumerate(sources(broker)):
        reader_options = {"startingOffsets": json.dumps({NODE: 1})} | source
        with pytest.raises(PySparkException, match="failOnDataLoss=false continues without them"):
            read(spark, **reader_options)
        rest = seqs(read(spark, **reader_options, failOnDataLoss="false"))
        require_dense(rest, rest[0], count)
        assert rest[0] > 1
        job = Job(spark, tmp_path / f"checkpoint{number}", **reader_options, failOnDataLoss="false")
        require_dense(job.run(), rest[0], count)


def test_unreadable_files_are_reported(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    url = sources(broker)[0]["url"]
    with pytest.raises(PySparkException, match="option 'url' is missing"):
        read(spark)
    with pytest.raises(PySparkException, match="401"):
        read(spark, url=url, password="wrong")
    with pytest.raises(PySparkException, match="a seq is given for node 'other'"):
        read(spark, url=url, startingOffsets='{"n-1": 1, "other": 1}')
    silent = Broker(tmp_path / "silent")
    try:
        with pytest.raises(PySparkException, match="this broker journals nothing"):
            read(spark, url=silent.daemon.admin)
    finally:
        silent.stop()
