"""Message groups as a pika user sees them."""

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_connection import Dial, connected
from tests.support.daemon.daemon import PATIENCE_S, DaemonStarter

STICKY = {"x-group-kind": "sticky"}


@pytest.fixture
def connections(pika_dial: Dial) -> list[pika.BlockingConnection]:
    """Three connections."""
    return [pika_dial() for _ in range(3)]


def in_group(group: str | int, **headers: object) -> pika.BasicProperties:
    return pika.BasicProperties(headers={"x-group-id": group, **headers}, delivery_mode=2)


def take(channel: BlockingChannel, queue: str, count: int) -> list[tuple[bytes, bool]]:
    """The next messages, each acked as it comes; the consumer stays."""
    taken: list[tuple[bytes, bool]] = []
    while len(taken) < count:
        method, _, body = next(channel.consume(queue, inactivity_timeout=PATIENCE_S))
        assert method is not None, f"nothing more came after {taken}"
        channel.basic_ack(method.delivery_tag)
        taken.append((body, method.redelivered))
    return taken


def test_a_group_stays_with_its_consumer_and_moves_in_order_when_that_is_lost(
    connections: list[pika.BlockingConnection], name: str
) -> None:
    publisher, first, second = (connection.channel() for connection in connections)
    publisher.queue_declare(name, arguments=STICKY)
    publisher.confirm_delivery()
    first.basic_qos(prefetch_count=2)
    publisher.basic_publish("", name, b"0", in_group("a"))
    assert take(first, name, 1) == [(b"0", False)]
    second.basic_qos(prefetch_count=2)
    assert next(second.consume(name, inactivity_timeout=0.05))[0] is None
    for number in range(1, 6):
        publisher.basic_publish("", name, b"%d" % number, in_group("a"))
    publisher.basic_publish("", name, b"other", in_group(7))
    assert take(second, name, 1) == [(b"other", False)]
    method, _, body = next(first.consume(name, inactivity_timeout=PATIENCE_S))
    assert (method is not None, body) == (True, b"1")
    connections[1].close()
    taken = take(second, name, 5)
    assert [body for body, _ in taken] == [b"1", b"2", b"3", b"4", b"5"]
    assert [redelivered for _, redelivered in taken][:3] == [True, True, False]
    publisher.queue_delete(name)


def test_a_group_by_another_header_is_closed(connections: list[pika.BlockingConnection], name: str) -> None:
    publisher, first, second = (connection.channel() for connection in connections)
    publisher.queue_declare(name, arguments={"x-group-key": "customer"})
    publisher.confirm_delivery()
    for body, headers in (
        (b"1", {"customer": "c"}),
        (b"2", {"customer": "c", "JMSXGroupSeq": -1}),
        (b"3", {"customer": "c"}),
    ):
        publisher.basic_publish("", name, body, pika.BasicProperties(headers=headers))
    one = first.basic_get(name)
    assert (one[0] is not None, one[2]) == (True, b"1")
    assert second.basic_get(name)[0] is None, "the group is with the first"
    first.basic_ack(one[0].delivery_tag)
    first.queue_declare(name, passive=True)  # an ack has no answer: the other connection could overtake it
    two = second.basic_get(name)
    assert two[2] == b"2"
    assert second.basic_get(name)[0] is None, "nothing after the end before that is settled"
    second.basic_ack(two[0].delivery_tag)
    assert second.basic_get(name)[2] == b"3"
    publisher.queue_delete(name)


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"x-group-kind": "any"}, "x-group-kind"),
        ({"x-group-key": ""}, "x-group-key"),
        ({"x-group-kind": "sticky", "x-group-limit": -1}, "x-group-limit"),
        ({"x-group-limit": 5}, "x-group-limit.* needs x-group-kind or x-group-key"),
        ({"x-group-kind": "shared", "x-group-rebalance": True}, "x-group-rebalance.* x-group-kind, shared"),
    ],
)
def test_refusals(
    connections: list[pika.BlockingConnection], name: str, arguments: dict[str, object], wrong: str
) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=wrong) as refusal:
        connections[0].channel().queue_declare(name, arguments=arguments)
    assert refusal.value.reply_code == 406


def test_groups_hold_after_a_crash(start_daemon: DaemonStarter, name: str) -> None:
    daemon = start_daemon()
    with connected(daemon.address) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments=STICKY)
        channel.confirm_delivery()
        for number in range(6):
            channel.basic_publish("", name, b"%d" % number, in_group("ab"[number % 2]))
    daemon.kill()
    daemon = start_daemon()
    connections = [connected(daemon.address) for _ in range(2)]
    first, second = (connection.channel() for connection in connections)
    for channel in (first, second):
        channel.basic_qos(prefetch_count=1)
    held = [next(channel.consume(name, inactivity_timeout=PATIENCE_S)) for channel in (first, second)]
    assert [body for _, _, body in held] == [b"0", b"1"]
    for channel, (method, _, _) in zip((first, second), held, strict=True):
        assert method is not None
        channel.basic_ack(method.delivery_tag)
    assert [body for body, _ in take(first, name, 2)] == [b"2", b"4"]
    assert [body for body, _ in take(second, name, 2)] == [b"3", b"5"]
    for connection in connections:
        connection.close()
