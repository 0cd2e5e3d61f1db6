"""Expiration, x-message-ttl, x-expires, x-max-length and x-overflow on the wire."""

import pytest
from pamqp.commands import Basic, Queue, Tx

from tests.support.amqp091.peer import Connector, PeerChannel


@pytest.mark.spec("rabbitmq-extensions", "per-message TTL")
@pytest.mark.parametrize(
    ("expiration", "why"),
    [
        ("", "no_integer"),
        ("soon", "no_integer"),
        ("-", "no_integer"),
        (" 10", "no_integer"),
        ("0x10", '{leftover_string,"x10"}'),
        ("10 ms", '{leftover_string," ms"}'),
        ('1"2\\', '{leftover_string,"\\"2\\\\"}'),
        ("1e3", '{leftover_string,"e3"}'),
        ("1.5", '{leftover_string,".5"}'),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
        ("9" * 200, f"{{value_too_large,{'9' * 200}}}"),
    ],
)
@pytest.mark.parametrize("transacted", [False, True])
def test_a_bad_expiration_is_refused_at_once(
    channel: PeerChannel, expiration: str, why: str, transacted: bool
) -> None:
    if transacted:
        channel.call(Tx.Select(), Tx.SelectOk)
    properties = Basic.Properties(expiration=expiration)
    raw = properties if expiration else b"\x01\x00\x00"  # present and empty
    channel.publish(b"x", "nowhere", properties=raw)
    text = f"PRECONDITION_FAILED - invalid expiration '{expiration}': {why}"
    assert channel.expect_close(406) == text[:255]


@pytest.mark.spec("rabbitmq-extensions", "per-message TTL")
def test_the_longest_expiration_is_ten_years(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.publish(b"x", queue, properties=Basic.Properties(expiration="315360000000"))
    assert channel.take(queue).properties.expiration == "315360000000"


@pytest.mark.spec("rabbitmq-extensions", "per-message TTL")
@pytest.mark.parametrize("expiration", ["0", "+0", "000"])
def test_expiration_0_is_delivered_at_once_or_never(channel: PeerChannel, expiration: str) -> None:
    queue = channel.declare(exclusive=True)
    properties = Basic.Properties(expiration=expiration)
    channel.publish(b"nobody", queue, properties=properties)
    channel.consume(queue, no_ack=True)
    channel.publish(b"somebody", queue, properties=properties)
    message = channel.delivery()
    assert message.body == b"somebody"
    assert message.properties.expiration == expiration
    assert channel.counts(queue)[0] == 0


@pytest.mark.spec("rabbitmq-extensions", "queue TTL")
def test_an_unused_queue_expires_and_a_consumed_queue_does_not(channel: PeerChannel, name: str) -> None:
    for suffix in ("unused", "used"):
        channel.declare(f"{name}.{suffix}", arguments={"x-expires": 50})
    channel.consume(f"{name}.used", "keeper")
    witness = channel.declare(
        exclusive=True,
        arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "w"},
    )
    channel.declare("w", exclusive=True)
    channel.publish(b"time is over", witness)
    channel.consume("w", "watch", no_ack=True)
    assert channel.delivery().body == b"time is over"
    assert channel.counts(f"{name}.used") == (0, 1)
    text = channel.refused(Queue.Declare(queue=f"{name}.unused", passive=True), 404)
    assert text == f"NOT_FOUND - no queue '{name}.unused' in vhost '/'"


@pytest.mark.spec("rabbitmq-extensions", "queue length limit")
def test_the_oldest_goes_first(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True, arguments={"x-max-length": 2})
    for body in (b"1", b"2", b"3"):
        channel.publish(body, queue)
    assert [channel.take(queue).body for _ in range(2)] == [b"2", b"3"]
    assert channel.get(queue) is None


@pytest.mark.spec("rabbitmq-extensions", "queue length limit")
def test_reject_publish_nacks_a_message_beyond_max_length_for_all_its_queues(connect: Connector) -> None:
    channel = connect().channel()
    full = channel.declare(exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    roomy = channel.declare(exclusive=True)
    for queue in (full, roomy):
        channel.call(Queue.Bind(queue=queue, exchange="amq.fanout"), Queue.BindOk)
    channel.confirm_select()
    channel.publish(b"1", "", exchange="amq.fanout")
    channel.expect_confirms(1)
    channel.publish(b"2", "", exchange="amq.fanout", mandatory=True)
    nack = channel.expect(Basic.Nack)
    assert (nack.delivery_tag, nack.multiple) == (2, False)
    assert channel.counts(full)[0] == channel.counts(roomy)[0] == 1


@pytest.mark.spec("rabbitmq-extensions", "queue length limit")
def test_reject_publish_drops_the_message_without_publisher_confirms(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    for body in (b"1", b"2"):
        channel.publish(body, queue)
    channel.expect_silence()
    assert channel.take(queue).body == b"1"
    assert channel.get(queue) is None
