"""Virtual hosts apart from each other, and how many connections, channels and queues there may be."""

import pytest
from pamqp.commands import Basic, Channel, Connection, Queue

from tests.support.adapters.connection_without_socket import Wired
from tests.support.auth.broker_with_users import ALL, Town, publish, refusal


@pytest.fixture
def town() -> Town:
    """Queues q and dlq."""
    town = Town()
    vhost = town.broker.vhosts["/"]
    for name in ("q", "dlq"):
        vhost.declare_queue(name, False, None, False, {})
    return town


# -- virtual hosts


def ended(client: Wired) -> str | None:
    """The text with which the connection was closed."""
    for frame in client.frames():
        if isinstance(frame, Connection.Close):
            return f"{frame.reply_code} {frame.reply_text}"
    return None


def test_virtual_hosts_are_name_spaces_of_their_own(town: Town) -> None:
    town.broker.declare_vhost("other")
    town.users.permit("ann", "other", ALL, ALL, ALL)
    assert ended(town.knock("ann")) == "530 NOT_ALLOWED - access to vhost '/' refused for user 'ann'"
    assert ended(town.knock("ann", "nope")) == "530 NOT_ALLOWED - vhost nope not found"
    ann = town.enter("ann", "other")
    assert refusal(ann, Basic.Get(queue="q")) == "404 NOT_FOUND - no queue 'q' in vhost 'other'"
    assert refusal(ann, Queue.Declare(queue="q")) is None
    ann.connection.receive(publish("", "q"))
    assert town.broker.vhosts["other"].queues["q"].ready == 1
    assert town.broker.vhosts["/"].queues["q"].ready == 0


def test_a_virtual_host_takes_connections_and_permissions_along(town: Town) -> None:
    town.broker.declare_vhost("other")
    town.users.permit("ann", "other", ALL, ALL, ALL)
    town.users.permit_topic("ann", "other", "t", "", "")
    town.users.permit("ann", "/", ALL, ALL, ALL)
    here, there = town.enter("ann"), town.enter("ann", "other")
    refusal(there, Queue.Declare(queue="mine", exclusive=True))
    town.broker.delete_vhost("other")
    assert ended(there) == "320 CONNECTION_FORCED - vhost 'other' is deleted"
    assert ended(here) is None
    ann = town.users.require_user("ann")
    assert (list(ann.permissions), list(ann.topics)) == (["/"], [])
    assert town.server.connections.count_in_vhost("other") == 0


def test_a_secret_is_renewed_by_who_may_still_be_there(town: Town) -> None:
    town.users.permit("ann", "/", "", "", "")
    ann = town.enter("ann")
    ann.send(Connection.UpdateSecret("anything: it counts at the next log-in", "rotation"))
    (answer,) = ann.frames()
    assert isinstance(answer, Connection.UpdateSecretOk)
    town.users.forbid("ann", "/")
    ann.send(Connection.UpdateSecret("ann", "rotation"))
    assert ended(ann) == "530 NOT_ALLOWED - access to vhost '/' refused for user 'ann'"


def test_a_user_takes_the_connections_along(town: Town) -> None:
    town.users.permit("ann", "/", ALL, ALL, ALL)
    ann, boss = town.enter("ann"), town.enter("boss")
    town.users.delete("ann")
    assert ended(ann) == "320 CONNECTION_FORCED - user 'ann' is deleted"
    assert ended(boss) is None
    assert [town.server.connections.count_of_user(name) for name in ("ann", "boss")] == [0, 1]


# -- limits


def test_the_connections_of_a_virtual_host(town: Town) -> None:
    town.broker.limit_vhost("/", 1, None)
    boss = town.enter("boss")
    assert ended(town.knock("boss")) == (
        "530 NOT_ALLOWED - access to vhost '/' refused for user 'boss': connection limit (1) is reached"
    )
    boss.connection.lost("reset")
    town.enter("boss")
    town.broker.limit_vhost("/", 0, None)
    assert ended(town.knock("boss")) is not None
    town.broker.limit_vhost("/", -1, None)
    town.enter("boss")


def test_the_queues_of_a_virtual_host(town: Town) -> None:
    town.broker.limit_vhost("/", None, 3)
    boss = town.enter("boss")
    assert refusal(boss, Queue.Declare(queue="third")) is None
    assert refusal(boss, Queue.Declare(queue="fourth")) == (
        "406 PRECONDITION_FAILED - cannot declare queue 'fourth': queue limit in vhost '/' (3) is reached"
    )
    assert refusal(boss, Queue.Declare(queue="third")) is None
    boss.send(Queue.Delete(queue="q"), 1)
    boss.frames()
    assert refusal(boss, Queue.Declare(queue="fourth")) is None


def test_the_connections_and_channels_of_a_user(town: Town) -> None:
    town.users.permit("ann", "/", ALL, ALL, ALL)
    town.users.set_limits("ann", {"max-connections": 2, "max-channels": 3})
    one, two = town.enter("ann"), town.enter("ann")
    assert ended(town.knock("ann")) == (
        "530 NOT_ALLOWED - connection refused for user 'ann': user connection limit (2) is reached"
    )
    one.send(Channel.Open(), 2)
    assert ended(one) is None
    two.send(Channel.Open(), 2)
    assert ended(two) == (
        "530 NOT_ALLOWED - number of channels opened for user 'ann' has reached "
        "the maximum allowed user limit of 3"
    )
    town.enter("boss")
    town.enter("ann")  # the second is gone, and its channel with it
    one.send(Channel.Close(200, "", 0, 0), 1)
    one.send(Channel.Open(), 1)
    assert ended(one) is None
    town.users.set_limits("ann", {})
    town.enter("ann")
