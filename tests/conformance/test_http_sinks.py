"""Staged sinks over HTTP: batches that are published exactly once, whatever is said twice."""

from collections.abc import Callable
from typing import Any

import pytest
from pamqp.commands import Basic

from protocol.streams.chunk import BASIC, ChunkWriter
from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import Address, DaemonStarter

SINKS = "staged-sinks"
QUERY = "a query"
PLAIN = b"\x10\x00\x02"  # the property delivery_mode, 2


def chunk(bodies: list[bytes], key: str = "q", exchange: str = "", properties: bytes = PLAIN) -> bytes:
    """Rows as a task sends them."""
    writer = ChunkWriter()
    for body in bodies:
        writer.add(0, BASIC, exchange.encode(), key.encode(), properties, body)
    return writer.take(0, 0)


def numbered(start: int, end: int) -> list[bytes]:
    """Bodies."""
    return [b"%d" % number for number in range(start, end)]


class Driver:
    """A program that has attached to a sink."""

    def __init__(self, api: Api, vhost: str, query: str = QUERY) -> None:
        self.api = api
        self.path = (SINKS, vhost, query)
        self.attached = api.post(*self.path, status=200, body={})
        self.epoch = self.attached["epoch"]

    def begin(self, batch: int, partition: int = 0, **more: object) -> Any:
        """An attempt."""
        body = {"epoch": self.epoch, "batch": batch, "partition": partition, **more}
        return self.api.post(*self.path, "attempts", status=200, body=body)["attempt"]

    def add(self, attempt: int, start: int, content: bytes, status: int = 200) -> Any:
        """Rows."""
        url = self.api.url(*self.path, "attempts", str(attempt), "rows")
        answer = self.api.client.post(url, content=content, params={"from": start})
        assert answer.status_code == status, answer.text
        return answer.json()

    def write(self, batch: int, bodies: list[bytes], partition: int = 0, key: str = "q") -> int:
        """An attempt with these rows."""
        attempt = self.begin(batch, partition)
        assert isinstance(attempt, int)
        assert self.add(attempt, 0, chunk(bodies, key)) == {"rows": len(bodies)}
        return attempt

    def commit(self, batch: int, attempts: list[int], rows: int, status: int = 200, **more: object) -> Any:
        """The batch is to be published."""
        body = {"epoch": self.epoch, "batch": batch, "attempts": attempts, "rows": rows, **more}
        return self.api.post(*self.path, "commit", status=status, body=body)

    def refused(self, status: int, batch: int, attempts: list[int], rows: int) -> str:
        """The same, and why not."""
        body = {"epoch": self.epoch, "batch": batch, "attempts": attempts, "rows": rows}
        return self.api.refused(status, "POST", *self.path, "commit", body=body)["reason"]

    def state(self) -> Any:
        """Return the broker's state of the sink."""
        return self.api.get(*self.path)


def drained(address: Address, vhost: str, queue: str = "q") -> list[bytes]:
    """Consume the queue, and return the bodies."""
    found: list[bytes] = []
    with amqp(address, vhost) as channel:
        while True:
            method, _, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append(body)


@pytest.fixture
def driver(api: Api, vhost: str) -> Driver:
    """A driver that has attached, and a durable queue."""
    api.put("queues", vhost, "q", durable=True)
    return Driver(api, vhost)


def test_a_batch_is_published_when_it_is_committed(driver: Driver, vhost: str, address: Address) -> None:
    assert driver.attached == {"epoch": driver.epoch, "last_batch": -1, "moving_rows": 0}
    first = driver.write(0, numbered(0, 700), partition=0)
    driver.add(first, 700, chunk(numbered(700, 1000)) + chunk(numbered(1000, 1500)))
    second = driver.write(0, numbered(1500, 2000), partition=1)
    assert drained(address, vhost) == []
    done = {"committed": True, "last_batch": 0, "moving_rows": 0}
    assert driver.commit(0, [first, second], 2000) == done
    assert drained(address, vhost) == numbered(0, 2000)
    state = driver.state()
    assert (state["last_batch"], state["attempts"], state["attempt_rows"]) == (0, [], 0)


