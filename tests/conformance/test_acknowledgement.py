"""ack, nack, reject, recover and get: removed messages, returned messages, and their places."""

import pytest
from pamqp import base
from pamqp.commands import Basic, Queue, Tx

from tests.support.amqp091.frames import Message
from tests.support.amqp091.peer import Connector, PeerChannel


@pytest.fixture
def queue(channel: PeerChannel, name: str) -> str:
    """A queue with messages 0 to 9."""
    channel.declare(name, exclusive=True)
    for number in range(10):
        channel.publish(b"%d" % number, name)
    return name


def numbers(messages: list[Message]) -> list[tuple[int, bool]]:
    """Bodies and redelivered flags."""
    return [(int(message.body), message.redelivered) for message in messages]


@pytest.mark.spec("amqp-0-9-1", "basic.get")
def test_get_counts_down_and_ends_empty(channel: PeerChannel, queue: str) -> None:
    for number in range(10):
        message = channel.get(queue)
        assert message is not None
        assert isinstance(message.method, Basic.GetOk)
        assert message.method.message_count == 9 - number
        assert message.method.routing_key == queue
        assert message.method.exchange == ""
        assert int(message.body) == number
    assert channel.get(queue) is None


@pytest.mark.spec("amqp-0-9-1", "basic.ack#multiple")
def test_ack_multiple(channel: PeerChannel, queue: str) -> None:
    messages = [channel.take(queue) for _ in range(6)]
    channel.ack(messages[2].tag, multiple=True)
    channel.ack(messages[5].tag)
    channel.recover()
    assert numbers([channel.take(queue) for _ in range(3)]) == [(3, True), (4, True), (6, False)]


@pytest.mark.spec("amqp-0-9-1", "basic.ack#delivery-tag")
def test_ack_of_tag_zero_with_multiple_settles_all_deliveries(channel: PeerChannel, queue: str) -> None:
    for _ in range(10):
        channel.take(queue)
    channel.ack(0, multiple=True)
    channel.recover()
    assert channel.counts(queue) == (0, 0)
    channel.ack(0, multiple=True)  # nothing is unacked: not an error
    channel.round_trip()


@pytest.mark.spec("rabbitmq-extensions", "basic.nack")
def test_nack_of_all_deliveries_returns_them_to_their_positions(channel: PeerChannel, queue: str) -> None:
    for _ in range(4):
        channel.take(queue)
    channel.nack(0, multiple=True)
    taken = [channel.take(queue) for _ in range(5)]
    assert numbers(taken) == [(0, True), (1, True), (2, True), (3, True), (4, False)]


@pytest.mark.spec("rabbitmq-extensions", "basic.nack")
def test_nack_without_requeue_drops(channel: PeerChannel, queue: str) -> None:
    messages = [channel.take(queue) for _ in range(4)]
    channel.nack(messages[1].tag, multiple=True, requeue=False)
    channel.nack(messages[3].tag, requeue=True)
    assert numbers([channel.take(queue), channel.take(queue)]) == [(3, True), (4, False)]
    channel.recover()
    assert numbers([channel.take(queue)]) == [(2, True)]


@pytest.mark.spec("amqp-0-9-1", "basic.reject")
def test_reject_requeues_to_the_original_place_or_drops(channel: PeerChannel, queue: str) -> None:
    messages = [channel.take(queue) for _ in range(3)]
    channel.reject(messages[1].tag)
    channel.reject(messages[0].tag, requeue=False)
    assert numbers([channel.take(queue), channel.take(queue)]) == [(1, True), (3, False)]


@pytest.mark.spec("amqp-0-9-1", "basic.reject")
def test_a_returned_message_is_delivered_before_later_messages(
    connect: Connector, channel: PeerChannel, name: str
) -> None:
    channel.declare(name)
    holder = connect().channel()
    for number in range(3):
        channel.publish(b"%d" % number, name)
    channel.round_trip()
    held = holder.take(name)
    holder.reject(held.tag)
    holder.round_trip()
    channel.consume(name)
    assert numbers(channel.deliveries(3)) == [(0, True), (1, False), (2, False)]
    channel.call(Queue.Delete(queue=name), Queue.DeleteOk)


@pytest.mark.spec("amqp-0-9-1", "basic.recover")
@pytest.mark.parametrize("wait", [True, False], ids=["recover", "recover-async"])
def test_recover_returns_only_the_deliveries_of_its_channel(
    channel: PeerChannel, queue: str, wait: bool
) -> None:
    other = channel.peer.channel(2)
    assert int(other.take(queue).body) == 0
    for _ in range(3):
        channel.take(queue)
    if wait:
        channel.recover()
    else:
        channel.recover_async()
    assert numbers([channel.take(queue) for _ in range(4)]) == [(1, True), (2, True), (3, True), (4, False)]


@pytest.mark.spec("amqp-0-9-1", "basic.recover")
def test_recover_redelivers_to_the_consumer(channel: PeerChannel, queue: str) -> None:
    channel.qos(3)
    channel.consume(queue)
    assert numbers(channel.deliveries(3)) == [(0, False), (1, False), (2, False)]
    channel.recover_async()
    assert numbers(channel.deliveries(3)) == [(0, True), (1, True), (2, True)]
    channel.expect_silence()


