"""Users with permissions and limits as pika sees them; all of it survives restarts."""

from collections.abc import Callable, Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from broker.auth.users import Users
from broker.core.broker import Broker
from tests.interop.pika_connection import connected
from tests.support.auth.broker_with_users import ALL, folder_with_users, quick_password
from tests.support.daemon.daemon import Daemon

Operation = Callable[[BlockingChannel], object]


def people(users: Users, broker: Broker) -> None:
    """Add ann, who may use names that begin with `ann`, boss, who may use two vhosts, and a limited guest."""
    for vhost in ("/", "other"):
        broker.declare_vhost(vhost)
    broker.limit_vhost("other", 1, 2)
    for name in ("ann", "boss", "guest"):
        users.add(name, quick_password(name), ("administrator",) if name == "boss" else ())
    users.permit("ann", "/", "^ann", r"^(ann|amq\.default$)", "^ann")
    users.permit_topic("ann", "/", "ann.topic", r"^{username}\.", r"^{username}\.")
    users.permit("boss", "/", ALL, ALL, ALL)
    users.permit("boss", "other", ALL, ALL, ALL)
    users.permit("guest", "/", ALL, ALL, ALL)
    users.set_limits("guest", {"max-connections": 1, "max-channels": 1})


@pytest.fixture(scope="module")
def guarded_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker that has been restarted since these users were made."""
    folder = tmp_path_factory.mktemp("people")
    data = folder_with_users(folder / "data", people)
    Daemon(folder / "first", data_dir=data).wait_until_ready().stop()
    daemon = Daemon(folder / "second", data_dir=data).wait_until_ready()
    with connect(daemon, "boss") as boss:
        channel = boss.channel()
        channel.exchange_declare("x", "direct")
        channel.queue_declare("q")
    yield daemon
    daemon.stop()


def connect(daemon: Daemon, user: str, vhost: str = "/") -> pika.BlockingConnection:
    """A connection; everybody's password is the name."""
    credentials = pika.PlainCredentials(user, user)
    return connected(daemon.address, virtual_host=vhost, credentials=credentials)


@pytest.fixture
def ann(guarded_daemon: Daemon) -> Iterator[pika.BlockingConnection]:
    """Ann, with two exchanges and a queue of her own."""
    with connect(guarded_daemon, "ann") as connection:
        channel = connection.channel()
        channel.exchange_declare("ann.x", "direct")
        channel.exchange_declare("ann.topic", "topic")
        channel.queue_declare("ann.q", exclusive=True)
        yield connection
        channel = connection.channel()
        channel.exchange_delete("ann.x")
        channel.exchange_delete("ann.topic")


