"""Queues and exchanges through the node `/management`, and refused requests."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from broker.core.queues.purge import SLICE
from broker.core.remotes.remote import RemoteLink, RemoteQueue
from protocol.amqp10.types import Array, Map, Symbol, Timestamp, Uint, Ulong, Ushort
from protocol.amqp10.types import Decimal as Decimal10
from tests.support.adapters.management_client import ManagementClient, request
from tests.support.auth.broker_with_users import UserBench
from tests.support.core.topology import publish

SHOWN = {
    "message_count": 0,
    "consumer_count": 0,
    "name": "q",
    "vhost": "/",
    "durable": True,
    "auto_delete": False,
    "exclusive": False,
    "type": "classic",
    "arguments": {},
    "leader": "amqpd",
    "replicas": Array(0xA1, ["amqpd"]),
}
LOCKED = (
    "cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally declared on "
    "another connection or the exclusive property value does not match that of the original declaration."
)


@pytest.fixture
def client() -> ManagementClient:
    return ManagementClient()


# --- queues


def test_a_queue_is_made_once_and_shown_each_time(client: ManagementClient) -> None:
    assert client.ask("PUT", "/queues/q", {}) == (201, SHOWN)
    assert client.ask("PUT", "/queues/q", {}) == (200, SHOWN)
    assert client.ask("GET", "/queues/q") == (200, SHOWN)


def test_a_queue_has_its_current_message_and_consumer_counts(client: ManagementClient) -> None:
    client.ask("PUT", "/queues/q", {"durable": False})
    publish(client.vhost, "", "q")
    typed = client.send(request("GET", "/queues/q")).typed
    assert isinstance(typed, Map)
    shown = dict(typed.pairs)
    assert (shown["message_count"], type(shown["message_count"])) == (1, Ulong)
    assert (shown["consumer_count"], type(shown["consumer_count"])) == (0, Uint)


def test_a_queue_has_the_properties_that_it_is_declared_with(client: ManagementClient) -> None:
    body = {"exclusive": True, "auto_delete": True, "durable": True, "arguments": {"x-max-length": Ushort(5)}}
    status, shown = client.ask("PUT", "/queues/my%20queue%2F%F0%9F%99%88", body)
    assert isinstance(shown, dict)
    assert (status, shown["name"]) == (201, "my queue/\N{SEE-NO-EVIL MONKEY}")
    assert (shown["exclusive"], shown["auto_delete"], shown["durable"]) == (True, True, False)
    queue = client.vhost.topology.queues["my queue/\N{SEE-NO-EVIL MONKEY}"]
    assert queue.exclusive_owner is client.connection
    assert queue.arguments == {"x-max-length": 5}


def test_a_request_for_a_quorum_queue_is_answered_with_a_quorum_queue(client: ManagementClient) -> None:
    body = {"arguments": {"x-queue-type": "quorum"}}
    status, shown = client.ask("PUT", "/queues/q", body)
    assert (status, shown) == (201, SHOWN | {"type": "quorum", "arguments": {"x-queue-type": "quorum"}})


def test_the_virtual_host_says_which_type_a_queue_has_otherwise(client: ManagementClient) -> None:
    client.vhost.default_queue_type = "quorum"
    _, shown = client.ask("PUT", "/queues/q", {})
    assert shown == SHOWN | {"type": "quorum", "arguments": {"x-queue-type": "quorum"}}


def test_arguments_come_back_as_they_were_given(client: ManagementClient) -> None:
    given = {
        "text": "\N{LATIN SMALL LETTER E WITH ACUTE}",
        "word": Symbol("w"),
        "bytes": b"\0\xff",
        "flag": True,
        "nothing": None,
        "half": 0.5,
        "numbers": [1, -(2**63), 2**63 - 1],
        "words": Array(0xA3, [Symbol("a"), Symbol("b")]),
        "table": {"inner": {"when": Timestamp(1_700_000_000_123)}},
    }
    client.ask("PUT", "/queues/q", {"arguments": given})
    kept = client.vhost.topology.queues["q"].arguments
    assert kept["bytes"] == bytearray(b"\0\xff")
    assert kept["table"] == {"inner": {"when": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)}}
    _, shown = client.ask("GET", "/queues/q")
    assert isinstance(shown, dict)
    assert shown["arguments"] == given | {"words": ["a", "b"]}
    assert client.ask("PUT", "/queues/q", {"arguments": given})[0] == 200


def test_a_decimal_that_came_over_0_9_1_is_shown(client: ManagementClient) -> None:
    client.vhost.declarations.declare_queue("q", False, None, False, {"d": Decimal("1.25"), "raw": b"\xff"})
    _, shown = client.ask("GET", "/queues/q")
    assert isinstance(shown, dict)
    raw = ((6176 - 2) << 113 | 125).to_bytes(16, "big")
    assert shown["arguments"] == {"d": Decimal10(0x94, raw), "raw": b"\xff"}


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("q", None, 400, "the body is not a map of properties of the queue with each name once"),
        ("q", b"", 400, "the body is not a map of properties of the queue with each name once"),
        ("q", Map([("durable", True), ("durable", True)]), 400, "the body is not a map of properties"),
        ("q", {"unknown": "bla"}, 400, "bad queue property 'unknown', known are durable, exclusive, "),
        ("q", {1: "bla"}, 400, "bad queue property '1'"),
        ("q", {"durable": 1}, 400, "property 'durable' is not a boolean"),
        ("q", {"exclusive": None}, 400, "property 'exclusive' is not a boolean"),
        ("q", {"arguments": []}, 400, "property 'arguments' is not a map with each name once"),
        ("q", {"arguments": {5: 5}}, 400, "argument '5' has no name that is a string of at most 255 bytes"),
        ("q", {"arguments": {"n" * 256: 5}}, 400, "has no name that is a string of at most 255 bytes"),
        ("q", {"arguments": {"a": Ulong(2**63)}}, 400, "argument 'a' has a value that no argument can have"),
        ("q", {"arguments": {"a": [Decimal10(0x74, bytes(4))]}}, 400, "argument 'a' has a value that no"),
        ("q", {"arguments": {"a": Array(0x40, [], (), 3)}}, 400, "argument 'a' has a value that no"),
        ("q", {"arguments": {"x-max-length": -1}}, 400, "invalid arg 'x-max-length' for queue 'q' in vhost "),
        ("q", {"arguments": {"x-queue-type": "heap"}}, 400, "is not one of classic, quorum"),
        ("q", {"exclusive": True, "arguments": {"x-queue-type": "quorum"}}, 400, "invalid property"),
        ("", {}, 400, "declare queue with empty name not allowed"),
        ("%0Aq", {}, 400, "Bad name '\nq': line feed and carriage return characters not allowed"),
        ("%F0%28", {}, 400, "has quoted bytes that are not valid UTF-8"),
        ("%zz", {}, 400, "has a % without two hexadecimal digits after it"),
        ("amq.q", {}, 403, "queue name 'amq.q' contains reserved prefix 'amq.*'"),
        ("n" * 256, {}, 400, "queue name is 256 bytes long, at most 255 are allowed"),
    ],
)
def test_a_queue_is_refused(
    client: ManagementClient, path: str, body: object, status: int, text: str
) -> None:
    found, why = client.ask("PUT", f"/queues/{path}", body)
    assert isinstance(why, str)
    assert (found, text in why) == (status, True), (found, why)
    assert client.vhost.topology.queues == {}


def test_declaring_an_existing_queue_with_other_arguments_is_a_conflict(client: ManagementClient) -> None:
    client.ask("PUT", "/queues/q", {})
    where = "queue 'q' in vhost '/'"
    text = f"inequivalent arg 'auto_delete' for {where}: received 'true' but current is 'false'"
    assert client.ask("PUT", "/queues/q", {"auto_delete": True}) == (409, text)
    status, _ = client.ask("PUT", "/queues/q", {"arguments": {"x-max-length": 1}})
    assert status == 409


def test_no_queue_is_made_beyond_the_limit(client: ManagementClient) -> None:
    client.vhost.queues_max = 0
    text = "cannot declare queue 'q': queue limit in vhost '/' (0) is reached"
    assert client.ask("PUT", "/queues/q", {}) == (403, text)


def test_an_exclusive_queue_of_another_connection_may_only_be_read() -> None:
    bench = UserBench()
    assert ManagementClient(bench).ask("PUT", "/queues/q", {"exclusive": True})[0] == 201
    other = ManagementClient(bench)
    assert other.ask("GET", "/queues/q") == (200, SHOWN | {"exclusive": True, "durable": False})
    for method, path in (("PUT", "/queues/q"), ("DELETE", "/queues/q"), ("DELETE", "/queues/q/messages")):
        assert other.ask(method, path, {}) == (400, LOCKED)


def test_a_missing_queue_is_answered_with_404(client: ManagementClient) -> None:
    assert client.ask("GET", "/queues/q") == (404, "queue 'q' in vhost '/' not found")
    assert client.ask("DELETE", "/queues/q/messages") == (404, "no queue 'q' in vhost '/'")


def test_a_queue_is_deleted_with_what_is_in_it_and_once_more(client: ManagementClient) -> None:
    client.ask("PUT", "/queues/q", {})
    publish(client.vhost, "", "q")
    assert client.ask("DELETE", "/queues/q") == (200, {"message_count": 1})
    assert client.vhost.topology.queues == {}
    assert client.ask("DELETE", "/queues/q") == (200, {"message_count": 0})


def test_a_long_purge_is_answered_at_its_end_and_before_later_requests(
    client: ManagementClient,
) -> None:
    client.ask("PUT", "/queues/q", {"durable": False})
    for _ in range(SLICE + 1):
        publish(client.vhost, "", "q")
    client.management.handle_request(request("DELETE", "/queues/q/messages"))
    client.management.handle_request(request("GET", "/queues/q"))
    assert client.responses == []
    client.bench.clock.advance(1)
    purged, shown = client.responses
    client.responses[:] = [purged]
    assert client.take().both == (200, {"message_count": SLICE + 1})
    client.responses[:] = [shown]
    assert client.take().both == (200, SHOWN | {"durable": False})


# --- exchanges


def test_an_exchange_is_made_once_direct_and_durable(client: ManagementClient) -> None:
    assert client.ask("PUT", "/exchanges/x", {}) == (204, None)
    assert client.ask("PUT", "/exchanges/x", {}) == (204, None)
    exchange = client.vhost.topology.exchanges["x"]
    assert (exchange.kind, exchange.durable, exchange.auto_delete, exchange.internal) == (
        "direct",
        True,
        False,
        False,
    )


def test_an_exchange_has_the_properties_that_it_is_declared_with(client: ManagementClient) -> None:
    body = {"type": "topic", "durable": False, "auto_delete": True, "internal": True}
    assert client.ask("PUT", "/exchanges/x", body | {"arguments": {"alternate-exchange": "y"}}) == (204, None)
    exchange = client.vhost.topology.exchanges["x"]
    assert (exchange.kind, exchange.durable, exchange.auto_delete, exchange.internal) == (
        "topic",
        False,
        True,
        True,
    )
    assert exchange.arguments == {"alternate-exchange": "y"}


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("x", None, 400, "the body is not a map of properties of the exchange with each name once"),
        ("x", {"exclusive": True}, 400, "bad exchange property 'exclusive'"),
        ("x", {"type": 1}, 400, "property 'type' is not a string"),
        ("x", {"type": "odd"}, 400, "unknown exchange type 'odd'"),
        (
            "x",
            {"arguments": {"alternate-exchange": 1}},
            400,
            "invalid type 'signedint' for arg 'alternate-ex",
        ),
        ("", {}, 403, "operation not permitted on the default exchange"),
        ("amq.x", {}, 403, "exchange name 'amq.x' contains reserved prefix 'amq.*'"),
        ("a%0Db", {}, 400, "Bad name 'a\rb': line feed"),
    ],
)
def test_an_exchange_is_refused(
    client: ManagementClient, path: str, body: object, status: int, text: str
) -> None:
    before = list(client.vhost.topology.exchanges)
    found, why = client.ask("PUT", f"/exchanges/{path}", body)
    assert isinstance(why, str)
    assert (found, text in why) == (status, True), (found, why)
    assert list(client.vhost.topology.exchanges) == before


def test_declaring_an_existing_exchange_of_another_type_is_a_conflict(client: ManagementClient) -> None:
    client.ask("PUT", "/exchanges/x", {})
    where = "exchange 'x' in vhost '/'"
    text = f"inequivalent arg 'type' for {where}: received 'fanout' but current is 'direct'"
    assert client.ask("PUT", "/exchanges/x", {"type": "fanout"}) == (409, text)


def test_an_exchange_is_deleted_and_once_more(client: ManagementClient) -> None:
    client.ask("PUT", "/exchanges/x", {})
    assert client.ask("DELETE", "/exchanges/x") == (204, None)
    assert "x" not in client.vhost.topology.exchanges
    assert client.ask("DELETE", "/exchanges/x") == (204, None)


def test_exchanges_that_are_always_there_are_not_deleted(client: ManagementClient) -> None:
    assert client.ask("DELETE", "/exchanges/amq.direct") == (
        403,
        "deletion of system exchange 'amq.direct' in vhost '/' not allowed",
    )
    assert client.ask("DELETE", "/exchanges/") == (403, "operation not permitted on the default exchange")


def test_declaring_new_objects_is_refused_during_the_memory_alarm(client: ManagementClient) -> None:
    shortage = client.bench.server.shortage
    queue: dict[str, object] = {"durable": False}
    exchange: dict[str, object] = {"type": "direct", "durable": False}
    binding: dict[str, object] = {"source": "amq.direct", "destination_queue": "q", "binding_key": "k"}
    asked: list[tuple[str, str, dict[str, object]]] = [
        ("PUT", "/queues/q", queue),
        ("PUT", "/exchanges/x", exchange),
        ("POST", "/bindings", binding | {"arguments": {}}),
    ]
    shortage.set_shortages(memory=True, disk=False)
    refusal = (403, "nothing new can be declared while the broker is low on memory")
    assert [client.ask(*each) for each in asked[:2]] == [refusal, refusal]
    shortage.set_shortages(memory=False, disk=True)
    assert client.ask(*asked[0])[0] == 201
    shortage.set_shortages(memory=True, disk=False)
    assert client.ask(*asked[2]) == refusal
    shortage.set_shortages(memory=False, disk=False)
    assert [client.ask(*each)[0] for each in asked] == [200, 204, 204]
    shortage.set_shortages(memory=True, disk=False)
    assert [client.ask(*each)[0] for each in asked] == [200, 204, 204], "they are there already"


class HeldLink(RemoteLink):
    """A link whose other broker answers a purge when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_up = True

    def purge(self, done: Callable[[int, str], None]) -> None:
        self.answer = done


def test_a_purge_of_a_remote_queue_whose_link_breaks_is_refused(client: ManagementClient) -> None:
    client.ask("PUT", "/queues/q", {})
    queue = client.vhost.topology.queues["q"]
    remote = RemoteQueue(queue, client.vhost, "amqp://other/%2F/far", hybrid=True)
    link = HeldLink()
    queue.remote, remote.link = remote, link
    client.management.handle_request(request("DELETE", "/queues/q/messages"))
    assert client.responses == []
    link.answer(0, "the link broke")
    assert client.take().both == (400, "the link broke")
