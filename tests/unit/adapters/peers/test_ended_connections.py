"""Ended objects are freed at once by their reference counts, never by the garbage collector.

The collector looks at long-lived objects very rarely, because that stalls the broker. So a cycle of
references that a connection leaves behind would be a leak.
"""

import gc
from collections import Counter
from collections.abc import Callable

import pytest
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx
from pamqp.common import FieldTable

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import (
    Accepted,
    Coordinator,
    Declare,
    Modified,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from protocol.amqp10.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Transfer,
)
from protocol.amqp10.types import Composite, Symbol
from protocol.websocket import WebSocketWire
from tests.support.adapters.connection10_without_socket import SHORT, WINDOW, Client10
from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.adapters.resumed_links10 import (
    RECEIVES,
    bench_with_queues,
    credit_flow,
    delivered,
    performative_types,
    receiver_attach,
)
from tests.support.amqp091.frames import header_bytes, method_bytes, publish_bytes
from tests.support.amqp10.reference_codec import described

Client = Client091 | Client10
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
)


def garbage(
    bench: BrokerBench,
    act: Callable[[BrokerBench], object],
    packages: tuple[str, ...] = ("broker", "protocol"),
) -> Counter[str]:
    """Return the kinds of the packages' objects that only the collector could free after `act`."""
    act(bench)  # once before, to fill caches
    settle(bench)
    gc.collect()
    gc.disable()
    try:
        act(bench)
        settle(bench)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(
            type(each).__name__ for each in gc.garbage if type(each).__module__.partition(".")[0] in packages
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.collect()


def settle(bench: BrokerBench) -> None:
    """Let everything happen that waits for a turn, for the disk or for time."""
    for _ in range(3):
        bench.turns.run()
        bench.store.complete()
        bench.clock.advance(60_000)


def lose(client: Client) -> None:
    """Close the socket of a client."""
    client.connection.on_lost("gone")
    client.edge.connection = None


# ---- AMQP 0-9-1


def say_hello(bench: BrokerBench) -> None:
    lose(bench.connect())


def be_refused(bench: BrokerBench) -> None:
    client = bench.connect()
    client.send(Connection.StartOk({}, "PLAIN", "\0guest\0wrong"))
    lose(client)


def log_in_and_go(bench: BrokerBench) -> None:
    client = bench.connect()
    client.send(Connection.StartOk({}, "PLAIN", "\0guest\0guest"))
    lose(client)


def open_and_go(bench: BrokerBench) -> None:
    lose(bench.open())


def use(bench: BrokerBench) -> Client091:
    """Return a client with consumers, deliveries, publishes on their way, a transaction and an empty get."""
    client = bench.open()
    client.send(Queue.Declare(queue="own", exclusive=True), 1)
    client.send(Queue.Declare(queue="shared"), 1)
    client.send(Basic.Qos(prefetch_count=3), 1)
    for queue in ("own", "shared"):
        client.send(Basic.Consume(queue=queue, consumer_tag=queue), 1)
    client.send(Confirm.Select(), 1)
    for _ in range(5):
        client.publish("own")
        client.publish("shared", persistent=True)
    client.publish("nowhere", mandatory=True)
    bench.turns.run()
    client.send(Basic.Ack(delivery_tag=1), 1)
    client.send(Channel.Open(), 2)
    client.send(Tx.Select(), 2)
    client.send(Basic.Get(queue="shared"), 2)
    client.send(Basic.Ack(delivery_tag=1), 2)
    client.send(Channel.Open(), 3)
    client.send(Basic.Get(queue="shared"), 3)
    return client


def use_and_go(bench: BrokerBench) -> None:
    lose(use(bench))


def close(bench: BrokerBench) -> None:
    client = use(bench)
    client.send(Connection.Close(200, "", 0, 0))
    lose(client)


def fail(bench: BrokerBench) -> None:
    client = use(bench)
    client.send(Connection.StartOk({}, "PLAIN", "\0guest\0guest"))
    lose(client)


def be_closed(bench: BrokerBench) -> None:
    client = use(bench)
    client.connection.force_close("an operator wants it")
    client.send(Connection.CloseOk())
    lose(client)


def commit_and_go(bench: BrokerBench) -> None:
    client = use(bench)
    client.send(Tx.Commit(), 2)
    lose(client)


def hold_and_go(bench: BrokerBench) -> None:
    client = use(bench)
    bench.server.shortage.set_shortages(True, False)
    client.publish("shared")
    lose(client)
    bench.server.shortage.set_shortages(False, False)


def hold_and_go_on(bench: BrokerBench) -> None:
    client = use(bench)
    bench.server.shortage.set_shortages(True, False)
    client.publish("shared")
    bench.server.shortage.set_shortages(False, False)
    lose(client)


def ask_for_replies(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="requests"), 1)
    client.send(Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True), 1)
    properties = Basic.Properties(reply_to="amq.rabbitmq.reply-to")
    publish = method_bytes(Basic.Publish(routing_key="requests"), 1)
    client.connection.receive(publish + header_bytes(0, properties, 1))
    client.send(Queue.Delete(queue="requests"), 1)
    lose(client)


