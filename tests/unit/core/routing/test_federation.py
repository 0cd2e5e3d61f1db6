"""The exchange of federation links, the cut of cycles, and the watchers of bindings and of demand."""

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.queues.hooks import DemandWatcher
from broker.core.routing.federation import has_passed, may_forward
from broker.core.routing.graph import Binding, BindingWatcher
from broker.core.values import show
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.policies import set_policy
from tests.support.core.queue_bench import QueueBench
from tests.support.core.topology import add_exchange, add_queue, new_vhost

HERE = {"cluster-name": "here", "vhost": "/"}
THERE = {"cluster-name": "there", "vhost": "/"}


@pytest.mark.parametrize(
    ("received", "hops", "expected"),
    [
        (None, 1, True),
        ("text", 1, True),
        ([], 1, True),
        ([THERE], 1, False),
        ([THERE], 2, True),
        ([THERE, THERE], 2, False),
        ([HERE], 9, False),
        ([THERE, HERE], 9, False),
        ([HERE | {"vhost": "v"}], 9, True),
        (["text", 1], 9, True),
    ],
)
def test_a_message_passes_within_its_hops_and_never_returns(
    received: object, hops: int, expected: bool
) -> None:
    assert may_forward(received, hops, "here", "/") is expected


def test_entries_that_are_no_list_name_nobody() -> None:
    assert not has_passed(None, "here", "/")
    assert not has_passed(HERE, "here", "/")


@pytest.mark.parametrize("hops", [None, 0, -1, "2", True, 1.5])
def test_the_exchange_needs_a_number_of_hops(hops: object) -> None:
    arguments = {} if hops is None else {"x_max_hops": hops}
    with pytest.raises(PreconditionFailed) as refusal:
        add_exchange(new_vhost(), "x", "x-federation-upstream", **arguments)
    assert f"argument 'x-max-hops' of exchange 'x' is '{show(hops)}', expected an int" in refusal.value.text


class Recorder(BindingWatcher):
    """The calls of an exchange."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def on_bound(self, binding: Binding) -> None:
        self.calls.append(("bound", binding.routing_key))

    def on_unbound(self, binding: Binding) -> None:
        self.calls.append(("unbound", binding.routing_key))


def watched() -> tuple[VirtualHost, Recorder]:
    vhost = new_vhost()
    add_exchange(vhost, "x", "topic")
    add_queue(vhost, "q")
    recorder = Recorder()
    vhost.topology.exchanges["x"].watch_bindings(recorder)
    return vhost, recorder


def test_a_watcher_gets_each_binding_and_its_end() -> None:
    vhost, recorder = watched()
    vhost.declarations.bind_queue("q", "x", "a", {})
    vhost.declarations.bind_queue("q", "x", "a", {})
    vhost.declarations.bind_queue("q", "x", "b", {})
    vhost.declarations.unbind_queue("q", "x", "a", {})
    vhost.declarations.delete_queue("q", False, False)
    assert recorder.calls == [("bound", "a"), ("bound", "b"), ("unbound", "a"), ("unbound", "b")]


def test_a_watcher_that_was_forgotten_gets_nothing() -> None:
    vhost, recorder = watched()
    exchange = vhost.topology.exchanges["x"]
    exchange.stop_watching_bindings(recorder)
    exchange.stop_watching_bindings(recorder)
    vhost.declarations.bind_queue("q", "x", "a", {})
    assert recorder.calls == []
    assert exchange.watchers is None


class Counting(DemandWatcher):
    """The number of calls."""

    def __init__(self) -> None:
        self.calls = 0

    def on_demand_changed(self) -> None:
        self.calls += 1


def test_a_queue_has_demand_while_it_is_empty_and_a_consumer_waits() -> None:
    bench = QueueBench()
    watcher = Counting()
    bench.queue.watch_demand(watcher)
    assert not bench.queue.has_demand(0)
    client = bench.client(prefetch=2)
    bench.run()
    assert watcher.calls == 1
    assert bench.queue.has_demand(0)
    bench.publish(2)
    bench.run()
    assert not bench.queue.has_demand(0), "the consumer has no credit"
    client.ack(1)
    bench.run()
    assert bench.queue.has_demand(0)
    client.session.set_flow(False)
    assert not bench.queue.has_demand(0)
    calls = watcher.calls
    bench.queue.stop_watching_demand(watcher)
    client.session.set_flow(True)
    bench.publish()
    assert watcher.calls == calls
    assert bench.queue.manager.demand_watchers is None


def test_consumers_of_a_lower_priority_and_ready_messages_are_no_demand() -> None:
    bench = QueueBench()
    low = bench.client(priority=-1)
    bench.run()
    assert not bench.queue.has_demand(0)
    assert bench.queue.has_demand(-1)
    low.session.set_flow(False)
    bench.publish()
    bench.client(acquires=False)
    bench.run()
    assert not bench.queue.has_demand(-1), "a message is ready, and browsers want none"


def test_a_watcher_of_nodes_gets_what_is_new_changed_and_deleted() -> None:
    vhost = new_vhost()
    found: list[tuple[str, bool]] = []
    vhost.note_node = lambda node: found.append((node.name, node.deleted))
    add_exchange(vhost, "x", "topic")
    add_queue(vhost, "q")
    set_policy(vhost, "p", "x", federation_upstream="up")
    vhost.declarations.delete_queue("q", False, False)
    vhost.declarations.delete_exchange("x", False)
    assert found == [("x", False), ("q", False), ("x", False), ("q", True), ("x", True)]
