"""Reasons of the HTTP API that are RabbitMQ's word for word. `reply_texts.json` lists them."""

from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from tests.support.admin.api import Api, fetch
from tests.support.reply_texts import check, listed, unused_name

GOLDEN: Final = listed("http")


@pytest.fixture
def place(api: Api) -> Iterator[str]:
    """A virtual host with a queue `q`, an exchange `e` and a limit of a single queue."""
    name = unused_name()
    api.put("vhosts", name)
    api.put("queues", name, "q", durable=True)
    api.put("exchanges", name, "e", type="direct")
    api.put("vhost-limits", name, "max-queues", value=1, status=204)
    yield name
    api.ask("DELETE", "vhosts", name)


def compare(case: str, answer: httpx.Response, place: str) -> None:
    """Fail unless an answer has the listed text of a case; health checks have no `error`."""
    document = answer.json()
    error = {"error": document["error"]} if "error" in document else {}
    check({"status": answer.status_code, **error, "text": document["reason"]}, GOLDEN[case], place)


REQUESTS: Final[dict[str, tuple[str, tuple[str, ...], dict[str, object] | None]]] = {
    "queue that does not exist": ("GET", ("queues", "{name}", "none"), None),
    "exchange that does not exist": ("GET", ("exchanges", "{name}", "none"), None),
    "bind of no queue": ("POST", ("bindings", "{name}", "e", "e", "q", "none"), {}),
    "bind to no exchange": ("POST", ("bindings", "{name}", "e", "none", "q", "q"), {}),
    "queue that is there otherwise": ("PUT", ("queues", "{name}", "q"), {"durable": False}),
    "exchange that is there otherwise": ("PUT", ("exchanges", "{name}", "e"), {"type": "topic"}),
    "exchange of no kind": ("PUT", ("exchanges", "{name}", "new"), {"type": "x-nothing"}),
    "reserved name of a queue": ("PUT", ("queues", "{name}", "amq.q"), {}),
    "reserved name of an exchange": ("PUT", ("exchanges", "{name}", "amq.e"), {"type": "direct"}),
    "delete a predeclared exchange": ("DELETE", ("exchanges", "{name}", "amq.direct"), None),
    "limit of queues": ("PUT", ("queues", "{name}", "more"), {"durable": True}),
    "component of no parameter": ("PUT", ("parameters", "shovels", "{name}", "p"), {"value": 1}),
    "no such path": ("GET", ("shoes",), None),
    "listener of no port": ("GET", ("health", "checks", "port-listener", "1"), None),
    "listener of no protocol": ("GET", ("health", "checks", "protocol-listener", "mqtt"), None),
}
"""Method, path and body of requests that an administrator sends."""


@pytest.mark.parametrize("case", REQUESTS)
def test_reasons_of_refused_requests(api: Api, place: str, case: str) -> None:
    method, path, body = REQUESTS[case]
    answer = api.ask(method, *(each.replace("{name}", place) for each in path), body=body)
    compare(case, answer, place)


def test_the_reasons_of_conditions(api: Api, place: str) -> None:
    message = {"properties": {}, "routing_key": "q", "payload": "m", "payload_encoding": "string"}
    api.post("exchanges", place, "amq.default", "publish", status=200, body=message)
    api.post("bindings", place, "e", "e", "q", "q", status=201, body={})
    answer = api.ask("DELETE", "queues", place, "q", **{"if-empty": "true"})
    compare("queue that is not empty", answer, place)
    answer = api.ask("DELETE", "exchanges", place, "e", **{"if-unused": "true"})
    compare("exchange that is in use", answer, place)


def test_the_reasons_of_lists(api: Api, place: str) -> None:
    answer = api.ask("GET", "queues", place, page="3", page_size="10")
    compare("page out of range", answer, place)
    answer = api.ask("GET", "queues", place, page="0", page_size="10")
    compare("no such page", answer, place)


def test_the_reason_of_a_body_that_is_not_json(api: Api, place: str) -> None:
    answer = api.client.put(api.url("queues", place, "q"), content=b"{")
    compare("no JSON", answer, place)


def test_the_reasons_of_missing_rights(api: Api, place: str) -> None:
    answer = fetch(api.url("whoami"), auth=(place, "wrong"))
    compare("wrong password", answer, place)
    asked = {
        "user without a tag": ("", "whoami"),
        "not an administrator": ("management", "users"),
        "not a monitor": ("management", "nodes"),
        "not a policymaker": ("management", "parameters"),
    }
    for case, (tags, path) in asked.items():
        api.put(
            "users", place, password="secret", tags=tags, status=204 if case != "user without a tag" else 201
        )
        answer = fetch(api.url(path), auth=(place, "secret"))
        compare(case, answer, place)
    api.put("permissions", place, place, configure="^$", write="^$", read="^$")
    api_of_user = Api(api.base, place, "secret")
    answer = api_of_user.ask("PUT", "queues", place, "mine", body={})
    compare("configure a queue", answer, place)
    api_of_user.close()
    api.delete("users", place)


OTHERS: Final = {
    "queue that is not empty",
    "exchange that is in use",
    "page out of range",
    "no such page",
    "no JSON",
    "wrong password",
    "user without a tag",
    "not an administrator",
    "not a monitor",
    "not a policymaker",
    "configure a queue",
}
"""The cases that have a test of their own."""


def test_every_listed_text_has_its_case() -> None:
    assert set(GOLDEN) == OTHERS | set(REQUESTS)