def consume_in_many_ways(bench: BrokerBench) -> None:
    """Use each kind of queue and of consumer, and leave without settling."""
    client = bench.open()
    kinds: list[FieldTable] = [
        {"x-consumer-timeout": 1000},
        {"x-single-active-consumer": True},
        {"x-strict-order": True},
        {"x-group-kind": "header"},
        {"x-max-priority": 5},
        {"x-last-value-key": "k"},
        {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "way 0"},
        {"x-message-ttl": 10, "x-delivery-limit": 1, "x-retry-min": 5},
        {"x-dedup-window": 1000},
        {"x-get-wait": 1000},
    ]
    for number, arguments in enumerate(kinds):
        queue = f"way {number}"
        client.send(Queue.Declare(queue=queue, auto_delete=True, arguments=arguments), 1)
        client.send(Basic.Consume(queue=queue, consumer_tag=queue), 1)
        for _ in range(3):
            client.publish(queue)
        bench.turns.run()
    client.send(Basic.Consume(queue="way 4", arguments={"x-browse": True}), 1)
    client.send(Basic.Consume(queue="way 4", arguments={"x-filter-jms-selector": "a = 1"}), 1)
    client.send(Basic.Nack(delivery_tag=2, requeue=True), 1)
    client.send(Basic.Reject(delivery_tag=3, requeue=False), 1)
    client.send(Channel.Open(), 2)
    client.send(Basic.Get(queue="way 9"), 2)
    client.send(Queue.Delete(queue="way 1"), 1)
    bench.turns.run()
    bench.clock.advance(2_000)
    lose(client)


def stop_within_a_body(bench: BrokerBench) -> None:
    client = bench.open()
    frames = publish_bytes("shared", b"x" * 200_000)
    client.connection.receive(frames[:150_000])
    lose(client)


def say_too_much(bench: BrokerBench) -> None:
    """Send more than a turn takes, and close the socket."""
    client = bench.open()
    declare = method_bytes(Queue.Declare(queue="much", auto_delete=True), 1)
    client.connection.receive(declare * 3000)
    lose(client)


# ---- AMQP 1.0


def use10(bench: BrokerBench) -> Client10:
    """Return a client that sends and receives, with deliveries on their way."""
    if "lasting" not in bench.broker.vhosts["/"].topology.queues:
        bench.broker.vhosts["/"].declarations.declare_queue("lasting", True, None, False, {})
    client = Client10(bench)
    client.sends("lasting", 0)
    client.publish(0, 1)
    client.publish(2, 3, durable=True)
    client.written()
    client.receives("lasting", 1)
    bench.turns.run()
    return client


def open10(bench: BrokerBench) -> None:
    lose(Client10(bench))


def use10_and_go(bench: BrokerBench) -> None:
    lose(use10(bench))


def close10(bench: BrokerBench) -> None:
    client = use10(bench)
    client.send(Close())
    lose(client)


def fail10(bench: BrokerBench) -> None:
    client = use10(bench)
    client.send(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    lose(client)


def be_closed10(bench: BrokerBench) -> None:
    client = use10(bench)
    client.connection.force_close("an operator wants it")
    client.send(Close())
    lose(client)


def hold10(bench: BrokerBench) -> None:
    client = use10(bench)
    bench.server.shortage.set_shortages(True, False)
    client.publish(4)
    lose(client)
    bench.server.shortage.set_shortages(False, False)


def transact10(bench: BrokerBench) -> None:
    client = use10(bench)
    client.send(
        Attach(
            name="controller",
            handle=9,
            role=False,
            source=Source(),
            target=Coordinator(),
            initial_delivery_count=0,
        )
    )
    declare = described(0x77, encode_composite(Declare()))
    client.send(Transfer(handle=9, delivery_id=4, delivery_tag=b"4"), payload=declare)
    state = TransactionalState(txn_id=bytes(3) + b"\1")
    client.publish(5, state=state)
    settled = Disposition(
        role=True, first=0, state=TransactionalState(txn_id=state.txn_id, outcome=Accepted())
    )
    client.send(settled)
    lose(client)


def leave_behind10(bench: BrokerBench) -> None:
    """Leave links that may be resumed, and are not."""
    client = use10(bench)
    source = Source(address="/queues/lasting", expiry_policy="never", timeout=5)
    client.send(Attach(name="kept", handle=2, role=True, source=source, target=Target()))
    flow = Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9)
    flow.handle, flow.delivery_count, flow.link_credit = 2, 0, 9
    client.send(Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9))
    client.send(flow)
    bench.turns.run()
    lose(client)


