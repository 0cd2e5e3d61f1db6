"""Time goes on while the broker is down, and dead letters know their history after it."""

import pytest
from pamqp.commands import Basic
from pamqp.common import FieldTable

from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.endings import Ending, both_endings


def dead_lettering(channel: PeerChannel, name: str, to: str, **more: int) -> None:
    """A durable queue whose dead letters go to the queue `to`."""
    arguments: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": to}
    for key, value in more.items():
        arguments[f"x-{key.replace('_', '-')}"] = value
    channel.declare(name, durable=True, arguments=arguments)


def deaths(headers: FieldTable | None) -> list[tuple[object, ...]]:
    assert headers is not None
    found = headers["x-death"]
    assert isinstance(found, list)
    return [
        (death["queue"], death["reason"], death["count"], death.get("original-expiration"))  # type: ignore[index, union-attr, call-overload]
        for death in found
    ]


@both_endings
@pytest.mark.spec("rabbitmq-extensions", "per-message TTL")
def test_times_that_end_while_the_broker_is_down(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    peer = connect(daemon.address)
    channel = peer.channel()
    dead_lettering(channel, "q", "dead")
    dead_lettering(channel, "brief", "dead", message_ttl=3_600_000)
    channel.declare("dead", durable=True)
    channel.confirm_select()
    for number, (queue, expiration) in enumerate(
        (("q", "300"), ("q", "3600000"), ("q", None), ("brief", "300"), ("brief", None)), 1
    ):
        properties = Basic.Properties(delivery_mode=2, expiration=expiration)
        channel.publish(b"%d" % number, queue, properties=properties)
    channel.expect_confirms(5)
    end(daemon, peer)
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.consume("dead", no_ack=True)
    arrived = channel.deliveries(2)
    assert {message.body for message in arrived} == {b"1", b"4"}
    for message in arrived:
        queue = "q" if message.body == b"1" else "brief"
        assert deaths(message.properties.headers) == [(queue, "expired", 1, "300")]
    assert (channel.counts("q")[0], channel.counts("brief")[0]) == (2, 1)


@both_endings
@pytest.mark.spec("rabbitmq-extensions", "dead letter exchanges")
def test_a_history_goes_on_and_a_dead_letter_is_in_one_place(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    peer = connect(daemon.address)
    channel = peer.channel()
    dead_lettering(channel, "work", "again")
    dead_lettering(channel, "again", "work")
    channel.confirm_select()
    headers: FieldTable = {"x-death": [{"queue": "work", "reason": "rejected", "count": 7}]}
    for body in (b"dies", b"stays"):
        channel.publish(body, "work", properties=Basic.Properties(delivery_mode=2, headers=headers))
    channel.expect_confirms(2)
    channel.reject(channel.take("work").tag, requeue=False)
    channel.publish(b"later", "work", properties=Basic.Properties(delivery_mode=2))
    channel.expect_confirms(3, first=3)  # and what was before it is on disk
    end(daemon, peer)
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    assert (channel.counts("work")[0], channel.counts("again")[0]) == (2, 1)
    message = channel.take("again")
    assert message.body == b"dies"
    assert deaths(message.properties.headers) == [("work", "rejected", 1, None)]
    channel.reject(message.tag, requeue=False)
    bodies = {}
    for _ in range(3):
        message = channel.take("work")
        bodies[message.body] = message
    channel.reject(bodies[b"dies"].tag, requeue=False)
    assert deaths(channel.take("again").properties.headers) == [
        ("work", "rejected", 2, None),
        ("again", "rejected", 1, None),
    ]
    channel.reject(bodies[b"stays"].tag, requeue=False)
    message = channel.take("again")
    assert deaths(message.properties.headers) == [("work", "rejected", 1, None)], (
        "the publisher's was no death"
    )
