"""Random histories of a broker: the log's records make the same broker again."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.broker import Broker
from broker.core.errors import BrokerError
from tests.support.core.topology import RecordingStore, definitions_of, new_broker, rebuilt

VHOSTS = ["/", "other"]
QUEUES = ["p", "q", "r"]
EXCHANGES = ["x", "y", "amq.topic"]
KINDS = ["direct", "fanout", "topic", "headers"]
KEYS = ["a", "a.*", "#"]
TABLES: list[dict[str, object]] = [{}, {"k": b"\x01"}, {"x-max-priority": 4, "alternate-exchange": "y"}]
OWNER = object()
OFTEN = ["queue", "exchange", "bind", "bind"]
SELDOM = ["exclusive", "delete queue", "delete exchange", "lose owner", "vhost", "no vhost", "unbind"]
STEPS = [*OFTEN, *OFTEN, *SELDOM, "bind exchange", "unbind exchange"]

Step = tuple[str, str, str, str, str, bool, bool, int]
steps = st.tuples(
    st.sampled_from(STEPS),
    st.sampled_from(VHOSTS),
    st.sampled_from(QUEUES),
    st.sampled_from(EXCHANGES),
    st.sampled_from(EXCHANGES),
    st.booleans(),
    st.booleans(),
    st.integers(0, 11),
)


def follow(broker: Broker, step: Step) -> None:
    """Do a single step; a refused step must change nothing."""
    what, name, queue, exchange, other, durable, auto_delete, number = step
    table = dict(TABLES[number % len(TABLES)])
    key = KEYS[number % len(KEYS)]
    if what == "vhost":
        broker.declare_vhost(name)
        return
    if what == "no vhost":
        broker.delete_vhost(name)
        return
    vhost = broker.vhost(name)
    if what == "queue":
        vhost.declarations.declare_queue(queue, durable, None, auto_delete, table)
    elif what == "exclusive":
        vhost.declarations.declare_queue(queue, durable, OWNER, auto_delete, table)
    elif what == "lose owner":
        vhost.declarations.delete_exclusive_queues(OWNER)
    elif what == "exchange":
        vhost.declarations.declare_exchange(
            exchange, KINDS[number % 4], durable, auto_delete, number > 8, table
        )
    elif what == "bind":
        vhost.declarations.bind_queue(queue, exchange, key, table, OWNER)
    elif what == "unbind":
        vhost.declarations.unbind_queue(queue, exchange, key, table, OWNER)
    elif what == "bind exchange":
        vhost.declarations.bind_exchange(exchange, other, key, table)
    elif what == "unbind exchange":
        vhost.declarations.unbind_exchange(exchange, other, key, table)
    elif what == "delete queue":
        vhost.declarations.delete_queue(queue, durable, auto_delete, OWNER)
    else:
        vhost.declarations.delete_exchange(exchange, durable)


def routes(broker: Broker) -> dict[tuple[str, str, str], tuple[bool, list[int]]]:
    """Return the queues of every route, by number."""
    queues_by_route = {}
    for name, vhost in broker.vhosts.items():
        for exchange in vhost.topology.exchanges.values():
            if exchange.internal:
                continue
            for key in ["a", "a.b", "", *QUEUES]:
                route = vhost.publisher.route(exchange.name, key)
                queues_by_route[name, exchange.name, key] = (
                    route.by_message,
                    sorted(q.number for q in route.logged),
                )
    return queues_by_route


@settings(deadline=None)
@given(st.lists(steps, max_size=40))
def test_the_log_and_its_checkpoints_make_the_same_broker(history: list[Step]) -> None:
    store = RecordingStore()
    broker = new_broker(store)
    broker.declare_vhost("/")
    checkpoints: list[dict[str, object]] = []
    for index, step in enumerate(history):
        with contextlib.suppress(BrokerError):
            follow(broker, step)
        if index == len(history) // 2:
            checkpoints = [*definitions_of(broker)]
            assert definitions_of(rebuilt(store.changes)) == checkpoints
            store.changes[:] = checkpoints  # as in a log whose older segments are deleted
    definitions = definitions_of(broker)
    from_log = rebuilt(store.changes)
    assert definitions_of(from_log) == definitions
    from_definitions = rebuilt(definitions)
    assert definitions_of(from_definitions) == definitions
    assert from_log.next_number == from_definitions.next_number == broker.next_number
    assert routes(from_log) == routes(from_definitions)
    assert definitions_of(rebuilt(store.changes + definitions)) == definitions


@settings(deadline=None)
@given(st.lists(steps, max_size=40))
def test_without_transient_objects_routes_are_the_same_too(history: list[Step]) -> None:
    """The durable objects alone decide the routes if all objects are durable."""
    broker = new_broker()
    broker.declare_vhost("/")
    for step in history:
        if step[0] != "exclusive":
            with contextlib.suppress(BrokerError):
                follow(broker, (*step[:5], True, *step[6:]))
    assert routes(rebuilt(definitions_of(broker))) == routes(broker)
