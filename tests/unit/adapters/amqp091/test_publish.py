"""The arguments of basic.publish, and the permissions of publishers and consumers."""

import pytest
from pamqp.commands import Basic, Confirm, Exchange, Queue

from broker.adapters.access import Rights
from broker.adapters.amqp091.publish import resolve
from broker.core.errors import NotFound
from broker.core.vhosts.vhost import VirtualHost
from protocol.errors import SYNTAX_ERROR, ProtocolError
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.auth.broker_with_users import (
    ALL,
    UserBench,
    access_refused_text,
    close_text,
    publish,
    refusal,
    user_bench,
)
from tests.support.auth.open_login import OpenAccess

ALL_RIGHTS = Rights(OpenAccess(), "guest", "/")


@pytest.fixture
def virtual_host() -> VirtualHost:
    virtual_host = BrokerBench().broker.vhosts["/"]
    virtual_host.declarations.declare_queue("q", False, None, False, {})
    return virtual_host


@pytest.mark.parametrize("bits", range(4))
def test_the_route_and_the_two_bits(virtual_host: VirtualHost, bits: int) -> None:
    publication = resolve(ALL_RIGHTS, virtual_host, b"\0\0" + b"\0" + b"\1q" + bytes([bits]))
    assert publication.route.queues == [virtual_host.topology.queues["q"]]
    assert publication.mandatory == (bits & 1 != 0)
    assert publication.immediate == publication.is_special == (bits & 2 != 0)


def test_a_headers_exchange_needs_more_than_the_hot_path(virtual_host: VirtualHost) -> None:
    virtual_host.declarations.bind_queue("q", "amq.headers", "", {})
    publication = resolve(ALL_RIGHTS, virtual_host, b"\0\0\x0bamq.headers\0\0")
    assert publication.route.by_message
    assert not publication.is_special, "the route decides, and the route may change"


@pytest.mark.parametrize(
    "arguments",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0\0\5four",
        b"\0\0\0\1",
        b"\0\0\0\1q",
        b"\0\0\0\1q\0\0",
        b"\0\0\xff" + b"x" * 254,
        b"\0\0\0\1\xff\0",
        b"\0\0\2\xc3\x28\0\0",
    ],
)
def test_malformed_arguments(virtual_host: VirtualHost, arguments: bytes) -> None:
    with pytest.raises(ProtocolError) as refused:
        resolve(ALL_RIGHTS, virtual_host, arguments)
    assert refused.value.code == SYNTAX_ERROR


def test_publish_to_a_missing_exchange_raises_not_found(virtual_host: VirtualHost) -> None:
    with pytest.raises(NotFound, match="no exchange 'x' in vhost '/'"):
        resolve(ALL_RIGHTS, virtual_host, b"\0\0\1x\0\0")


@pytest.fixture
def bench() -> UserBench:
    return user_bench()


def test_publishing_needs_write_on_the_exchange(bench: UserBench) -> None:
    bench.users.permit("ann", "/", ALL, "^(?!x$)(?!amq[.]default$)", ALL)
    ann = bench.enter("ann")
    for exchange, name in (("x", "x"), ("", "amq.default")):
        ann.connection.receive(publish(exchange, "k"))
        assert close_text(ann) == access_refused_text("write", "exchange", name)
    bench.users.permit("ann", "/", "", "^(x|amq[.]default)$", "")
    for exchange in ("x", ""):
        ann.connection.receive(publish(exchange, "k"))
        assert close_text(ann) is None
    assert bench.broker.vhosts["/"].topology.queues["q"].ready == 1


def test_a_permission_that_is_taken_away_stops_the_next_message(bench: UserBench) -> None:
    bench.users.permit("ann", "/", "", "^x$", "")
    ann = bench.enter("ann")
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    for _ in range(3):
        ann.connection.receive(publish("x", "k"))
    assert queue.ready == 3
    bench.users.permit("ann", "/", "", "^y$", "")
    ann.connection.receive(publish("x", "k"))
    assert close_text(ann) == access_refused_text("write", "exchange", "x")
    bench.users.forbid("ann", "/")
    ann.connection.receive(publish("y", "k"))
    assert close_text(ann) == access_refused_text("write", "exchange", "y")
    assert queue.ready == 3


