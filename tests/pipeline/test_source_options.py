"""Options of `format("amqp")` that have a source read less, or otherwise; read as Spark does, without it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing

import pika
import pyarrow as pa
import pytest

from pipeline.connector.choices import OptionError
from pipeline.connector.options import SourceOptions, source_options
from pipeline.connector.server import close_idle
from pipeline.connector.source import AmqpDataSource
from pipeline.errors import PipelineError
from tests.support.admin.api import Api, amqp
from tests.support.pipeline.broker import Broker

EARLY = {b"%d" % number for number in range(20)}
LATE = {b"%d" % number for number in range(20, 40)}
VHOST = "team a/b"
USER, PASSWORD = "ann", "s/e@c:r%t"
HERS = {"username": USER, "password": PASSWORD, "vhost": VHOST}
TRANSPORTS = ["chunk", "amqp"]
LOGIN = ("api/queues/team%20a%2Fb/mine?columns=type: 401 ", "403 ACCESS_REFUSED - Login was refused")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker
    close_idle()
    broker.stop()


def batches(broker: Broker, **options: object) -> list[pa.RecordBatch]:
    """Return the record batches that the tasks of a batch hand to Spark."""
    given_options = broker.options_of_spark | {name: str(value) for name, value in options.items()}
    source = AmqpDataSource(given_options)
    reader = source.reader(source.schema())
    return [batch for part in reader.partitions() for batch in reader.read(part)]


def column(found: list[pa.RecordBatch], name: str) -> list[object]:
    return [value for batch in found for value in batch.column(name).to_pylist()]


@pytest.fixture(scope="module")
def moment(broker: Broker) -> int:
    """The time of the first late message of a stream with two partitions, in ms since 1970."""
    broker.declare_stream("times", partitions=2)
    broker.publish("times", sorted(EARLY))
    time.sleep(0.02)
    broker.publish("times", sorted(LATE))
    found = batches(broker, subscribe="times")
    rows = zip(column(found, "value"), pa.chunked_array(b.column("timestamp") for b in found), strict=True)
    return min(int(at.value) for value, at in rows if value in LATE) // 1000


def parted(broker: Broker, **options: object) -> tuple[set[object], set[object]]:
    """The bodies that are read of each of the two partitions."""
    found = batches(broker, subscribe="times", **options)
    rows = list(zip(column(found, "partition"), column(found, "value"), strict=True))
    first, second = ({value for number, value in rows if number == wanted} for wanted in range(2))
    return first, second


def test_a_batch_ends_at_a_time(broker: Broker, moment: int) -> None:
    first, second = parted(broker, endingTimestamp=moment)
    assert first
    assert second
    assert first | second == EARLY
    assert parted(broker, endingTimestamp=moment, startingTimestamp=moment) == (set(), set())
    none = '{"times": {"0": 0, "1": 0}}'
    assert parted(broker, endingTimestamp=moment, endingOffsets=none) == (first, second), "times go before"


def test_a_partition_ends_at_a_time_of_its_own(broker: Broker, moment: int) -> None:
    first, second = parted(broker)
    early = json.dumps({"times": {"0": moment}})
    assert parted(broker, endingOffsetsByTimestamp=early) == (first & EARLY, second)
    both = json.dumps({"times": {"0": 0, "1": moment}})
    assert parted(broker, endingOffsetsByTimestamp=both) == (set(), second & EARLY)


@pytest.fixture(scope="module")
def pieces(broker: Broker) -> str:
    """A stream with 16 chunks of 32 KiB."""
    broker.declare_stream("pieces")
    for _ in range(16):
        broker.publish("pieces", [bytes(8192)] * 4)
    return "pieces"


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("options", "rows"),
    [({"fetchBytes": 65536}, [8] * 8), ({"fetchBytes": 262144}, [32] * 2), ({}, [64])],
    ids=["64 KiB", "256 KiB", "nothing said"],
)
def test_arrow_batches_have_as_many_bytes_as_wanted(
    broker: Broker, pieces: str, transport: str, options: dict[str, int], rows: list[int]
) -> None:
    found = batches(broker, subscribe=pieces, transport=transport, **options)
    assert [each.num_rows for each in found] == rows
    assert column(found, "offset") == list(range(64))


@pytest.fixture(scope="module")
def two_vhosts(broker: Broker) -> str:
    """A stream in `/` and a stream of the same name in a virtual host of another user."""
    broker.declare_stream("mine")
    broker.publish("mine", [b"guest's"])
    with closing(Api(broker.daemon.admin)) as api:
        api.put("vhosts", VHOST)
        api.put("users", USER, password=PASSWORD, tags="management")
        api.put("permissions", VHOST, USER, configure=".*", write=".*", read=".*")
        api.delete("permissions", VHOST, "guest")
    with amqp(broker.daemon.address, VHOST, USER, PASSWORD) as channel:
        channel.queue_declare("mine", durable=True, arguments={"x-queue-type": "stream"})
        channel.basic_publish("", "mine", b"ann's", pika.BasicProperties(delivery_mode=2))
    return "mine"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_stream_of_another_virtual_host_is_read_by_its_user(
    broker: Broker, two_vhosts: str, transport: str
) -> None:
    options = {"subscribe": two_vhosts, "transport": transport}
    assert column(batches(broker, **options, **HERS), "value") == [b"ann's"]
    assert column(batches(broker, **options), "value") == [b"guest's"]
    host = f"{broker.daemon.address.host}:{broker.daemon.address.port}"
    url = f"amqp://ann:s%2Fe%40c%3Ar%25t@{host}/team%20a%2Fb"
    assert column(batches(broker, **options, url=url), "value") == [b"ann's"]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("wrong", "reasons"),
    [
        ({"password": "guest"}, LOGIN),
        ({"username": "bob"}, LOGIN),
        (
            {"username": "guest", "password": "guest"},
            (
                "401 read access to queue 'mine' in vhost 'team a/b' refused for user 'guest'",
                "530 NOT_ALLOWED - access to vhost 'team a/b' refused for user 'guest'",
            ),
        ),
        ({"vhost": "/"}, ("no queue 'mine' in vhost '/'", "access to vhost '/' refused for user 'ann'")),
        ({"vhost": "none"}, ("no queue 'mine' in vhost 'none'", "vhost none not found")),
    ],
    ids=["password", "no user", "other user", "other vhost", "no vhost"],
)
def test_a_user_without_read_permission_gets_the_reason(
    broker: Broker, two_vhosts: str, transport: str, wrong: dict[str, str], reasons: tuple[str, str]
) -> None:
    with pytest.raises(PipelineError) as refused:
        batches(broker, subscribe=two_vhosts, transport=transport, **HERS | wrong)
    assert reasons[TRANSPORTS.index(transport)] in str(refused.value)


def parsed(**options: str) -> SourceOptions:
    return source_options({"url": "amqp://h", "subscribe": "s"} | options, streaming=True)


@pytest.mark.parametrize(
    ("name", "kafkas"),
    [
        ("maxMessagesPerTrigger", "maxOffsetsPerTrigger"),
        ("minMessagesPerTrigger", "minOffsetsPerTrigger"),
        ("maxMessagesPerPartition", "maxRecordsPerPartition"),
    ],
)
def test_names_of_kafka_mean_the_same(name: str, kafkas: str) -> None:
    assert parsed(**{kafkas: "7"}) == parsed(**{name: "7"})
    assert parsed(**{kafkas: "7"}) != parsed()
    with pytest.raises(OptionError, match=f"options '{name}' and '{kafkas}' are the same"):
        parsed(**{kafkas: "7", name: "7"})
