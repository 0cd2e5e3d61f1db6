"""Streams over HTTP: the list of streams, and chunks as stored."""

import re
import time
from collections.abc import Callable, Iterator

import pytest
from pamqp.commands import Queue, Tx

from protocol.streams.chunk import BODY, ROUTING_KEY, Chunk
from tests.support.admin.api import Api, fetch
from tests.support.amqp091.peer import Connector
from tests.support.amqp091.streams import Publisher, declare_stream
from tests.support.daemon.daemon import PATIENCE_S

BODIES = [b"%d" % number for number in range(100)]


@pytest.fixture
def publisher(connect: Connector) -> Publisher:
    return Publisher(connect)


@pytest.fixture
def stream(publisher: Publisher, name: str) -> Iterator[str]:
    """A stream with a hundred messages in five chunks, one of them from a transaction."""
    stream = declare_stream(publisher.channel, name + ".stream")
    channel = publisher.channel.peer.channel(2)
    channel.call(Tx.Select(), Tx.SelectOk)
    for start in range(0, 100, 20):
        for body in BODIES[start : start + 20]:
            channel.publish(body, stream)
        channel.call(Tx.Commit(), Tx.CommitOk)
    yield stream
    publisher.channel.call(Queue.Delete(queue=stream), Queue.DeleteOk)


LARGE = [b"%07d" % number * 40_000 for number in range(64)]  # more than a connection holds


@pytest.fixture
def large(publisher: Publisher, name: str) -> Iterator[str]:
    """A stream with 18 MB."""
    stream = declare_stream(publisher.channel, name + ".large")
    publisher.publish(stream, *LARGE)
    yield stream
    publisher.channel.call(Queue.Delete(queue=stream), Queue.DeleteOk)


