"""Bulk reads of queues over HTTP, through a stage that keeps messages until they are acknowledged."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from protocol.streams.chunk import BODY, ROUTING_KEY, Chunk
from tests.conformance.test_http_operations import publish
from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import Address, DaemonStarter

READER = "r"


def attach(api: Api, vhost: str, **more: int) -> dict[str, Any]:
    """Name the reader."""
    found = api.post("staged", vhost, "q", READER, status=200, body=more)
    assert isinstance(found, dict)
    return found


def advance(api: Api, vhost: str, epoch: int, acknowledged: int, rows: int, **more: int) -> tuple[int, int]:
    """Acknowledge and stage; returns where the stage begins and ends."""
    body = {"epoch": epoch, "ack_upto": acknowledged, "want_rows": rows, **more}
    found = api.post("staged", vhost, "q", READER, "advance", status=200, body=body)
    return found["first"], found["next"]


def rows(api: Api, vhost: str, start: int, end: int, first: int | None = None, **more: str) -> list[bytes]:
    """Return the bodies of staged messages; check that their offsets begin at `first`."""
    query = {"from": str(start), "to": str(end), **more}
    answer = api.ask("GET", "staged", vhost, "q", READER, "rows", **query)
    start = start if first is None else first
    assert answer.status_code == 200, answer.text
    found: list[bytes] = []
    position = 0
    while position < len(answer.content):
        chunk = Chunk(answer.content, position)
        assert chunk.header.first == start + len(found)
        found += [chunk.value(BODY, row) for row in range(chunk.rows)]
        assert {chunk.value(ROUTING_KEY, row) for row in range(chunk.rows)} == {b"q"}
        position += chunk.header.size
    return found


def numbered(start: int, end: int) -> list[bytes]:
    """The bodies that were published."""
    return [b"%d" % number for number in range(start, end)]


def drained(address: Address, vhost: str) -> list[tuple[bytes, bool]]:
    """Consume the queue, and return the bodies with their redelivered flags."""
    found: list[tuple[bytes, bool]] = []
    with amqp(address, vhost) as channel:
        while True:
            method, _, body = channel.basic_get("q", auto_ack=True)
            if method is None:
                return found
            found.append((body, method.redelivered))


def test_offsets_are_dense_and_rows_can_be_read_again(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q", durable=True)
    publish(address, vhost, "q", 1000)
    epoch = attach(api, vhost)["epoch"]
    assert advance(api, vhost, epoch, 0, 300) == (0, 300)
    assert rows(api, vhost, 0, 300) == numbered(0, 300)
    assert advance(api, vhost, epoch, 250, 300) == (250, 600)
    assert rows(api, vhost, 250, 600) == rows(api, vhost, 250, 600) == numbered(250, 600)
    assert rows(api, vhost, 311, 312) == [b"311"]
    state = api.get("staged", vhost, "q", READER)
    assert (state["rows"], state["bytes"], state["epoch"]) == (350, 350 * 3, epoch)
    assert advance(api, vhost, epoch, 600, 1000, want_bytes=30) == (600, 610)
    assert drained(address, vhost) == [(body, False) for body in numbered(610, 1000)]


def test_an_acknowledgement_of_before_is_no_error(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q", durable=True)
    publish(address, vhost, "q", 10)
    epoch = attach(api, vhost)["epoch"]
    assert advance(api, vhost, epoch, 0, 6) == (0, 6)
    assert advance(api, vhost, epoch, 4, 0) == (4, 6)
    assert advance(api, vhost, epoch, 2, 0) == (4, 6)


def test_an_answer_that_was_lost_is_given_again(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q", durable=True)
    publish(address, vhost, "q", 10)
    epoch = attach(api, vhost)["epoch"]
    for _ in range(2):
        assert advance(api, vhost, epoch, 0, 3, expect_next=0) == (0, 3)
    for _ in range(2):
        assert advance(api, vhost, epoch, 3, 3, expect_next=3) == (3, 6)
    body = {"epoch": epoch, "ack_upto": 3, "want_rows": 3, "expect_next": 0}
    refusal = api.refused(409, "POST", "staged", vhost, "q", READER, "advance", body=body)
    assert "goes on with offset 6, not 0" in refusal["reason"]


def test_a_newer_epoch_fences_the_older_one(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q", durable=True)
    publish(address, vhost, "q", 10)
    old = attach(api, vhost)
    advance(api, vhost, old["epoch"], 0, 3)
    new = attach(api, vhost)
    assert new == old | {"epoch": old["epoch"] + 1, "next": 3}
    body = {"epoch": old["epoch"], "ack_upto": 3, "want_rows": 3}
    refusal = api.refused(409, "POST", "staged", vhost, "q", READER, "advance", body=body)
    assert f"has epoch {new['epoch']}, not {old['epoch']}" in refusal["reason"]
    assert rows(api, vhost, 0, 3) == numbered(0, 3)


@pytest.mark.parametrize("whose", ["reader", "queue"])
def test_an_epoch_is_not_that_of_a_reader_that_was_deleted(
    api: Api, vhost: str, address: Address, whose: str
) -> None:
    api.put("queues", vhost, "q", durable=True)
    old = attach(api, vhost)["epoch"]
    if whose == "reader":
        api.delete("staged", vhost, "q", READER)
    else:
        api.delete("queues", vhost, "q")
        api.put("queues", vhost, "q", durable=True)
    publish(address, vhost, "q", 10)
    advance(api, vhost, attach(api, vhost)["epoch"], 0, 3)
    body = {"epoch": old, "ack_upto": 3, "want_rows": 3}
    assert api.refused(409, "POST", "staged", vhost, "q", READER, "advance", body=body)
    assert rows(api, vhost, 0, 3) == numbered(0, 3)


def test_each_driver_has_an_epoch_of_its_own(api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q", durable=True)
    with ThreadPoolExecutor(4) as pool:
        for number in range(5):
            where = ("staged", vhost, "q", f"{READER}{number}")
            found = pool.map(lambda _, where=where: api.post(*where, status=200, body={}), range(4))
            assert len({each["epoch"] for each in found}) == 4


def test_a_client_that_attaches_during_the_deletion_of_the_reader_has_a_new_one(
    api: Api, vhost: str, address: Address
) -> None:
    api.put("queues", vhost, "q", durable=True)
    publish(address, vhost, "q", 3000)
    old = attach(api, vhost)
    advance(api, vhost, old["epoch"], 0, 3000)
    with ThreadPoolExecutor() as pool:
        deleting = pool.submit(api.delete, "staged", vhost, "q", READER)
        while not deleting.done():
            attach(api, vhost)
    new = attach(api, vhost)
    assert new["incarnation"] > old["incarnation"]
    assert (new["first"], new["next"]) == (0, 0)


def test_released_messages_are_at_their_places(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q", durable=True)
    publish(address, vhost, "q", 700)
    epoch = attach(api, vhost)["epoch"]
    advance(api, vhost, epoch, 0, 500)
    advance(api, vhost, epoch, 100, 0)
    api.delete("staged", vhost, "q", READER)
    api.refused(404, "GET", "staged", vhost, "q", READER)
    expected = [(body, True) for body in numbered(100, 500)] + [(body, False) for body in numbered(500, 700)]
    assert drained(address, vhost) == expected
    assert attach(api, vhost)["next"] == 0


def test_acknowledged_batches_are_retained(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q", durable=True)
    publish(address, vhost, "q", 100)
    epoch = attach(api, vhost, retain=2)["epoch"]
    for at in range(0, 50, 10):
        assert advance(api, vhost, epoch, at, 10) == (at, at + 10)
        assert advance(api, vhost, epoch, at, 0) == (at, at + 10)  # once more acknowledges nothing
    state = api.get("staged", vhost, "q", READER)
    assert (state["first"], state["retained"], state["rows"], state["bytes"]) == (40, 20, 10, 20)
    assert rows(api, vhost, 20, 50) == numbered(20, 50)
    query = {"from": "19", "to": "20"}
    refusal = api.refused(410, "GET", "staged", vhost, "q", READER, "rows", **query)
    assert "begins with offset 20, not with 19" in refusal["reason"]
    assert attach(api, vhost, retain=1)["retained"] == 10
    assert rows(api, vhost, 30, 50) == numbered(30, 50)
    body = {"epoch": epoch, "ack_upto": 50, "want_rows": 0}
    api.refused(409, "POST", "staged", vhost, "q", READER, "advance", body=body)
    api.delete("staged", vhost, "q", READER)
    assert drained(address, vhost) == [(body, int(body) < 50) for body in numbered(40, 100)]


def test_a_retain_count_out_of_range_is_refused(api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q", durable=True)
    for wrong in (-1, 101):
        refusal = api.refused(400, "POST", "staged", vhost, "q", READER, body={"retain": wrong})
        assert f"retain {wrong} is not from 0 to 100" in refusal["reason"]


def test_a_competing_consumer_gets_messages_that_are_not_staged(
    api: Api, vhost: str, address: Address
) -> None:
    api.put("queues", vhost, "q", durable=True)
    publish(address, vhost, "q", 100)
    epoch = attach(api, vhost)["epoch"]
    staged: list[bytes] = []
    consumed: list[bytes] = []
    with amqp(address, vhost) as channel:
        for turn in range(10):
            _, end = advance(api, vhost, epoch, len(staged), 5)
            staged += rows(api, vhost, len(staged), end)
            for _ in range(5):
                consumed.append(channel.basic_get("q", auto_ack=True)[2])
            assert len(staged) == len(consumed) == 5 * (turn + 1)
    assert sorted(staged + consumed, key=int) == numbered(0, 100)


def test_messages_that_are_not_staged_are_not_read(api: Api, vhost: str, address: Address) -> None:
    api.put("queues", vhost, "q", durable=True)
    publish(address, vhost, "q", 10)
    epoch = attach(api, vhost)["epoch"]
    advance(api, vhost, epoch, 0, 6)
    advance(api, vhost, epoch, 2, 0)
    for status, start, end in ((410, 1, 3), (416, 5, 7), (400, 4, 4)):
        query = {"from": str(start), "to": str(end)}
        assert api.refused(status, "GET", "staged", vhost, "q", READER, "rows", **query)
    assert rows(api, vhost, 0, 6, first=2, gaps="true") == numbered(2, 6)
    assert rows(api, vhost, 0, 2, gaps="true") == []
    for status, upto in ((416, 7), (400, -1), (400, -(10**30))):
        body = {"epoch": epoch, "ack_upto": upto, "want_rows": 0}
        assert api.refused(status, "POST", "staged", vhost, "q", READER, "advance", body=body)


def test_a_user_without_read_permission_stages_nothing(
    api: Api, vhost: str, user: Callable[..., Api]
) -> None:
    api.put("queues", vhost, "q", durable=True)
    stranger = user("management", read="^$")
    stranger.refused(401, "POST", "staged", vhost, "q", READER)
    attach(api, vhost)
    for method in ("GET", "DELETE"):
        stranger.refused(401, method, "staged", vhost, "q", READER)


@pytest.mark.parametrize(
    "arguments",
    [{"x-queue-type": "stream"}, {"x-single-active-consumer": True}],
    ids=["stream", "single-active"],
)
def test_some_queues_have_no_stages(api: Api, vhost: str, arguments: dict[str, object]) -> None:
    api.put("queues", vhost, "q", durable=True, arguments=arguments)
    api.refused(400, "POST", "staged", vhost, "q", READER)


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_a_stage_outlives_a_restart(start_daemon: DaemonStarter, killed: bool) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    api.put("queues", "/", "q", durable=True)
    publish(daemon.address, "/", "q", 1000)
    epoch = attach(api, "/", retain=1)["epoch"]
    advance(api, "/", epoch, 0, 400)
    assert advance(api, "/", epoch, 100, 0) == (100, 400)
    assert advance(api, "/", epoch, 150, 100) == (150, 500)
    before = rows(api, "/", 100, 500)
    api.close()
    if killed:
        daemon.kill()
    else:
        daemon.terminate()
        daemon.expect_exit(0)

    daemon = start_daemon()
    api = Api(daemon.admin)
    state = api.get("staged", "/", "q", READER)
    assert (state["first"], state["next"], state["epoch"], state["retained"]) == (150, 500, epoch, 50)
    assert rows(api, "/", 100, 500) == before == numbered(100, 500)
    assert advance(api, "/", epoch, 500, 100, expect_next=500) == (500, 600)
    assert rows(api, "/", 150, 600) == numbered(150, 600)
    assert api.get("queues", "/", "q")["messages"] == 850
    api.delete("staged", "/", "q", READER)
    assert [body for body, _ in drained(daemon.address, "/")] == numbered(500, 1000)
    api.close()
