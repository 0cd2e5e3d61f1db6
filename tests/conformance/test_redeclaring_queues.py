"""Declaring a queue that exists: the same again is fine, anything else is refused with the reason."""

import pytest
from pamqp.commands import Queue
from pamqp.common import FieldTable

from tests.support.amqp091.peer import PeerChannel


def delete(channel: PeerChannel, queue: str) -> None:
    """Delete a queue."""
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


@pytest.mark.spec("amqp-0-9-1", "queue.declare")
@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (
            {"durable": False},
            {"durable": True},
            "inequivalent arg 'durable' for queue '{}' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            {"durable": True},
            {"durable": False},
            "inequivalent arg 'durable' for queue '{}' in vhost '/': received 'false' but current is 'true'",
        ),
        (
            {"auto_delete": False},
            {"auto_delete": True},
            "inequivalent arg 'auto_delete' for queue '{}' in vhost '/': "
            "received 'true' but current is 'false'",
        ),
        (
            {"arguments": {"x-max-priority": 5}},
            {"arguments": {"x-max-priority": 70000}},
            "",
        ),
        (
            {"arguments": {"x-max-priority": 5}},
            {"arguments": {"x-max-priority": 200}},
            "inequivalent arg 'x-max-priority' for queue '{}' in vhost '/': "
            "received '200' but current is '5'",
        ),
    ],
    ids=[
        "durable",
        "not-durable",
        "auto-delete",
        "bad-argument",
        "argument",
    ],
)
def test_redeclaring_differently(
    channel: PeerChannel, name: str, first: FieldTable, second: FieldTable, text: str
) -> None:
    channel.declare(name, **first)  # type: ignore[arg-type]
    channel.declare(name, **first)  # type: ignore[arg-type]
    refusal = channel.refused(Queue.Declare(queue=name, **second), 406)  # type: ignore[arg-type]
    if text:
        assert refusal == "PRECONDITION_FAILED - " + text.format(name)
    delete(channel.peer.channel(1), name)


FIVE_LEVELS = b"\x0ex-max-priority" + b"I\x00\x00\x00\x05"


@pytest.mark.spec("amqp-0-9-1", "queue.declare#arguments")
@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (b"", FIVE_LEVELS, "received the value '5' of type 'signedint' but current is none"),
        (FIVE_LEVELS, b"", "received none but current is the value '5' of type 'signedint'"),
    ],
    ids=["more", "less"],
)
def test_redeclaring_with_more_or_fewer_arguments(
    channel: PeerChannel, name: str, first: bytes, second: bytes, text: str
) -> None:
    channel.peer.send(declare_bytes(name, first))
    channel.expect(Queue.DeclareOk)
    channel.peer.send(declare_bytes(name, second))
    where = f"PRECONDITION_FAILED - inequivalent arg 'x-max-priority' for queue '{name}' in vhost '/': "
    assert channel.expect_close(406) == where + text
    delete(channel.peer.channel(1), name)


@pytest.mark.spec("rabbitmq-extensions", "x-max-priority")
@pytest.mark.parametrize("value", ["5", -1, 256, True, None, 1.5, {}], ids=repr)
def test_arguments_of_the_wrong_type_or_range(channel: PeerChannel, name: str, value: object) -> None:
    command = Queue.Declare(queue=name, arguments={"x-max-priority": value})  # type: ignore[dict-item]
    text = channel.refused(command, 406)
    assert text.startswith(
        f"PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue '{name}' in vhost '/'"
    )


@pytest.mark.spec("amqp-0-9-1", "queue.declare#arguments")
def test_the_width_of_an_integer_makes_no_difference(channel: PeerChannel, name: str) -> None:
    for code, width in zip("bBsuIil", (1, 1, 2, 2, 4, 4, 8), strict=True):
        value = code.encode() + (5).to_bytes(width, "big")
        channel.peer.send(declare_bytes(name, b"\x0ex-max-priority" + value))
        channel.expect(Queue.DeclareOk)
    delete(channel, name)


def declare_bytes(queue: str, table: bytes) -> bytes:
    """queue.declare on channel 1 with arguments in bytes of the test's choice."""
    payload = b"\x00\x32\x00\x0a\x00\x00" + bytes([len(queue)]) + queue.encode() + b"\x00"
    payload += len(table).to_bytes(4, "big") + table
    return b"\x01\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"


@pytest.mark.spec("amqp-0-9-1", "queue.declare#exclusive")
def test_an_exclusive_queue_is_never_durable(channel: PeerChannel, name: str) -> None:
    channel.declare(name, exclusive=True, durable=True)
    channel.declare(name, exclusive=True, durable=False)
