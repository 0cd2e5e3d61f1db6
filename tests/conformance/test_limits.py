"""Limits that answer: the size of a message and of a transaction, and how deep tables may be."""

import struct

import pytest
from pamqp.commands import Connection, Tx

from tests.support.amqp091.field_bytes import field, long_string
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.daemon.daemon import DaemonStarter

SIZE_MAX = 100_000


@pytest.fixture
def limited(start_daemon: DaemonStarter, connect: Connector) -> PeerChannel:
    """A channel of a broker whose messages and transactions are small."""
    options = ("--message-size-max", str(SIZE_MAX), "--transaction-size-max", str(2 * SIZE_MAX))
    return connect(start_daemon(*options).address, frame_max=8192).channel()


def test_a_message_may_have_a_certain_size_and_no_more(limited: PeerChannel) -> None:
    queue = limited.declare(exclusive=True)
    limited.publish(bytes(SIZE_MAX), queue)
    assert limited.take(queue).body == bytes(SIZE_MAX)
    limited.publish(bytes(SIZE_MAX + 1), queue)
    size = SIZE_MAX + 1
    assert limited.expect_close(406) == (
        f"PRECONDITION_FAILED - message size {size} is larger than configured max size {SIZE_MAX}"
    )
    other = limited.peer.channel(2)
    assert other.take(queue).body == bytes(SIZE_MAX), "returned by the channel that ended"
    assert other.get(queue) is None


def test_a_transaction_may_have_a_certain_size_and_no_more(limited: PeerChannel) -> None:
    queue = limited.declare(exclusive=True)
    limited.call(Tx.Select(), Tx.SelectOk)
    limited.publish(bytes(SIZE_MAX), queue)
    limited.call(Tx.Commit(), Tx.CommitOk)
    for _ in range(2):
        limited.publish(bytes(SIZE_MAX), queue)
    assert f"is larger than configured max size {2 * SIZE_MAX}" in limited.expect_close(406)
    other = limited.peer.channel(2)
    assert other.counts(queue) == (1, 0)


def nested(depth: int) -> bytes:
    """The value of a header: tables within each other."""
    value = b"t\x01"
    for _ in range(depth):
        value = b"F" + long_string(field(b"x", value))
    return value


@pytest.mark.spec("amqp-0-9-1", "4.2.5.5")
@pytest.mark.parametrize("depth", [1, 99, 2000])
def test_unread_headers_may_be_nested_to_any_depth(channel: PeerChannel, depth: int) -> None:
    queue = channel.declare(exclusive=True)
    encoded = struct.pack(">H", 0x2000) + long_string(field(b"deep", nested(depth)))
    channel.publish(b"body", queue, properties=encoded)
    assert channel.take(queue).header[12:] == encoded


@pytest.mark.amqpd_only("RabbitMQ has no limit of its own")
def test_headers_that_are_looked_at_must_not_be_too_deep(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    table = field(b"deep", nested(2000)) + field(b"CC", b"A" + long_string(b""))
    channel.publish(b"body", queue, properties=struct.pack(">H", 0x2000) + long_string(table))
    close = channel.peer.expect(Connection.Close)
    assert close.reply_code == 502
    assert "more than 100 nested tables" in close.reply_text
    channel.peer.write(Connection.CloseOk())
    channel.peer.expect_end()