def publish(exchange: str, key: str) -> Operation:
    """A publish whose confirm is awaited."""

    def run(channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        channel.basic_publish(exchange, key, b"m")

    return run


def arguments(**values: Any) -> dict[str, Any]:
    """Arguments with hyphens for underscores."""
    return {name.replace("_", "-"): value for name, value in values.items()}


REFUSED: dict[str, tuple[Operation, str]] = {
    "exchange.declare": (lambda c: c.exchange_declare("y"), "configure access to exchange 'y'"),
    "alternate exchange": (
        lambda c: c.exchange_declare("ann.y", arguments=arguments(alternate_exchange="x")),
        "write access to exchange 'x'",
    ),
    "exchange.delete": (lambda c: c.exchange_delete("x"), "configure access to exchange 'x'"),
    "exchange.bind to": (lambda c: c.exchange_bind("x", "ann.x"), "write access to exchange 'x'"),
    "exchange.bind from": (lambda c: c.exchange_bind("ann.x", "x"), "read access to exchange 'x'"),
    "exchange.unbind": (lambda c: c.exchange_unbind("x", "ann.x"), "write access to exchange 'x'"),
    "passive exchange": (
        lambda c: c.exchange_declare("x", passive=True),
        "configure access to exchange 'x'",
    ),
    "queue.declare": (lambda c: c.queue_declare("new"), "configure access to queue 'new'"),
    "dead letter exchange": (
        lambda c: c.queue_declare("ann.new", arguments=arguments(x_dead_letter_exchange="x")),
        "write access to exchange 'x'",
    ),
    "passive queue": (lambda c: c.queue_declare("q", passive=True), "configure access to queue 'q'"),
    "queue.bind to": (lambda c: c.queue_bind("q", "ann.x"), "write access to queue 'q'"),
    "queue.bind from": (lambda c: c.queue_bind("ann.q", "x"), "read access to exchange 'x'"),
    "queue.unbind": (lambda c: c.queue_unbind("q", "ann.x"), "write access to queue 'q'"),
    "queue.purge": (lambda c: c.queue_purge("q"), "read access to queue 'q'"),
    "queue.delete": (lambda c: c.queue_delete("q"), "configure access to queue 'q'"),
    "basic.get": (lambda c: c.basic_get("q"), "read access to queue 'q'"),
    "basic.consume": (lambda c: c.basic_consume("q", lambda *_: None), "read access to queue 'q'"),
    "basic.publish": (publish("x", "k"), "write access to exchange 'x'"),
    "topic publish": (
        publish("ann.topic", "boss.k"),
        "write access to topic 'boss.k' in exchange 'ann.topic'",
    ),
    "topic bind": (
        lambda c: c.queue_bind("ann.q", "ann.topic", "#"),
        "read access to topic '#' in exchange 'ann.topic'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_forbidden_operations_end_the_channel_with_403(ann: pika.BlockingConnection, what: str) -> None:
    operation, text = REFUSED[what]
    channel = ann.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        operation(channel)
    assert caught.value.reply_code == 403
    assert caught.value.reply_text == f"ACCESS_REFUSED - {text} in vhost '/' refused for user 'ann'"
    assert ann.is_open


def test_permitted_operations_work(ann: pika.BlockingConnection) -> None:
    channel = ann.channel()
    channel.confirm_delivery()
    channel.queue_declare("ann.dead", arguments=arguments(x_dead_letter_exchange="ann.x"))
    channel.exchange_bind("ann.x", "ann.topic", "ann.news")
    channel.queue_bind("ann.q", "ann.x", "ann.news")
    channel.basic_publish("ann.topic", "ann.news", b"1", mandatory=True)
    channel.basic_publish("", "ann.q", b"2", pika.BasicProperties(user_id="ann"), mandatory=True)
    assert [channel.basic_get("ann.q", auto_ack=True)[2] for _ in range(2)] == [b"1", b"2"]
    channel.queue_unbind("ann.q", "ann.x", "ann.news")
    channel.queue_purge("ann.q")
    channel.queue_delete("ann.dead")


def test_virtual_hosts_and_their_limits(guarded_daemon: Daemon) -> None:
    refused = pika.exceptions.ProbableAccessDeniedError
    with pytest.raises(refused, match="access to vhost 'other' refused for user 'ann'"):
        connect(guarded_daemon, "ann", "other")
    with pytest.raises(refused, match="vhost nope not found"):
        connect(guarded_daemon, "ann", "nope")
    with connect(guarded_daemon, "boss", "other") as boss:
        with pytest.raises(refused, match=r"connection limit \(1\) is reached"):
            connect(guarded_daemon, "boss", "other")
        channel = boss.channel()
        for name in ("one", "two"):
            channel.queue_declare(name, exclusive=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.queue_declare("three")
        assert caught.value.reply_code == 406
        assert caught.value.reply_text == (
            "PRECONDITION_FAILED - cannot declare queue 'three': queue limit in vhost 'other' (2) is reached"
        )
        elsewhere = connect(guarded_daemon, "boss")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'one' in vhost '/'"):
            elsewhere.channel().queue_declare("one", passive=True)
        elsewhere.close()


def test_limits_of_a_user(guarded_daemon: Daemon) -> None:
    guest = connect(guarded_daemon, "guest")
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="user connection limit"):
        connect(guarded_daemon, "guest")
    guest.channel()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="maximum allowed user limit of 1"):
        guest.channel()
    with connect(guarded_daemon, "guest") as guest:
        guest.channel()
