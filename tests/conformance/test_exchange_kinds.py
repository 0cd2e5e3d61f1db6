"""Exchange types beyond the specification; RabbitMQ has most of them as plugins."""

from collections.abc import Callable

import pytest
from pamqp.commands import Basic, Exchange, Queue
from pamqp.common import FieldTable

from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp091.topology_commands import bind_exchange, bind_queue, declare_exchange, drain
from tests.support.daemon.daemon import Daemon, DaemonStarter

pytestmark = pytest.mark.amqpd_only("needs RabbitMQ's plugins")
PERSISTENT = Basic.Properties(delivery_mode=2)


def spread(channel: PeerChannel, exchange: str, queues: list[str]) -> list[list[str]]:
    """Publish 200 messages whose key is their body; return the messages of each queue."""
    channel.confirm_select()
    for number in range(200):
        channel.publish(b"%d" % number, f"{number}", exchange, mandatory=True)
    channel.expect_confirms(200)
    return [drain(channel, queue) for queue in queues]


def once_each(got: list[list[str]]) -> None:
    """Check that every message is in a single queue, in order, and that no queue is empty."""
    assert sorted(int(body) for bodies in got for body in bodies) == list(range(200))
    for bodies in got:
        assert bodies == sorted(bodies, key=int)
        assert len(bodies) > 10


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash", "x-random", "x-local-random"])
def test_each_message_goes_to_one_queue(
    channel: PeerChannel, exchange: str, queues: list[str], kind: str
) -> None:
    declare_exchange(channel, exchange, kind)
    for queue in queues:
        bind_queue(channel, queue, exchange, "1" if kind == "x-consistent-hash" else "")
    once_each(spread(channel, exchange, queues))


def test_hashing_a_header(channel: PeerChannel, exchange: str, queues: list[str]) -> None:
    declare_exchange(channel, exchange, "x-consistent-hash", arguments={"hash-header": "customer"})
    for queue in queues:
        bind_queue(channel, queue, exchange, "10")
    for number in range(200):
        headers: FieldTable = {"customer": number % 50}
        channel.publish(b"%d" % (number % 50), f"{number}", exchange, Basic.Properties(headers=headers))
    got = [drain(channel, queue) for queue in queues]
    assert sum(map(len, got)) == 200
    assert sum(len(set(bodies)) for bodies in got) == 50, "a customer has one queue"


def test_hashing_a_property_that_is_no_utf_8(channel: PeerChannel, exchange: str, queues: list[str]) -> None:
    declare_exchange(channel, exchange, "x-consistent-hash", arguments={"hash-property": "message_id"})
    bind_queue(channel, queues[0], exchange, "1")
    channel.publish(b"x", "k", exchange, (1 << 7).to_bytes(2, "big") + b"\x02\xff\xfe")
    assert drain(channel, queues[0]) == ["x"]


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        ("x-consistent-hash", "k", "The binding key must be an integer: 'k'"),
        ("x-consistent-hash", "0", "The binding key must be greater than 0: '0'"),
        ("x-local-random", "k", "Non empty binding 'k' key not permitted"),
    ],
)
def test_refused_bindings(
    channel: PeerChannel, exchange: str, queues: list[str], kind: str, key: str, text: str
) -> None:
    declare_exchange(channel, exchange, kind)
    refused = channel.refused(Queue.Bind(queue=queues[0], exchange=exchange, routing_key=key), 406)
    assert refused == f"PRECONDITION_FAILED - {text}"


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (
            "x-consistent-hash",
            {"hash-header": "a", "hash-property": "message_id"},
            "hash-header and hash-property are mutually exclusive",
        ),
        ("x-consistent-hash", {"hash-property": "priority"}, "Unsupported property: priority"),
        ("x-recent-history", {"x-recent-history-length": 0}, "Invalid argument '0' of type 'signedint'"),
    ],
)
def test_refused_declarations(
    channel: PeerChannel, exchange: str, kind: str, arguments: FieldTable, text: str
) -> None:
    command = Exchange.Declare(exchange=exchange, exchange_type=kind, arguments=arguments)
    assert channel.refused(command, 406).startswith(f"PRECONDITION_FAILED - {text}")


