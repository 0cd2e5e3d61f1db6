"""Programs that read in bulk report how far they are, for people to see."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.admin.api import Api, fetch
from tests.support.daemon.daemon import Daemon

HALF = {"partitions": [{"queue": "q", "partition": 0, "next": 30, "end": 100}]}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker without other readers."""
    daemon = Daemon(tmp_path_factory.mktemp("readers")).wait_until_ready()
    yield daemon
    daemon.stop()


def test_a_report_is_shown_until_the_reader_ends(api: Api) -> None:
    api.put("readers", "/", "a/b", status=204, body=HALF)
    found = api.get("readers", "/", "a/b")
    assert found["age"] < 60
    assert found | {"age": 0} == {
        "name": "a/b",
        "vhost": "/",
        "user": "guest",
        "lag": 70,
        "age": 0,
        "partitions": [HALF["partitions"][0] | {"lag": 70}],
    }
    assert [each["name"] for each in api.get("readers")] == ["a/b"]
    assert [each["lag"] for each in api.get("readers", "/")] == [70]
    text = fetch(f"{api.base}/metrics").text
    assert 'amqpd_reader_lag{reader="a/b",vhost="/"} 70.0' in text.splitlines()
    api.put("readers", "/", "a/b", status=204, partitions=[])
    assert api.get("readers", "/", "a/b")["lag"] == 0
    api.delete("readers", "/", "a/b")
    api.refused(404, "GET", "readers", "/", "a/b")
    assert api.get("readers") == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"partitions": {}},
        {"partitions": [{}]},
        {"partitions": [{"queue": "q", "partition": 0, "next": -1, "end": 1}]},
        {"partitions": [{"queue": "q", "partition": 0, "next": True, "end": 1}]},
        {"partitions": [{"queue": 1, "partition": 0, "next": 0, "end": 1}]},
        {"partitions": [None]},
        {"partitions": [HALF["partitions"][0]] * 1001},
    ],
)
def test_an_invalid_report_is_refused(api: Api, body: object) -> None:
    assert "partition" in api.refused(400, "PUT", "readers", "/", "r", body=body)["reason"]


def test_names_are_not_too_long(api: Api) -> None:
    api.refused(400, "PUT", "readers", "/", "x" * 256, body=HALF)
    api.refused(404, "PUT", "readers", "none", "x", body=HALF)


def test_users_may_put_readers_of_readable_queues_and_list_their_own_readers(api: Api) -> None:
    for name in ("some", "other"):
        api.put("users", name, status=201, password="p", tags="management")
        api.put("permissions", "/", name, status=201, configure="", write="", read=rf"^({name}\..*|q)$")
    with closing(Api(api.base, "some", "p")) as some, closing(Api(api.base, "other", "p")) as other:
        some.put("readers", "/", "lake", status=204, body=HALF)
        assert other.get("readers") == []
        other.refused(401, "GET", "readers", "/", "lake")
        other.refused(401, "PUT", "readers", "/", "lake", body=HALF)
        other.refused(401, "DELETE", "readers", "/", "lake")
        theirs = {"partitions": [{"queue": "other.q", "partition": 0, "next": 0, "end": 0}]}
        assert "'other.q'" in some.refused(401, "PUT", "readers", "/", "lake", body=theirs)["reason"]
        assert [each["name"] for each in some.get("readers")] == ["lake"]
        assert [each["user"] for each in api.get("readers")] == ["some"]
        some.delete("readers", "/", "lake")
