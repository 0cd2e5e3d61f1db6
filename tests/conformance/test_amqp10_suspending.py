"""AMQP 1.0: the time-outs of suspended links. [amqp-1.0 2.6.13, 3.5.5, 3.5.6]"""

import time
from typing import Any

import pytest

from protocol.amqp10.composites import (
    Accepted,
    Source,
)
from tests.support.admin.api import Api
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.peer_session import Begins, PeerSession10
from tests.support.amqp10.unsettled_maps import (
    MINUTE,
    attach_receiver,
    expect_concluded,
    suspend,
    unsettled,
    unsettled_map_of,
)
from tests.support.daemon.daemon import PATIENCE_S

pytestmark = pytest.mark.amqpd_only("no other broker resumes links")


def wait_for(channel: PeerChannel, queue: str, ready: int) -> None:
    """So many messages are ready, some time."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := channel.counts(queue)[0]) != ready:
        assert time.monotonic() < deadline, f"{found} messages are ready instead of {ready}"
        time.sleep(0.02)


@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_deliveries_return_at_the_end_of_the_time_out(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    channel.publish(b"x", node)
    source = Source(address=f"/queues/{node}", timeout=1, expiry_policy="link-detach")
    answer = session.receives(None, credit=1, source=source)
    assert answer.source is not None
    assert (answer.source.timeout, answer.source.expiry_policy) == (1, "link-detach")
    tag = session.delivery().tag
    suspend(session)
    wait_for(channel, node, 1)
    assert unsettled_map_of(attach_receiver(session, node, {tag: Accepted()})) is None
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "3.5.6")
@pytest.mark.parametrize("policy", ["session-end", "connection-close", "never"])
def test_the_timeout_of_a_suspended_link_begins_at_its_expiry_policy(
    session: PeerSession10, channel: PeerChannel, node: str, policy: str
) -> None:
    """The session is open for longer than the time-out: nothing has expired."""
    channel.publish(b"x", node)
    session.receives(None, credit=1, source=Source(address=node, timeout=1, expiry_policy=policy))
    session.delivery()
    suspend(session)
    time.sleep(1.5)
    assert channel.counts(node)[0] == 0
    session.end()
    if policy == "session-end":
        wait_for(channel, node, 1)
        return
    assert channel.counts(node)[0] == 0
    session.peer.socket.close()
    if policy == "connection-close":
        wait_for(channel, node, 1)
    else:
        time.sleep(1.5)
        assert channel.counts(node)[0] == 0


@pytest.mark.spec("amqp-1.0", "2.6.4")
@pytest.mark.parametrize("timeout", [0, MINUTE])
def test_a_closed_receiver_link_requeues_its_deliveries(
    session: PeerSession10, channel: PeerChannel, node: str, timeout: int
) -> None:
    """A detached link without a time-out leaves nothing behind either."""
    channel.publish(b"x", node)
    attach_receiver(session, node, credit=1, timeout=timeout)
    tag = session.delivery().tag
    session.detach(closed=timeout > 0)
    assert channel.counts(node)[0] == 1
    assert unsettled_map_of(attach_receiver(session, node, {tag: Accepted()})) is None


@pytest.mark.spec("amqp-1.0", "3.5.5")
def test_a_durable_subscription_keeps_the_unsettled_deliveries_of_its_subscriber(
    begin: Begins, channel: PeerChannel, name: str
) -> None:
    """Without a time-out: nobody else waits for it."""
    source = Source(address=f"/exchanges/amq.topic/{name}", durable=2, expiry_policy="never")
    first = begin()
    first.receives(None, credit=2, source=source, name=name)
    channel.publish(b"x", name, exchange="amq.topic")
    tag = first.delivery().tag
    first.end()
    second = begin()
    answer = second.receives(None, credit=1, source=source, name=name, unsettled=unsettled({tag: Accepted()}))
    assert unsettled_map_of(answer) == {tag: None}
    expect_concluded(second, tag, Accepted())
    second.detach()


@pytest.mark.spec("amqp-1.0", "3.5.6")
@pytest.mark.parametrize("policy", ["link-detach", "session-end", "connection-close"])
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
def test_a_subscription_expires_after_its_timeout(
    begin: Begins, channel: PeerChannel, api: Api, name: str, policy: str, shared: bool
) -> None:
    """A link with the same name finds the subscription and its new messages, until it expires."""
    capabilities = ("shared",) if shared else ()
    fields: dict[str, Any] = {"expiry_policy": policy, "capabilities": capabilities}
    source = Source(address=f"/exchanges/amq.topic/{name}", timeout=3, **fields)
    first = begin()
    first.receives(None, source=source, name=name)
    first.detach(closed=False)
    channel.publish(b"meanwhile", name, exchange="amq.topic")
    answer = first.receives(None, credit=1, source=source, name=name)
    assert answer.source is not None
    assert (answer.source.timeout, answer.source.expiry_policy) == (3, policy)
    first.settle(first.delivery().id)
    first.end()
    queues = [queue["name"] for queue in api.get("queues", "/") if queue["name"].endswith(name)]
    assert len(queues) == 1
    first.peer.socket.close()
    deadline = time.monotonic() + PATIENCE_S
    while any(queue["name"] in queues for queue in api.get("queues", "/")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