def test_a_commit_that_is_repeated_does_nothing(driver: Driver, vhost: str, address: Address) -> None:
    attempt = driver.write(7, numbered(0, 3))
    driver.commit(7, [attempt], 3)
    again = {"committed": "already", "last_batch": 7, "moving_rows": 0}
    assert driver.commit(7, [attempt], 3) == again
    assert driver.commit(6, [], 0) == again
    assert driver.begin(7) is None
    assert Driver(driver.api, vhost).commit(7, [attempt], 3) == again
    assert drained(address, vhost) == numbered(0, 3)


def test_attempts_that_did_not_win_go_with_the_commit(driver: Driver, vhost: str, address: Address) -> None:
    loser = driver.write(0, [b"loser"])
    older = driver.write(0, [b"older"], partition=3)
    winner = driver.write(0, [b"winner"])
    later = driver.write(1, [b"later"])
    assert [each["attempt"] for each in driver.state()["attempts"]] == [loser, older, winner, later]
    driver.commit(0, [winner], 1)
    (left,) = driver.state()["attempts"]
    assert (left["attempt"], left["batch"], left["partition"], left["rows"]) == (later, 1, 0, 1)
    driver.add(loser, 1, chunk([b"zombie"]), status=404)
    assert drained(address, vhost) == [b"winner"]


def test_a_newer_epoch_fences_the_older_one(driver: Driver, vhost: str, address: Address) -> None:
    attempt = driver.write(0, [b"old"])
    newer = Driver(driver.api, vhost)
    assert newer.epoch == driver.epoch + 1
    assert f"has epoch {newer.epoch}, not {driver.epoch}" in driver.refused(409, 0, [attempt], 1)
    for path, body in (("abort", {"batch": 0}), ("attempts", {"batch": 0, "partition": 0})):
        driver.api.refused(409, "POST", *driver.path, path, body=body | {"epoch": driver.epoch})
    driver.add(attempt, 1, chunk([b"zombie"]), status=404)
    assert f"no attempt {attempt} to commit" in newer.refused(409, 0, [attempt], 1)
    newer.commit(0, [newer.write(0, [b"new"])], 1)
    assert drained(address, vhost) == [b"new"]


def test_batches_of_another_checkpoint_are_refused(driver: Driver, vhost: str, address: Address) -> None:
    attempt = driver.begin(0, checkpoint="mine")
    driver.add(attempt, 0, chunk([b"x"]))
    driver.commit(0, [attempt], 1, checkpoint="mine")
    assert driver.state()["checkpoint"] == "mine"
    other = Driver(driver.api, vhost)
    batch_fields = {"epoch": other.epoch, "batch": 0, "partition": 0, "checkpoint": "other"}
    for path, more in (("attempts", {}), ("commit", {"attempts": [], "rows": 0})):
        refusal = driver.api.refused(409, "POST", *other.path, path, body={**batch_fields, **more})
        assert "has batches up to 0 of checkpoint 'mine', and this is checkpoint 'other'" in refusal["reason"]
    assert other.begin(0, checkpoint="mine") is None
    driver.api.delete(*other.path)
    assert isinstance(Driver(driver.api, vhost).begin(0, checkpoint="other"), int)
    assert drained(address, vhost) == [b"x"]
    long = {**batch_fields, "checkpoint": "c" * 256}
    assert (
        "checkpoint is 256 bytes long"
        in driver.api.refused(
            400, "POST", *other.path, "attempts", body={**long, "epoch": Driver(driver.api, vhost).epoch}
        )["reason"]
    )


def test_rows_that_do_not_match_are_refused(driver: Driver, vhost: str, address: Address) -> None:
    first, second = driver.write(0, numbered(0, 3)), driver.write(0, numbered(0, 3))
    assert "have 3 rows, not 4" in driver.refused(409, 0, [first], 4)
    assert "both at partition 0" in driver.refused(409, 0, [first, second], 6)
    assert "both at partition 0" in driver.refused(409, 0, [first, first], 6)
    assert "is at batch 0, not 1" in driver.refused(409, 1, [first], 3)
    assert drained(address, vhost) == []
    driver.commit(0, [first], 3)
    assert drained(address, vhost) == numbered(0, 3)


