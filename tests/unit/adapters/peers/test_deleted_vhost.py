"""Connections to a virtual host that is being deleted."""

from pamqp.commands import Basic, Connection, Queue, Tx

from broker.adapters.peers.connections import CONNECTION, SLICE
from broker.core.vhosts import deletion
from tests.support.adapters.connection_without_socket import Client091
from tests.support.amqp091.frames import publish_bytes
from tests.support.auth.broker_with_users import ALL, UserBench

QUEUES = 3 * int(deletion.DISPOSAL_SLICE // deletion.QUEUE)  # the deletion takes several turns
FORCED = "CONNECTION_FORCED - vhost 'other' is deleted"


def furnished() -> UserBench:
    """Return a bench with a virtual host that ann and boss may use."""
    bench = UserBench()
    make(bench)
    for number in range(QUEUES):
        bench.broker.vhosts["other"].declarations.declare_queue(f"q{number}", False, None, False, {})
    return bench


def make(bench: UserBench) -> None:
    """Make the virtual host."""
    bench.broker.declare_vhost("other")
    for user in ("ann", "boss"):
        bench.users.permit(user, "other", ALL, ALL, ALL)


def methods_of(client: Client091) -> list[str]:
    """Return the methods that the client has received, a close of the connection by its reply text."""
    return [
        f"{frame.reply_text}" if isinstance(frame, Connection.Close) else frame.name
        for frame in client.frames()
    ]


def delete(bench: UserBench) -> None:
    """Delete it; there are turns to come."""
    bench.broker.delete_vhost("other")
    assert bench.clock.wakes


def test_clients_may_not_use_a_deleted_vhost() -> None:
    bench = furnished()
    old = bench.broker.vhosts["other"]
    ann, boss = bench.enter("ann", "other"), bench.enter("boss", "other")
    for number in (0, 1):
        ann.send(Basic.Consume(queue=f"q{number}", consumer_tag=f"{number}"), 1)
    boss.publish("q0")
    ann.frames()
    delete(bench)
    bench.turns.run()
    for client in (ann, boss):
        client.publish("q0")
        client.send(Queue.Declare(queue="mine", durable=True), 1)
    bench.turns.run()
    assert (methods_of(ann), methods_of(boss)) == ([], [])
    assert (old.topology.queues, bench.broker.counters.published, bench.broker.counters.delivered) == (
        {},
        1,
        0,
    )
    bench.clock.advance(0)
    assert (methods_of(ann), methods_of(boss)) == ([FORCED], [FORCED])
    assert ann.edge.holds == 0, "the answer to that is read"


def test_connections_to_a_deleted_vhost_do_not_count_for_its_successor() -> None:
    bench = furnished()
    bench.broker.limit_vhost("other", 1, None)
    ann = bench.enter("ann", "other")
    delete(bench)
    connections = bench.server.connections
    assert (connections.count_in_vhost("other"), connections.count_of_user("ann")) == (0, 0)
    assert ann.connection not in connections.all
    make(bench)
    again = bench.enter("ann", "other")
    bench.clock.advance(0)
    assert (methods_of(ann), methods_of(again)) == ([FORCED], [])
    ann.connection.on_lost("")
    assert connections.in_vhost("other") == [again.connection]
    assert connections.of_user("ann") == [again.connection]


def test_a_reply_does_not_reach_a_client_of_the_deleted_vhost() -> None:
    bench = furnished()
    ann = bench.enter("ann", "other")
    ann.send(Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True), 1)
    ((_, name),) = bench.server.replies
    delete(bench)
    make(bench)
    again = bench.enter("boss", "other")
    ann.frames()
    again.publish(name[1:].decode(), mandatory=True)
    bench.turns.run()
    assert bench.broker.counters.replies_dropped == 1
    bench.clock.advance(0)
    assert methods_of(ann) == [FORCED]


def test_a_client_may_disconnect_during_the_deletion_of_its_vhost() -> None:
    bench = furnished()
    ann, boss = bench.enter("ann", "other"), bench.enter("boss", "other")
    for client in (ann, boss):
        client.send(Queue.Declare(queue="own" + str(id(client)), exclusive=True, auto_delete=True), 1)
        client.send(Basic.Consume(queue="q0", consumer_tag="c"), 1)
        client.publish("q0")
    bench.turns.run()
    delete(bench)
    ann.connection.on_lost("reset")
    bench.turns.run()
    bench.clock.advance(0)
    assert methods_of(boss)[-1] == FORCED
    assert bench.server.connections.channels_of_user("ann") == 0


def test_deliveries_of_clients_are_forgotten_in_slices() -> None:
    bench = furnished()
    ann = bench.enter("ann", "other")
    count = 3 * SLICE
    ann.send(Basic.Consume(queue="q0", consumer_tag="c"), 1)
    for _ in range(count // 500):
        ann.connection.receive(publish_bytes("q0", b"") * 500)
        bench.turns.run()
    channel = ann.connection.wire.channels[1]
    unacked = channel.unacked  # type: ignore[union-attr]
    assert unacked.count() == count
    delete(bench)
    left = [int(unacked.count())]
    while left[-1]:
        bench.clock.schedule.run()
        if unacked.count() != left[-1]:
            left.append(int(unacked.count()))
    assert left == [count, count - SLICE, count - 2 * SLICE, 0]
    ann.frames()
    bench.clock.advance(0)
    assert methods_of(ann) == [FORCED]


def test_transactions_on_the_vhost_are_forgotten_in_slices() -> None:
    bench = furnished()
    ann, boss = bench.enter("ann", "other"), bench.enter("boss", "other")
    count = SLICE + 1
    ann.send(Basic.Consume(queue="q0", consumer_tag="c"), 1)
    ann.send(Tx.Select(), 1)
    for _ in range(count // 500 + 1):
        boss.connection.receive(publish_bytes("q0", b"") * 500)
        bench.turns.run()
    ann.send(Basic.Ack(count, True), 1)
    for client in (ann, boss):
        client.frames()
    channel = ann.connection.wire.channels[1]
    transaction = channel.transaction  # type: ignore[union-attr]
    delete(bench)
    bench.clock.advance(0)
    assert (methods_of(ann), methods_of(boss)) == ([FORCED], [FORCED])
    assert (transaction.settlements, channel.unacked.count()) == ([], 0)  # type: ignore[union-attr]


def test_many_connections_are_closed_in_slices() -> None:
    bench = furnished()
    most = -(-SLICE // (CONNECTION + 1))  # each has a channel
    clients = [bench.enter("ann", "other") for _ in range(2 * most + 1)]
    delete(bench)
    closed = [0]
    while closed[-1] < len(clients):
        bench.clock.schedule.run()
        now = sum(not client.connection.is_open() for client in clients)
        if now != closed[-1]:
            closed.append(now)
    assert closed == [0, most, 2 * most, len(clients)]
