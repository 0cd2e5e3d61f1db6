"""The connector's address of the broker and its connections; no query is needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipeline.connector.choices import Choices, OptionError
from pipeline.connector.link import connect
from pipeline.connector.offsets import Place, share_messages
from pipeline.connector.options import source_options
from pipeline.connector.plan import Progress
from pipeline.connector.publisher import Publisher
from pipeline.connector.rows import OutgoingMessage
from pipeline.connector.server import RefusedError, Server, ServerError, close_idle, make_server
from pipeline.connector.sink import Attempt
from pipeline.errors import PipelineError
from tests.support.admin.api import Api
from tests.support.daemon.certificates import Certificates, secure_address
from tests.support.pipeline.broker import Broker

PERSISTENT = b"\x10\x00\x02"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"), *certificates.options())
    yield broker
    close_idle()
    broker.stop()


def server(**options: str) -> Server:
    return make_server(Choices(options))


def progress(broker: Broker, **options: Any) -> Progress:
    connection_options = {name: str(value) for name, value in options.items()}
    return Progress(source_options(broker.options_of_spark | connection_options, streaming=True))


def rows(start: dict[str, Any], end: dict[str, Any]) -> int:
    """Return the number of messages between offsets of a single stream."""
    (queue,) = end["q"]
    return sum(offset - start["q"][queue][number] for number, offset in end["q"][queue].items())


def test_a_password_out_of_a_file_or_the_environment(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = broker.options_of_spark | {"url": f"amqp://guest@127.0.0.1:{broker.daemon.address.port}"}
    file = tmp_path / "password"
    file.write_text("guest\n")
    monkeypatch.setenv("BROKER_PASSWORD", "guest")
    for more in ({"passwordFile": str(file)}, {"passwordEnv": "BROKER_PASSWORD"}, {"password": "guest"}):
        assert server(**options, **more).get("whoami")["name"] == "guest"
    file.write_text("wrong")
    with pytest.raises(RefusedError, match="401"):
        server(**options, passwordFile=str(file)).get("whoami")
    for more, reason in (
        ({"passwordFile": str(tmp_path / "none")}, "'passwordFile' is '.*none'"),
        ({"passwordEnv": "NOT_SET"}, "'passwordEnv' is 'NOT_SET'"),
    ):
        with pytest.raises(OptionError, match=reason):
            server(**options, **more).get("whoami")


def test_the_next_address_is_tried(broker: Broker) -> None:
    broker.declare("tried")
    url = f"amqp://guest:guest@127.0.0.1:9,{broker.daemon.address.url()}"
    found = server(url=url, apiUrl=f"http://127.0.0.1:9,{broker.daemon.admin}")
    assert found.get("whoami")["name"] == "guest"
    publisher = Publisher(found, True, 10, 30)
    publisher.publish(OutgoingMessage("", "tried", PERSISTENT, b"x"))
    publisher.finish()
    assert found.get("queues", "/", "tried")["messages"] == 1
    with pytest.raises(ServerError, match=r"cannot connect to 127\.0\.0\.1:9"):
        Publisher(server(url="amqp://127.0.0.1:9", retries="0"), True, 10, 30)


def test_the_default_api_address_follows_the_amqp_address() -> None:
    assert server(url="amqp://a,amqp://[::1]:7").api == ("http://a:15672", "http://[::1]:15672")
    assert server(url="amqps://a,amqps://[::1]:7").api == ("https://a:15671", "https://[::1]:15671")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"url": "amqps://u:SECRET@a,amqp://b"}, "'url' is 'amqps://a, amqp://b': some with TLS"),
        (
            {"url": "amqps://u:SECRET@a", "apiUrl": "https://a,http://b"},
            "'apiUrl' is 'http://b'.*the HTTP API",
        ),
        ({"url": "amqp://u:SECRET@a", "apiUrl": "https://a"}, "'apiUrl' is 'https://a'.*the AMQP connection"),
        ({"url": "amqp://a", "caFile": "ca.pem"}, "'caFile' is 'ca.pem', which is for TLS"),
        ({"url": "amqps://a", "keyFile": "k.pem"}, "'keyFile' is 'k.pem': option 'certFile' is missing"),
    ],
)
def test_passwords_with_and_without_tls_are_not_mixed(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason) as refused:
        server(**given)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("name", ["caFile", "certFile"])
def test_missing_tls_files_are_named_in_the_error(tmp_path: Path, name: str) -> None:
    file = tmp_path / "none.pem"
    with pytest.raises(OptionError, match=f"option '{name}' is '{file}': .*No such file"):
        server(url="amqps://127.0.0.1:9", **{name: str(file)}).get("whoami")


def test_a_publisher_continues_after_an_outage_of_the_broker(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    try:
        broker.declare("away")
        found = server(**broker.options_of_spark)
        publisher = Publisher(found, True, 100, 30)
        for number in range(3000):
            publisher.publish(OutgoingMessage("", "away", PERSISTENT, b"%d" % number))
            if number in (1000, 2000):
                broker.restart(kill=number == 1000)
        publisher.finish()
        with broker.channel() as channel:
            bodies = []
            while (got := channel.basic_get("away", auto_ack=True))[0] is not None:
                bodies.append(int(got[2]))
        assert list(dict.fromkeys(bodies)) == list(range(3000)), "each message is there, in order"
        assert len(bodies) <= 3000 + 2 * 100
    finally:
        broker.stop()


@pytest.mark.parametrize("over", ["AMQP", "HTTP"])
def test_a_broker_that_stays_away_ends_the_patience(over: str) -> None:
    away = server(url="amqp://127.0.0.1:9", apiUrl="http://127.0.0.1:9", retryTimeoutMs="700")
    with pytest.raises(ServerError, match=r"cannot (connect to|reach) (http://)?127\.0\.0\.1:9"):
        _ = connect(away) if over == "AMQP" else away.get("whoami")


def test_attempts_are_made_as_long_as_patience_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    at = [now - 1000.0 for _ in server(url="amqp://h").attempts()]
    assert [round(each, 1) for each in at[:7]] == [0.0, 0.2, 0.6, 1.4, 3.0, 6.2, 11.2]
    assert at[-1] == pytest.approx(120.0)
    assert all(later - earlier <= 5 for earlier, later in pairwise(at))
    assert len(list(server(url="amqp://h", retries="3").attempts())) == 4
    assert len(list(server(url="amqp://h", retries="0").attempts())) == 1
    assert len(list(server(url="amqp://h", retryTimeoutMs="0").attempts())) == 1


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://h", "'url' is 'http://h'"), ("amqp://", "it is like amqp://"), ("amqp://h:99999", "amqp://h")],
)
def test_invalid_addresses_are_refused(url: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        server(url=url)


def test_amqp_over_tls(broker: Broker, certificates: Certificates) -> None:
    broker.declare("secure")
    url = f"amqps://guest:guest@127.0.0.1:{secure_address(broker.daemon).port}"
    trusting = server(url=url, caFile=str(certificates.folder / "ca.pem"))
    publisher = Publisher(trusting, True, 10, 30)
    for _ in range(100):
        publisher.publish(OutgoingMessage("", "secure", PERSISTENT, bytes(50_000)))
    publisher.finish()
    assert server(**broker.options_of_spark).get("queues", "/", "secure")["messages"] == 100
    with pytest.raises(ServerError, match=r"cannot trust .*certificate verify failed"):
        Publisher(server(url=url), True, 10, 30)


def test_a_batch_waits_for_more_but_not_for_ever(broker: Broker) -> None:
    broker.declare_stream("few")
    many = {"subscribe": "few", "startingOffsets": "earliest", "minMessagesPerTrigger": 10}
    patient = progress(broker, **many)
    start = patient.initial().json()
    broker.publish("few", [b"x"] * 9)
    assert patient.next_batch(start, None) == start
    impatient = progress(broker, **many, maxTriggerDelay="0ms")
    assert rows(start, impatient.next_batch(start, None)) == 9
    broker.publish("few", [b"x"])
    assert rows(start, patient.next_batch(start, None)) == 10


def test_the_older_of_two_readers_is_fenced(broker: Broker) -> None:
    broker.declare("fenced")
    broker.publish("fenced", [b"x"] * 3)
    older, newer = (progress(broker, subscribe="fenced", readerName="one") for _ in range(2))
    start = older.initial().json()
    assert rows(start, newer.next_batch(newer.initial().json(), None)) == 3
    with pytest.raises(PipelineError, match="'one' of queue 'fenced' has been taken over"):
        older.next_batch(start, 1)


def test_a_stream_that_comes_later_is_read_from_its_beginning(broker: Broker) -> None:
    broker.declare_stream("later.1")
    mine = progress(broker, subscribePattern="later.*", readerName="lake", startingOffsets="earliest")
    start = mine.initial().json()
    broker.declare_stream("later.2")
    broker.publish("later.2", [b"x"] * 4)
    end = mine.next_batch(start, None)
    assert end["q"] == {"later.1": {"0": 0}, "later.2": {"0": 4}}
    (part,) = mine.slices(start, end)
    assert (part.wanted.place, part.wanted.start, part.wanted.end) == (Place("later.2", 0), 0, 4)
    assert mine.next_batch(end, None) == end
    with closing(Api(broker.daemon.admin)) as api:
        assert api.get("streams", "/", "later.2")["partitions"][0]["consumers"] == {"lake": 4}


def test_a_reader_of_some_partitions_leaves_the_others_as_they_are(broker: Broker) -> None:
    broker.declare_stream("some", partitions=3)
    broker.publish("some", [b"%d" % number for number in range(60)])
    mine = progress(broker, assign='{"some": [0, 2]}', readerName="lake", startingOffsets="earliest")
    start = mine.initial().json()
    end = mine.next_batch(start, None)
    assert mine.next_batch(end, None) == end
    with closing(Api(broker.daemon.admin)) as api:
        partitions = api.get("streams", "/", "some")["partitions"]
    kept = [each["consumers"]["lake"] for each in partitions]
    assert kept == [partitions[0]["next"], 0, partitions[2]["next"]]


def test_shares_are_fair_and_no_message_is_left_out() -> None:
    backlogs = {Place("q", 0): 1000, Place("q", 1): 10, Place("q", 2): 0}
    for most in (1, 7, 100, 1009, 1010, 5000):
        shares = share_messages(backlogs, most)
        assert sum(shares.values()) == min(most, 1010)
        assert all(0 <= shares[place] <= waiting for place, waiting in backlogs.items())
    assert share_messages(backlogs, 101)[Place("q", 0)] == 100


def test_rows_wait_for_a_broker_that_is_short_of_disk(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "--disk-free-min", "1000000GB")
    try:
        broker.daemon.log.wait_for("publishers are held back.*low on disk")
        found = server(**broker.options_of_spark, retries="10")
        sink = ("staged-sinks", "/", "short")
        epoch = found.post(*sink)["epoch"]
        number = found.post(*sink, "attempts", epoch=epoch, batch=0, partition=0)["attempt"]
        where = (*sink, "attempts", str(number), "rows")
        rows = Attempt(found, where, 0)
        rows.add(OutgoingMessage("", "q", PERSISTENT, b"x"))
        with pytest.raises(RefusedError, match="low on disk"):
            rows.flush()
        patient = Attempt(found, where, 120)
        patient.add(OutgoingMessage("", "q", PERSISTENT, b"x"))
        waiting = threading.Thread(target=patient.flush)
        waiting.start()
        broker.options = ()
        broker.restart()
        waiting.join(60)
        (attempt,) = found.get(*sink)["attempts"]
        assert attempt["rows"] == 1
    finally:
        broker.stop()
