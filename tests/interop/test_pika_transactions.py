"""Transactions and direct reply-to as pika's users have them."""

import pika
import pika.exceptions
import pytest

from tests.interop.pika_connection import connected
from tests.support.daemon.daemon import Address

REPLY_TO = "amq.rabbitmq.reply-to"


def test_commit_and_rollback(address: Address, name: str) -> None:
    with connected(address) as connection:
        channel = connection.channel()
        channel.queue_declare(name, exclusive=True)
        channel.tx_select()
        channel.basic_publish("", name, b"never")
        channel.tx_rollback()
        channel.basic_publish("", name, b"1")
        channel.tx_commit()
        method, _, body = channel.basic_get(name)
        assert body == b"1"
        channel.basic_ack(method.delivery_tag)
        channel.tx_rollback()
        channel.basic_nack(method.delivery_tag, requeue=True)
        channel.tx_commit()
        method, _, body = channel.basic_get(name)
        assert (body, method.redelivered) == (b"1", True)
        channel.basic_ack(method.delivery_tag)
        channel.tx_commit()
        assert channel.basic_get(name) == (None, None, None)


def test_confirms_on_a_transactional_channel(address: Address) -> None:
    with connected(address) as connection:
        channel = connection.channel()
        channel.tx_select()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            channel.confirm_delivery()
        assert closed.value.reply_code == 406
        assert "cannot switch from tx to confirm mode" in closed.value.reply_text


def test_a_call_and_its_answer(address: Address, name: str) -> None:
    with connected(address) as client, connected(address) as server:
        serving, calling = server.channel(), client.channel()
        serving.queue_declare(name, exclusive=True)
        calling.basic_consume(REPLY_TO, lambda *reply: answers.append(reply), auto_ack=True)
        answers: list[tuple[object, object, pika.BasicProperties, bytes]] = []
        properties = pika.BasicProperties(reply_to=REPLY_TO, correlation_id="7")
        calling.basic_publish("", name, b"2 + 2", properties)
        for _, asked, body in serving.consume(name, auto_ack=True, inactivity_timeout=60):
            assert body == b"2 + 2"
            echo = pika.BasicProperties(correlation_id=asked.correlation_id)
            serving.basic_publish("", asked.reply_to, b"4", echo)
            break
        while not answers:
            client.process_data_events(time_limit=60)
        ((_, _, answer_properties, body),) = answers
        assert (answer_properties.correlation_id, body) == ("7", b"4")
