"""Virtual hosts apart from each other, and how many connections, channels and queues there may be."""

import pytest
from pamqp.commands import Basic, Channel, Connection, Queue

from tests.support.adapters.connection_without_socket import Client091
from tests.support.auth.broker_with_users import ALL, UserBench, publish, refusal


@pytest.fixture
def bench() -> UserBench:
    """Queues q and dlq."""
    bench = UserBench()
    vhost = bench.broker.vhosts["/"]
    for name in ("q", "dlq"):
        vhost.declarations.declare_queue(name, False, None, False, {})
    return bench


# -- virtual hosts


def ended(client: Client091) -> str | None:
    """The text with which the connection was closed."""
    for frame in client.frames():
        if isinstance(frame, Connection.Close):
            return f"{frame.reply_code} {frame.reply_text}"
    return None


def test_virtual_hosts_are_name_spaces_of_their_own(bench: UserBench) -> None:
    bench.broker.declare_vhost("other")
    bench.users.permit("ann", "other", ALL, ALL, ALL)
    assert ended(bench.knock("ann")) == "530 NOT_ALLOWED - access to vhost '/' refused for user 'ann'"
    assert ended(bench.knock("ann", "nope")) == "530 NOT_ALLOWED - vhost nope not found"
    ann = bench.enter("ann", "other")
    assert refusal(ann, Basic.Get(queue="q")) == "404 NOT_FOUND - no queue 'q' in vhost 'other'"
    assert refusal(ann, Queue.Declare(queue="q")) is None
    ann.connection.receive(publish("", "q"))
    assert bench.broker.vhosts["other"].topology.queues["q"].ready == 1
    assert bench.broker.vhosts["/"].topology.queues["q"].ready == 0


def test_a_virtual_host_takes_connections_and_permissions_along(bench: UserBench) -> None:
    bench.broker.declare_vhost("other")
    bench.users.permit("ann", "other", ALL, ALL, ALL)
    bench.users.permit_topic("ann", "other", "t", "", "")
    bench.users.permit("ann", "/", ALL, ALL, ALL)
    here, there = bench.enter("ann"), bench.enter("ann", "other")
    refusal(there, Queue.Declare(queue="mine", exclusive=True))
    bench.broker.delete_vhost("other")
    assert ended(there) == "320 CONNECTION_FORCED - vhost 'other' is deleted"
    assert ended(here) is None
    ann = bench.users.require_user("ann")
    assert (list(ann.permissions), list(ann.topics)) == (["/"], [])
    assert bench.server.connections.count_in_vhost("other") == 0


def test_update_secret_is_refused_without_access_to_the_vhost(bench: UserBench) -> None:
    bench.users.permit("ann", "/", "", "", "")
    ann = bench.enter("ann")
    ann.send(Connection.UpdateSecret("anything: it counts at the next log-in", "rotation"))
    (answer,) = ann.frames()
    assert isinstance(answer, Connection.UpdateSecretOk)
    bench.users.forbid("ann", "/")
    ann.send(Connection.UpdateSecret("ann", "rotation"))
    assert ended(ann) == "530 NOT_ALLOWED - access to vhost '/' refused for user 'ann'"


def test_a_user_takes_the_connections_along(bench: UserBench) -> None:
    bench.users.permit("ann", "/", ALL, ALL, ALL)
    ann, boss = bench.enter("ann"), bench.enter("boss")
    bench.users.delete("ann")
    assert ended(ann) == "320 CONNECTION_FORCED - user 'ann' is deleted"
    assert ended(boss) is None
    assert [bench.server.connections.count_of_user(name) for name in ("ann", "boss")] == [0, 1]


# -- limits


def test_the_connections_of_a_virtual_host(bench: UserBench) -> None:
    bench.broker.limit_vhost("/", 1, None)
    boss = bench.enter("boss")
    assert ended(bench.knock("boss")) == (
        "530 NOT_ALLOWED - access to vhost '/' refused for user 'boss': connection limit (1) is reached"
    )
    boss.connection.on_lost("reset")
    bench.enter("boss")
    bench.broker.limit_vhost("/", 0, None)
    assert ended(bench.knock("boss")) is not None
    bench.broker.limit_vhost("/", -1, None)
    bench.enter("boss")


def test_the_queues_of_a_virtual_host(bench: UserBench) -> None:
    bench.broker.limit_vhost("/", None, 3)
    boss = bench.enter("boss")
    assert refusal(boss, Queue.Declare(queue="third")) is None
    assert refusal(boss, Queue.Declare(queue="fourth")) == (
        "406 PRECONDITION_FAILED - cannot declare queue 'fourth': queue limit in vhost '/' (3) is reached"
    )
    assert refusal(boss, Queue.Declare(queue="third")) is None
    boss.send(Queue.Delete(queue="q"), 1)
    boss.frames()
    assert refusal(boss, Queue.Declare(queue="fourth")) is None


def test_the_connections_and_channels_of_a_user(bench: UserBench) -> None:
    bench.users.permit("ann", "/", ALL, ALL, ALL)
    bench.users.set_limits("ann", {"max-connections": 2, "max-channels": 3})
    one, two = bench.enter("ann"), bench.enter("ann")
    assert ended(bench.knock("ann")) == (
        "530 NOT_ALLOWED - connection refused for user 'ann': user connection limit (2) is reached"
    )
    one.send(Channel.Open(), 2)
    assert ended(one) is None
    two.send(Channel.Open(), 2)
    assert ended(two) == (
        "530 NOT_ALLOWED - number of channels opened for user 'ann' has reached "
        "the maximum allowed user limit of 3"
    )
    bench.enter("boss")
    bench.enter("ann")  # the second connection is closed, and its channel with it
    one.send(Channel.Close(200, "", 0, 0), 1)
    one.send(Channel.Open(), 1)
    assert ended(one) is None
    bench.users.set_limits("ann", {})
    bench.enter("ann")
