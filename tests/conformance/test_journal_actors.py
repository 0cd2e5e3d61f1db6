"""Who did it: user, connection, address and request, over both protocols and HTTP. And what else is told."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Connection, Exchange, Queue, Tx
from pamqp.common import FieldTable

from tests.api import Api
from tests.contents10 import bare10
from tests.daemon import Daemon, DaemonStarter
from tests.endings import stop
from tests.journaled import cat, operate
from tests.journals import wait_for
from tests.peer import Connector, Dialler
from tests.peer10 import Meet
from tests.peer_channel import PeerChannel
from tests.peer_session10 import PeerSession10

FULL = ("--journal", "full")
PERSISTENT = Basic.Properties(delivery_mode=2, message_id="m")
Events = list[dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the journal of `start_daemon` is."""
    return tmp_path / "data" / "journal"


@pytest.fixture
def admin_of() -> Iterator[Callable[[Daemon], Api]]:
    """Ask daemons that the test starts over HTTP."""
    clients: list[Api] = []

    def of(daemon: Daemon) -> Api:
        clients.append(Api(daemon.admin))
        return clients[-1]

    yield of
    for client in clients:
        client.close()


def of(events: Events, op: str, reason: str | None = None) -> dict[str, Any]:
    """The only event of an operation, and with a reason if one is given."""
    (found,) = (event for event in events if event["op"] == op and reason in (None, event["reason"]))
    return found


def client(channel: PeerChannel) -> dict[str, object]:
    """What the journal must say of what a client of AMQP 0-9-1 does."""
    host, port = channel.peer.socket.getsockname()[:2]
    return {"user": "guest", "address": f"{host}:{port}", "channel": channel.number, "request": None}


def actor(event: dict[str, Any]) -> dict[str, object]:
    return {name: event[name] for name in ("user", "address", "channel", "request")}


