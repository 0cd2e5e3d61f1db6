"""Every message to the node `/management` has a single response, and never an internal error."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.amqp10.types import Symbol, Uint
from tests.support.adapters.management_client import ManagementClient, Response, request

SOUND = (
    request("PUT", "/queues/q", {"exclusive": True, "arguments": {"x-max-length": Uint(5), "t": {"a": [1]}}}),
    request("PUT", "/exchanges/x", {"type": "topic", "arguments": {"alternate-exchange": Symbol("y")}}),
    request("POST", "/bindings", {"source": "x", "destination_queue": "q", "binding_key": "k"}),
    request("GET", "/bindings?src=x&dstq=q&key=k"),
    request("DELETE", "/bindings/src=x;dstq=q;key=k;args=abc"),
    request("DELETE", "/queues/q/messages"),
)
REFUSALS = (400, 403, 404, 405, 409, 501)

names = st.text(max_size=3) | st.sampled_from(["durable", "arguments", "type", "source", "destination_queue"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.binary(max_size=3)
    | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | st.integers(0, 9), inner, max_size=3),
    max_leaves=8,
)
parts = st.sampled_from(["queues", "exchanges", "bindings", "auth", "tokens", "messages", "q", "x", "%", ""])
paths = st.lists(parts, max_size=4).map("/".join).map("/".__add__) | st.text(max_size=6)


def one_response(client: ManagementClient, data: bytes) -> None:
    """Ask, and see that it is answered once, and not by an error of the broker's own."""
    client.management.handle_request(data)
    if not client.responses:
        client.bench.store.complete()
    response = client.take()
    assert response.status < 300 or response.status in REFUSALS, response.both


@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    one_response(ManagementClient(), data)


@given(st.lists(st.tuples(st.sampled_from(SOUND), st.integers(0, 200), st.integers(0, 255)), max_size=5))
def test_requests_with_one_octet_changed(changes: list[tuple[bytes, int, int]]) -> None:
    client = ManagementClient()
    for sound, place, octet in changes:
        place %= len(sound)
        one_response(client, sound[:place] + bytes((octet,)) + sound[place + 1 :])


@given(st.lists(st.tuples(st.sampled_from(["PUT", "GET", "POST", "DELETE", ""]), paths, values), max_size=6))
def test_any_methods_paths_and_bodies(requests: list[tuple[str, str, object]]) -> None:
    client = ManagementClient()
    for method, path, body in requests:
        one_response(client, request(method, path, body))


def test_the_requests_are_sound() -> None:
    client = ManagementClient()
    for sound in SOUND:
        client.management.handle_request(sound)
        client.bench.store.complete()
        assert Response(client.responses.pop()).status < 300