def test_mandatory_without_a_destination(channel: PeerChannel, exchange: str) -> None:
    declare_exchange(channel, exchange, "x-random")
    channel.publish(b"x", "k", exchange, mandatory=True)
    assert channel.returned().body == b"x"


def test_recent_history(channel: PeerChannel, exchange: str, queues: list[str]) -> None:
    declare_exchange(channel, exchange, "x-recent-history", arguments={"x-recent-history-length": 3})
    bind_queue(channel, queues[0], exchange)
    for number in range(5):
        channel.publish(b"%d" % number, "k", exchange)
    channel.publish(b"not", "k", exchange, Basic.Properties(headers={"x-recent-history-no-store": True}))
    bind_queue(channel, queues[1], exchange)
    channel.publish(b"5", "k", exchange)
    assert drain(channel, queues[0]) == ["0", "1", "2", "3", "4", "not", "5"]
    assert drain(channel, queues[1]) == ["2", "3", "4", "5"]


Ending = Callable[[Daemon], None]


@pytest.mark.parametrize("end", [Daemon.stop, Daemon.kill])
def test_the_kinds_with_their_arguments_survive_a_restart(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    kinds: dict[str, tuple[str, FieldTable]] = {
        "hash": ("x-consistent-hash", {}),
        "header": ("x-consistent-hash", {"hash-header": "h"}),
        "modulus": ("x-modulus-hash", {}),
        "random": ("x-random", {}),
        "local": ("x-local-random", {"alternate-exchange": "hash"}),
    }
    queues = ["a", "b", "c"]

    def landed(channel: PeerChannel, exchange: str) -> list[list[str]]:
        for number in range(60):
            properties = Basic.Properties(headers={"h": number // 10})
            channel.publish(b"%d" % number, f"{number}", exchange, properties)
        return [drain(channel, queue) for queue in queues]

    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    for name, (kind, arguments) in kinds.items():
        command = Exchange.Declare(exchange=name, exchange_type=kind, durable=True, arguments=arguments)
        channel.call(command, Exchange.DeclareOk)
    for queue in queues:
        channel.declare(queue, durable=True)
        for name, (kind, _) in kinds.items():
            bind_queue(channel, queue, name, "2" if kind == "x-consistent-hash" else "")
    before = {name: landed(channel, name) for name in kinds}
    channel.peer.drop()
    end(daemon)

    channel = connect(start_daemon().address).channel()
    for name, (kind, arguments) in kinds.items():
        command = Exchange.Declare(exchange=name, exchange_type=kind, durable=True, arguments=arguments)
        channel.call(command, Exchange.DeclareOk)
    for name in ("hash", "header", "modulus"):
        assert landed(channel, name) == before[name]
    assert sum(map(len, landed(channel, "random"))) == 60
    for queue in queues:
        channel.call(Queue.Unbind(queue=queue, exchange="local", routing_key=""), Queue.UnbindOk)
    assert landed(channel, "local") == before["hash"]


@pytest.mark.parametrize("end", [Daemon.stop, Daemon.kill])
def test_the_persistent_part_of_a_durable_history_survives(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    arguments: FieldTable = {"x-recent-history-length": 4}
    command = Exchange.Declare(
        exchange="x", exchange_type="x-recent-history", durable=True, arguments=arguments
    )
    channel.call(command, Exchange.DeclareOk)
    channel.declare("first", durable=True)
    bind_queue(channel, "first", "x")
    channel.confirm_select()
    for number in range(8):
        channel.publish(b"%d" % number, "k", "x", PERSISTENT if number % 2 else None)
    channel.expect_confirms(8)
    channel.peer.drop()
    end(daemon)

    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    assert drain(channel, "first") == ["1", "3", "5", "7"]
    channel.declare("second", durable=True)
    bind_queue(channel, "second", "x")
    channel.declare("through", durable=True)
    declare_exchange(channel, "y", "fanout")
    bind_queue(channel, "through", "y")
    bind_exchange(channel, "x", "y")
    channel.peer.drop()
    end(daemon)

    channel = connect(start_daemon().address).channel()
    assert drain(channel, "second") == ["5", "7"]
    assert drain(channel, "through") == ["5", "7"]
