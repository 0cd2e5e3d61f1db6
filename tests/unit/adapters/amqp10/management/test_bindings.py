"""Bindings through the node `/management`, also many between the same two objects."""

import pytest

from broker.adapters.amqp10.management.objects import ARGUMENTS, SLICE
from tests.support.adapters.management_client import Desk, request
from tests.support.core.topology import routed

Shown = dict[object, object]


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    for name in ("q", "odd; name=\N{SEE-NO-EVIL MONKEY}/%"):
        desk.vhost.declare_queue(name, False, None, False, {})
    for name, kind in (("x", "direct"), ("y", "fanout"), ("h", "headers")):
        desk.vhost.declare_exchange(name, kind, False, False, False, {})
    return desk


def bound(desk: Desk, source: str) -> list[tuple[str, str, dict[str, object]]]:
    """Destination, key and arguments of every binding from an exchange."""
    bindings = desk.vhost.exchanges[source].bindings()
    return [(binding.destination_name, binding.routing_key, binding.arguments) for binding in bindings]


def listed(desk: Desk, query: str) -> list[Shown]:
    """The bindings that a query finds."""
    status, body = desk.ask("GET", f"/bindings?{query}")
    assert status == 200, body
    assert isinstance(body, list)
    return body


def test_a_queue_is_bound_once(desk: Desk) -> None:
    body = {"source": "x", "destination_queue": "q", "binding_key": "k", "arguments": {}}
    assert desk.ask("POST", "/bindings", body) == (204, None)
    assert desk.ask("POST", "/bindings", body) == (204, None)
    assert bound(desk, "x") == [("q", "k", {})]
    assert routed(desk.vhost, "x", "k") == ["q"]


def test_an_exchange_is_bound_without_a_key_if_none_is_given(desk: Desk) -> None:
    assert desk.ask("POST", "/bindings", {"source": "x", "destination_exchange": "y"}) == (204, None)
    assert bound(desk, "x") == [("y", "", {})]


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
def test_a_binding_is_refused(desk: Desk, body: object, status: int, text: str) -> None:
    found, why = desk.ask("POST", "/bindings", body)
    assert isinstance(why, str)
    assert (found, text in why) == (status, True), (found, why)
    assert bound(desk, "x") == []


def test_a_binding_without_arguments_is_removed_by_its_path(desk: Desk) -> None:
    desk.vhost.bind_queue("q", "x", "k 1", {})
    desk.vhost.bind_queue("q", "x", "k 1", {"n": 1})
    path = "/bindings/src=x;dstq=q;key=k%201;args="
    assert desk.ask("DELETE", path) == (204, None)
    assert bound(desk, "x") == [("q", "k 1", {"n": 1})]
    assert desk.ask("DELETE", path) == (204, None)
    assert desk.ask("DELETE", "/bindings/src=absent;dste=absent;key=;args=") == (204, None)


def test_a_path_that_names_a_queue_is_for_an_exchange_if_there_is_only_that(desk: Desk) -> None:
    desk.vhost.bind_exchange("y", "x", "k", {})
    assert desk.ask("DELETE", "/bindings/src=x;dstq=y;key=k;args=") == (204, None)
    assert bound(desk, "x") == []


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
def test_a_path_that_names_no_binding_is_refused(desk: Desk, segment: str) -> None:
    desk.vhost.bind_queue("q", "x", "k", {})
    assert desk.ask("DELETE", f"/bindings/{segment}") == (400, f"bad binding path segment '{segment}'")
    assert len(bound(desk, "x")) == 1


def test_the_default_exchange_has_no_bindings_that_could_be_removed(desk: Desk) -> None:
    text = "operation not permitted on the default exchange"
    assert desk.ask("DELETE", "/bindings/src=;dstq=q;key=q;args=") == (403, text)
    assert listed(desk, "src=&dstq=q&key=q") == []


