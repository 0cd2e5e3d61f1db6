"""Histories of bindings against the set of bindings that they should leave."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.publishing.publisher import ROUTED, UNROUTED
from broker.core.routing.bindings import SLICE
from broker.core.routing.graph import Binding
from broker.core.vhosts.vhost import VirtualHost
from tests.property.test_topic_trie import naive
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import add_exchange, add_queue, new_vhost, publish

QUEUES = ["p", "q", "r"]
KINDS = ["direct", "fanout", "headers", "topic"]
KEYS = ["", "a", "a.b", "*", "a.#"]
TABLES: list[dict[str, object]] = [
    {},
    {"x-match": "any", "h": 1, "g": 2},
    {"h": 1},
    {"h": 1, "g": 2},
    {"h": True},
]
HEADERS: list[dict[str, object]] = [{}, {"h": 1}, {"g": 2}, {"h": 1, "g": 2}, {"h": True}]

Step = tuple[str, str, str, str, int]
steps = st.tuples(
    st.sampled_from(["bind", "bind", "unbind", "delete"]),
    st.sampled_from(QUEUES),
    st.sampled_from(KINDS),
    st.sampled_from(KEYS),
    st.integers(0, len(TABLES) - 1),
)


@dataclass
class Model:
    """The bindings, as a set."""

    bound: set[tuple[str, str, str, int]] = field(default_factory=set)

    def take(self, step: Step) -> None:
        """Apply a single step."""
        what, queue, kind, key, table = step
        if what == "bind":
            self.bound.add((queue, kind, key, table))
        elif what == "unbind":
            self.bound.discard((queue, kind, key, table))
        else:
            self.bound = {one for one in self.bound if one[0] != queue}

    def takers(self, kind: str, key: str, headers: dict[str, object]) -> set[str]:
        """The queues that get a message, each once."""
        return {
            queue
            for queue, source, pattern, table in self.bound
            if source == kind and matches(kind, pattern, TABLES[table], key, headers)
        }


def matches(kind: str, pattern: str, table: dict[str, object], key: str, headers: dict[str, object]) -> bool:
    """Whether a binding matches, by the words of the specification."""
    if kind == "direct":
        return pattern == key
    if kind == "topic":
        return naive(pattern.split(".") if pattern else [], key.split(".") if key else [])
    if kind == "headers":
        wanted = {name: value for name, value in table.items() if name != "x-match"}
        same = [
            name in headers and headers[name] == value and type(headers[name]) is type(value)
            for name, value in wanted.items()
        ]
        return any(same) if table.get("x-match") == "any" else all(same)
    return True


def follow(vhost: VirtualHost, step: Step) -> None:
    """Do a single step."""
    what, queue, kind, key, table = step
    if what == "bind":
        add_queue(vhost, queue)
        vhost.declarations.bind_queue(queue, kind, key, dict(TABLES[table]))
    elif what == "unbind":
        vhost.declarations.unbind_queue(queue, kind, key, dict(TABLES[table]))
    else:
        vhost.declarations.delete_queue(queue, if_unused=False, if_empty=False)


def occupy(vhost: VirtualHost) -> None:
    """Leave so many bindings to unlink that later deletions wait for a while."""
    queue = add_queue(vhost, "gone")
    for number in range(int(SLICE) + 1):
        vhost.topology.add_binding(Binding(vhost.topology.exchanges["amq.fanout"], queue, str(number), {}))
    vhost.declarations.delete_queue("gone", if_unused=False, if_empty=False)


@settings(deadline=None)
@given(st.lists(steps, max_size=25), st.booleans())
def test_bound_queues_get_the_messages(history: list[Step], occupied: bool) -> None:
    clock = HandClock()
    vhost = new_vhost(clock=clock)
    if occupied:
        occupy(vhost)
    for kind in KINDS:
        add_exchange(vhost, kind, kind)
    model = Model()
    for step in history:
        follow(vhost, step)
        model.take(step)
    assert vhost.topology.bindings.has_deleted() == occupied
    check(vhost, model)
    clock.advance(0)
    assert not vhost.topology.bindings.has_deleted()
    check(vhost, model)


def check(vhost: VirtualHost, model: Model) -> None:
    """Messages must go where the model says, and the lists have no other bindings."""
    for kind in KINDS:
        for key in KEYS:
            for headers in HEADERS:
                takers = model.takers(kind, key, headers)
                before = {name: queue.ready for name, queue in vhost.topology.queues.items()}
                assert publish(vhost, kind, key, headers=headers) is (ROUTED if takers else UNROUTED)
                got = {name for name, queue in vhost.topology.queues.items() if queue.ready > before[name]}
                assert got == takers
    counted = sum(len(vhost.topology.bindings_to(queue)) for queue in vhost.topology.queues.values())
    assert (
        counted
        == len(model.bound)
        == sum(len(list(vhost.declarations.find_exchange(kind).bindings())) for kind in KINDS)
    )


@settings(deadline=None)
@given(st.lists(steps, max_size=15))
def test_no_binding_is_left_after_all_unbinds_and_deletes(history: list[Step]) -> None:
    vhost = new_vhost()
    for kind in KINDS:
        add_exchange(vhost, kind, kind, auto_delete=True)
    bound: set[str] = set()
    for step in history:
        if step[0] == "bind" and step[2] in vhost.topology.exchanges:
            follow(vhost, step)
            bound.add(step[2])
    for queue in QUEUES:
        vhost.declarations.delete_queue(queue, if_unused=False, if_empty=False)
    assert bound.isdisjoint(vhost.topology.exchanges), "auto-delete exchanges go with their last binding"
    assert all(exchange.outgoing == {} for exchange in vhost.topology.exchanges.values())