def changes(folder: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The definitions that changed, each with its event."""
    return [(json.loads(event["text"]), event) for event in cat(folder, "change")]


def test_clients_declare_purge_reject_and_delete(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    arguments: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.declare("q", durable=True, arguments=arguments)
    for _ in range(2):
        channel.publish(b"", "q", properties=PERSISTENT)
    channel.reject(channel.take("q").tag, requeue=False)
    channel.call(Queue.Purge(queue="q"), Queue.PurgeOk)
    channel.call(Queue.Delete(queue="q"), Queue.DeleteOk)
    who = client(channel)
    stop(daemon, channel.peer)

    events = cat(folder)
    assert [actor(of(events, op)) for op in ("declare", "purge", "queue_delete", "dead_letter")] == [who] * 4


def test_operators_purge_move_edit_and_delete(
    start_daemon: DaemonStarter, connect: Connector, admin_of: Callable[[Daemon], Api], folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True)
    channel.declare("to", durable=True)
    channel.publish(b"", "q", properties=PERSISTENT)
    channel.round_trip()
    operate(daemon, "q", "edit", payload="edited", payload_encoding="string")
    operate(daemon, "q", "move", to={"queue": "to"})
    api = admin_of(daemon)
    api.delete("queues", "/", "to", "contents")
    api.delete("queues", "/", "to")
    stop(daemon, channel.peer)

    events = cat(folder)
    told = {
        (event["op"], event["reason"]): event
        for event in events
        if event["reason"] in ("edited", "moved") or event["op"] in ("purge", "queue_delete")
    }
    assert {key: event["request"] for key, event in told.items()} == {
        ("remove", "edited"): "POST /api/queues/%2F/q/messages/edit",
        ("enqueue", "edited"): "POST /api/queues/%2F/q/messages/edit",
        ("remove", "moved"): "POST /api/queues/%2F/q/messages/move",
        ("enqueue", "moved"): "POST /api/queues/%2F/q/messages/move",
        ("purge", None): "DELETE /api/queues/%2F/to/contents",
        ("queue_delete", None): "DELETE /api/queues/%2F/to",
    }
    assert {(event["user"], event["conn"]) for event in told.values()} == {("guest", None)}
    assert all(event["address"].startswith("127.0.0.1:") for event in told.values())


def test_operators_change_policies_users_and_topology_and_publish(
    start_daemon: DaemonStarter, connect: Connector, admin_of: Callable[[Daemon], Api], folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.call(Exchange.Declare(exchange="transient"), Exchange.DeclareOk)
    api = admin_of(daemon)
    api.put("policies", "/", "p", status=201, pattern="^q$", definition={"max-length": 5})
    api.put("users", "eve", status=201, password="secret-of-eve", tags="")
    api.put("permissions", "/", "eve", status=201, configure="", write=".*", read="")
    api.delete("policies", "/", "p")
    channel.declare("q")
    api.post("exchanges", "/", "amq.default", "publish", status=200, body=MESSAGE)
    who = client(channel)
    stop(daemon, channel.peer)

    told = changes(folder)
    asked = [(change["kind"], event["request"]) for change, event in told if event["request"]]
    assert asked == [
        ("policy", "PUT /api/policies/%2F/p"),
        ("user", "PUT /api/users/eve"),
        ("user.permission", "PUT /api/permissions/%2F/eve"),
        ("policy.delete", "DELETE /api/policies/%2F/p"),
    ]
    (exchange,) = (event for change, event in told if change.get("name") == "transient")
    assert actor(exchange) == who
    assert not any("hash" in event["text"] or "verifier" in event["text"] for _, event in told)
    came = of(cat(folder), "enqueue")
    assert (came["user"], came["request"]) == ("guest", "POST /api/exchanges/%2F/amq.default/publish")


MESSAGE = {"routing_key": "q", "properties": {}, "payload": "x", "payload_encoding": "string"}


def test_publishes_that_are_refused(
    start_daemon: DaemonStarter,
    connect: Connector,
    dial: Dialler,
    admin_of: Callable[[Daemon], Api],
    folder: Path,
) -> None:
    daemon = start_daemon(*FULL)
    peer = connect(daemon.address)
    channel = peer.channel()
    full: FieldTable = {"x-max-length": 0, "x-overflow": "reject-publish"}
    channel.declare("full", arguments=full)
    channel.declare("stopped", durable=True)
    api = admin_of(daemon)
    api.post("queues", "/", "stopped", "actions", status=204, body={"action": "stop-enqueue"})
    api.put("users", "eve", status=201, password="secret", tags="")
    api.put("permissions", "/", "eve", status=201, configure="", write="", read="")
    channel.confirm_select()
    for queue in ("full", "stopped"):
        channel.publish(b"", queue, properties=PERSISTENT)
        channel.expect(Basic.Nack)
    other = dial(daemon.address)
    other.start()
    other.login("eve", "secret")
    other.tune()
    other.write(Connection.Open("/"))
    other.expect(Connection.OpenOk)
    eve = other.channel()
    eve.publish(b"", "full", properties=PERSISTENT)
    eve.expect_close(403)
    other.drop()
    who = client(channel)
    stop(daemon, peer)

    refused = [event for event in cat(folder) if event["op"] == "refuse"]
    assert [(event["reason"], event["queue"], event["routing_key"]) for event in refused] == [
        ("queue_full", "full", "full"),
        ("stopped", None, "stopped"),
        ("no_permission", None, "full"),
    ]
    assert [actor(event) for event in refused[:2]] == [who] * 2
    assert (refused[2]["user"], {event["message_id"] for event in refused}) == ("eve", {"m"})


def test_rollbacks(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon(*FULL)
    peer = connect(daemon.address)
    channel = peer.channel()
    channel.declare("q", durable=True)
    channel.publish(b"", "q", properties=PERSISTENT)
    taken = channel.take("q")
    channel.call(Tx.Select(), Tx.SelectOk)
    for _ in range(3):
        channel.publish(b"", "q", properties=PERSISTENT)
    channel.ack(taken.tag)
    channel.call(Tx.Rollback(), Tx.RollbackOk)
    channel.publish(b"", "q", properties=PERSISTENT)
    channel.call(Channel.Close(200, "bye", 0, 0), Channel.CloseOk)
    who = client(channel)
    stop(daemon, peer)

    undone = [event for event in cat(folder) if event["op"] == "rollback"]
    assert [(event["quantity"], event["unacked"], event["text"]) for event in undone] == [
        (3, 1, None),
        (1, 0, "the channel was closed"),
    ]
    assert [actor(event) for event in undone] == [who] * 2


def test_clients_of_amqp_10(
    start_daemon: DaemonStarter, connect: Connector, meet: Meet, folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    peer = meet(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    session.sends("full")
    peer.send(session.encode_transfer(0, bare10(message_id="m-10"), 0))
    wait_for(folder, "refuse")
    host, port = peer.socket.getsockname()[:2]
    peer.socket.close()
    stop(daemon, channel.peer)

    refused = of(cat(folder), "refuse")
    assert (refused["reason"], refused["queue"], refused["message_id"]) == ("queue_full", "full", "m-10")
    assert (refused["user"], refused["address"]) == ("guest", f"{host}:{port}")


def test_streams(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_select()
    for _ in range(3):
        channel.publish(b"", "s", properties=PERSISTENT)
    channel.expect_confirms(3)
    channel.qos(10)
    channel.consume("s", "tag", arguments={"x-stream-offset": "first"})
    for _ in range(3):
        channel.delivery()
    who = client(channel)
    stop(daemon, channel.peer)
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.call(Queue.Delete(queue="s"), Queue.DeleteOk)
    stop(daemon, channel.peer)

    events = [event for event in cat(folder) if event["queue"] == "s"]
    assert [(event["op"], event["reason"]) for event in events] == [
        ("declare", "full"),
        *[("append", None)] * 3,
        *[("read", None)] * 3,
        ("checkpoint", "shutdown"),
        ("checkpoint", "full"),
        ("queue_delete", None),
    ]
    assert [event["qpos"] for event in events[1:7]] == [0, 1, 2] * 2
    assert [event["quantity"] for event in events[7:]] == [3, 3, 3]
    assert [actor(event) for event in events[1:7]] == [who] * 6
    assert {event["consumer"] for event in events[4:7]} == {"tag"}
    assert {event["message_id"] for event in events[1:4]} == {"m"}


def test_starts_and_stops(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    for _ in range(2):
        daemon = start_daemon(*FULL)
        stop(daemon, connect(daemon.address))
    events = cat(folder, "start", "end")
    assert [event["op"] for event in events] == ["start", "end"] * 2
    assert events[0]["text"]