def test_the_permission_is_asked_once_per_route(bench: UserBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.users.permit("ann", "/", "", "^x$", "")
    ann = bench.enter("ann")
    asked: list[str] = []
    allowed = bench.users.is_allowed

    def counting(user: str, vhost: str, what: str, name: str) -> bool:
        asked.append(name)
        return allowed(user, vhost, what, name)

    monkeypatch.setattr(bench.users, "is_allowed", counting)
    for _ in range(5):
        ann.connection.receive(publish("x", "k"))
    assert asked == ["x"]


def test_permissions_of_a_user_do_not_count_for_another_user(bench: UserBench) -> None:
    bench.users.permit("ann", "/", "", "^x$", "")
    ann, boss = bench.enter("ann"), bench.enter("boss")
    boss.connection.receive(publish("x", "k"))
    bench.users.permit("ann", "/", "", "", "")
    boss.connection.receive(publish("x", "k"))
    assert close_text(boss) is None
    ann.connection.receive(publish("x", "k"))
    assert close_text(ann) == access_refused_text("write", "exchange", "x")


def test_consumers_lose_the_queue_with_the_permission(bench: UserBench) -> None:
    bench.users.permit("ann", "/", "", "", "^d?l?q$")
    ann = bench.enter("ann")
    for queue in ("q", "dlq"):
        ann.send(Basic.Consume(queue=queue, consumer_tag=queue), 1)
    ann.frames()
    bench.users.permit("ann", "/", "", "", "^dlq$")
    bench.turns.run()
    (cancelled,) = ann.frames()
    assert isinstance(cancelled, Basic.Cancel)
    assert cancelled.consumer_tag == "q"
    queues = bench.broker.vhosts["/"].topology.queues
    assert (queues["q"].consumer_count, queues["dlq"].consumer_count) == (0, 1)
    bench.enter("boss").connection.receive(publish("x", "k"))
    bench.turns.run()
    assert ann.frames() == []


def test_deliveries_of_a_forbidden_consumer_stay_with_the_channel(bench: UserBench) -> None:
    bench.users.permit("ann", "/", "", "", "q")
    ann = bench.enter("ann")
    ann.send(Basic.Consume(queue="q", consumer_tag="c"), 1)
    bench.enter("boss").connection.receive(publish("x", "k"))
    bench.turns.run()
    bench.users.permit("ann", "/", "", "", "")
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    assert (queue.ready, queue.unacked) == (0, 1)
    ann.send(Basic.Ack(1), 1)
    assert close_text(ann) is None
    assert (queue.ready, queue.unacked) == (0, 0)


# -- topic permissions


def topic_text(what: str, key: str) -> str:
    """Return RabbitMQ's reply text. [rabbit_access_control, check_topic_access]"""
    return (
        f"403 ACCESS_REFUSED - {what} access to topic '{key}' in exchange 't' in vhost '/' "
        "refused for user 'ann'"
    )


def test_topic_permissions_on_publish(bench: UserBench) -> None:
    bench.users.permit("ann", "/", ALL, ALL, ALL)
    bench.users.permit_topic("ann", "/", "t", r"^{username}\.", "")
    ann = bench.enter("ann")
    ann.connection.receive(publish("t", "ann.news"))
    assert close_text(ann) is None
    ann.connection.receive(publish("t", "bob.news"))
    assert close_text(ann) == topic_text("write", "bob.news")
    for exchange in ("x", "y", ""):
        ann.connection.receive(publish(exchange, "bob.news"))
        assert close_text(ann) is None
    bench.enter("boss").connection.receive(publish("t", "bob.news"))


def test_topic_permissions_on_the_copies_of_a_message(bench: UserBench) -> None:
    bench.users.permit("ann", "/", ALL, ALL, ALL)
    bench.users.permit_topic("ann", "/", "t", "^ann", "")
    ann = bench.enter("ann")
    for header in ("CC", "BCC"):
        ann.connection.receive(publish("t", "ann", Basic.Properties(headers={header: ["ann.2"]})))
        assert close_text(ann) is None
        ann.connection.receive(publish("t", "ann", Basic.Properties(headers={header: ["ann.2", "bob"]})))
        assert close_text(ann) == topic_text("write", "bob")


@pytest.mark.parametrize("unbind", [False, True])
def test_topic_permissions_on_bindings(bench: UserBench, unbind: bool) -> None:
    bench.users.permit("ann", "/", ALL, ALL, ALL)
    bench.users.permit_topic("ann", "/", "t", "", r"^{vhost}\.")
    ann = bench.enter("ann")
    queue, exchange = (Queue.Unbind, Exchange.Unbind) if unbind else (Queue.Bind, Exchange.Bind)
    assert refusal(ann, queue(queue="q", exchange="t", routing_key="/.a")) is None
    assert refusal(ann, queue(queue="q", exchange="t", routing_key="b")) == topic_text("read", "b")
    assert refusal(ann, exchange(destination="y", source="t", routing_key="/.a")) is None
    assert refusal(ann, exchange(destination="y", source="t", routing_key="b")) == topic_text("read", "b")
    assert refusal(ann, queue(queue="q", exchange="x", routing_key="b")) is None


def test_a_topic_permission_that_changes_stops_the_next_message(bench: UserBench) -> None:
    bench.users.permit("ann", "/", ALL, ALL, ALL)
    ann = bench.enter("ann")
    ann.connection.receive(publish("t", "k"))
    bench.users.permit_topic("ann", "/", "t", "^other$", "")
    ann.connection.receive(publish("t", "k"))
    assert close_text(ann) == topic_text("write", "k")
    bench.users.forget_topic("ann", "/", "t")
    ann.connection.receive(publish("t", "k"))
    assert close_text(ann) is None


def test_an_exchange_that_becomes_a_topic_exchange_is_asked_for_anew(bench: UserBench) -> None:
    bench.users.permit("ann", "/", ALL, ALL, ALL)
    bench.users.permit_topic("ann", "/", "x", "^other$", "")
    ann = bench.enter("ann")
    vhost = bench.broker.vhosts["/"]
    ann.connection.receive(publish("x", "k"))
    assert vhost.topology.queues["q"].ready == 1
    vhost.declarations.delete_exchange("x", False)
    vhost.declarations.declare_exchange("x", "topic", False, False, False, {})
    vhost.declarations.bind_queue("q", "x", "#", {})
    ann.connection.receive(publish("x", "k"))
    text = close_text(ann)
    assert text is not None
    assert "access to topic 'k' in exchange 'x'" in text
    assert vhost.topology.queues["q"].ready == 1


def test_an_exchange_that_comes_back_as_it_was_takes_the_message_once(bench: UserBench) -> None:
    bench.users.permit("ann", "/", ALL, ALL, ALL)
    ann = bench.enter("ann")
    ann.send(Confirm.Select(), 1)
    vhost = bench.broker.vhosts["/"]
    ann.connection.receive(publish("x", "k"))
    vhost.declarations.delete_exchange("x", False)
    vhost.declarations.declare_exchange("x", "direct", False, False, False, {})
    vhost.declarations.bind_queue("q", "x", "k", {})
    ann.frames()
    ann.connection.receive(publish("x", "k"))
    assert ann.confirms() == [("Ack", 2, False)]
    assert vhost.topology.queues["q"].ready == 2


# -- in the name of others


def test_only_an_impersonator_publishes_in_the_name_of_others(bench: UserBench) -> None:
    bench.users.permit("ann", "/", "", ALL, "")
    ann = bench.enter("ann")
    ann.connection.receive(publish("x", "k", Basic.Properties(user_id="ann")))
    assert close_text(ann) is None
    ann.connection.receive(publish("x", "k", Basic.Properties(user_id="boss")))
    assert close_text(ann) == (
        "406 PRECONDITION_FAILED - user_id property set to 'boss' but authenticated user was 'ann'"
    )
    bench.users.put("ann", None, ("impersonator",))
    ann.connection.receive(publish("x", "k", Basic.Properties(user_id="boss")))
    assert close_text(ann) is None
