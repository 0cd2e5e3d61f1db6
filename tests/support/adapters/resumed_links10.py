"""Links of AMQP 1.0 that come back, of a client without a socket."""

from collections.abc import Mapping
from typing import Final

from protocol.amqp10.composites import DeliveryState, Source, Target
from protocol.amqp10.performatives import Attach, Flow, Transfer
from protocol.amqp10.types import Composite
from tests.support.adapters.connection10_without_socket import WINDOW, Client10
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.adapters.queued_messages10 import put
from tests.support.amqp10.contents import content10
from tests.support.amqp10.unsettled_maps import MINUTE, unsettled

SENDS: Final = 0  # handles
RECEIVES: Final = 1


def bench_with_queues(arguments: dict[str, object] | None = None) -> BrokerBench:
    """A broker with the queues `kept`, which is durable, and `q`, which has these arguments."""
    bench = BrokerBench()
    vhost = bench.broker.vhosts["/"]
    vhost.declarations.declare_queue("kept", True, None, False, {})
    vhost.declarations.declare_queue("q", False, None, False, arguments or {})
    return bench


def counts_of_q(bench: BrokerBench) -> tuple[int, int]:
    """Return the numbers of ready and of acquired messages of `q`."""
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    return int(queue.ready), int(queue.unacked)


def sender_attach(*tags: bytes) -> Attach:
    """A link to `kept` whose sender settles last, and has not settled these."""
    return Attach(
        name="sends",
        handle=SENDS,
        role=False,
        rcv_settle_mode=1,
        source=Source(),
        target=Target(address="/queues/kept", timeout=MINUTE),
        initial_delivery_count=0,
        unsettled=unsettled(dict.fromkeys(tags)) if tags else None,
    )


def receiver_attach(
    states: Mapping[bytes, DeliveryState | None] | None = None, handle: int = RECEIVES
) -> Attach:
    """Return the attach of a receiver from `q` that is kept for a minute, with its unsettled map."""
    return Attach(
        name="receives",
        handle=handle,
        role=True,
        source=Source(address="/queues/q", timeout=MINUTE),
        target=Target(),
        unsettled=None if states is None else unsettled(states),
    )


def credit_flow(credit: int, sent: int = 0) -> Flow:
    """Allow so many deliveries; `sent`: transfers of the client's."""
    return Flow(
        next_incoming_id=0,
        incoming_window=100 * WINDOW,
        next_outgoing_id=sent,
        outgoing_window=WINDOW,
        handle=RECEIVES,
        delivery_count=0,
        link_credit=credit,
    )


def delivered(client: Client10, count: int) -> list[bytes]:
    """The tags of so many messages of `q`, which are sent now and which the client has not settled."""
    for _ in range(count):
        put(client.bench, content10())
    client.send(receiver_attach(), credit_flow(count))
    return [transfer.delivery_tag or b"" for transfer in transfers(client)]


def transfers(client: Client10) -> list[Transfer]:
    """Return the transfers that the broker wrote since the last call, after the waiting loop turns."""
    client.bench.turns.run()
    received = [each.performative for each in client.written()]
    return [each for each in received if isinstance(each, Transfer)]


def performative_types(client: Client10) -> list[type[Composite]]:
    """Return the types of the performatives that the broker wrote since the last call."""
    return [type(each.performative) for each in client.written()]
