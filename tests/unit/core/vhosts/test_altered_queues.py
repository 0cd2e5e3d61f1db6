"""Queues that are altered while they are in use."""

import pytest

from broker.core.errors import AccessRefused, NotFound, PreconditionFailed, StoreFailed
from broker.core.policies.policy import parse_policy
from broker.core.publishing.publisher import REFUSED, ROUTED
from broker.core.queues.queue import Queue
from broker.core.vhosts.alteration import alter_queue, merge_arguments
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import (
    RecordingStore,
    add_exchange,
    add_queue,
    consume,
    new_broker,
    new_vhost,
    publish,
    pull,
    rebuilt,
    routed,
)


def alter(
    vhost: VirtualHost, queue: Queue, name: str = "", shared: bool = False, **arguments: object
) -> None:
    """Alter a queue; underscores mean dashes."""
    changes = {key.replace("_", "-"): value for key, value in arguments.items()}
    alter_queue(vhost.topology, queue, name or queue.name, merge_arguments(queue, changes), shared)


def test_arguments_hold_at_once_and_for_redeclarations() -> None:
    vhost = new_vhost()
    queue = vhost.declarations.declare_queue(
        "q", False, None, False, {"x-max-length": 5, "x-max-priority": 2}
    )
    for _ in range(4):
        publish(vhost, "", "q")
    alter(vhost, queue, x_max_length=2, x_overflow="reject-publish")
    assert queue.ready == 4  # existing messages stay: accepted messages are never dropped
    assert publish(vhost, "", "q") is REFUSED
    now = {"x-max-length": 2, "x-overflow": "reject-publish", "x-max-priority": 2}
    assert vhost.declarations.declare_queue("q", False, None, False, now) is queue
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-max-length'"):
        vhost.declarations.declare_queue("q", False, None, False, now | {"x-max-length": 5})
    alter(vhost, queue, x_overflow=None, x_max_length=None)
    assert queue.arguments == {"x-max-priority": 2}
    assert publish(vhost, "", "q") is ROUTED


def test_a_lower_limit_makes_room_and_a_time_to_live_counts_from_now_on() -> None:
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    queue = add_queue(vhost, "q")
    for _ in range(3):
        publish(vhost, "", "q")
    alter(vhost, queue, x_max_length=1, x_message_ttl=1000)
    clock.advance(1)
    assert queue.ready == 1
    publish(vhost, "", "q")
    clock.advance(1001)
    assert queue.ready == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"x-max-priority": 3}, "arg 'x-max-priority' of queue 'q' in vhost '/' cannot be altered"),
        ({"x-queue-type": None}, "arg 'x-queue-type' of queue 'q' in vhost '/' cannot be altered"),
        ({"x-max-length": -1}, "invalid arg 'x-max-length' for queue 'q' in vhost '/': '-1'"),
        ({"x-dead-letter-routing-key": "k"}, "needs x-dead-letter-exchange"),
        ({"x-priority-mapping": "amqp"}, "would be of the kind 'priority' and is of the kind 'standard'"),
    ],
)
def test_an_argument_that_cannot_be_altered_is_named(changes: dict[str, object], why: str) -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    with pytest.raises(PreconditionFailed, match=why):
        merge_arguments(queue, changes)
    assert queue.arguments == {}


def test_a_renamed_queue_keeps_its_messages() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "old")
    add_exchange(vhost, "x", "topic", auto_delete=True)
    vhost.declarations.bind_queue("old", "x", "a.*", {})
    publish(vhost, "", "old")
    taker, consumer = consume(queue)
    assert pull(consumer) == 1
    route = vhost.publisher.route("", "old")
    alter(vhost, queue, "new")
    assert (vhost.topology.queues["new"], queue.unacked, queue.consumer_count) == (queue, 1, 1)
    assert routed(vhost, "", "old") == []
    assert routed(vhost, "", "new") == ["new"]
    assert routed(vhost, "x", "a.b") == ["new"]
    assert [binding.destination_name for binding in vhost.topology.bindings_to(queue)] == ["new"]
    vhost.publisher.refresh(route)
    assert route.queues == []
    publish(vhost, "x", "a.c")
    assert pull(consumer) == 1
    queue.settle(taker.taken[0])
    assert queue.unacked == 1
    with pytest.raises(NotFound):
        vhost.declarations.find_queue("old")
    other = add_queue(vhost, "old")
    vhost.declarations.unbind_queue("new", "x", "a.*", {})
    assert "x" not in vhost.topology.exchanges  # the last binding is the renamed one
    assert vhost.declarations.delete_queue("new", False, False) == 0
    assert list(vhost.topology.queues.values()) == [other]


