"""Declaring, finding, purging and deleting queues, and when they go by themselves."""

from collections.abc import Callable

import pytest

from broker.core.entries.list import FifoEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.errors import (
    AccessRefused,
    Inequivalent,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    StoreFailed,
)
from broker.core.publishing.publisher import ROUTED
from broker.core.queues.attach import detach
from tests.support.core.topology import (
    RecordingStore,
    add_exchange,
    add_queue,
    consume,
    new_vhost,
    publish,
    routed,
)

LOCKED = (
    "cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally declared on "
    "another connection or the exclusive property value does not match that of the original declaration."
)


def test_a_declared_queue_is_found_and_has_its_properties() -> None:
    vhost = new_vhost()
    queue = vhost.declarations.declare_queue("q", True, None, True, {"x-max-length": 5, "note": "n"})
    assert vhost.declarations.find_queue("q") is queue
    assert vhost.declarations.declare_queue("q", True, None, True, {"x-max-length": 5}) is queue
    assert (queue.durable, queue.auto_delete, queue.logged, queue.number) == (True, True, True, 1)
    assert queue.arguments == {"x-max-length": 5, "note": "n"}
    assert routed(vhost, "", "q") == ["q"]


def test_the_entry_list_follows_the_priorities() -> None:
    vhost = new_vhost()
    assert isinstance(add_queue(vhost, "q").entries, FifoEntryList)
    entries = vhost.declarations.declare_queue("p", False, None, False, {"x-max-priority": 10}).entries
    assert isinstance(entries, PriorityEntryList)
    assert entries.ranks == 11


@pytest.mark.parametrize(
    ("durable", "auto_delete", "arguments", "text"),
    [
        (True, False, {}, "'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'"),
        (False, True, {}, "'auto_delete' for queue 'q' in vhost '/': received 'true' but current is 'false'"),
        (
            False,
            False,
            {"x-max-priority": 3},
            "'x-max-priority' for queue 'q' in vhost '/': received the value '3' of type 'signedint' "
            "but current is none",
        ),
    ],
)
def test_another_declaration_is_refused(
    durable: bool, auto_delete: bool, arguments: dict[str, object], text: str
) -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    with pytest.raises(Inequivalent) as refusal:
        vhost.declarations.declare_queue("q", durable, None, auto_delete, arguments)
    assert refusal.value.text == f"inequivalent arg {text}"


def test_refused_names_and_arguments() -> None:
    vhost = new_vhost()
    with pytest.raises(AccessRefused) as reserved:
        add_queue(vhost, "amq.foo")
    assert reserved.value.text == "queue name 'amq.foo' contains reserved prefix 'amq.*'"
    with pytest.raises(PreconditionFailed, match="queue name is 256 bytes long"):
        add_queue(vhost, "x" * 256)
    with pytest.raises(PreconditionFailed, match="invalid arg 'x-max-priority' for queue 'q' in vhost '/': "):
        vhost.declarations.declare_queue("q", False, None, False, {"x-max-priority": 999})
    assert vhost.topology.queues == {}


def test_generated_names_are_free() -> None:
    vhost = new_vhost()
    names = [vhost.declarations.declare_queue("", False, None, False, {}).name for _ in range(2)]
    assert names == ["amq.gen-1", "amq.gen-2"]
    other = new_vhost()
    other.topology.add_queue("amq.gen-1", False, None, False, {}, 0)
    assert other.declarations.declare_queue("", False, None, False, {}).name == "amq.gen-2"


def test_absent_queues() -> None:
    vhost = new_vhost()
    with pytest.raises(NotFound) as absent:
        vhost.declarations.find_queue("q")
    assert absent.value.text == "no queue 'q' in vhost '/'"
    with pytest.raises(NotFound):
        vhost.declarations.purge_queue("q")
    assert vhost.declarations.delete_queue("q", if_unused=True, if_empty=True) == 0


def test_an_exclusive_queue_is_locked_to_everybody_else() -> None:
    vhost = new_vhost()
    owner, other = object(), object()
    queue = vhost.declarations.declare_queue("q", True, owner, False, {})
    assert (queue.exclusive_owner, queue.durable, queue.logged, queue.number) == (owner, False, False, 0)
    assert vhost.declarations.declare_queue("q", True, owner, False, {}) is queue
    assert vhost.declarations.find_queue("q", owner) is queue
    refused: list[Callable[[], object]] = [
        lambda: vhost.declarations.find_queue("q", other),
        lambda: vhost.declarations.find_queue("q"),
        lambda: vhost.declarations.declare_queue("q", False, other, False, {}),
        lambda: vhost.declarations.declare_queue("q", False, None, False, {}),
        lambda: vhost.declarations.delete_queue("q", False, False, other),
        lambda: vhost.declarations.purge_queue("q", other),
        lambda: vhost.declarations.bind_queue("q", "amq.direct", "k", {}, other),
        lambda: vhost.declarations.unbind_queue("q", "amq.direct", "k", {}, other),
    ]
    for request in refused:
        with pytest.raises(ResourceLocked) as locked:
            request()
        assert locked.value.text == LOCKED
    assert publish(vhost, "", "q") is ROUTED, "publishing to it is for everybody"
    assert vhost.declarations.purge_queue("q", owner).dropped == 1
    assert vhost.declarations.delete_queue("q", False, False, owner) == 0
    assert vhost.topology.owned_by(owner) == []


