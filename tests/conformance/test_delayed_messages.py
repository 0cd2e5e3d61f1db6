"""x-delayed-message exchanges: the time of a message, its headers then, and recovery."""

import time

import pytest
from pamqp.commands import Basic, Exchange, Tx

from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp091.topology_commands import bind_queue, declare_exchange
from tests.support.daemon.daemon import DaemonStarter

pytestmark = pytest.mark.amqpd_only("needs RabbitMQ's plugin")
DELAYED = "x-delayed-message"


def delayed(milliseconds: int | str, mode: int = 1) -> Basic.Properties:
    """The properties of a message that is to be delayed."""
    return Basic.Properties(delivery_mode=mode, headers={"x-delay": milliseconds})


def durable(channel: PeerChannel, exchange: str, kind: str = "direct") -> None:
    """Declare a durable delayed exchange."""
    command = Exchange.Declare(
        exchange=exchange, exchange_type=DELAYED, durable=True, arguments={"x-delayed-type": kind}
    )
    channel.call(command, Exchange.DeclareOk)


@pytest.fixture
def queue(channel: PeerChannel, exchange: str) -> str:
    """A queue, bound to a delayed exchange by its own name."""
    declare_exchange(channel, exchange, DELAYED, arguments={"x-delayed-type": "direct"})
    name = channel.declare(exclusive=True)
    bind_queue(channel, name, exchange, name)
    return name


def test_messages_come_when_their_time_has_come(channel: PeerChannel, exchange: str, queue: str) -> None:
    channel.consume(queue, no_ack=True)
    began = time.monotonic()
    for delay in (300, 100, "200"):
        channel.publish(b"%d" % int(delay), queue, exchange, delayed(delay))
    channel.publish(b"0", queue, exchange)
    came = []
    for message in channel.deliveries(4):
        came.append((int(message.body), time.monotonic() - began))
        headers = message.properties.headers or {}
        assert headers.get("x-delay", 0) == -int(message.body)
    assert [delay for delay, _ in came] == [0, 100, 200, 300]
    assert all(after * 1000 >= delay for delay, after in came), "never too early"


def test_a_held_message_is_not_returned(channel: PeerChannel, exchange: str, queue: str) -> None:
    """RabbitMQ's plugin returns it, and delivers it all the same."""
    channel.confirm_select()
    channel.publish(b"", "nobody", exchange, delayed(60_000), mandatory=True)
    channel.expect_confirms(1)
    channel.publish(b"", "nobody", exchange, mandatory=True)
    channel.returned()
    channel.expect_confirms(2, first=2)
    channel.publish(b"", queue, exchange, delayed(60_000), mandatory=True, immediate=True)
    channel.expect_confirms(3, first=3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (None, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x-delayed-type": "zzz"}, "unknown exchange type 'zzz'"),
        (
            {"x-delayed-type": DELAYED},
            "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
        ),
    ],
)
def test_refusals(channel: PeerChannel, name: str, arguments: dict[str, str] | None, text: str) -> None:
    command = Exchange.Declare(exchange=name, exchange_type=DELAYED, arguments=arguments)  # type: ignore[arg-type]
    assert channel.refused(command, 406) == f"PRECONDITION_FAILED - {text}"


def test_a_delay_within_a_transaction_counts_from_its_commit(
    channel: PeerChannel, exchange: str, queue: str
) -> None:
    channel.consume(queue, no_ack=True)
    channel.call(Tx.Select(), Tx.SelectOk)
    channel.publish(b"late", queue, exchange, delayed(50))
    channel.publish(b"never", queue, exchange, delayed(1))
    channel.call(Tx.Rollback(), Tx.RollbackOk)
    channel.publish(b"late", queue, exchange, delayed(50))
    channel.publish(b"soon", queue, exchange)
    channel.call(Tx.Commit(), Tx.CommitOk)
    assert [message.body for message in channel.deliveries(2)] == [b"soon", b"late"]


def test_held_messages_survive_a_crash(start_daemon: DaemonStarter, connect: Connector) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    durable(channel, "later")
    channel.declare("q", durable=True)
    bind_queue(channel, "q", "later", "k")
    channel.confirm_select()
    began = time.time()
    for number, delay in enumerate((1, 3_000, 2_000, 3_600_000)):
        channel.publish(b"%d" % number, "k", "later", delayed(delay, 2))
    channel.publish(b"transient", "k", "later", delayed(2_500))
    channel.expect_confirms(5)
    daemon.kill()
    channel.peer.drop()

    channel = connect(start_daemon().address).channel()
    channel.consume("q", no_ack=True)
    bodies = []
    for message in channel.deliveries(3):
        bodies.append(message.body)
        due = {b"0": 0.001, b"1": 3.0, b"2": 2.0}[message.body]
        assert time.time() - began >= due - 0.01
        headers = message.properties.headers
        assert headers is not None
        assert headers["x-delay"] == -round(due * 1000)
    assert bodies == [b"0", b"2", b"1"]
    channel.publish(b"at once", "k", "later")
    assert channel.delivery().body == b"at once", "and not what is due in an hour"


def test_a_confirmed_message_is_held_in_the_log_and_a_deleted_exchange_forgets(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True)
    channel.confirm_select()
    for exchange in ("kept", "deleted"):
        durable(channel, exchange, "fanout")
        bind_queue(channel, "q", exchange)
        for number in range(50):
            channel.publish(b"%s %d" % (exchange.encode(), number), "", exchange, delayed(1500, 2))
    channel.expect_confirms(100)
    channel.call(Exchange.Delete(exchange="deleted"), Exchange.DeleteOk)
    durable(channel, "deleted", "fanout")
    bind_queue(channel, "q", "deleted")
    daemon.kill()
    channel.peer.drop()

    channel = connect(start_daemon().address).channel()
    channel.consume("q", no_ack=True)
    assert [message.body for message in channel.deliveries(50)] == [b"kept %d" % n for n in range(50)]
    channel.expect_silence()


def test_a_queue_that_is_full_now_holds_a_delayed_message(channel: PeerChannel) -> None:
    queue = channel.declare(arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_select()
    channel.publish(b"first", queue)
    channel.expect_confirms(1)
    channel.publish(b"second", queue)
    assert channel.expect(Basic.Nack).delivery_tag == 2
    channel.publish(b"late", queue, properties=delayed(50))
    channel.expect_confirms(3, 3)
    assert channel.take(queue).body == b"first"
    channel.consume(queue, no_ack=True)
    assert channel.delivery().body == b"late"


def test_a_queue_may_have_no_priorities_at_all(channel: PeerChannel) -> None:
    queue = channel.declare(arguments={"x-max-priority": 0})
    for priority in (0, 9, 3):
        channel.publish(b"%d" % priority, queue, properties=Basic.Properties(priority=priority))
    assert [channel.take(queue).body for _ in range(3)] == [b"0", b"9", b"3"]