def test_rows_whose_answer_was_lost_are_sent_again(driver: Driver, vhost: str, address: Address) -> None:
    attempt = driver.write(0, numbered(0, 3))
    for _ in range(2):
        assert driver.add(attempt, 3, chunk(numbered(3, 5))) == {"rows": 5}
    assert "has 5 rows, not 4" in driver.add(attempt, 4, chunk(numbered(3, 5)), status=409)["reason"]
    driver.commit(0, [attempt], 5)
    assert drained(address, vhost) == numbered(0, 5)


def test_rows_that_would_go_nowhere_are_refused(driver: Driver, vhost: str, address: Address) -> None:
    attempt = driver.begin(0)
    driver.add(attempt, 0, chunk(numbered(0, 3)) + chunk([b"lost"], key="nobody", exchange="amq.direct"))
    refusal = driver.refused(409, 0, [attempt], 4)
    assert "exchange 'amq.direct' leads nowhere with routing key 'nobody'" in refusal
    assert driver.state()["last_batch"] == -1
    assert drained(address, vhost) == []
    driver.commit(0, [attempt], 4, mandatory=False)
    assert drained(address, vhost) == numbered(0, 3)


def test_rows_are_what_publishers_would_send(driver: Driver, vhost: str, address: Address) -> None:
    driver.api.put("queues", vhost, "copy", durable=True)
    messages = [
        {
            "exchange": "",
            "routing_key": "q",
            "payload": "aGVsbG8=",
            "payload_encoding": "base64",
            "properties": {"priority": 3, "message_id": "m", "headers": {"a": 1, "BCC": ["copy"]}},
        }
    ]
    attempt = driver.begin(0)
    path = (*driver.path, "attempts", str(attempt), "rows")
    answer = driver.api.ask("POST", *path, body={"messages": messages}, **{"from": "0"})
    assert answer.json() == {"rows": 1}, answer.text
    driver.commit(0, [attempt], 1)
    for queue in ("q", "copy"):
        with amqp(address, vhost) as channel:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
        assert method is not None
        assert (method.exchange, method.routing_key, body) == ("", "q", b"hello")
        assert (properties.priority, properties.message_id, properties.headers) == (3, "m", {"a": 1})


def test_committed_rows_wait_for_room(driver: Driver, vhost: str, address: Address) -> None:
    arguments = {"x-max-length": 1000, "x-overflow": "reject-publish"}
    driver.api.put("queues", vhost, "small", durable=True, arguments=arguments)
    attempt = driver.begin(0)
    driver.add(attempt, 0, chunk(numbered(0, 600), "small") + chunk(numbered(600, 1200), "small"))
    answer = driver.commit(0, [attempt], 1200, status=202, wait=1)
    assert answer["committed"] is True
    while not answer["blocked"]:
        answer = driver.commit(0, [attempt], 1200, status=202, wait=1)
    assert answer["moving_rows"] == 600
    assert "queue 'small'" in answer["blocked"]
    assert "has not published batch 0: queue 'small'" in driver.refused(409, 1, [], 0)
    driver.api.refused(409, "DELETE", *driver.path)
    assert drained(address, vhost, "small")[:600] == numbered(0, 600)
    answer = driver.commit(0, [attempt], 1200)
    assert (answer["committed"], answer["moving_rows"]) == ("already", 0)
    assert driver.state()["blocked"] is None


def test_dropped_rows_are_not_published(driver: Driver, vhost: str, address: Address) -> None:
    first, second = driver.write(0, [b"a"]), driver.write(0, [b"b"], partition=1)
    driver.api.delete(*driver.path, "attempts", str(first))
    body = {"epoch": driver.epoch, "batch": 0}
    driver.api.post(*driver.path, "abort", status=204, body=body)
    assert driver.state()["attempts"] == []
    assert f"no attempt {second}" in driver.refused(409, 0, [second], 1)
    third = driver.write(0, [b"c"])
    driver.api.delete(*driver.path)
    driver.api.refused(404, "GET", *driver.path)
    later = Driver(driver.api, vhost)
    assert later.attached == {"epoch": later.epoch, "last_batch": -1, "moving_rows": 0}
    driver.add(third, 1, chunk([b"d"]), status=404)
    assert f"has epoch {later.epoch}, not {driver.epoch}" in driver.refused(409, 0, [], 0)
    assert drained(address, vhost) == []