def test_the_bindings_of_a_renamed_queue_are_not_touched_however_many_there_are() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "old")
    for number in range(3000):
        vhost.declarations.bind_queue("old", "amq.topic", f"a.{number}", {})
    before = vhost.topology.bindings_to(queue)
    alter(vhost, queue, "new")
    after = vhost.topology.bindings_to(queue)
    assert len(after) == len(before) == 3000
    assert all(one is other for one, other in zip(after, before, strict=True))
    assert {binding.destination_name for binding in vhost.topology.exchanges["amq.topic"].bindings()} == {
        "new"
    }
    vhost.declarations.bind_queue("new", "amq.topic", "a.1", {})
    assert len(vhost.topology.bindings_to(queue)) == 3000, "it is there already"
    add_queue(vhost, "old")
    vhost.declarations.bind_queue("old", "amq.topic", "a.1", {})
    assert routed(vhost, "amq.topic", "a.1") == ["new", "old"]
    vhost.declarations.unbind_queue("old", "amq.topic", "a.1", {})
    assert routed(vhost, "amq.topic", "a.1") == ["new"]


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash", "x-delayed-message"])
def test_exchanges_that_hash_queue_names_use_the_new_name(kind: str) -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    delayed = {"x_delayed_type": "x-consistent-hash"} if kind == "x-delayed-message" else {}
    add_exchange(vhost, "x", kind, durable=True, **delayed)
    for name in ("a", "b", "c"):
        vhost.declarations.declare_queue(name, True, None, False, {})
        vhost.declarations.bind_queue(name, "x", "1", {})

    def owners(of: VirtualHost) -> list[str]:
        return [destination(of, str(key)) for key in range(200)]

    before = owners(vhost)
    alter(vhost, vhost.topology.queues["b"], "z")
    after = owners(vhost)
    assert after != ["z" if name == "b" else name for name in before]
    assert after == owners(rebuilt(store.changes).vhosts["/"])


def destination(vhost: VirtualHost, key: str) -> str:
    """Return the only queue that gets a message published to `x`."""
    assert publish(vhost, "x", key) is ROUTED
    (name,) = [name for name, queue in vhost.topology.queues.items() if queue.ready]
    vhost.declarations.purge_queue(name)
    return name


def test_names_that_are_taken_or_not_for_clients_are_refused() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    add_queue(vhost, "other")
    with pytest.raises(PreconditionFailed, match="queue 'q' cannot be called 'other'"):
        alter(vhost, queue, "other", x_max_length=1)
    with pytest.raises(AccessRefused, match="reserved prefix"):
        alter(vhost, queue, "amq.q")
    assert queue.arguments == {}
    assert set(vhost.topology.queues) == {"q", "other"}


def test_policies_match_the_new_name() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    for name, pattern, length in (("old", "^q$", 1), ("new", "^r$", 2)):
        vhost.policies.set(parse_policy("/", name, pattern, {"max-length": length}, 0, "queues", False))
    vhost.policies.apply_all()
    alter(vhost, queue, "r")
    assert queue.effective["x-max-length"] == 2
    for _ in range(3):
        publish(vhost, "", "r")
    assert queue.ready == 2


def test_rename_and_rebinding_are_one_log_record_and_survive_a_restart() -> None:
    store = RecordingStore()
    vhost = new_broker(store).declare_vhost("/")
    queue = add_queue(vhost, "old", durable=True)
    add_exchange(vhost, "x", "fanout", durable=True)
    vhost.declarations.bind_queue("old", "x", "", {})
    before = len(store.changes)
    alter(vhost, queue, "new", x_max_length=7)
    assert len(store.changes) == before + 1
    add_queue(vhost, "old", durable=True)
    vhost.declarations.bind_queue("old", "x", "", {})
    for again in (rebuilt(store.changes).vhosts["/"], rebuilt(store.changes + store.changes).vhosts["/"]):
        assert set(again.topology.queues) == {"old", "new"}
        assert again.topology.queues["new"].number == queue.number
        assert again.topology.queues["new"].arguments == {"x-max-length": 7}
        assert again.topology.queues["old"].arguments == {}
        assert routed(again, "x") == ["new", "old"]
    alter(vhost, vhost.topology.queues["old"], "older")
    alter(vhost, queue, "old")  # names go round
    again = rebuilt(store.changes).vhosts["/"]
    assert {name: int(each.number) for name, each in again.topology.queues.items()} == {
        name: int(each.number) for name, each in vhost.topology.queues.items()
    }
    assert routed(again, "x") == ["old", "older"]


def test_a_change_that_cannot_be_logged_is_not_made() -> None:
    store = RecordingStore()
    vhost = new_broker(store).declare_vhost("/")
    queue = add_queue(vhost, "q", durable=True)
    store.failure = "test"
    with pytest.raises(StoreFailed):
        alter(vhost, queue, "r", x_max_length=1)
    assert (queue.name, queue.arguments) == ("q", {})


def test_an_exclusive_queue_that_is_shared_outlives_its_connection() -> None:
    vhost = new_vhost()
    owner = object()
    for name in ("mine", "ours"):
        vhost.declarations.declare_queue(name, False, owner, False, {})
    alter(vhost, vhost.topology.queues["ours"], shared=True)
    assert vhost.declarations.find_queue("ours", object()) is vhost.topology.queues["ours"]
    vhost.declarations.delete_exclusive_queues(owner)
    assert set(vhost.topology.queues) == {"ours"}
