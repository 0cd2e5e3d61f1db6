"""Deliveries that are not settled in time return, singly. [RabbitMQ consumer_timeout]"""

import time

import pytest
from pamqp.commands import Basic
from pamqp.common import FieldTable

from tests.support.amqp091.peer import Connector, Dialler, PeerChannel
from tests.support.daemon.daemon import DaemonStarter

pytestmark = [
    pytest.mark.amqpd_only("RabbitMQ cancels the consumer or closes the channel, and looks once a minute"),
    pytest.mark.spec("amqpd", "x-consumer-timeout"),
]

LEASE_S = 0.2
TIMED: FieldTable = {"x-consumer-timeout": 200}
LONG_LEASE_S = 1  # where the test must settle something else in time, on a machine that may be busy
LONG_TIMED: FieldTable = {"x-consumer-timeout": 1000}


def test_only_the_delivery_beyond_the_acknowledgement_timeout_is_redelivered(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.qos(2)
    channel.consume(queue, arguments=LONG_TIMED)
    began = time.monotonic()  # no later than the first delivery
    for number in range(2):
        channel.publish(b"%d" % number, queue)
    late, quick = channel.deliveries(2)
    channel.ack(quick.tag)
    again = channel.delivery()
    assert time.monotonic() - began >= LONG_LEASE_S
    assert (again.body, again.redelivered, again.tag) == (b"0", True, 3)
    channel.ack(late.tag)
    channel.nack(late.tag)
    channel.reject(late.tag, requeue=False)
    channel.round_trip()
    channel.ack(again.tag)
    assert channel.counts(queue) == (0, 1)
    assert channel.refused(Basic.Ack(quick.tag), 406) == "PRECONDITION_FAILED - unknown delivery tag 2"


def test_ack_with_multiple_passes_over_a_delivery_beyond_its_timeout(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    channel.publish(b"0", queue)
    channel.publish(b"1", queue)
    quick = channel.take(queue)
    channel.qos(1)
    channel.consume(queue, arguments=TIMED)
    late, again = channel.deliveries(2)
    channel.ack(late.tag, multiple=True)
    channel.ack(again.tag)
    channel.round_trip()
    assert channel.refused(Basic.Ack(quick.tag), 406) == "PRECONDITION_FAILED - unknown delivery tag 1"


def test_a_message_is_redelivered_again_and_again_to_a_consumer_that_never_acks(
    channel: PeerChannel,
) -> None:
    queue = channel.declare(exclusive=True, arguments=TIMED)
    channel.qos(1)
    channel.consume(queue)
    began = time.monotonic()  # no later than the first delivery
    channel.publish(b"0", queue)
    channel.publish(b"1", queue)
    messages = channel.deliveries(4)
    assert time.monotonic() - began >= 3 * LEASE_S
    assert [message.body for message in messages] == [b"0"] * 4, "never past it"
    assert [message.redelivered for message in messages] == [False, True, True, True]
    last = messages[3]
    while last.body == b"0":  # this too may be late
        channel.ack(last.tag)
        last = channel.delivery()
    assert last.body == b"1"


def test_a_delivery_beyond_its_timeout_goes_to_another_consumer(
    connect: Connector, channel: PeerChannel, name: str
) -> None:
    channel.declare(name, auto_delete=True)
    slow, quick = connect().channel(), connect().channel()
    slow.qos(1)
    slow.consume(name, "slow", arguments=TIMED)
    channel.publish(b"job", name)
    held = slow.delivery()
    quick.consume(name)
    slow.cancel("slow")
    message = quick.delivery()
    assert (message.body, message.redelivered) == (b"job", True)
    slow.nack(held.tag)
    slow.round_trip()
    quick.ack(message.tag)
    assert channel.counts(name) == (0, 1)


def test_a_message_that_was_taken_by_get(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True, arguments=TIMED)
    channel.publish(b"0", queue)
    taken = channel.take(queue)
    channel.consume(queue)
    again = channel.delivery()
    assert (again.body, again.redelivered) == (b"0", True)
    channel.ack(taken.tag)
    channel.ack(again.tag)
    assert channel.counts(queue) == (0, 1)


def test_a_single_active_consumer_that_never_drains(
    connect: Connector, channel: PeerChannel, name: str
) -> None:
    arguments: FieldTable = {"x-single-active-consumer": True, **TIMED}
    channel.declare(name, auto_delete=True, arguments=arguments)
    old, new = connect().channel(), connect().channel()
    old.consume(name, "old")
    new.consume(name)
    for number in range(3):
        channel.publish(b"%d" % number, name)
    old.deliveries(3)
    old.cancel("old")
    messages = new.deliveries(3)
    assert [message.body for message in messages] == [b"0", b"1", b"2"]
    old.ack(3, multiple=True)
    old.round_trip()
    new.ack(messages[-1].tag, multiple=True)
    assert channel.counts(name) == (0, 1)


def test_a_default_for_all_consumers(start_daemon: DaemonStarter, dial: Dialler) -> None:
    daemon = start_daemon("--consumer-timeout-ms", "200")
    channel = dial(daemon.address).open().channel()
    queue = channel.declare(exclusive=True)
    channel.publish(b"0", queue)
    channel.consume(queue)
    assert [message.redelivered for message in channel.deliveries(2)] == [False, True]


def test_invalid_times(channel: PeerChannel) -> None:
    queue = channel.declare("never-timed", exclusive=True)
    text = channel.refused(Basic.Consume(queue=queue, arguments={"x-consumer-timeout": -1}), 406)
    assert text == (
        "PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' for queue 'never-timed' in vhost '/': "
        "'-1' of type 'signedint' is not an integer from 0 to 315360000000"
    )
