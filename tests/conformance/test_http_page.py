"""Requests of the management page: log-ins with a form, previews, and queues that need attention."""

import base64
from collections.abc import Iterator

import httpx
import pytest

from tests.support.admin.api import Api, amqp, fetch
from tests.support.daemon.daemon import PATIENCE_S, Address, Daemon

pytestmark = pytest.mark.amqpd_only("is amqpd's own page")

OF_PAGE = {"x-amqpd-page": "1"}


@pytest.fixture
def browser(daemon: Daemon) -> Iterator[httpx.Client]:
    """A client that keeps cookies, as a browser does."""
    with httpx.Client(base_url=daemon.admin, timeout=PATIENCE_S) as client:
        yield client


def log_in(browser: httpx.Client, user: str = "guest", password: str = "guest") -> httpx.Response:
    return browser.post("/api/login", json={"username": user, "password": password}, headers=OF_PAGE)


def test_a_session_stands_for_the_password_on_the_page_only(browser: httpx.Client) -> None:
    assert browser.get("/api/login", headers=OF_PAGE).json() == {"name": None, "tags": []}
    answer = log_in(browser)
    assert answer.json() == {"name": "guest", "tags": ["administrator"]}
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Secure" not in cookie, "the port has no TLS"
    assert browser.get("/api/whoami", headers=OF_PAGE).json()["name"] == "guest"
    assert browser.get("/api/login", headers=OF_PAGE).json()["name"] == "guest"
    assert browser.get("/api/login").json()["name"] is None
    assert browser.delete("/api/login").status_code == 400, "a program has no session to end"
    body = {"username": "guest", "password": "guest"}
    assert "x-amqpd-page" in browser.post("/api/login", json=body).json()["reason"]
    log_in(browser)
    with httpx.Client(base_url=browser.base_url, headers=OF_PAGE | {"cookie": cookie.split(";")[0]}) as old:
        assert old.get("/api/whoami").status_code == 401, "the next log-in has ended the session"
    assert browser.get("/api/whoami").status_code == 401, "the cookie alone counts for nothing"
    assert browser.put("/api/vhosts/v", headers={"origin": "https://other.example"}).status_code == 403
    assert browser.delete("/api/login", headers=OF_PAGE).status_code == 204
    assert browser.get("/api/whoami", headers=OF_PAGE).status_code == 401


def test_the_page_is_not_challenged_and_programs_are(browser: httpx.Client) -> None:
    refused = browser.get("/api/overview", headers=OF_PAGE)
    assert (refused.status_code, "www-authenticate" in refused.headers) == (401, False)
    challenged = browser.get("/api/overview")
    assert challenged.headers["www-authenticate"] == 'Basic realm="amqpd"'
    log_in(browser)
    basic = {"authorization": "Basic " + base64.b64encode(b"guest:wrong").decode()}
    assert browser.get("/api/overview", headers=OF_PAGE | basic).status_code == 401, "a password is checked"


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"username": "guest", "password": "wrong"}, 401, "Not_Authorized"),
        ({"username": "nobody", "password": "x"}, 401, "Not_Authorized"),
        ({"username": "guest"}, 400, "username and password"),
        ({"username": 1, "password": "x"}, 400, "username and password"),
    ],
)
def test_log_ins_that_are_refused(
    browser: httpx.Client, body: dict[str, object], status: int, reason: str
) -> None:
    answer = browser.post("/api/login", json=body, headers=OF_PAGE)
    assert (answer.status_code, reason in answer.json()["reason"]) == (status, True)
    assert "set-cookie" not in answer.headers


def test_a_user_without_a_tag_of_management_has_no_session(api: Api, browser: httpx.Client) -> None:
    api.put("users", "plain", password="secret", tags="")
    answer = log_in(browser, "plain", "secret")
    assert (answer.status_code, answer.json()["reason"]) == (401, "Not management user")
    assert "set-cookie" not in answer.headers
    api.put("users", "seeing", password="secret", tags="monitoring")
    assert log_in(browser, "seeing", "secret").status_code == 200
    assert browser.get("/api/overview", headers=OF_PAGE).status_code == 200
    assert browser.put("/api/vhosts/v", json={}, headers=OF_PAGE).status_code == 401
    api.put("users", "seeing", status=204, password="other", tags="monitoring")
    assert browser.get("/api/overview", headers=OF_PAGE).status_code == 401, "the password has changed"
    for name in ("plain", "seeing"):
        api.delete("users", name)


