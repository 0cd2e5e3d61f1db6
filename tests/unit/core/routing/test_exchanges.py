"""Declaring, finding and deleting exchanges."""

import pytest

from broker.core.errors import AccessRefused, NotFound, PreconditionFailed, StoreFailed
from tests.support.core.topology import RecordingStore, add_exchange, add_queue, new_vhost, routed


def test_predeclared_exchanges() -> None:
    vhost = new_vhost()
    kinds = {name: exchange.kind for name, exchange in vhost.topology.exchanges.items()}
    assert kinds == {
        "": "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.topic": "topic",
        "amq.headers": "headers",
        "amq.match": "headers",
    }
    assert all(exchange.durable for exchange in vhost.topology.exchanges.values())


def test_a_declared_exchange_is_found_and_has_its_properties() -> None:
    vhost = new_vhost()
    made = vhost.declarations.declare_exchange("x", "topic", True, False, True, {"alternate-exchange": "ae"})
    assert vhost.declarations.find_exchange("x") is made
    assert (made.kind, made.durable, made.auto_delete, made.internal) == ("topic", True, False, True)
    assert made.alternate == "ae"
    assert (
        vhost.declarations.declare_exchange("x", "topic", True, False, True, {"alternate-exchange": "ae"})
        is made
    )


def test_a_predeclared_exchange_may_be_declared_as_it_is() -> None:
    vhost = new_vhost()
    found = vhost.declarations.declare_exchange("amq.topic", "topic", True, False, False, {})
    assert found is vhost.declarations.find_exchange("amq.topic")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"kind": "fanout"},
            "'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'",
        ),
        (
            {"durable": True},
            "'durable' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            {"auto_delete": True},
            "'auto_delete' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            {"internal": True},
            "'internal' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            {"arguments": {"alternate-exchange": "ae"}},
            "'alternate-exchange' for exchange 'x' in vhost '/': received the value 'ae' of type 'longstr' "
            "but current is none",
        ),
    ],
)
def test_another_declaration_is_refused(changed: dict[str, object], text: str) -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", "direct")
    wanted = {"kind": "direct", "durable": False, "auto_delete": False, "internal": False, "arguments": {}}
    with pytest.raises(PreconditionFailed) as refusal:
        vhost.declarations.declare_exchange("x", **(wanted | changed))  # type: ignore[arg-type]
    assert refusal.value.text == f"inequivalent arg {text}"


def test_refused_names_and_kinds() -> None:
    vhost = new_vhost()
    with pytest.raises(PreconditionFailed) as unknown:
        add_exchange(vhost, "x", "zzz")
    assert unknown.value.text == "unknown exchange type 'zzz'"
    with pytest.raises(AccessRefused) as reserved:
        add_exchange(vhost, "amq.mine")
    assert reserved.value.text == "exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    with pytest.raises(AccessRefused) as default:
        add_exchange(vhost, "")
    assert default.value.text == "operation not permitted on the default exchange"
    with pytest.raises(PreconditionFailed, match="exchange name is 256 bytes long, at most 255"):
        add_exchange(vhost, "ü" * 128)
    add_exchange(vhost, "ü" * 127)
    assert set(vhost.topology.exchanges) == set(new_vhost().topology.exchanges) | {"ü" * 127}


def test_passive_declaration() -> None:
    vhost = new_vhost()
    with pytest.raises(NotFound) as absent:
        vhost.declarations.find_exchange("x")
    assert absent.value.text == "no exchange 'x' in vhost '/'"
    with pytest.raises(AccessRefused, match="operation not permitted on the default exchange"):
        vhost.declarations.find_exchange("")


def test_delete() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", "fanout")
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "x", "", {})
    with pytest.raises(PreconditionFailed) as used:
        vhost.declarations.delete_exchange("x", if_unused=True)
    assert used.value.text == "exchange 'x' in vhost '/' in use"
    vhost.declarations.delete_exchange("x", if_unused=False)
    vhost.declarations.delete_exchange("x", if_unused=False)
    assert vhost.topology.bindings_to(vhost.declarations.find_queue("q")) == []
    with pytest.raises(NotFound):
        vhost.publisher.route("x", "")