def test_a_queue_cannot_become_exclusive() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    with pytest.raises(ResourceLocked) as locked:
        vhost.declarations.declare_queue("q", False, object(), False, {})
    assert locked.value.text == LOCKED


def test_exclusive_queues_go_with_their_owner() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    owner, other = object(), object()
    add_exchange(vhost, "x", "fanout", auto_delete=True)
    for name in ("a", "b"):
        vhost.declarations.declare_queue(name, False, owner, False, {})
        vhost.declarations.bind_queue(name, "x", "", {}, owner)
    vhost.declarations.declare_queue("c", False, other, False, {})
    vhost.declarations.delete_exclusive_queues(owner)
    vhost.declarations.delete_exclusive_queues(owner)
    assert set(vhost.topology.queues) == {"c"}
    assert "x" not in vhost.topology.exchanges, "its last binding went with the queues"
    assert store.kinds() == ["vhost"]


def test_delete_tells_its_consumers_and_counts_ready_messages() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    publish(vhost, "", "q", immediate=False)
    taker, _ = consume(queue)
    publish(vhost, "", "q")
    with pytest.raises(PreconditionFailed) as used:
        vhost.declarations.delete_queue("q", if_unused=True, if_empty=False)
    assert used.value.text == "queue 'q' in vhost '/' in use"
    with pytest.raises(PreconditionFailed) as filled:
        vhost.declarations.delete_queue("q", if_unused=False, if_empty=True)
    assert filled.value.text == "queue 'q' in vhost '/' not empty"
    assert vhost.declarations.delete_queue("q", if_unused=False, if_empty=False) == 2
    assert taker.cancelled == 1
    assert queue.deleted
    assert routed(vhost, "", "q") == []


def test_auto_delete_with_the_last_consumer() -> None:
    vhost = new_vhost()
    queue = vhost.declarations.declare_queue("q", False, None, True, {})
    first = consume(queue)[1]
    second = consume(queue)[1]
    detach(queue, first, [])
    vhost.declarations.delete_if_unused(queue)
    assert vhost.declarations.find_queue("q") is queue
    detach(queue, second, [])
    vhost.declarations.delete_if_unused(queue)
    assert vhost.topology.queues == {}
    vhost.declarations.delete_if_unused(queue)
    again = vhost.declarations.declare_queue("q", False, None, True, {})
    vhost.declarations.delete_if_unused(queue)
    assert vhost.declarations.find_queue("q") is again, (
        "a consumer of the old queue does not delete the new one"
    )


def test_a_queue_without_auto_delete_stays_without_consumers() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    detach(queue, consume(queue)[1], [])
    vhost.declarations.delete_if_unused(queue)
    assert vhost.declarations.find_queue("q") is queue


def test_durable_queues_are_appended_with_numbers_that_never_come_again() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    vhost.declarations.declare_queue("q", True, None, False, {"x-max-priority": 3})
    vhost.declarations.declare_queue("q", True, None, False, {"x-max-priority": 3})
    vhost.declarations.delete_queue("q", if_unused=False, if_empty=False)
    vhost.declarations.declare_queue("q", True, None, True, {})
    add_queue(vhost, "t")
    described = {"kind": "queue", "vhost": "/", "name": "q"}
    assert store.changes[1:] == [
        described | {"number": 1, "auto_delete": False, "arguments": {"x-max-priority": 3}},
        {"kind": "queue.delete", "vhost": "/", "name": "q", "number": 1},
        described | {"number": 2, "auto_delete": True, "arguments": {}},
    ]
    assert vhost.topology.numbers.queues == {2: vhost.declarations.find_queue("q")}


def test_deleting_forgets_logged_messages() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    add_queue(vhost, "q", durable=True)
    publish(vhost, "", "q", persistent=True)
    publish(vhost, "", "q", persistent=False)
    vhost.declarations.delete_queue("q", if_unused=False, if_empty=False)
    assert store.forgotten == [store.enqueued[0][0]]


def test_without_a_log_nothing_durable_changes_and_the_broker_serves_clients() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    queue = vhost.declarations.declare_queue("d", True, None, True, {})
    store.failure = "disk full"
    with pytest.raises(StoreFailed, match="the log has stopped: disk full"):
        add_queue(vhost, "e", durable=True)
    with pytest.raises(StoreFailed, match="disk full"):
        vhost.declarations.delete_queue("d", if_unused=False, if_empty=False)
    assert set(vhost.topology.queues) == {"d"}
    add_queue(vhost, "t")
    vhost.declarations.delete_queue("t", if_unused=False, if_empty=False)
    detach(queue, consume(queue)[1], [])
    vhost.declarations.delete_if_unused(queue)
    assert vhost.topology.queues == {}