def test_bindings_are_listed_by_both_ends_and_the_key(desk: Desk) -> None:
    desk.vhost.bind_queue("q", "h", "", {"x-match": "all", "n": 3})
    desk.vhost.bind_queue("q", "h", "k", {})
    desk.vhost.bind_exchange("y", "h", "", {})
    (found,) = listed(desk, "src=h&dstq=q&key=")
    location = found.pop("location")
    assert isinstance(location, str)
    assert location.startswith("/bindings/src=h;dstq=q;key=;args=")
    assert found == {
        "source": "h",
        "destination_queue": "q",
        "binding_key": "",
        "arguments": {"x-match": "all", "n": 3},
    }
    assert [shown["binding_key"] for shown in listed(desk, "src=h&dstq=q")] == ["", "k"]
    (to_exchange,) = listed(desk, "src=h&dste=y&key=")
    assert to_exchange["destination_exchange"] == "y"
    assert to_exchange["location"] == "/bindings/src=h;dste=y;key=;args="
    assert listed(desk, "src=absent&dstq=q&key=") == []
    assert listed(desk, "src=h&dstq=absent&key=") == []


def test_a_query_is_quoted_as_forms_are(desk: Desk) -> None:
    name = "odd; name=\N{SEE-NO-EVIL MONKEY}/%"
    desk.vhost.bind_queue(name, "h", "a+b c", {"n": 1})
    query = "src=h&dstq=odd%3B+name%3D%F0%9F%99%88%2F%25&key=a%2Bb+c"
    (found,) = listed(desk, query)
    assert found["destination_queue"] == name
    assert desk.ask("DELETE", str(found["location"])) == (204, None)
    assert listed(desk, query) == []


@pytest.mark.parametrize("query", ["", "src=x", "dstq=q&key=k", "src=x&dstq=q&dste=y&key=k"])
def test_a_query_without_two_ends_is_refused(desk: Desk, query: str) -> None:
    status, why = desk.ask("GET", f"/bindings?{query}")
    assert isinstance(why, str)
    assert (status, "needs src, one of dstq and dste" in why) == (400, True)


def test_the_location_removes_the_binding_with_these_arguments_and_no_other(desk: Desk) -> None:
    for number in (1, 2):
        desk.vhost.bind_queue("q", "h", "", {"n": number})
    (first, _) = listed(desk, "src=h&dstq=q&key=")
    assert desk.ask("DELETE", str(first["location"])) == (204, None)
    assert bound(desk, "h") == [("q", "", {"n": 2})]
    assert desk.ask("DELETE", str(first["location"])) == (204, None)
    assert len(bound(desk, "h")) == 1


def test_many_bindings_are_listed_and_searched_in_slices(desk: Desk) -> None:
    for number in range(2 * SLICE + 1):
        desk.vhost.bind_queue("q", "h", "", {"n": number})
    desk.management.handle_request(request("GET", "/bindings?src=h&dstq=q&key="))
    assert desk.said == []
    desk.house.clock.advance(1)
    shown = desk.take().body
    assert isinstance(shown, list)
    assert [binding["arguments"]["n"] for binding in shown] == list(range(2 * SLICE + 1))
    desk.management.handle_request(request("DELETE", shown[-1]["location"]))
    assert len(bound(desk, "h")) == 2 * SLICE + 1
    desk.house.clock.advance(1)
    assert [binding[2]["n"] for binding in bound(desk, "h")] == list(range(2 * SLICE))
    desk.house.store.complete()
    assert desk.take().both == (204, None)


def test_what_goes_away_while_it_is_searched_for_is_removed_all_the_same(desk: Desk) -> None:
    for number in range(SLICE + 1):
        desk.vhost.bind_queue("q", "h", "", {"n": number})
    desk.management.handle_request(request("DELETE", located(desk, SLICE)))
    desk.vhost.delete_queue("q", False, False)
    desk.house.clock.advance(1)
    desk.house.store.complete()
    assert desk.take().both == (204, None)


def located(desk: Desk, number: int) -> str:
    """Where the binding with that number is."""
    desk.management.handle_request(request("GET", "/bindings?src=h&dstq=q&key="))
    desk.house.clock.advance(1)
    shown = desk.take().body
    assert isinstance(shown, list)
    return str(shown[number]["location"])


def test_few_bindings_with_long_arguments_are_as_much_work_as_many(desk: Desk) -> None:
    for number in range(3):
        desk.vhost.bind_queue("q", "h", "", {"n": number, "a": "v" * (SLICE * ARGUMENTS // 2)})
    desk.management.handle_request(request("GET", "/bindings?src=h&dstq=q&key="))
    assert desk.said == []
    desk.house.clock.advance(1)
    shown = desk.take().body
    assert isinstance(shown, list)
    assert len(shown) == 3