def make_queues10(bench: BrokerBench) -> None:
    client = use10(bench)
    client.send(Attach(name="made", handle=3, role=True, source=Source(dynamic=True), target=Target()))
    bench.store.complete()
    client.send(
        Attach(name="gone", handle=4, role=True, source=Source(address="/queues/none"), target=Target())
    )
    lose(client)


def manage10(bench: BrokerBench) -> None:
    client = use10(bench)
    node = "/management"
    for handle, role in ((5, False), (6, True)):
        client.send(
            Attach(
                name="pair",
                handle=handle,
                role=role,
                snd_settle_mode=1,
                source=Source(address=node),
                target=Target(address=node),
                initial_delivery_count=None if role else 0,
                properties={Symbol("paired"): True},
            )
        )
    lose(client)


def stop_within_a_delivery10(bench: BrokerBench) -> None:
    client = use10(bench)
    client.send(Transfer(handle=0, delivery_id=4, delivery_tag=b"4", more=True), payload=b"\x00\x53\x75")
    lose(client)


def blunder10(bench: BrokerBench) -> None:
    """Use a handle without a link, which ends the session."""
    client = use10(bench)
    client.send(Transfer(handle=77, delivery_id=4, delivery_tag=b"4"), payload=SHORT)
    client.send(End())
    lose(client)


def modify10(bench: BrokerBench) -> None:
    client = use10(bench)
    state = Modified(delivery_failed=True, undeliverable_here=True)
    client.send(Disposition(role=True, first=0, settled=True, state=state))
    client.send(Disposition(role=True, first=1, settled=True, state=Rejected()))
    bench.turns.run()
    lose(client)


@pytest.mark.parametrize(
    "act",
    [
        say_hello,
        be_refused,
        log_in_and_go,
        open_and_go,
        use_and_go,
        close,
        fail,
        be_closed,
        commit_and_go,
        open10,
        use10_and_go,
        close10,
        fail10,
        be_closed10,
        hold_and_go,
        hold_and_go_on,
        ask_for_replies,
        consume_in_many_ways,
        stop_within_a_body,
        say_too_much,
        hold10,
        transact10,
        leave_behind10,
        make_queues10,
        manage10,
        stop_within_a_delivery10,
        blunder10,
        modify10,
    ],
)
def test_connections(act: Callable[[BrokerBench], None]) -> None:
    assert garbage(BrokerBench(), act) == Counter()


def test_channels() -> None:
    bench = BrokerBench()
    clients: list[Client091] = []

    def act(bench: BrokerBench) -> None:
        client = use(bench)
        for number in (1, 2, 3):
            client.send(Channel.Close(200, "", 0, 0), number)
        clients.append(client)

    assert garbage(bench, act) == Counter()


def test_consumers() -> None:
    bench = BrokerBench()
    client = bench.open()
    client.send(Queue.Declare(queue="q"), 1)

    def act(bench: BrokerBench) -> None:
        client.send(Basic.Consume(queue="q", consumer_tag="c"), 1)
        client.publish("q")
        bench.turns.run()
        client.send(Basic.Cancel(consumer_tag="c"), 1)

    assert garbage(bench, act) == Counter()


def resume(bench: BrokerBench, credit: int, window: int, detaches: bool) -> None:
    """Resume a link, whose deliveries may have to wait for credit or for the window, and leave."""
    first = Client10(bench)
    tags = delivered(first, 3)
    lose(first)
    again = Client10(bench)
    flow = credit_flow(credit)
    flow.incoming_window = window
    again.send(
        Flow(next_incoming_id=0, incoming_window=window, next_outgoing_id=0, outgoing_window=WINDOW),
        receiver_attach(dict.fromkeys(tags)),
        flow,
    )
    if detaches:
        again.send(Detach(handle=RECEIVES, closed=True))
    bench.turns.run()
    lose(again)