def open_descriptors(api: Api) -> float:
    """Return the number of the daemon's open descriptors."""
    found = re.search(r"^process_open_fds (\S+)$", fetch(f"{api.base}/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def chunks(data: bytes) -> list[Chunk]:
    """The chunks in an answer."""
    found: list[Chunk] = []
    position = 0
    while position < len(data):
        chunk = Chunk(data, position)
        found.append(chunk)
        position += chunk.header.size
    return found


def test_a_stream_shows_its_partitions_offsets_and_size(api: Api, stream: str) -> None:
    answer = api.get("streams", "/", stream)
    (partition,) = answer["partitions"]
    assert (answer["name"], answer["vhost"], partition["partition"]) == (stream, "/", 0)
    assert (partition["first"], partition["next"]) == (0, 100)
    assert partition["bytes"] > 100
    queue = api.get("queues", "/", stream)
    assert queue["type"] == "stream"
    assert queue["messages"] == 100
    assert partition.pop("consumers") == {}
    assert queue["partitions"] == [partition]


def test_chunks_come_as_they_are_stored(api: Api, stream: str) -> None:
    answer = api.ask("GET", "streams", "/", stream, "0", "chunks", **{"from": "0", "to": "100"})
    assert answer.status_code == 200
    rows = [
        (chunk.header.first + row, chunk.value(ROUTING_KEY, row), chunk.value(BODY, row))
        for chunk in chunks(answer.content)
        for row in range(chunk.rows)
    ]
    assert rows == [(offset, stream.encode(), body) for offset, body in enumerate(BODIES)]


def test_a_part_comes_in_whole_chunks(api: Api, stream: str) -> None:
    answer = api.ask("GET", "streams", "/", stream, "0", "chunks", **{"from": "33", "to": "34"})
    (chunk,) = chunks(answer.content)
    assert chunk.header.first <= 33 < chunk.header.behind


def test_a_slow_reader_of_chunks_does_not_delay_publishers(
    api: Api, large: str, publisher: Publisher
) -> None:
    where = api.url("streams", "/", large, "0", "chunks")
    with api.client.stream("GET", where, params={"from": "0", "to": "64"}) as answer:
        publisher.publish(large, b"meanwhile")
        assert api.get("streams", "/", large)["partitions"][0]["next"] == 65
        data = answer.read()
    assert [chunk.value(BODY, row) for chunk in chunks(data) for row in range(chunk.rows)] == LARGE


def test_readers_that_disconnect_leave_no_open_descriptors(api: Api, large: str) -> None:
    where = api.url("streams", "/", large, "0", "chunks")
    api.get("streams", "/", large)
    before = open_descriptors(api)
    for _ in range(5):
        with api.client.stream("GET", where, params={"from": "0", "to": "64"}) as answer:
            assert answer.status_code == 200
    until = time.monotonic() + PATIENCE_S
    while open_descriptors(api) > before + 1:  # the first reader's file may be new among those kept open
        assert time.monotonic() < until, f"{before} descriptors before, {open_descriptors(api)} now"
        time.sleep(0.05)


def test_an_offset_is_found_by_its_time(api: Api, publisher: Publisher, stream: str) -> None:
    before = time.time_ns() // 1000
    assert api.get("streams", "/", stream, "0", "offset", time="0") == {"offset": 0}
    assert api.get("streams", "/", stream, "0", "offset", time=str(before + 1_000_000)) == {"offset": 100}
    time.sleep(0.002)  # the times of appends are whole milliseconds
    publisher.publish(stream, b"new")
    assert api.get("streams", "/", stream, "0", "offset", time=str(before)) == {"offset": 100}


def test_an_offset_is_found_by_the_bytes_up_to_it(api: Api, stream: str) -> None:
    size = api.get("streams", "/", stream)["partitions"][0]["bytes"]

    def reached(start: int, most: int) -> int:
        answer = api.get("streams", "/", stream, "0", "offset", **{"from": str(start), "bytes": str(most)})
        return int(answer["offset"])

    assert reached(0, 1) == 1
    assert reached(99, 1) == 100
    assert reached(0, size) == reached(30, size) == reached(0, 10 * size) == 100
    assert 40 <= reached(0, size // 2) <= 60
    assert 65 <= reached(40, size * 3 // 10) <= 75
    reaches = [reached(0, most) for most in range(1, size, size // 40)]
    assert reaches == sorted(reaches)
    assert len(set(reaches)) > 30


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ({}, 400, "by time, or by from and bytes"),
        ({"from": "5"}, 400, "by time, or by from and bytes"),
        ({"from": "5", "bytes": "0"}, 400, "bytes"),
        ({"from": "5", "bytes": "5", "time": "5"}, 400, "by time, or by from and bytes"),
    ],
    ids=["nothing", "no bytes", "0 bytes", "both"],
)
def test_an_offset_that_is_not_asked_for_rightly(
    api: Api, stream: str, query: dict[str, str], status: int, reason: str
) -> None:
    answer = api.ask("GET", "streams", "/", stream, "0", "offset", **query)
    assert answer.status_code == status
    assert reason in answer.json()["reason"]


def test_streams_are_listed(api: Api, stream: str, publisher: Publisher) -> None:
    queue = publisher.channel.declare(stream + ".queue")
    listed = {each["name"]: each for each in api.get("streams", "/")}
    assert listed[stream] == api.get("streams", "/", stream)
    assert queue not in listed
    assert api.get("streams", "/", name=stream) == [listed[stream]]
    twice = api.client.get(api.url("streams", "/"), params={"name": [stream, stream]})
    assert twice.json() == [listed[stream]]
    assert api.ask("GET", "streams", "/", name=queue).status_code == 404


def test_a_stream_keeps_how_far_a_program_has_got(api: Api, stream: str) -> None:
    def kept() -> object:
        return api.get("streams", "/", stream)["partitions"][0]["consumers"]

    where = ("streams", "/", stream, "consumers", "lake")
    api.put(*where, status=204, offsets=[40])
    assert kept() == {"lake": 40}
    api.put(*where, status=204, offsets=[41])
    assert kept() == {"lake": 41}
    for wrong, reason in (([1, 2], "1 partition"), (["1"], "'1'"), ([-1], "-1"), (7, "7"), ([True], "True")):
        answer = api.ask("PUT", *where, body={"offsets": wrong})
        assert answer.status_code == 400
        assert reason in answer.json()["reason"]
    api.delete(*where)
    assert kept() == {}
    long = api.ask("PUT", "streams", "/", stream, "consumers", "c" * 256, body={"offsets": [1]})
    assert (long.status_code, long.json()["reason"][:34]) == (400, "consumer name is 256 bytes long, a")


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ({"from": "5", "to": "5"}, 400, "no offsets from 5 to 5"),
        ({"from": "5", "to": "101"}, 416, "ends before offset 100, not 101"),
        ({"from": "-1", "to": "5"}, 400, "from"),
        ({"from": "0", "to": "5", "incarnation": "1"}, 409, "has incarnation"),
        ({"from": "0"}, 400, "to"),
    ],
)
def test_missing_streams_are_refused(
    api: Api, stream: str, query: dict[str, str], status: int, reason: str
) -> None:
    refusal = api.refused(status, "GET", "streams", "/", stream, "0", "chunks", **query)
    assert reason in refusal["reason"]


def test_only_streams_have_chunks_and_only_partition_0(api: Api, stream: str, durable_queue: str) -> None:
    assert "is no stream" in api.refused(404, "GET", "streams", "/", durable_queue)["reason"]
    query = {"from": "0", "to": "5"}
    refusal = api.refused(404, "GET", "streams", "/", stream, "1", "chunks", **query)
    assert refusal["reason"].endswith("has no partition 1")


def test_a_user_without_read_permission_gets_no_chunks(
    vhost: str, user: Callable[..., Api], connect: Connector
) -> None:
    stranger = user("management", read="other")
    writer = user("administrator")
    writer.put("queues", vhost, "s", durable=True, arguments={"x-queue-type": "stream"})
    refusal = stranger.refused(401, "GET", "streams", vhost, "s")
    assert "read access to queue 's'" in refusal["reason"]


def test_messages_of_a_stream_are_shown_and_copied_but_not_taken(
    api: Api, stream: str, durable_queue: str
) -> None:
    shown = api.post(
        "queues",
        "/",
        stream,
        "get",
        status=200,
        body={"count": 3, "ackmode": "ack_requeue_true", "encoding": "auto"},
    )
    assert [message["payload"] for message in shown] == ["0", "1", "2"]
    body = {"count": 3, "ackmode": "ack_requeue_false", "encoding": "auto"}
    refusal = api.refused(400, "POST", "queues", "/", stream, "get", body=body)
    assert "is a stream and cannot be read with ackmode" in refusal["reason"]
    refusal = api.refused(400, "POST", "queues", "/", stream, "messages", "delete", body={"all": True})
    assert "is a stream" in refusal["reason"]
    copied = {"selector": "payload IS NULL", "to": {"queue": durable_queue}, "limit": 4}
    assert api.post("queues", "/", stream, "messages", "copy", status=200, body=copied)["done"] == 4
    assert api.get("queues", "/", durable_queue)["messages"] == 4
    assert api.get("queues", "/", stream)["messages"] == 100
