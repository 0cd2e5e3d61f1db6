"""Answers of the node `/management` to any message, and when they are sent."""

from collections.abc import Callable
from uuid import UUID

import pytest

from broker.adapters.amqp10.management.requests import REQUEST_BYTES_MAX, STATUSES
from broker.core import errors
from broker.core.schedule import PAYLOAD, REQUEST, Worker
from protocol.amqp10.descriptors import AMQP_SEQUENCE, DATA, PROPERTIES
from protocol.amqp10.encoding import encode, encode_described
from protocol.amqp10.types import Ulong
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.adapters.management_client import ManagementClient, Response, request, sections
from tests.support.auth.broker_with_users import user_bench
from tests.support.auth.open_login import OpenAccess

NULL = b"\x40"


@pytest.fixture
def client() -> ManagementClient:
    return ManagementClient()


def properties(*fields: object) -> bytes:
    """A section of properties."""
    return encode_described(PROPERTIES, encode(list(fields)))


# --- messages


@pytest.mark.parametrize(
    "message_id",
    [
        b"\x80" + bytes(7) + b"\x05",
        b"\x53\x05",
        b"\x44",
        b"\x98" + UUID(int=7).bytes,
        b"\xa0\x03\x01\x02\x03",
        b"\xb0\x00\x00\x00\x03\x01\x02\x03",
        b"\xa1\x03one",
        b"\xb1\x00\x00\x00\x03one",
        NULL,
    ],
    ids=["ulong", "small ulong", "ulong 0", "uuid", "binary", "long binary", "string", "long string", "none"],
)
def test_the_response_has_the_id_of_the_request_octet_for_octet(
    client: ManagementClient, message_id: bytes
) -> None:
    fields = message_id + NULL + encode("/queues/q") + encode("GET") + encode("$me")
    data = b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, 5)) + fields
    client.management.handle_request(data)
    (response,) = client.responses
    assert b"\xa1\x03404" + NULL + message_id + b"\x00\x53\x74" in response
    assert client.take().body == "queue 'q' in vhost '/' not found"


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 2)])
def test_sections_may_come_in_any_order(client: ManagementClient, order: tuple[int, ...]) -> None:
    parts = sections("PUT", "/queues/q", {"durable": False})
    response = client.send(b"".join(parts[index] for index in order))
    assert (response.status, response.correlation_id) == (201, encode(Ulong(1)))


def test_a_request_without_a_body_section_is_accepted(client: ManagementClient) -> None:
    assert client.send(properties("1", None, "/queues/q", "DELETE")).both == (200, {"message_count": 0})


def test_the_address_to_reply_to_may_be_missing(client: ManagementClient) -> None:
    data = properties("1", None, "/exchanges/x", "DELETE", None)
    assert client.send(data).status == 204


def test_a_body_of_data_is_its_bytes(client: ManagementClient) -> None:
    parts = properties("1", None, "/auth/tokens", "PUT", "$me"), encode_described(DATA, encode(b"t"))
    assert client.send(b"".join((*parts, parts[1]))).status == 501


def test_renewing_a_token_is_answered_with_501(client: ManagementClient) -> None:
    text = "this broker has no authentication by tokens"
    assert client.ask("PUT", "/auth/tokens", b"token") == (501, text)
    assert client.ask("PUT", "/auth/tokens", "token") == (400, "the body is not a binary, which a token is")


