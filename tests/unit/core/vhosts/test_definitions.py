"""Durable changes of the topology: the log of changes, recovery, and descriptions taken in steps."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from broker.core.broker import Broker
from broker.core.errors import NotAllowed, NotFound, PreconditionFailed, StoreFailed
from broker.core.message import Message
from broker.core.publishing.publisher import ROUTED
from broker.core.vhosts.definitions import restore_message
from tests.support.core.definition_histories import (
    NAMES,
    SOURCES,
    VHOSTS,
    ChangeStore,
    Step,
    applied,
    durable_changes,
    new_world,
)
from tests.support.core.topology import (
    RecordingStore,
    add_exchange,
    add_queue,
    definitions_of,
    new_broker,
    publish,
    rebuilt,
    routed,
)
from tests.support.effort import THOROUGH


def test_virtual_hosts() -> None:
    store = RecordingStore()
    broker = new_broker(store)
    assert broker.vhosts == {}
    vhost = broker.declare_vhost("/")
    assert broker.declare_vhost("/") is vhost
    assert broker.vhost("/") is vhost
    with pytest.raises(NotAllowed) as absent:
        broker.vhost("nope")
    assert absent.value.text == "vhost nope not found"
    with pytest.raises(PreconditionFailed, match="a vhost needs a name"):
        broker.declare_vhost("")
    with pytest.raises(PreconditionFailed, match="vhost name is 256 bytes long"):
        broker.declare_vhost("v" * 256)
    assert store.changes == [{"kind": "vhost", "name": "/"}]


def test_virtual_hosts_are_apart_but_number_their_queues_together() -> None:
    broker = new_broker()
    one = broker.declare_vhost("one")
    two = broker.declare_vhost("two")
    first = add_queue(one, "q", durable=True)
    second = add_queue(two, "q", durable=True)
    assert (first.number, second.number, broker.next_number) == (1, 2, 3)
    assert broker.queue_numbered(1) is first
    assert broker.queue_numbered(2) is second
    assert broker.queue_numbered(3) is None
    publish(one, "", "q")
    assert (first.ready, second.ready) == (1, 0)
    assert second.vhost == "two"


def test_deleting_a_virtual_host_deletes_its_objects() -> None:
    store = RecordingStore()
    broker = new_broker(store)
    vhost = broker.declare_vhost("v")
    owner = object()
    queue = add_queue(vhost, "q", durable=True)
    vhost.declarations.declare_queue("e", False, owner, False, {})
    add_exchange(vhost, "x", "fanout", durable=True)
    vhost.declarations.bind_exchange("amq.fanout", "x", "", {})
    vhost.declarations.bind_queue("q", "x", "", {})
    route = vhost.publisher.route("x", "")
    broker.delete_vhost("v")
    assert store.changes[-1] == {"kind": "vhost.delete", "name": "v"}
    assert queue.deleted
    assert broker.queue_numbered(1) is None
    with pytest.raises(NotFound):
        vhost.publisher.publish(route, Message(route.address, b"", 0, False, 0))
    vhost.declarations.delete_exclusive_queues(owner)
    with pytest.raises(NotFound, match="no vhost 'v'"):
        broker.delete_vhost("v")
    assert definitions_of(rebuilt(store.changes)) == definitions_of(broker)


def test_after_a_store_failure_virtual_hosts_cannot_be_changed() -> None:
    store = RecordingStore()
    broker = new_broker(store)
    broker.declare_vhost("v")
    store.failure = "disk full"
    with pytest.raises(StoreFailed, match="disk full"):
        broker.declare_vhost("w")
    with pytest.raises(StoreFailed, match="disk full"):
        broker.delete_vhost("v")
    assert set(broker.vhosts) == {"v"}


def full_broker() -> Broker:
    """A broker with something of everything."""
    broker = new_broker()
    vhost = broker.declare_vhost("/")
    broker.declare_vhost("empty")
    arguments: dict[str, object] = {
        "x-max-priority": 3,
        "bytes": b"\xff",
        "when": datetime(2026, 1, 1, tzinfo=UTC),
        "price": Decimal("1.10"),
        "nested": {"list": [1, None, 1.5, True]},
    }
    vhost.declarations.declare_queue("d", True, None, True, arguments)
    add_queue(vhost, "deleted", durable=True)
    add_queue(vhost, "t")
    vhost.declarations.declare_queue("e", True, object(), False, {})
    vhost.declarations.declare_exchange("x", "topic", True, True, True, {"alternate-exchange": "amq.fanout"})
    add_exchange(vhost, "y", "headers")
    vhost.declarations.bind_queue("d", "x", "a.#", {"n": b"1"})
    vhost.declarations.bind_queue("t", "x", "a.#", {})
    vhost.declarations.bind_queue("d", "y", "", {})
    vhost.declarations.bind_exchange("x", "amq.headers", "", {"x-match": "any", "k": None})
    vhost.declarations.bind_exchange("x", "x", "", {})
    vhost.declarations.delete_queue("deleted", if_unused=False, if_empty=False)
    return broker


def test_definitions_restore_all_durable_objects() -> None:
    broker = full_broker()
    definitions = definitions_of(broker)
    again = rebuilt(definitions)
    assert definitions_of(again) == definitions
    assert again.next_number == broker.next_number == 3
    vhost = again.vhost("/")
    queue = vhost.declarations.find_queue("d")
    original = broker.vhost("/").declarations.find_queue("d")
    assert queue.arguments == original.arguments
    assert list(map(type, queue.arguments.values())) == list(map(type, original.arguments.values()))
    assert (queue.number, queue.logged, queue.durable, queue.auto_delete) == (1, True, True, True)
    assert again.queue_numbered(1) is queue
    assert set(vhost.topology.queues) == {"d"}
    assert "y" not in vhost.topology.exchanges
    exchange = vhost.declarations.find_exchange("x")
    assert (exchange.durable, exchange.auto_delete, exchange.internal) == (True, True, True)
    assert exchange.alternate == "amq.fanout"
    assert vhost.publisher.route("amq.headers", "").by_message
    assert publish(vhost, "amq.headers", "a.b", headers={"k": 1}) is ROUTED


def test_definitions_may_come_twice() -> None:
    definitions = definitions_of(full_broker())
    assert definitions_of(rebuilt(definitions + definitions)) == definitions


def test_a_repeated_queue_keeps_its_messages() -> None:
    broker = rebuilt(definitions_of(full_broker()))
    queue = broker.vhost("/").declarations.find_queue("d")
    route = broker.vhost("/").publisher.route("", "d")
    restore_message(queue, Message(route.address, b"", 0, True, 0), True)
    for change in definitions_of(broker):
        broker.apply(change)
    assert broker.vhost("/").declarations.find_queue("d") is queue
    assert queue.ready == 1


def test_a_repeated_exchange_keeps_its_bindings() -> None:
    definitions = definitions_of(full_broker())
    broker = rebuilt(definitions)
    for change in definitions:
        if change["kind"] == "exchange":
            broker.apply(change)
    assert definitions_of(broker) == definitions


def test_a_later_change_of_the_same_object_wins() -> None:
    queue: dict[str, object] = {"kind": "queue", "vhost": "/", "name": "q", "auto_delete": False}
    exchange: dict[str, object] = {
        "kind": "exchange",
        "vhost": "/",
        "name": "x",
        "type": "direct",
        "auto_delete": False,
        "internal": False,
        "arguments": {},
    }
    broker = rebuilt(
        [
            {"kind": "vhost", "name": "/"},
            queue | {"number": 1, "arguments": {}},
            queue | {"number": 1, "auto_delete": True, "arguments": {"a": 1}},
            exchange,
            exchange | {"type": "fanout"},
        ]
    )
    vhost = broker.vhost("/")
    assert (vhost.declarations.find_queue("q").auto_delete, vhost.declarations.find_queue("q").arguments) == (
        True,
        {"a": 1},
    )
    assert vhost.declarations.find_exchange("x").kind == "fanout"
    first = vhost.declarations.find_queue("q")
    broker.apply(queue | {"number": 5, "arguments": {}})
    assert first.deleted
    assert broker.queue_numbered(1) is None
    assert broker.queue_numbered(5) is vhost.declarations.find_queue("q")
    assert broker.next_number == 6


def test_a_delete_of_an_older_queue_does_not_touch_the_newer_one() -> None:
    broker = new_broker()
    vhost = broker.declare_vhost("/")
    add_queue(vhost, "q", durable=True)
    vhost.declarations.delete_queue("q", if_unused=False, if_empty=False)
    queue = add_queue(vhost, "q", durable=True)
    broker.apply({"kind": "queue.delete", "vhost": "/", "name": "q", "number": 1})
    assert vhost.declarations.find_queue("q") is queue


def test_restoring_ignores_deletes_of_missing_objects_and_bindings_without_ends() -> None:
    ends: dict[str, object] = {
        "vhost": "/",
        "source": "x",
        "destination": "q",
        "destination_type": "queue",
        "routing_key": "",
        "arguments": {},
    }
    broker = rebuilt(
        [
            {"kind": "vhost", "name": "/"},
            {"kind": "vhost.delete", "name": "absent"},
            {"kind": "queue.delete", "vhost": "/", "name": "q", "number": 7},
            {"kind": "exchange.delete", "vhost": "/", "name": "x"},
            {"kind": "binding", **ends},
            {"kind": "binding.delete", **ends},
            {"kind": "binding", **ends, "source": "amq.direct"},
            {"kind": "binding.delete", **ends, "source": "amq.direct"},
        ]
    )
    assert definitions_of(broker) == [{"kind": "next_number", "number": 8}, {"kind": "vhost", "name": "/"}]


def test_numbers_are_not_given_again_after_a_restart() -> None:
    broker = new_broker()
    vhost = broker.declare_vhost("/")
    for _ in range(3):
        add_queue(vhost, "q", durable=True)
        vhost.declarations.delete_queue("q", if_unused=False, if_empty=False)
    again = rebuilt(definitions_of(broker))
    assert add_queue(again.vhost("/"), "q", durable=True).number == 4


def test_an_auto_delete_exchange_is_not_deleted_by_recovery() -> None:
    store = RecordingStore()
    broker = new_broker(store)
    vhost = broker.declare_vhost("/")
    add_exchange(vhost, "x", "fanout", durable=True, auto_delete=True)
    add_queue(vhost, "d", durable=True)
    add_queue(vhost, "t")
    vhost.declarations.bind_queue("d", "x", "", {})
    vhost.declarations.bind_queue("t", "x", "", {})
    vhost.declarations.unbind_queue("d", "x", "", {})
    assert "x" in rebuilt(store.changes).vhost("/").topology.exchanges, (
        "the binding of the transient queue held it"
    )
    vhost.declarations.unbind_queue("t", "x", "", {})
    assert "x" not in rebuilt(store.changes).vhost("/").topology.exchanges


def test_other_owners_may_keep_definitions_in_the_log() -> None:
    users: list[object] = []
    broker = new_broker()
    broker.appliers["user"] = lambda change: users.append(change["name"])
    broker.definers.append(lambda: [[{"kind": "user", "name": name}] for name in users])
    broker.apply({"kind": "user", "name": "guest"})
    broker.apply({"kind": "user.permission", "name": "other"})
    assert users == ["guest", "other"]
    assert definitions_of(broker)[1:] == [
        {"kind": "user", "name": "guest"},
        {"kind": "user", "name": "other"},
    ]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"kind": 1},
        {"kind": "nobody", "vhost": "/"},
        {"kind": "vhost"},
        {"kind": "next_number", "number": "1"},
        {"kind": "queue", "vhost": "/", "name": "q", "number": 0, "auto_delete": False, "arguments": {}},
        {"kind": "queue", "vhost": "/", "name": "q", "number": True, "auto_delete": False, "arguments": {}},
        {"kind": "queue", "vhost": "/", "name": "q", "number": 1, "auto_delete": 0, "arguments": {}},
        {"kind": "queue", "vhost": "/", "name": "q", "number": 1, "auto_delete": False},
    ],
)
def test_malformed_changes_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"definition|knows no queue|encoded table"):
        new_broker().apply(change)


def test_a_queue_without_its_virtual_host_brings_it_back() -> None:
    definitions = definitions_of(full_broker())
    broker = rebuilt([change for change in definitions if change["kind"] != "vhost"])
    assert routed(broker.vhost("/"), "", "d") == ["d"]


FULL: list[Step] = [
    *[("queue", name, queue, "", number) for name in VHOSTS for number, queue in enumerate(NAMES, 1)],
    *[
        ("exchange", name, exchange, "", number)
        for name in VHOSTS
        for number, exchange in enumerate(NAMES, 1)
    ],
    *[("bind", name, queue, source, 1) for name in VHOSTS for queue in NAMES[:2] for source in SOURCES[:2]],
    *[("bind", name, "p", "q", 2) for name in VHOSTS],
    *[("bind exchange", name, exchange, "q", 1) for name in VHOSTS for exchange in NAMES],
    *[("policy", name, policy, "", number) for name in VHOSTS for policy in NAMES[:2] for number in (1, 2)],
    *[("user", "", user, "", 1) for user in NAMES],
    *[("permit", name, user, "", 5) for name in VHOSTS for user in NAMES[:2]],
    *[("publish", "a", "r", "", 0), ("wait", "", "", "", 0), ("publish", "a", "r", "", 0)],
]
"""Makes something of everything."""

TURNS: list[tuple[Step, ...]] = [
    (("no queue", "a", "p", "", 0),),
    (("no queue", "a", "s", "", 0), ("queue", "a", "s", "", 1), ("bind", "a", "s", "p", 2)),
    (("rename", "a", "q", "t", 1), ("queue", "a", "q", "", 1), ("unbind", "a", "t", "p", 1)),
    (("rename", "a", "s", "t", 1), ("rename", "a", "p", "s", 1), ("rename", "a", "t", "p", 1)),
    (("no exchange", "a", "q", "", 0),),
    (("no exchange", "a", "s", "", 0), ("exchange", "a", "s", "", 2), ("bind", "a", "p", "s", 2)),
    (("unbind", "a", "p", "q", 1), ("unbind exchange", "b", "s", "q", 1)),
    (("unbind", "a", "p", "q", 2),),
    (("unbind", "a", "p", "q", 1), ("bind", "a", "p", "q", 1), ("bind", "a", "r", "amq.topic", 1)),
    (("no policy", "a", "q", "", 1), ("no policy", "b", "p", "", 2)),
    (("no policy", "a", "q", "", 1), ("policy", "a", "q", "", 3), ("policy", "a", "p", "", 4)),
    (("stop", "a", "q", "", 2), ("wait", "", "", "", 0), ("publish", "a", "r", "", 0)),
    (("no vhost", "a", "", "", 0),),
    (("no vhost", "b", "", "", 0),),
    (("vhost again", "a", "", "", 0), ("queue", "a", "p", "", 2), ("permit", "a", "p", "", 3)),
    (("limit", "b", "", "", 3), ("tell", "b", "t", "d", 0), ("parameter", "", "p", "", 1)),
    (("no user", "", "p", "", 0), ("forbid", "a", "q", "", 0)),
    (("no user", "", "q", "", 0), ("user", "", "q", "", 2), ("permit", "b", "q", "", 3)),
]
"""Steps between two described objects."""


@pytest.mark.parametrize("turn", TURNS)
def test_wherever_the_description_stands(turn: tuple[Step, ...]) -> None:
    stands = 0
    going = True
    stride = 1 if THOROUGH else 3  # the distance of tried positions of the description
    while going:
        store = ChangeStore()
        live = new_world(store)
        for step in FULL:
            live.follow(step)
        going = not store.take(live.broker, stands)
        if going:
            for step in turn:
                live.follow(step)
            while not store.take(live.broker, 1):
                pass
        assert durable_changes(applied(store.text).broker) == durable_changes(live.broker), stands
        stands += stride
    assert stands > 60
