"""The installed connector: Spark finds its formats by itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.daemon.daemon import ROOT
from tests.support.docs import examples
from tests.support.docs.documents import DOCS
from tests.support.docs.examples import code_of
from tests.support.pipeline.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PROGRAM = """
import os
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
options = {"url": os.environ["AMQP_URL"], "apiUrl": os.environ["API_URL"], "subscribe": "installed"}
frame = spark.read.format("amqp").options(**options).load()
print("rows", frame.count())
journal = spark.read.format("amqp-journal").option("url", os.environ["API_URL"]).load()
print("declared", journal.where("op = 'declare'").count())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip installs into, without our sources."""
    target = tmp_path_factory.mktemp("installed") / "site"
    words = ["install", "--quiet", "--no-deps", "--target", str(target), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *words], env=os.environ | {"AMQPD_COMPILE": "0"}, check=True)
    return target


@pytest.fixture
def broker(tmp_path: Path, spark: SparkSession) -> Iterator[Broker]:
    """Asks for Spark, so that this is skipped, saying so, where there is none."""
    broker = Broker(tmp_path / "broker", "--journal", "full")
    broker.declare("queue")
    broker.declare_stream("installed")
    broker.publish("installed", [b"x"] * 10)
    yield broker
    broker.stop()


@pytest.fixture
def environment(installed: Path) -> dict[str, str]:
    """Return the environment of a shell with this Python and the installed packages first."""
    rest = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return rest | {"PYTHONPATH": str(installed), "PATH": path}


def run(environment: dict[str, str], folder: Path, *words: str) -> str:
    """Standard output of a command that has to succeed."""
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_format_is_known_without_being_registered(
    environment: dict[str, str], broker: Broker, tmp_path: Path
) -> None:
    options = broker.options_of_spark
    where = {"AMQP_URL": options["url"], "API_URL": options["apiUrl"]}
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    done = run(environment | where, tmp_path, "python", str(program))

    assert "rows 10" in done
    assert "declared 2" in done, "the queue and the stream"


def test_the_first_example_publishes_reads_and_audits(
    environment: dict[str, str], broker: Broker, tmp_path: Path
) -> None:
    address, admin = broker.daemon.address, broker.daemon.admin
    page = (DOCS / "data/index.md").read_text(encoding="utf-8")
    programs = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL))
    assert sorted(programs) == ["publish.py", "read.py"]
    here = [
        ('ConnectionParameters("localhost")', f'ConnectionParameters("{address.host}", {address.port})'),
        ('@localhost:5672/%2F")', f'@{address.host}:{address.port}/%2F").option("apiUrl", "{admin}")'),
    ]
    for name, program in programs.items():
        [pair] = [(old, new) for old, new in here if program.count(old) == 1]
        (tmp_path / name).write_text(program.replace(*pair))
    audit = f"pipeline run audit --journal {admin.replace('://', '://guest:guest@')} --report audit.html"
    written = audit.replace(admin.removeprefix("http://"), "localhost:15672")
    assert f"python publish.py && python read.py\namqpd {written}\n" in page

    run(environment, tmp_path, "python", "publish.py")
    table = run(environment, tmp_path, "python", "read.py")
    summary = json.loads(run(environment, tmp_path, "python", "-m", "broker", *audit.split()))

    assert re.search(r"c0\|\s+71071\|", table), table
    assert summary["others"]["ok"] == 1000
    assert "<svg" in (tmp_path / "audit.html").read_text()


CHECKS = {
    "data/spark-reading.md": ("print('read', spark.read.parquet('lake/orders').count())", r"read 20\b"),
    "data/spark-writing.md": ("print('written')", r"written"),
    "data/spark-journal.md": ("", r"enqueue\|\s+20\|"),
}
"""The lines that the test adds to the program of a page, and the pattern of the output."""


@pytest.mark.parametrize("page", CHECKS)
def test_the_example_of_a_page_on_spark(
    page: str, environment: dict[str, str], broker: Broker, tmp_path: Path
) -> None:
    address, admin = broker.daemon.address, broker.daemon.admin
    broker.declare("orders")
    broker.publish("orders", [b"order"] * 20)
    with broker.channel() as channel:
        channel.queue_declare("audit", durable=True)
        channel.queue_bind("audit", "amq.topic", "audit.#")
    [program] = [block.text for block in code_of(DOCS / page) if block.language == "python"]
    url = 'localhost:5672/%2F")'
    program = program.replace(url, f'{address.host}:{address.port}/%2F").option("apiUrl", "{admin}")')
    program = program.replace("localhost:15672", admin.removeprefix("http://"))
    addition, pattern = CHECKS[page]
    (tmp_path / "example.py").write_text(program + addition)

    done = run(environment, tmp_path, "python", "example.py")

    assert re.search(pattern, done), done
    if page == "data/spark-writing.md":
        with broker.channel() as channel:
            assert channel.queue_declare("audit", passive=True).method.message_count == 20


def test_the_example_of_the_jobs(spark: SparkSession, tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker", "--journal", "full", "--journal-file-s", "1")
    broker.declare("orders")
    broker.publish("orders", [b"order"] * 20, message_id="order-17")
    (tmp_path / "amqpd-data").symlink_to(tmp_path / "broker" / "data")
    time.sleep(3)  # until the file of the journal has ended
    [example] = [block for block in code_of(DOCS / "data/jobs.md") if block.language == "sh"]
    where = f"--out lake --option apiUrl={broker.daemon.admin}"  # the port is not the usual one
    example = example._replace(text=example.text.replace("--out lake", where))

    done = examples.run(example, broker.daemon, tmp_path, patience=1800)

    assert '"ok"' in done
    assert (tmp_path / "audit.html").exists()
    assert list((tmp_path / "lake").rglob("*.parquet"))
    broker.stop()


def test_every_page_on_spark_is_run() -> None:
    assert {"data/index.md", "data/jobs.md", *CHECKS} == examples.WITH_SPARK