@pytest.mark.parametrize("detaches", [False, True])
@pytest.mark.parametrize(("credit", "window"), [(10, 100), (0, 100), (10, 0)])
def test_links_that_resume(credit: int, window: int, detaches: bool) -> None:
    bench = bench_with_queues()
    assert garbage(bench, lambda bench: resume(bench, credit, window, detaches)) == Counter()


def test_links_that_are_refused() -> None:
    bench = bench_with_queues()
    bench.open().send(Basic.Consume(queue="q", exclusive=True, consumer_tag="only"), 1)

    def act(bench: BrokerBench) -> None:
        client = Client10(bench)
        client.send(receiver_attach())
        assert Detach in performative_types(client)
        lose(client)

    assert garbage(bench, act) == Counter()


@pytest.mark.parametrize("ends", [[End()], [Detach(handle=0, closed=True), Detach(handle=1, closed=True)]])
def test_sessions_and_links(ends: list[Composite]) -> None:
    bench = BrokerBench()
    clients: list[Client10] = []

    def act(bench: BrokerBench) -> None:
        client = use10(bench)
        for each in ends:
            client.send(each)
        clients.append(client)

    assert garbage(bench, act) == Counter()


QUEUES: list[FieldTable] = [
    {"x-max-length": 3, "x-message-ttl": 1000},
    {"x-queue-type": "stream"},
    {"x-volatile": True},
    {"x-expires": 100_000},
    {"x-consumers-before-dispatch": 2},
    {"x-all-consumers-exclusive": True},
    {"x-non-destructive": True},
    {"x-group-kind": "shared"},
    {"x-delivery-limit": 9, "x-delayed-retry-min": 100_000, "x-delayed-retry-type": "all"},
    {
        "x-dead-letter-exchange": "absent",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-max-length": 1,
    },
]


@pytest.mark.parametrize("arguments", QUEUES, ids=lambda arguments: next(iter(arguments)))
def test_queues(arguments: FieldTable) -> None:
    def act(bench: BrokerBench) -> None:
        client = bench.open()
        client.send(Basic.Qos(prefetch_count=2), 1)
        client.send(Queue.Declare(queue="q", durable=True, arguments=arguments), 1)
        bench.store.complete()
        client.send(Basic.Consume(queue="q", consumer_tag="c"), 1)
        for _ in range(0 if "x-queue-type" in arguments else 5):  # a stream would need a disk
            client.publish("q")
        bench.turns.run()
        for command in client.frames():
            if isinstance(command, Basic.Deliver):
                client.send(
                    Basic.Reject(delivery_tag=command.delivery_tag or 0, requeue=len(arguments) == 3), 1
                )
        client.send(Queue.Delete(queue="q"), 1)
        bench.store.complete()
        assert "q" not in bench.broker.vhosts["/"].topology.queues
        lose(client)

    assert garbage(BrokerBench(), act) == Counter()


@pytest.mark.parametrize("kind", ["direct", "headers", "x-delayed-message", "x-recent-history"])
def test_exchanges(kind: str) -> None:
    arguments: FieldTable = {"x-delayed-type": "fanout"} if kind == "x-delayed-message" else {}

    def act(bench: BrokerBench) -> None:
        client = bench.open()
        client.send(Queue.Declare(queue="q", auto_delete=True), 1)
        client.send(Exchange.Declare(exchange="x", exchange_type=kind, arguments=arguments), 1)
        client.send(Queue.Bind(queue="q", exchange="x", routing_key="k"), 1)
        method = method_bytes(Basic.Publish(exchange="x", routing_key="k"), 1)
        properties = Basic.Properties(headers={"x-delay": 100_000})
        client.connection.receive(method + header_bytes(0, properties, 1))
        client.send(Exchange.Delete(exchange="x"), 1)
        assert "x" not in bench.broker.vhosts["/"].topology.exchanges
        lose(client)

    assert garbage(BrokerBench(), act) == Counter()


@pytest.mark.parametrize("sent", [b"", b"\x82\x85", b"\x82\x80\0\0\0\0", b"\x88\x80\0\0\0\0", b"\xff"])
def test_websockets(sent: bytes) -> None:
    """Endings after the handshake: nothing, a part of a frame, a frame, a close, or an invalid frame."""

    def act(bench: BrokerBench) -> None:
        wire = WebSocketWire()
        wire.feed(HANDSHAKE)
        assert wire.open
        wire.feed(sent)
        wire.read(10)
        wire.release()

    assert garbage(BrokerBench(), act, ("broker", "protocol", "wsproto")) == Counter()
