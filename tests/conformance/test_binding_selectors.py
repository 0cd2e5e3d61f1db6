"""Bindings with a selector, which Broker-J has and RabbitMQ has not."""

import pytest
from pamqp.commands import Basic, Exchange, Queue
from pamqp.common import FieldTable

from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp091.topology_commands import bind_queue, declare_exchange, drain
from tests.support.daemon.daemon import Daemon, DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ has no selectors on bindings")


def selector(text: str) -> FieldTable:
    return {"x-filter-jms-selector": text}


def test_headers_and_properties(channel: PeerChannel, exchange: str, queues: list[str]) -> None:
    declare_exchange(channel, exchange, "topic")
    bind_queue(channel, queues[0], exchange, "a.*", selector("level > 2 AND kind IN ('x', 'y')"))
    bind_queue(channel, queues[1], exchange, "#", selector("JMSPriority >= 5 OR app_id LIKE 'billing-%'"))
    bind_queue(channel, queues[2], exchange, "a.b")
    sent = [
        ("a.b", Basic.Properties(headers={"level": 3, "kind": "x"})),
        ("a.b", Basic.Properties(headers={"level": 2, "kind": "x"}, priority=5)),
        ("b", Basic.Properties(headers={"level": 3, "kind": "y"}, app_id="billing-7")),
        ("a.c", None),
    ]
    for number, (key, properties) in enumerate(sent):
        channel.publish(b"%d" % number, key, exchange, properties)
    assert [drain(channel, queue) for queue in queues[:3]] == [["0"], ["1", "2"], ["0", "1"]]


def test_mandatory_when_no_selector_is_true(channel: PeerChannel, exchange: str, queues: list[str]) -> None:
    declare_exchange(channel, exchange, "fanout")
    channel.confirm_select()
    channel.publish(b"before", "k", exchange, mandatory=True)
    assert channel.returned().body == b"before"
    channel.expect_confirms(1)
    bind_queue(channel, queues[0], exchange, "k", selector("level = 1"))
    channel.publish(b"other", "k", exchange, Basic.Properties(headers={"level": 2}), mandatory=True)
    assert channel.returned().body == b"other"
    channel.publish(b"mine", "k", exchange, Basic.Properties(headers={"level": 1}), mandatory=True)
    channel.expect_confirms(3, 2)
    assert drain(channel, queues[0]) == ["mine"]


def test_immediate_along_a_selector(channel: PeerChannel, exchange: str, queues: list[str]) -> None:
    declare_exchange(channel, exchange, "fanout")
    bind_queue(channel, queues[0], exchange, "k", selector("level = 1"))
    properties = Basic.Properties(headers={"level": 1})
    channel.publish(b"x", "k", exchange, properties, mandatory=True, immediate=True)
    returned = channel.returned()
    assert isinstance(returned.method, Basic.Return)
    assert (returned.method.reply_code, returned.method.reply_text) == (313, "NO_CONSUMERS")
    channel.publish(b"y", "k", exchange, mandatory=True, immediate=True)
    returned = channel.returned()
    assert isinstance(returned.method, Basic.Return)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("level = = 1", "position 9: expected a value or a condition, found '='"),
        ("level LIKE 'x", "position 12: the string that begins here has no end"),
    ],
)
def test_an_invalid_selector_ends_the_channel(
    channel: PeerChannel, exchange: str, queues: list[str], text: str, why: str
) -> None:
    declare_exchange(channel, exchange, "fanout")
    command = Queue.Bind(queue=queues[0], exchange=exchange, arguments=selector(text))
    refusal = channel.refused(command, 406)
    assert refusal.startswith("PRECONDITION_FAILED - invalid arg 'x-filter-jms-selector' for the binding of")
    channel = channel.peer.channel(2)
    command = Queue.Bind(queue=queues[0], exchange="amq.fanout", arguments=selector(text))
    assert channel.refused(command, 406).endswith(f" to queue '{queues[0]}': {why}")


@pytest.mark.parametrize("end", [Daemon.stop, Daemon.kill])
def test_selectors_survive_a_restart(start_daemon: DaemonStarter, connect: Connector, end: object) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True)
    channel.call(Exchange.Declare(exchange="x", exchange_type="fanout", durable=True), Exchange.DeclareOk)
    bind_queue(channel, "q", "x", "", selector("level BETWEEN 2 AND 3"))
    channel.peer.drop()
    end(daemon)  # type: ignore[operator]

    channel = connect(start_daemon().address).channel()
    for level in range(5):
        channel.publish(b"%d" % level, "", "x", Basic.Properties(headers={"level": level}))
    assert drain(channel, "q") == ["2", "3"]
    command = Queue.Unbind(queue="q", exchange="x", arguments=selector("level BETWEEN 2 AND 3"))
    channel.call(command, Queue.UnbindOk)
    channel.publish(b"gone", "", "x", Basic.Properties(headers={"level": 2}))
    assert drain(channel, "q") == []