def test_an_exchange_that_is_only_a_destination_is_unused() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x")
    vhost.declarations.bind_exchange("x", "amq.fanout", "", {})
    vhost.declarations.delete_exchange("x", if_unused=True)
    assert vhost.declarations.find_exchange("amq.fanout").outgoing == {}


@pytest.mark.parametrize("name", ["amq.direct", "amq.rabbitmq.trace"])
def test_system_exchanges_stay(name: str) -> None:
    with pytest.raises(AccessRefused) as refusal:
        new_vhost().declarations.delete_exchange(name, if_unused=False)
    assert refusal.value.text == f"deletion of system exchange '{name}' in vhost '/' not allowed"


def test_the_default_exchange_stays() -> None:
    with pytest.raises(AccessRefused, match="operation not permitted on the default exchange"):
        new_vhost().declarations.delete_exchange("", if_unused=False)


def test_auto_delete_with_the_last_binding() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", auto_delete=True)
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "x", "a", {})
    vhost.declarations.bind_queue("q", "x", "b", {})
    vhost.declarations.unbind_queue("q", "x", "a", {})
    assert routed(vhost, "x", "b") == ["q"]
    vhost.declarations.unbind_queue("q", "x", "b", {})
    assert "x" not in vhost.topology.exchanges


def test_auto_delete_is_not_for_exchanges_that_never_had_a_binding() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "x", auto_delete=True)
    vhost.declarations.unbind_queue("q", "x", "a", {})
    assert vhost.declarations.find_exchange("x").auto_delete


def test_auto_delete_cascades_through_a_long_chain() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    length = 2000
    for index in range(length):
        add_exchange(vhost, f"x{index}", "fanout", durable=True, auto_delete=True)
        if index:
            vhost.declarations.bind_exchange(f"x{index}", f"x{index - 1}", "", {})
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", f"x{length - 1}", "", {})
    assert routed(vhost, "x0") == ["q"]
    vhost.declarations.delete_queue("q", if_unused=False, if_empty=False)
    assert set(vhost.topology.exchanges) == set(new_vhost().topology.exchanges)
    assert store.kinds().count("exchange.delete") == length


def test_auto_delete_ends_in_a_cycle() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "a", "fanout", auto_delete=True)
    add_exchange(vhost, "b", "fanout", auto_delete=True)
    vhost.declarations.bind_exchange("b", "a", "", {})
    vhost.declarations.bind_exchange("a", "b", "", {})
    vhost.declarations.bind_exchange("a", "a", "", {})
    vhost.declarations.delete_exchange("b", if_unused=False)
    assert vhost.declarations.find_exchange("a").outgoing, "the binding to itself is left"
    vhost.declarations.unbind_exchange("a", "a", "", {})
    assert "a" not in vhost.topology.exchanges


def test_durable_exchanges_are_appended_and_others_are_not() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    add_exchange(vhost, "t", durable=False)
    vhost.declarations.delete_exchange("t", if_unused=False)
    vhost.declarations.declare_exchange("d", "headers", True, False, True, {"alternate-exchange": "ae"})
    vhost.declarations.declare_exchange("d", "headers", True, False, True, {"alternate-exchange": "ae"})
    vhost.declarations.delete_exchange("d", if_unused=False)
    assert store.changes[1:] == [
        {
            "kind": "exchange",
            "vhost": "/",
            "name": "d",
            "type": "headers",
            "auto_delete": False,
            "internal": True,
            "arguments": {"alternate-exchange": "ae"},
        },
        {"kind": "exchange.delete", "vhost": "/", "name": "d"},
    ]


def test_without_a_log_nothing_durable_changes() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    add_exchange(vhost, "d", durable=True)
    store.failure = "disk full"
    with pytest.raises(StoreFailed, match="the log has stopped: disk full"):
        add_exchange(vhost, "e", durable=True)
    with pytest.raises(StoreFailed, match="disk full"):
        vhost.declarations.delete_exchange("d", if_unused=False)
    add_exchange(vhost, "t")
    assert {"d", "t"} == set(vhost.topology.exchanges) - set(new_vhost().topology.exchanges)
