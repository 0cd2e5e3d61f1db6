"""Annotations that receivers of AMQP 1.0 add to messages: limits on their size and on their costs."""

import pytest

from broker.adapters.amqp10.settle import ANNOTATIONS_MAX
from broker.core.schedule import MODIFICATION, TURN
from protocol.amqp10.annotations import decode_map
from protocol.amqp10.composites import Modified, Released
from protocol.amqp10.performatives import Detach, Disposition
from protocol.amqp10.types import Symbol, Ubyte
from tests.support.adapters.connection10_without_socket import Client10
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.adapters.resumed_links10 import (
    bench_with_queues,
    counts_of_q,
    delivered,
    performative_types,
)
from tests.support.amqp10.peer import amqp

MANY = 1000


def modified(first: int, *names: str) -> Disposition:
    """Return a modified outcome with these annotations, whose values are their positions."""
    added: dict[str, object] = {Symbol(name): Ubyte(number) for number, name in enumerate(names)}
    return Disposition(role=True, first=first, settled=True, state=Modified(message_annotations=added))


def annotations(bench: BrokerBench) -> list[list[bytes]]:
    """Return the names of the annotations of each entry in the queue, in order."""
    entries = bench.broker.vhosts["/"].topology.queues["q"].entries
    return [
        decode_map(entries.annotations_of(entry))[0] for entry in entries if entries.annotations_of(entry)
    ]


def test_many_modified_outcomes_take_several_turns() -> None:
    bench = bench_with_queues()
    client = Client10(bench)
    delivered(client, MANY)
    client.send(*[modified(number, "x-opt-why") for number in range(MANY)])
    back, _ = counts_of_q(bench)
    assert 0 < back <= TURN // MODIFICATION + 1 < MANY
    bench.clock.advance(0)
    assert counts_of_q(bench) == (MANY, 0)
    assert annotations(bench) == [[b"x-opt-why"]] * MANY


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("more", [0, 1])
def test_a_message_with_too_many_annotations_detaches_the_link(before: int, more: int) -> None:
    bench = bench_with_queues()
    client = Client10(bench)
    delivered(client, 1)
    many = [f"x-{number}" for number in range(ANNOTATIONS_MAX - before + more)]
    if before:
        client.send(modified(0, "x-first"))
        client.receives("q", 5, 1)
        client.written()
    client.send(modified(before, *many))
    bench.clock.advance(0)
    assert performative_types(client) == ([Detach] if more else [])
    first = [b"x-first"] if before else []
    assert annotations(bench) == ([first] * before if more else [first + [name.encode() for name in many]])


def test_the_last_of_two_annotations_with_the_same_key_is_added() -> None:
    """A map with a repeated key is invalid, and must not produce another invalid map."""
    bench = bench_with_queues()
    client = Client10(bench)
    delivered(client, 1)
    frame = amqp(modified(0, "x-1", "x-2", "x-3"))
    client.connection.receive(frame.replace(b"\xa3\x03x-3", b"\xa3\x03x-1"))
    assert annotations(bench) == [[b"x-1", b"x-2"]]
    entries = bench.broker.vhosts["/"].topology.queues["q"].entries
    assert decode_map(entries.annotations_of(next(iter(entries))))[1] == [b"\x50\x02", b"\x50\x01"]


def test_a_queue_may_go_with_the_link_that_would_add_too_much_while_it_is_deleted() -> None:
    """A delivery that is returned while its queue is deleted may have waited until then."""
    bench = BrokerBench()
    vhost = bench.broker.vhosts["/"]
    vhost.declarations.declare_queue("dear", False, None, False, {"x-max-length": 1000})
    vhost.declarations.declare_queue("q", False, None, True, {"x-delivery-limit": 5})
    client, other = Client10(bench), Client10(bench)
    for handle, name in enumerate(("dear", "q")):
        first = 200 * handle
        other.sends(name, handle)
        other.publish(*range(first, first + 200), handle=handle, settled=True)
        other.written()
        client.receives(name, handle, 200)
        client.written()
    much = Modified(message_annotations={Symbol("x-opt-much"): "m" * 9000})
    client.send(
        Disposition(role=True, first=0, last=199, settled=True, state=Released()),
        Disposition(role=True, first=200, last=399, settled=True, state=much),
    )
    assert vhost.topology.queues["q"].unacked == 200
    vhost.declarations.delete_queue("q", False, False)
    assert list(vhost.topology.queues) == ["dear"]
    bench.clock.advance(0)
    assert performative_types(client).count(Detach) == 1
    assert vhost.topology.queues["dear"].ready + vhost.topology.queues["dear"].unacked == 200
