"""Bindings through the node `/management`, also many between the same two objects."""

import pytest

from broker.adapters.amqp10.management.objects import ARGUMENTS, SLICE
from tests.support.adapters.management_client import ManagementClient, request
from tests.support.core.topology import routed

Shown = dict[object, object]


@pytest.fixture
def client() -> ManagementClient:
    client = ManagementClient()
    for name in ("q", "odd; name=\N{SEE-NO-EVIL MONKEY}/%"):
        client.vhost.declarations.declare_queue(name, False, None, False, {})
    for name, kind in (("x", "direct"), ("y", "fanout"), ("h", "headers")):
        client.vhost.declarations.declare_exchange(name, kind, False, False, False, {})
    return client


def bound(client: ManagementClient, source: str) -> list[tuple[str, str, dict[str, object]]]:
    """Destination, key and arguments of every binding from an exchange."""
    bindings = client.vhost.topology.exchanges[source].bindings()
    return [(binding.destination_name, binding.routing_key, binding.arguments) for binding in bindings]


def listed(client: ManagementClient, query: str) -> list[Shown]:
    """The bindings that a query finds."""
    status, body = client.ask("GET", f"/bindings?{query}")
    assert status == 200, body
    assert isinstance(body, list)
    return body


def test_a_queue_is_bound_once(client: ManagementClient) -> None:
    body = {"source": "x", "destination_queue": "q", "binding_key": "k", "arguments": {}}
    assert client.ask("POST", "/bindings", body) == (204, None)
    assert client.ask("POST", "/bindings", body) == (204, None)
    assert bound(client, "x") == [("q", "k", {})]
    assert routed(client.vhost, "x", "k") == ["q"]


def test_an_exchange_is_bound_without_a_key_if_none_is_given(client: ManagementClient) -> None:
    assert client.ask("POST", "/bindings", {"source": "x", "destination_exchange": "y"}) == (204, None)
    assert bound(client, "x") == [("y", "", {})]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (None, 400, "the body is not a map of properties of the binding with each name once"),
        ({}, 400, "property 'source' is missing"),
        ({"source": None}, 400, "property 'source' is not a string"),
        ({"source": "x"}, 400, "a binding needs either destination_queue or destination_exchange"),
        (
            {"source": "x", "destination_queue": "q", "destination_exchange": "y"},
            400,
            "a binding needs either destination_queue or destination_exchange",
        ),
        ({"source": "x", "destination_queue": 5}, 400, "property 'destination_queue' is not a string"),
        ({"source": "x", "destination_queue": "q", "binding_key": 5}, 400, "'binding_key' is not a string"),
        ({"source": "x", "queue": "q"}, 400, "bad binding property 'queue', known are source, "),
        ({"source": "x", "destination_queue": "absent"}, 400, "no queue 'absent' in vhost '/'"),
        ({"source": "absent", "destination_queue": "q"}, 400, "no exchange 'absent' in vhost '/'"),
        (
            {"source": "x", "destination_queue": "q", "binding_key": "k" * 256},
            400,
            "routing key is 256 bytes",
        ),
        ({"source": "", "destination_queue": "q"}, 403, "operation not permitted on the default exchange"),
        ({"source": "x", "destination_exchange": ""}, 403, "operation not permitted on the default exchange"),
    ],
)
def test_a_binding_is_refused(client: ManagementClient, body: object, status: int, text: str) -> None:
    found, why = client.ask("POST", "/bindings", body)
    assert isinstance(why, str)
    assert (found, text in why) == (status, True), (found, why)
    assert bound(client, "x") == []


def test_a_binding_without_arguments_is_removed_by_its_path(client: ManagementClient) -> None:
    client.vhost.declarations.bind_queue("q", "x", "k 1", {})
    client.vhost.declarations.bind_queue("q", "x", "k 1", {"n": 1})
    path = "/bindings/src=x;dstq=q;key=k%201;args="
    assert client.ask("DELETE", path) == (204, None)
    assert bound(client, "x") == [("q", "k 1", {"n": 1})]
    assert client.ask("DELETE", path) == (204, None)
    assert client.ask("DELETE", "/bindings/src=absent;dste=absent;key=;args=") == (204, None)


def test_a_path_that_names_a_queue_is_for_an_exchange_if_there_is_only_that(client: ManagementClient) -> None:
    client.vhost.declarations.bind_exchange("y", "x", "k", {})
    assert client.ask("DELETE", "/bindings/src=x;dstq=y;key=k;args=") == (204, None)
    assert bound(client, "x") == []


@pytest.mark.parametrize(
    "segment",
    [
        "",
        "src=x",
        "src=x;dstq=q;key=k",
        "src=x;dstq=q;key=k;args=;more=",
        "src=x;dst=q;key=k;args=",
        "dstq=q;src=x;key=k;args=",
    ],
)
def test_a_path_that_names_no_binding_is_refused(client: ManagementClient, segment: str) -> None:
    client.vhost.declarations.bind_queue("q", "x", "k", {})
    assert client.ask("DELETE", f"/bindings/{segment}") == (400, f"bad binding path segment '{segment}'")
    assert len(bound(client, "x")) == 1