@pytest.mark.parametrize(
    ("data", "text", "correlation"),
    [
        (b"", "request without properties", NULL),
        (b"\x00", "section is truncated", NULL),
        (properties(Ulong(7)), "properties.to, the path, is missing", b"\x53\x07"),
        (properties("m", None, "/x"), "properties.subject, the method, is missing", b"\xa1\x01m"),
        (properties("m", None, 5), "properties.to: constructor 0x55 is not allowed here", b"\xa1\x01m"),
        (properties("m", None, "/x", "GET", "q"), "properties.reply-to is 'q', expected '$me'", None),
        (properties("m", None, "/x", "GET") * 2, "second section properties", None),
        (properties("m", None, "/x", "GET") + b"\x00\x53\x77", "amqp-value is truncated", None),
        (properties("m", None, "/x", "GET") + b"\x00\x53\x77\xa1\x01\xff", "UTF-8", None),
        (
            properties("m", None, "/x", "GET") + b"\x00\x53\x01\x40",
            "section with an unknown descriptor",
            None,
        ),
        (
            properties("m", None, "/x", "GET") + encode_described(AMQP_SEQUENCE, encode([1])),
            "the body is amqp-sequence, amqp-value is expected",
            None,
        ),
    ],
)
def test_a_malformed_request_is_told_why(
    client: ManagementClient, data: bytes, text: str, correlation: bytes | None
) -> None:
    response = client.send(data)
    assert isinstance(response.body, str)
    assert (response.status, text in response.body) == (400, True), response.body
    assert response.correlation_id == (correlation or b"\xa1\x01m")


def test_an_id_that_is_no_value_is_not_sent_back(client: ManagementClient) -> None:
    data = b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff"
    response = client.send(data)
    assert (response.status, response.correlation_id) == (400, NULL)


def large(path: str, size: int) -> bytes:
    """A declaration with an argument of this size."""
    return request("PUT", path, {"arguments": {"a": "v" * size}}, "m")


def test_a_request_that_would_take_long_to_decode_is_refused(client: ManagementClient) -> None:
    room = 60000 + REQUEST_BYTES_MAX - len(large("/queues/q", 60000))
    assert client.send(large("/queues/q", room)).status == 201
    response = client.send(large("/queues/r", room + 1))
    assert response.both == (413, "request of 32769 bytes, at most 32768 are taken")
    assert response.correlation_id == b"\xa1\x01m"


# --- paths


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "queues/q", 400, "path 'queues/q' does not begin with '/'"),
        ("GET", "", 400, "path '' does not begin with '/'"),
        ("GET", "/", 404, "there is no path '/'"),
        ("GET", "/queues", 404, "there is no path '/queues'"),
        ("GET", "/queues/q/messages/1", 404, "there is no path '/queues/q/messages/1'"),
        ("GET", "/bindings/q/messages", 404, "there is no path '/bindings/q/messages'"),
        ("GET", "/users/a", 404, "there is no path '/users/a'"),
        (
            "POST",
            "/queues/q",
            405,
            "method POST not allowed for '/queues/q', allowed: PUT, GET, DELETE",
        ),
        ("get", "/queues/q", 405, "method get not allowed for '/queues/q', allowed: PUT, GET, DELETE"),
        ("GET", "/exchanges/x", 405, "method GET not allowed for '/exchanges/x', allowed: PUT, DELETE"),
        ("PUT", "/bindings", 405, "method PUT not allowed for '/bindings', allowed: POST, GET"),
        ("GET", "/bindings?src=%", 400, "address '/bindings?src=%' has a % without two hexadecimal digits"),
    ],
)
def test_missing_objects_are_refused(
    client: ManagementClient, method: str, path: str, status: int, text: str
) -> None:
    found, why = client.ask(method, path)
    assert isinstance(why, str)
    assert (found, text in why) == (status, True), (found, why)


# --- rights

BINDING = {"source": "x", "destination_queue": "q", "binding_key": "k"}


@pytest.mark.parametrize(
    ("method", "path", "body", "what", "kind", "name"),
    [
        ("PUT", "/queues/new", {}, "configure", "queue", "new"),
        ("GET", "/queues/q", None, "configure", "queue", "q"),
        ("DELETE", "/queues/q", None, "configure", "queue", "q"),
        ("DELETE", "/queues/absent", None, "configure", "queue", "absent"),
        ("DELETE", "/queues/q/messages", None, "read", "queue", "q"),
        ("PUT", "/exchanges/new", {}, "configure", "exchange", "new"),
        ("DELETE", "/exchanges/x", None, "configure", "exchange", "x"),
        ("POST", "/bindings", BINDING, "write", "queue", "q"),
        ("DELETE", "/bindings/src=x;dstq=q;key=k;args=", None, "write", "queue", "q"),
        ("DELETE", "/bindings/src=x;dstq=q;key=k;args=abc", None, "write", "queue", "q"),
        ("GET", "/bindings?src=x&dstq=q&key=k", None, "configure", "exchange", "x"),
    ],
)
def test_a_user_without_permission_is_refused(
    method: str, path: str, body: object, what: str, kind: str, name: str
) -> None:
    bench = user_bench()
    bench.users.permit("ann", "/", "^none$", "^none$", "^none$")
    text = f"{what} access to {kind} '{name}' in vhost '/' refused for user 'ann'"
    assert ManagementClient(bench, "ann").ask(method, path, body) == (403, text)