@pytest.mark.amqpd_only("RabbitMQ refuses requeue=false with 540")
@pytest.mark.spec("amqp-0-9-1", "basic.recover#requeue")
def test_recover_without_requeue_redelivers_to_the_same_consumer(
    connect: Connector, channel: PeerChannel, name: str
) -> None:
    channel.declare(name)
    holder = connect().channel()
    holder.qos(2)
    holder.consume(name, "holder")
    channel.publish(b"0", name)
    channel.publish(b"1", name)
    assert numbers(holder.deliveries(2)) == [(0, False), (1, False)]
    channel.consume(name, "other")
    holder.write(Basic.Recover(False))
    messages: list[Message] = []
    answered = False
    while len(messages) < 2 or not answered:
        command = holder.peer.expect_any((Basic.Deliver, Basic.RecoverOk), holder.number)
        if isinstance(command, Basic.Deliver):
            messages.append(holder.peer.expect_content(command, holder.number))
        else:
            answered = True
    assert numbers(messages) == [(0, True), (1, True)]
    channel.expect_silence()
    for message in messages:
        holder.ack(message.tag)
    holder.round_trip()
    channel.call(Queue.Delete(queue=name), Queue.DeleteOk)


@pytest.mark.spec("amqp-0-9-1", "basic.ack#delivery-tag")
@pytest.mark.parametrize(
    ("command", "tag"),
    [
        (Basic.Ack(99), 99),
        (Basic.Nack(99), 99),
        (Basic.Reject(99), 99),
        (Basic.Ack(99, True), 99),
        (Basic.Ack(0), 0),
        (Basic.Reject(0), 0),
    ],
    ids=["ack", "nack", "reject", "ack-multiple", "ack-zero", "reject-zero"],
)
def test_an_unknown_delivery_tag(channel: PeerChannel, queue: str, command: base.Frame, tag: int) -> None:
    channel.take(queue)
    assert channel.refused(command, 406) == f"PRECONDITION_FAILED - unknown delivery tag {tag}"
    again = channel.peer.channel(1)
    assert numbers([again.take(queue)]) == [(0, True)]


@pytest.mark.spec("amqp-0-9-1", "basic.ack#delivery-tag")
def test_a_tag_can_be_acked_once(channel: PeerChannel, queue: str) -> None:
    tag = channel.take(queue).tag
    channel.ack(tag)
    channel.round_trip()
    assert "unknown delivery tag 1" in channel.refused(Basic.Ack(tag), 406)


@pytest.mark.spec("amqp-0-9-1", "basic.ack#multiple")
@pytest.mark.parametrize("settled", [Basic.Ack(3, True), Basic.Nack(3, True, False), Basic.Reject(3, False)])
@pytest.mark.parametrize("again", [Basic.Ack(3, True), Basic.Nack(3, True)])
@pytest.mark.parametrize("transaction", [False, True])
def test_a_settled_tag_cannot_be_settled_again_with_multiple(
    channel: PeerChannel, queue: str, settled: base.Frame, again: base.Frame, transaction: bool
) -> None:
    if transaction:
        channel.call(Tx.Select(), Tx.SelectOk)
    for _ in range(4):
        channel.take(queue)
    channel.write(settled)
    assert channel.refused(again, 406) == "PRECONDITION_FAILED - unknown delivery tag 3"
    assert channel.peer.channel(2).take(queue).redelivered  # the fourth one, at least, has come back


@pytest.mark.spec("amqp-0-9-1", "basic.ack#multiple")
def test_a_delivery_that_needs_no_ack_cannot_be_acked_with_multiple(channel: PeerChannel, queue: str) -> None:
    channel.take(queue)
    channel.get(queue, no_ack=True)
    assert channel.refused(Basic.Ack(2, True), 406) == "PRECONDITION_FAILED - unknown delivery tag 2"


@pytest.mark.spec("amqp-0-9-1", "basic.ack#multiple")
def test_ack_of_all_deliveries_without_any_outstanding_is_no_error(channel: PeerChannel, queue: str) -> None:
    channel.take(queue)
    channel.ack(0, multiple=True)
    channel.ack(0, multiple=True)
    channel.round_trip()


@pytest.mark.spec("amqp-0-9-1", "basic.ack#delivery-tag")
def test_tags_belong_to_their_channel(channel: PeerChannel, queue: str) -> None:
    tag = channel.take(queue).tag
    other = channel.peer.channel(2)
    assert "unknown delivery tag 1" in other.refused(Basic.Ack(tag), 406)
    channel.ack(tag)
    channel.round_trip()


@pytest.mark.spec("amqp-0-9-1", "channel.close")
def test_closing_the_channel_returns_its_messages_in_order(channel: PeerChannel, queue: str) -> None:
    other = channel.peer.channel(2)
    other.qos(5)
    other.consume(queue)
    assert numbers(other.deliveries(5)) == [(number, False) for number in range(5)]
    other.close()
    expected = [(number, number < 5) for number in range(10)]
    assert numbers([channel.take(queue) for _ in range(10)]) == expected


@pytest.mark.spec("amqp-0-9-1", "basic.cancel")
def test_a_cancelled_consumers_messages_can_still_be_acked(channel: PeerChannel, queue: str) -> None:
    channel.qos(3)
    tag = channel.consume(queue)
    messages = channel.deliveries(3)
    channel.cancel(tag)
    assert channel.counts(queue) == (7, 0)
    channel.ack(messages[0].tag)
    channel.nack(messages[1].tag)
    assert numbers([channel.take(queue), channel.take(queue)]) == [(1, True), (3, False)]


@pytest.mark.spec("amqp-0-9-1", "basic.consume#no-ack")
def test_no_ack_deliveries_leave_at_once(channel: PeerChannel, queue: str) -> None:
    channel.consume(queue, no_ack=True)
    messages = channel.deliveries(10)
    assert [message.tag for message in messages] == list(range(1, 11))
    channel.recover()
    channel.expect_silence()
    assert "unknown delivery tag 1" in channel.refused(Basic.Ack(1), 406)
