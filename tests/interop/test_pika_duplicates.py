"""Queues that take no message twice, as a pika user sees them."""

from collections.abc import Callable

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_connection import connected
from tests.support.admin.api import Api
from tests.support.daemon.daemon import Address, Daemon, DaemonStarter

WINDOW = {"x-dedup-window": 600_000, "x-dedup-producers": 10}
Returned = list[tuple[int, str, bytes]]


def who(message_id: str | None = None, sequence: object = None) -> pika.BasicProperties:
    headers = None if sequence is None else {"x-producer": "p", "x-sequence": sequence}
    return pika.BasicProperties(message_id=message_id, headers=headers, delivery_mode=2)


def returned(channel: BlockingChannel, queue: str, body: bytes, properties: pika.BasicProperties) -> Returned:
    """Publish as mandatory, wait for the confirm, and return the returned message."""
    try:
        channel.basic_publish("", queue, body, properties, mandatory=True)
    except pika.exceptions.UnroutableError as error:
        return [(m.method.reply_code, m.method.reply_text, m.body) for m in error.messages]
    return []


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    """Take everything."""
    taken: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return taken
        taken.append(body)


def test_a_duplicate_is_confirmed_and_returned_if_mandatory(daemon: Daemon, name: str) -> None:
    connection = connected(daemon.address)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(name, durable=True, arguments=WINDOW)
    assert returned(channel, name, b"1", who("a")) == []
    assert returned(channel, name, b"2", who("a")) == [(406, "DUPLICATE", b"2")]
    channel.basic_publish("", name, b"3", who("a"))
    for body, sequence in ((b"4", 5), (b"5", 4), (b"6", 5), (b"7", 6)):
        channel.basic_publish("", name, body, who(sequence=sequence))
    assert returned(channel, name, b"8", who()) == []
    assert returned(channel, name, b"9", who()) == []
    assert bodies(channel, name) == [b"1", b"4", b"7", b"8", b"9"]
    channel.queue_purge(name)
    assert returned(channel, name, b"10", who("a")) == [(406, "DUPLICATE", b"10")]
    api = Api(daemon.admin)
    shown = api.get("queues", "/", name)
    assert (shown["messages_duplicate"], shown["remembered"]) == (5, {"message_ids": 1, "producers": 1})
    properties = {"message_id": "a", "delivery_mode": 2}
    message = {"routing_key": name, "payload": "x", "payload_encoding": "string", "properties": properties}
    assert api.post("exchanges", "/", "amq.default", "publish", status=200, body=message) == {
        "routed": False,
        "duplicate": True,
    }
    assert daemon.metric(f'amqpd_queue_messages_duplicate{{queue="{name}",vhost="/"}}') == 6
    api.close()
    channel.queue_delete(name)
    connection.close()


def test_an_invalid_sequence_header_closes_the_channel_with_406(address: Address, name: str) -> None:
    connection = connected(address)
    channel = connection.channel()
    channel.queue_declare(name, arguments={"x-dedup-producers": 5})
    channel.basic_publish("", name, b"", who(sequence="seven"))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare(name, passive=True)
    assert caught.value.reply_code == 406
    assert "invalid header 'x-sequence' of a message: 'seven'" in caught.value.reply_text
    connection.channel().queue_delete(name)
    connection.close()


def test_rolled_back_messages_are_not_recorded(address: Address, name: str) -> None:
    connection = connected(address)
    channel = connection.channel()
    back: list[bytes] = []
    channel.add_on_return_callback(lambda *returned: back.append(returned[3]))
    channel.tx_select()
    channel.queue_declare(name, durable=True, arguments=WINDOW)
    first = who("a", sequence=1)
    channel.basic_publish("", name, b"1", first)
    channel.tx_rollback()
    channel.basic_publish("", name, b"2", first)
    channel.basic_publish("", name, b"3", first, mandatory=True)
    channel.basic_publish("", name, b"4", who("b", sequence=2))
    channel.tx_commit()
    channel.basic_publish("", name, b"5", first, mandatory=True)
    channel.tx_commit()
    assert bodies(channel, name) == [b"2", b"4"]
    connection.process_data_events(0)
    assert back == [b"3", b"5"]
    channel.tx_commit()
    channel.queue_delete(name)
    connection.close()


@pytest.mark.parametrize("end", [Daemon.stop, Daemon.kill])
def test_confirmed_messages_stay_recorded(start_daemon: DaemonStarter, end: Callable[[Daemon], None]) -> None:
    daemon = start_daemon("--segment-bytes", "64KiB")
    connection = connected(daemon.address)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True, arguments=WINDOW)
    for number in range(50):
        properties = who(f"id-{number}", sequence=number)
        channel.basic_publish("", "q", bytes(16_384), properties)
    assert len(bodies(channel, "q")) == 50
    channel.queue_declare("synced", durable=True)
    connection.close()
    end(daemon)
    daemon = start_daemon()
    connection = connected(daemon.address)
    channel = connection.channel()
    channel.confirm_delivery()
    for number in range(50):
        assert returned(channel, "q", b"", who(f"id-{number}")) == [(406, "DUPLICATE", b"")]
    for number in (0, 49, 50):
        properties = who(sequence=number)
        assert bool(returned(channel, "q", b"", properties)) == (number < 50)
    assert bodies(channel, "q") == [b""]
    connection.close()