# --- when the answer comes


def test_a_durable_change_is_answered_after_its_sync_and_before_later_requests(
    client: ManagementClient,
) -> None:
    client.management.handle_request(request("PUT", "/queues/q", {}, "first"))
    client.management.handle_request(request("GET", "/queues/q", None, "second"))
    client.management.handle_request(request("PUT", "/exchanges/x", {}, "third"))
    assert client.responses == []
    assert "x" not in client.vhost.topology.exchanges
    client.bench.store.complete()
    assert [Response(response).status for response in client.responses] == [201, 200]
    client.bench.store.complete()
    correlations = [Response(response).correlation_id for response in client.responses]
    assert correlations == [encode("first"), encode("second"), encode("third")]


def test_an_object_that_might_not_survive_is_not_confirmed(client: ManagementClient) -> None:
    client.management.handle_request(request("PUT", "/queues/q", {}))
    client.bench.store.fail("no space")
    assert client.take().both == (503, "the log has failed: no space")
    assert client.ask("PUT", "/queues/q2", {}) == (503, "the log has stopped: no space")


def test_no_response_is_sent_after_the_links_are_closed(client: ManagementClient) -> None:
    client.management.handle_request(request("PUT", "/queues/q", {}))
    client.management.handle_request(request("PUT", "/queues/q2", {}))
    client.management.close()
    client.bench.store.complete()
    assert client.responses == []
    assert list(client.vhost.topology.queues) == ["q"]


class Mistaken(OpenAccess):
    """An Access that fails."""

    def is_allowed(self, user: str, vhost: str, what: str, name: str) -> bool:
        raise RuntimeError("not as it should be")


def test_a_mistake_of_the_broker_is_an_answer_too() -> None:
    assert ManagementClient(BrokerBench(Mistaken())).ask("DELETE", "/queues/q") == (
        500,
        "internal error, see the broker's log",
    )


def test_a_request_made_during_a_response_is_answered_after_it(
    client: ManagementClient,
) -> None:
    again: list[Callable[[], None]] = [lambda: client.management.handle_request(request("GET", "/queues/b"))]
    texts: list[bytes] = []

    def say(data: bytes) -> None:
        texts.append(data)
        if again:
            again.pop()()

    client.management = type(client.management)(client.connection, client.vhost, say)
    client.management.handle_request(request("GET", "/queues/a"))
    assert [Response(data).body for data in texts] == [
        "queue 'a' in vhost '/' not found",
        "queue 'b' in vhost '/' not found",
    ]


class Meter(Worker):
    """Counts the turns that have cost too much."""

    def __init__(self) -> None:
        self.spent = 0

    def stop_turn(self) -> None:
        self.spent += 1


def test_requests_count_towards_what_a_connection_may_do_in_a_turn(client: ManagementClient) -> None:
    allowance = client.vhost.schedule.allowance
    meter = Meter()
    before = allowance.begin(meter)
    data = request("GET", "/queues/q")
    for _ in range(2000 // (REQUEST + len(data) // PAYLOAD)):
        client.send(data)
    assert meter.spent == 0
    client.send(data)
    assert meter.spent == 1
    allowance.end(before)


def test_every_refusal_of_the_core_has_a_status() -> None:
    refusals = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.BrokerError)
    }
    inside = {errors.BrokerError, errors.ExchangeReplaced}
    assert set(STATUSES) == refusals - inside
