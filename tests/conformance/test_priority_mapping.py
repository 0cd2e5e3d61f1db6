"""`x-priority-mapping`: the level of each priority, and of a message without any."""

import pytest
from pamqp.commands import Basic
from pamqp.common import FieldTable

from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp091.topology_commands import drain
from tests.support.amqp10.contents import content10
from tests.support.amqp10.peer import Meet, Peer10
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.endings import Ending, both_endings

pytestmark = pytest.mark.amqpd_only("RabbitMQ has no x-priority-mapping")

PRIORITIES = (None, 0, 3, 4, 5, 9)
MAPPED: FieldTable = {"x-max-priority": 1, "x-priority-mapping": "amqp"}  # two levels: 0 to 4, and 5 to 9


def fill(channel: PeerChannel, session: PeerSession10, queue: str) -> None:
    """Publish a message of each priority over AMQP 0-9-1, then over AMQP 1.0; wait for both."""
    channel.confirm_select()
    for priority in PRIORITIES:
        properties = Basic.Properties(priority=priority, delivery_mode=2)
        channel.publish(f"old {priority}".encode(), queue, properties=properties)
    channel.expect_confirms(len(PRIORITIES))
    session.sends(f"/queues/{queue}", 7)
    for number, priority in enumerate(PRIORITIES):
        body = f"new {priority}".encode()
        section = b"\x00\x53\x75\xa0" + bytes([len(body)]) + body
        session.publish(7, 1, content10(durable=True, priority=priority, body=section), first=number)


def named(*priorities: int | None) -> list[str]:
    """Messages published with these priorities, over AMQP 0-9-1 and then over AMQP 1.0."""
    return [f"{protocol} {priority}" for protocol in ("old", "new") for priority in priorities]


@pytest.mark.parametrize(
    ("arguments", "order"),
    [
        (MAPPED, [(5, 9), (None, 0, 3, 4)]),
        ({"x-priority-mapping": "amqp"}, [(9,), (5,), (None, 4), (3,), (0,)]),
        ({"x-max-priority": 4}, [(4, 5, 9), (3,), (None, 0)]),
    ],
    ids=["two levels", "ten levels", "not mapped"],
)
def test_a_message_without_a_priority_has_four_where_priorities_are_mapped_and_else_zero(
    channel: PeerChannel,
    session: PeerSession10,
    name: str,
    arguments: FieldTable,
    order: list[tuple[int | None, ...]],
) -> None:
    channel.declare(name, arguments=arguments)
    fill(channel, session, name)
    assert drain(channel, name) == [body for level in order for body in named(*level)]


def test_a_policy_maps_priorities(api: Api, vhost: str, connect: Connector, meet: Meet) -> None:
    channel = connect(vhost=vhost).channel()
    peer = meet()
    peer.open(hostname=f"vhost:{vhost}")
    session = PeerSession10(peer)
    channel.declare("q", arguments={"x-max-priority": 1})
    api.put("policies", vhost, "mapped", pattern="q", definition={"priority-mapping": "amqp"})
    fill(channel, session, "q")
    assert drain(channel, "q") == named(5, 9) + named(None, 0, 3, 4)
    refusal = api.refused(
        400, "PUT", "policies", vhost, "p", body={"pattern": "", "definition": {"priority-mapping": "jms"}}
    )
    assert "is not one of rabbitmq, amqp" in refusal["reason"]


@both_endings
def test_priorities_are_mapped_after_a_restart(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    peer = Peer10(daemon.address)
    peer.open()
    channel.declare("q", durable=True, arguments=MAPPED)
    fill(channel, PeerSession10(peer), "q")
    peer.socket.close()
    end(daemon, channel.peer)
    again = connect(start_daemon().address).channel()
    assert drain(again, "q") == named(5, 9) + named(None, 0, 3, 4)
