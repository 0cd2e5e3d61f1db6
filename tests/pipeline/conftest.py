"""A single Spark for all tests of the pipeline; without Java or pyspark they are skipped with a reason."""

import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pipeline.requirements import find_missing
from tests.bench.journals import Planted, write
from tests.support.pipeline.broker import Broker

EVENTS = 20_000
FAULTS = 5

# Modules that import pyspark cannot be collected without it; other tests say that they did not run, and why.
collect_ignore = [
    path.name
    for path in Path(__file__).parent.glob("test_*.py")
    if find_spec("pyspark") is None
    and re.search(r"from (pyspark|pipeline\.(connector|digest|journal))", path.read_text())
]


@pytest.fixture(scope="session", autouse=True)
def _temporary_files() -> None:
    """Keep Java's files in the folder of the run, which is deleted even if the JVM is killed."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-Djava.io.tmpdir={tempfile.gettempdir()}")
    os.environ.setdefault("SPARK_LOCAL_DIRS", tempfile.gettempdir())


@pytest.fixture(autouse=True)
def _pyspark_warns() -> Iterator[None]:
    """Ignore warnings: PySpark leaves sockets to the collector, and uses names that pyarrow has renamed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ResourceWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"pyspark\.")
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two threads, and four attempts for each task, so that retries happen."""
    reason = find_missing()
    if reason:
        pytest.skip(f"tests of the pipeline did not run: {reason}")
    from pipeline.session import build_session

    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": warehouse,
        "spark.sql.streaming.stopTimeout": "2min",  # by default Spark waits forever
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        session = build_session("local[2,4]", conf)
        gateway = session.sparkContext._gateway
        yield session
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends when its input does
        gateway.proc.wait(timeout=30)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[Broker]:
    """A broker of the module's own, which Spark knows how to reach; skipped where there is no Spark."""
    from pipeline.connector.source import register

    register(spark)
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Planted]:
    """A sealed journal with faults, and the list of the faults."""
    folder = tmp_path_factory.mktemp("journal")
    return folder, write(folder, EVENTS, FAULTS)