@pytest.mark.parametrize(("exchange", "key"), [("", "absent"), ("amq.headers", "")])
def test_a_row_in_a_later_chunk_would_go_nowhere(driver: Driver, vhost: str, exchange: str, key: str) -> None:
    headers = {"x-match": "all", "k": "v"}
    driver.api.post("bindings", vhost, "e", "amq.headers", "q", "q", status=201, body={"arguments": headers})
    attempt = driver.begin(0)
    fits = chunk(numbered(0, 3), "", "amq.headers", Basic.Properties(headers={"k": "v"}).marshal())
    driver.add(attempt, 0, chunk([b""]) + fits + chunk([b""]) + fits + chunk([b""], key, exchange))
    refusal = driver.refused(409, 0, [attempt], 9)
    assert f"exchange '{exchange}' leads nowhere with routing key '{key}'" in refusal


def test_a_user_without_write_permission_adds_no_rows(
    driver: Driver, vhost: str, user: Callable[..., Api]
) -> None:
    stranger = user("management", write="^q$")
    own = Driver(stranger, vhost, "own")
    attempt = own.begin(0)
    answer = own.add(attempt, 0, chunk([b"a"], exchange="amq.fanout"), status=401)
    assert "write access to exchange 'amq.fanout'" in answer["reason"]
    for method, path in (("GET", ()), ("DELETE", ()), ("POST", ()), ("POST", ("commit",))):
        stranger.refused(401, method, *driver.path, *path, body={"epoch": 1})
    assert [each["query"] for each in stranger.get(SINKS, vhost)] == ["own"]
    assert [each["query"] for each in driver.api.get(SINKS, vhost)] == [QUERY, "own"]


@pytest.mark.parametrize(
    ("exchange", "key", "headers", "left"),
    [
        ("", "q", {}, {"write": "^amq.topic$"}),
        ("amq.topic", "a.b", {}, {"write": "^amq.default$"}),
        ("amq.topic", "a.b", {}, {"topic": "^x"}),
        ("amq.topic", "x.b", {"CC": ["a.b"]}, {"topic": "^x"}),
    ],
)
def test_a_user_whose_write_permission_is_revoked_commits_nothing(
    driver: Driver,
    vhost: str,
    user: Callable[..., Api],
    exchange: str,
    key: str,
    headers: dict[str, Any],
    left: dict[str, str],
) -> None:
    driver.api.post("bindings", vhost, "e", "amq.topic", "q", "q", status=201, body={"routing_key": "#"})
    writer = user("management", write=".*")
    name = writer.get("whoami")["name"]
    own = Driver(writer, vhost, "own")
    attempt = own.begin(0)
    properties = Basic.Properties(headers=headers).marshal() if headers else PLAIN
    own.add(attempt, 0, chunk([b"a"]) + chunk([b"b"], key, exchange, properties))
    rights = {"configure": "", "write": left.get("write", ".*"), "read": ""}
    driver.api.put("permissions", vhost, name, status=204, body=rights)
    if "topic" in left:
        driver.api.put("topic-permissions", vhost, name, exchange="amq.topic", write=left["topic"], read="")
    refusal = own.refused(401, 0, [attempt], 2)
    assert f"refused for user '{name}'" in refusal
    assert (own.state()["last_batch"], own.state()["attempt_rows"]) == (-1, 2)
    driver.api.put("permissions", vhost, name, status=204, body=rights | {"write": ".*"})
    driver.api.delete("topic-permissions", vhost, name)
    assert own.commit(0, [attempt], 2)["committed"] is True


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_a_sink_outlives_a_restart(start_daemon: DaemonStarter, killed: bool) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    api.put("queues", "/", "q", durable=True)
    driver = Driver(api, "/")
    driver.commit(0, [driver.write(0, numbered(0, 5))], 5)
    attempt = driver.write(1, numbered(5, 1000))
    before = driver.state()
    api.close()
    if killed:
        daemon.kill()
    else:
        daemon.terminate()
        daemon.expect_exit(0)

    daemon = start_daemon()
    driver.api = api = Api(daemon.admin)
    assert driver.state() == before
    assert driver.commit(0, [], 0)["committed"] == "already"
    driver.add(attempt, 995, chunk(numbered(1000, 1010)))
    assert driver.begin(1) > attempt
    driver.commit(1, [attempt], 1005)
    assert drained(daemon.address, "/") == numbered(0, 1010)
    api.close()