def test_browsers_get_the_page_and_programs_the_json_of_before(daemon: Daemon) -> None:
    page = fetch(daemon.admin + "/", headers={"accept": "text/html,*/*;q=0.8"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert fetch(daemon.admin + "/").json()["product"] == "amqpd"
    script = fetch(daemon.admin + "/page/app.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    again = fetch(daemon.admin + "/page/app.js", headers={"if-none-match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert fetch(daemon.admin + "/page/nothing.js").status_code == 404
    assert fetch(daemon.admin + "/page//etc/passwd").status_code == 404
    assert fetch(daemon.admin + "/page/..%2fpage.py").status_code == 404


def test_where_a_message_would_go(api: Api, vhost: str) -> None:
    for name in ("a", "b", "unbound"):
        api.put("queues", vhost, name)
    api.post("bindings", vhost, "e", "amq.topic", "q", "a", status=201, body={"routing_key": "x.*"})
    wanted = {"routing_key": "", "arguments": {"x-match": "all", "colour": "red"}}
    api.post("bindings", vhost, "e", "amq.headers", "q", "b", status=201, body=wanted)

    def queues(exchange: str, **body: object) -> list[str]:
        found = api.post("exchanges", vhost, exchange, "route", status=200, body=body)
        assert found["routed"] == bool(found["queues"])
        return [each["name"] for each in found["queues"]]

    assert queues("amq.default", routing_key="a") == ["a"]
    assert queues("amq.default", routing_key="nowhere") == []
    assert queues("amq.topic", routing_key="x.y") == ["a"]
    assert queues("amq.topic", routing_key="y") == []
    assert queues("amq.headers", routing_key="", properties={"headers": {"colour": "red"}}) == ["b"]
    assert queues("amq.headers", routing_key="", properties={"headers": {"colour": "blue"}}) == []
    copied = {"headers": {"CC": ["x.y"], "BCC": ["nowhere", "x.z"]}}
    assert queues("amq.topic", routing_key="y", properties=copied) == ["a"]
    assert queues("amq.default", routing_key="b", properties={"headers": {"CC": ["a"]}}) == ["b", "a"]
    later = {"routing_key": "a", "properties": {"headers": {"x-delay": 60_000}}}
    delayed = api.post("exchanges", vhost, "amq.default", "route", status=200, body=later)
    assert 59_000 < delayed["delay_ms"] <= 60_001  # dates are whole milliseconds
    assert [api.get("queues", vhost, name)["messages"] for name in ("a", "b")] == [0, 0]
    assert "nowhere" in api.refused(404, "POST", "exchanges", vhost, "nowhere", "route", body={})["reason"]
    wrong = {"routing_key": "", "properties": {"colour": 1}}
    assert (
        "colour" in api.refused(400, "POST", "exchanges", vhost, "amq.topic", "route", body=wrong)["reason"]
    )


def test_what_a_policy_would_match(api: Api, vhost: str) -> None:
    for name in ("orders.eu", "orders.us", "other"):
        api.put("queues", vhost, name)
    api.put("queues", vhost, "orders.log", durable=True, arguments={"x-queue-type": "stream"})
    api.put("exchanges", vhost, "orders", type="topic")
    found = api.get("policy-matches", vhost, pattern="^orders")
    assert (found["queue_count"], found["exchange_count"], found["exchanges"]) == (3, 1, ["orders"])
    found = api.get("policy-matches", vhost, **{"pattern": "^orders", "apply-to": "streams"})
    assert (found["queues"], found["exchange_count"]) == (["orders.log"], 0)
    refused = api.ask("GET", "policy-matches", vhost, pattern="(")
    assert (refused.status_code, "pattern '('" in refused.json()["reason"]) == (400, True)
    refused = api.ask("GET", "policy-matches", vhost, **{"pattern": "a", "apply-to": "bindings"})
    assert (refused.status_code, "'bindings'" in refused.json()["reason"]) == (400, True)


def test_queues_that_need_attention(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        for name in ("served", "unserved", "looked-at", "empty"):
            channel.queue_declare(name)
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("served", lambda *_: None)
        channel.basic_consume("looked-at", lambda *_: None, arguments={"x-browse": True})
        for name in ("served", "unserved", "looked-at"):
            for _ in range(3):
                channel.basic_publish("", name, b"")
        found = api.get("attention")
        ours = {each["name"]: each for each in found["queues"] if each["vhost"] == vhost}
        assert ours["unserved"]["reasons"][0] == "no consumers"
        assert (ours["unserved"]["messages"], ours["unserved"]["consumers"]) == (3, 0)
        assert ours["looked-at"]["reasons"][0] == "no consumers", "a browser takes no message"
        assert "empty" not in ours
        assert "no consumers" not in ours.get("served", {"reasons": []})["reasons"]
        assert found["count"] >= len(ours)


def test_a_consumer_has_its_state_in_the_pull_model(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("q", lambda *_: None, arguments={"x-priority": 3})
        (consumer,) = api.get("consumers", vhost)
        assert (consumer["state"], consumer["blocked_by"], consumer["priority"]) == ("interested", [], 3)
        channel.basic_publish("", "q", b"")
        channel.basic_publish("", "q", b"")
        (consumer,) = api.get("consumers", vhost)
        assert consumer["state"] == "not_interested"
        assert consumer["blocked_by"] == ["no credit, or the client does not read"]
        channel.basic_consume("q", lambda *_: None, arguments={"x-browse": True})
        states = {each["state"] for each in api.get("consumers", vhost)}
        assert states == {"not_interested", "browser"}


def test_queues_of_a_kind_are_listed(api: Api, vhost: str) -> None:
    api.put("queues", vhost, "plain")
    api.put("queues", vhost, "dead", arguments={"x-dead-letter-exchange": "amq.fanout"})
    api.put("queues", vhost, "later")
    api.put("queues", vhost, "log", durable=True, arguments={"x-queue-type": "stream"})
    properties = {"headers": {"x-delay": 600_000}}
    body = {"routing_key": "later", "payload": "", "payload_encoding": "string", "properties": properties}
    api.post("exchanges", vhost, "amq.default", "publish", status=200, body=body)

    def names(kind: str) -> list[str]:
        return [each["name"] for each in api.get("queues", vhost, having=kind, columns="name")]

    assert [names(kind) for kind in ("dead-letters", "delayed", "stream", "remote")] == [
        ["dead"],
        ["later"],
        ["log"],
        [],
    ]
    page = api.get("queues", vhost, having="stream", page="1")
    assert (page["total_count"], [each["name"] for each in page["items"]]) == (1, ["log"])
    refused = api.ask("GET", "queues", vhost, having="nothing")
    assert (refused.status_code, refused.json()["reason"]) == (
        400,
        "having 'nothing' is none of: dead-letters, delayed, remote, stream",
    )


def test_the_latest_lines_of_the_audit_log(api: Api, vhost: str, browser: httpx.Client) -> None:
    api.put("queues", vhost, "watched")
    api.put("users", "guessed", password="secret", tags="management")
    log_in(browser, "guessed", "wrong guess")
    api.delete("users", "guessed")
    lines = api.get("audit", count="50")
    assert [line["time"] for line in lines] == sorted((line["time"] for line in lines), reverse=True)
    made = next(line for line in lines if line.get("path", "").endswith("/watched"))
    assert (made["user"], made["method"], made["event"]) == ("guest", "PUT", "changed by an operator")
    refused = next(line for line in api.get("audit") if line["user"] == "guessed" and "reason" in line)
    assert (refused["mechanism"], refused["reason"]) == ("form", "wrong password")
    assert api.get("audit", contains="no line has this") == []
    assert "wrong guess" not in str(api.get("audit", count="2000"))


@pytest.mark.parametrize("reverse", ["true", "false"])
@pytest.mark.parametrize(
    "field", ["messages", "name", "consumers", "message_stats.publish", "head_message_age"]
)
def test_quick_fields_sort_as_the_shown_ones(api: Api, vhost: str, field: str, reverse: str) -> None:
    for number in range(12):
        api.put("queues", vhost, f"q{number}")
        for _ in range(number % 5):
            body = {
                "properties": {},
                "routing_key": f"q{number}",
                "payload": "",
                "payload_encoding": "string",
            }
            api.post("exchanges", vhost, "amq.default", "publish", status=200, body=body)
    listed = api.get("queues", vhost, page="1", sort=field, sort_reverse=reverse)["items"]

    def value(queue: dict[str, object]) -> object:
        found: object = queue
        for part in field.split("."):
            assert isinstance(found, dict)
            found = found[part]
        return found

    values = [value(queue) for queue in listed]
    assert values == sorted(values, reverse=reverse == "true")  # type: ignore[type-var]
    assert len(listed) == 12