def test_the_default_exchange_has_no_bindings_that_could_be_removed(client: ManagementClient) -> None:
    text = "operation not permitted on the default exchange"
    assert client.ask("DELETE", "/bindings/src=;dstq=q;key=q;args=") == (403, text)
    assert listed(client, "src=&dstq=q&key=q") == []


def test_bindings_are_listed_by_both_ends_and_the_key(client: ManagementClient) -> None:
    client.vhost.declarations.bind_queue("q", "h", "", {"x-match": "all", "n": 3})
    client.vhost.declarations.bind_queue("q", "h", "k", {})
    client.vhost.declarations.bind_exchange("y", "h", "", {})
    (found,) = listed(client, "src=h&dstq=q&key=")
    location = found.pop("location")
    assert isinstance(location, str)
    assert location.startswith("/bindings/src=h;dstq=q;key=;args=")
    assert found == {
        "source": "h",
        "destination_queue": "q",
        "binding_key": "",
        "arguments": {"x-match": "all", "n": 3},
    }
    assert [shown["binding_key"] for shown in listed(client, "src=h&dstq=q")] == ["", "k"]
    (to_exchange,) = listed(client, "src=h&dste=y&key=")
    assert to_exchange["destination_exchange"] == "y"
    assert to_exchange["location"] == "/bindings/src=h;dste=y;key=;args="
    assert listed(client, "src=absent&dstq=q&key=") == []
    assert listed(client, "src=h&dstq=absent&key=") == []


def test_a_query_is_quoted_as_forms_are(client: ManagementClient) -> None:
    name = "odd; name=\N{SEE-NO-EVIL MONKEY}/%"
    client.vhost.declarations.bind_queue(name, "h", "a+b c", {"n": 1})
    query = "src=h&dstq=odd%3B+name%3D%F0%9F%99%88%2F%25&key=a%2Bb+c"
    (found,) = listed(client, query)
    assert found["destination_queue"] == name
    assert client.ask("DELETE", str(found["location"])) == (204, None)
    assert listed(client, query) == []


@pytest.mark.parametrize("query", ["", "src=x", "dstq=q&key=k", "src=x&dstq=q&dste=y&key=k"])
def test_a_query_without_two_ends_is_refused(client: ManagementClient, query: str) -> None:
    status, why = client.ask("GET", f"/bindings?{query}")
    assert isinstance(why, str)
    assert (status, "needs src, one of dstq and dste" in why) == (400, True)


def test_the_location_removes_the_binding_with_these_arguments_and_no_other(client: ManagementClient) -> None:
    for number in (1, 2):
        client.vhost.declarations.bind_queue("q", "h", "", {"n": number})
    (first, _) = listed(client, "src=h&dstq=q&key=")
    assert client.ask("DELETE", str(first["location"])) == (204, None)
    assert bound(client, "h") == [("q", "", {"n": 2})]
    assert client.ask("DELETE", str(first["location"])) == (204, None)
    assert len(bound(client, "h")) == 1


def test_many_bindings_are_listed_and_searched_in_slices(client: ManagementClient) -> None:
    for number in range(2 * SLICE + 1):
        client.vhost.declarations.bind_queue("q", "h", "", {"n": number})
    client.management.handle_request(request("GET", "/bindings?src=h&dstq=q&key="))
    assert client.responses == []
    client.bench.clock.advance(1)
    shown = client.take().body
    assert isinstance(shown, list)
    assert [binding["arguments"]["n"] for binding in shown] == list(range(2 * SLICE + 1))
    client.management.handle_request(request("DELETE", shown[-1]["location"]))
    assert len(bound(client, "h")) == 2 * SLICE + 1
    client.bench.clock.advance(1)
    assert [binding[2]["n"] for binding in bound(client, "h")] == list(range(2 * SLICE))
    client.bench.store.complete()
    assert client.take().both == (204, None)


def test_a_binding_deleted_during_the_search_counts_as_removed(client: ManagementClient) -> None:
    for number in range(SLICE + 1):
        client.vhost.declarations.bind_queue("q", "h", "", {"n": number})
    client.management.handle_request(request("DELETE", located(client, SLICE)))
    client.vhost.declarations.delete_queue("q", False, False)
    client.bench.clock.advance(1)
    client.bench.store.complete()
    assert client.take().both == (204, None)


def located(client: ManagementClient, number: int) -> str:
    """Return the path of the binding with this number."""
    client.management.handle_request(request("GET", "/bindings?src=h&dstq=q&key="))
    client.bench.clock.advance(1)
    shown = client.take().body
    assert isinstance(shown, list)
    return str(shown[number]["location"])


def test_few_bindings_with_long_arguments_are_as_much_work_as_many(client: ManagementClient) -> None:
    for number in range(3):
        client.vhost.declarations.bind_queue("q", "h", "", {"n": number, "a": "v" * (SLICE * ARGUMENTS // 2)})
    client.management.handle_request(request("GET", "/bindings?src=h&dstq=q&key="))
    assert client.responses == []
    client.bench.clock.advance(1)
    shown = client.take().body
    assert isinstance(shown, list)
    assert len(shown) == 3
