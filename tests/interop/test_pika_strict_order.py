"""x-strict-order as a pika user sees it."""

import pika
import pika.exceptions
import pytest

from tests.interop.pika_connection import Dial
from tests.support.daemon.daemon import PATIENCE_S

STRICT = {"x-strict-order": True}


@pytest.fixture
def connections(pika_dial: Dial) -> list[pika.BlockingConnection]:
    """Two connections."""
    return [pika_dial(), pika_dial()]


def test_a_message_that_is_lost_with_its_consumer_comes_before_anything_later(
    connections: list[pika.BlockingConnection], name: str
) -> None:
    crashing, steady = (connection.channel() for connection in connections)
    steady.queue_declare(name, arguments=STRICT)
    steady.confirm_delivery()
    crashing.basic_qos(prefetch_count=10)
    steady.basic_qos(prefetch_count=10)
    for number in range(20):
        steady.basic_publish("", name, b"%d" % number)
    method, _, body = next(crashing.consume(name, inactivity_timeout=PATIENCE_S))
    assert (method is not None, body) == (True, b"0")
    assert steady.basic_get(name)[0] is None, "nothing overtakes it"
    connections[0].close()
    seen: list[tuple[bytes, bool]] = []
    for method, _, body in steady.consume(name, inactivity_timeout=PATIENCE_S):
        assert method is not None, "nothing more came"
        seen.append((body, method.redelivered))
        if len(seen) == 5:
            steady.basic_nack(method.delivery_tag)
        else:
            steady.basic_ack(method.delivery_tag)
        if body == b"19":
            break
    steady.cancel()
    steady.queue_delete(name)
    numbers = [int(body) for body, _ in seen]
    assert numbers == sorted(numbers), "what came back was next"
    assert numbers == [*range(5), 4, *range(5, 20)]
    assert [body for body, redelivered in seen if redelivered] == [b"0", b"4"]


def test_strict_order_is_a_boolean(connections: list[pika.BlockingConnection], name: str) -> None:
    channel = connections[0].channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"'x-strict-order'.*boolean") as refusal:
        channel.queue_declare(name, arguments={"x-strict-order": "yes"})
    assert refusal.value.reply_code == 406


def test_a_single_transaction_takes_several_in_order(
    connections: list[pika.BlockingConnection], name: str
) -> None:
    batching, other = (connection.channel() for connection in connections)
    other.queue_declare(name, arguments=STRICT)
    other.confirm_delivery()
    for number in range(8):
        other.basic_publish("", name, b"%d" % number)
    batching.tx_select()

    def batch(count: int) -> list[bytes]:
        taken: list[bytes] = []
        for _ in range(count):
            method, _, body = batching.basic_get(name)
            assert method is not None, taken
            taken.append(body)
            batching.basic_ack(method.delivery_tag)
            assert other.basic_get(name)[0] is None, "nothing overtakes what may come back"
        return taken

    assert batch(3) == [b"0", b"1", b"2"]
    batching.tx_commit()
    assert batch(2) == [b"3", b"4"]
    batching.tx_rollback()
    assert batching.basic_get(name)[0] is None, "both are with the channel again"
    batching.basic_nack(0, multiple=True)
    batching.tx_commit()
    assert batch(2) == [b"3", b"4"]
    batching.basic_qos(prefetch_count=10)
    for method, _, body in batching.consume(name, inactivity_timeout=PATIENCE_S):
        assert method is not None, "nothing more came"
        batching.basic_ack(method.delivery_tag)
        if body == b"6":
            break
    batching.cancel()
    connections[0].close()  # closing rolls all of it back
    assert [other.basic_get(name, auto_ack=True)[2] for _ in range(5)] == [b"3", b"4", b"5", b"6", b"7"]
    other.queue_delete(name)


@pytest.mark.parametrize("kind", ["sticky", "shared"])
def test_a_single_transaction_takes_several_of_each_group_in_order(
    connections: list[pika.BlockingConnection], name: str, kind: str
) -> None:
    batching, other = (connection.channel() for connection in connections)
    other.queue_declare(name, arguments=STRICT | {"x-group-kind": kind})
    other.confirm_delivery()
    for number in range(10):
        group = "ab"[number % 2]
        other.basic_publish("", name, b"%d" % number, pika.BasicProperties(headers={"x-group-id": group}))
    batching.tx_select()

    def batch(count: int) -> list[bytes]:
        taken: list[bytes] = []
        for _ in range(count):
            method, _, body = batching.basic_get(name)
            assert method is not None, taken
            taken.append(body)
            batching.basic_ack(method.delivery_tag)
        return taken

    assert batch(4) == [b"0", b"1", b"2", b"3"]
    assert other.basic_get(name)[0] is None, "both groups are with the transaction"
    batching.tx_commit()
    assert batch(2) == [b"4", b"5"]
    batching.tx_rollback()
    assert batching.basic_get(name)[0] is None, "both are with the channel again"
    batching.basic_nack(0, multiple=True)
    batching.tx_commit()
    batching.basic_qos(prefetch_count=10)
    taken: list[bytes] = []
    for method, _, body in batching.consume(name, inactivity_timeout=PATIENCE_S):
        assert method is not None, "nothing more came"
        taken.append(body)
        batching.basic_ack(method.delivery_tag)
        if len(taken) == 6:
            break
    assert sorted(taken) == [b"4", b"5", b"6", b"7", b"8", b"9"]
    assert [body for body in taken if int(body) % 2 == 0] == [b"4", b"6", b"8"]
    connections[0].close()  # closing rolls all of it back
    again = [other.basic_get(name, auto_ack=True)[2] for _ in range(6)]
    assert again == [b"4", b"5", b"6", b"7", b"8", b"9"]
    other.queue_delete(name)
