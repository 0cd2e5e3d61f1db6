"""The actors of events: user, connection, address and request, over both protocols and HTTP."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pamqp.commands import Basic, Channel, Connection, Exchange, Queue, Tx
from pamqp.common import FieldTable

from tests.conformance.test_http_sinks import Driver
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, Dialler, PeerChannel
from tests.support.amqp091.topology_commands import bind_queue, declare_exchange
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.daemon import Daemon, DaemonStarter
from tests.support.daemon.endings import stop
from tests.support.journal.daemon_journal import Reader, cat, run_operation
from tests.support.journal.handmade_journal import wait_for

FULL = ("--journal", "full")
PERSISTENT = Basic.Properties(delivery_mode=2, message_id="m")
Events = list[dict[str, Any]]


def of(events: Events, op: str, reason: str | None = None) -> dict[str, Any]:
    """Return the only event of an operation, with this reason if given."""
    (found,) = (event for event in events if event["op"] == op and reason in (None, event["reason"]))
    return found


def client(channel: PeerChannel) -> dict[str, object]:
    """The actor that the journal must name for a client of AMQP 0-9-1."""
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
    run_operation(daemon, "q", "edit", payload="edited", payload_encoding="string")
    run_operation(daemon, "q", "move", to={"queue": "to"})
    api = admin_of(daemon)
    api.delete("queues", "/", "to", "contents")
    api.delete("queues", "/", "to")
    stop(daemon, channel.peer)

    events = cat(folder)
    actors = {
        (event["op"], event["reason"]): event
        for event in events
        if event["reason"] in ("edited", "moved") or event["op"] in ("purge", "queue_delete")
    }
    assert {key: event["request"] for key, event in actors.items()} == {
        ("remove", "edited"): "POST /api/queues/%2F/q/messages/edit",
        ("enqueue", "edited"): "POST /api/queues/%2F/q/messages/edit",
        ("remove", "moved"): "POST /api/queues/%2F/q/messages/move",
        ("enqueue", "moved"): "POST /api/queues/%2F/q/messages/move",
        ("purge", None): "DELETE /api/queues/%2F/to/contents",
        ("queue_delete", None): "DELETE /api/queues/%2F/to",
    }
    assert {(event["user"], event["conn"]) for event in actors.values()} == {("guest", None)}
    assert all(event["address"].startswith("127.0.0.1:") for event in actors.values())


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

    recorded = changes(folder)
    asked = [(change["kind"], event["request"]) for change, event in recorded if event["request"]]
    assert asked == [
        ("policy", "PUT /api/policies/%2F/p"),
        ("user", "PUT /api/users/eve"),
        ("user.permission", "PUT /api/permissions/%2F/eve"),
        ("policy.delete", "DELETE /api/policies/%2F/p"),
    ]
    (exchange,) = (event for change, event in recorded if change.get("name") == "transient")
    assert actor(exchange) == who
    assert not any("hash" in event["text"] or "verifier" in event["text"] for _, event in recorded)
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
        ("stopped", "stopped", "stopped"),
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
    session.outcome(0)
    session.sends("/queue/made", 1)
    for handle, name in ((2, "detached"), (3, "dropped")):
        channel.declare(name, auto_delete=True)
        session.receives(name, handle)
    session.detach(2)
    wait_for(folder, "queue_delete")
    host, port = peer.socket.getsockname()[:2]
    peer.socket.close()
    wait_for(folder, "queue_delete", 2)
    stop(daemon, channel.peer)

    events = cat(folder)
    refused = of(events, "refuse")
    assert (refused["reason"], refused["queue"], refused["message_id"]) == ("queue_full", "full", "m-10")
    (made,) = (event for event in events if (event["op"], event["queue"]) == ("declare", "made"))
    deleted = [event for event in events if (event["op"], event["reason"]) == ("queue_delete", None)]
    assert [event["queue"] for event in deleted] == ["detached", "dropped"]
    who = {"user": "guest", "address": f"{host}:{port}", "channel": 0, "request": None}
    assert [actor(event) for event in (refused, made, *deleted)] == [who] * 4


def test_the_binding_user_is_the_actor_of_a_replayed_history(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    publisher, binder, third = (connect(daemon.address).channel() for _ in range(3))
    declare_exchange(publisher, "x", "x-recent-history")
    publisher.publish(b"", "k", "x")
    publisher.round_trip()
    binder.declare("q")
    binder.declare("other")
    third.publish(b"", "other")
    third.round_trip()
    bind_queue(binder, "q", "x")
    who = client(binder)
    for each in (publisher, third):
        each.peer.drop()
    stop(daemon, binder.peer)

    (copy,) = (event for event in cat(folder, "enqueue") if event["queue"] == "q")
    assert actor(copy) == who


def test_readers_over_http(
    start_daemon: DaemonStarter, connect: Connector, admin_of: Callable[[Daemon], Api], folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True)
    for _ in range(3):
        channel.publish(b"", "q", properties=PERSISTENT)
    channel.round_trip()
    body = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    admin_of(daemon).post("queues", "/", "q", "get", status=200, body=body)
    reader = Reader(daemon, "q")
    reader.advance(0, 2)
    reader.api.close()
    stop(daemon, channel.peer)
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    reader = Reader(daemon, "q")
    reader.advance(2, 0)
    reader.api.close()
    stop(daemon, channel.peer)

    actors = [
        (event["op"], event["request"], event["user"], event["channel"])
        for event in cat(folder, "deliver", "stage", "ack")
    ]
    get, advance = "POST /api/queues/%2F/q/get", "POST /api/staged/%2F/q/spark/advance"
    assert actors == [
        *[(op, get, "guest", None) for op in ("deliver", "ack")],
        *[("stage", advance, "guest", None)] * 2,
        *[("stage", None, None, None)] * 2,  # the broker does, at its start
        *[("ack", advance, "guest", None)] * 2,
    ]


def test_the_committing_request_is_the_actor_of_published_sink_rows(
    start_daemon: DaemonStarter, connect: Connector, admin_of: Callable[[Daemon], Api], folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True)
    driver = Driver(admin_of(daemon), "/")
    driver.commit(0, [driver.write(0, [b"1", b"2"])], 2)
    wait_for(folder, "enqueue", 2)
    stop(daemon, channel.peer)

    came = cat(folder, "enqueue")
    commit = "POST /api/" + "/".join(quote(part, safe="") for part in (*driver.path, "commit"))
    assert [(event["user"], event["request"]) for event in came] == [("guest", commit)] * 2


def test_values_of_parameters_are_not_told(
    start_daemon: DaemonStarter, connect: Connector, admin_of: Callable[[Daemon], Api], folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    api = admin_of(daemon)
    api.put("global-parameters", "upstream", value={"uri": "amqp://user:secret@host"})
    stop(daemon, connect(daemon.address))

    recorded = [change for change, event in changes(folder) if event["request"]]
    assert recorded == [{"kind": "parameter", "name": "upstream"}]


def test_a_long_definition_is_told_with_its_names(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True)
    bind_queue(channel, "q", "amq.headers", "k", {"h": "x" * 20_000})
    stop(daemon, channel.peer)

    (bound,) = (change for change, _ in changes(folder) if change["kind"] == "binding")
    assert bound["cut"] is True
    assert {"q", "amq.headers", "k"} <= set(bound.values())


def test_files_removed_by_retention_at_a_start_are_recorded(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    arguments: FieldTable = {
        "x-queue-type": "stream",
        "x-max-age": "1s",
        "x-stream-max-segment-size-bytes": 1024 * 1024,
    }
    channel.declare("s", durable=True, arguments=arguments)
    channel.confirm_select()
    for _ in range(30):
        channel.publish(bytes(100_000), "s", properties=PERSISTENT)
    channel.expect_confirms(30)
    stop(daemon, channel.peer)
    time.sleep(1.5)
    daemon = start_daemon(*FULL)
    stop(daemon, connect(daemon.address))

    events = [event for event in cat(folder) if event["queue"] == "s" and event["op"] != "append"]
    assert [event["op"] for event in events] == ["declare", "checkpoint", "trim", "checkpoint", "checkpoint"]
    before, trim, after = (event["quantity"] for event in events[1:4])
    assert (before, after) == (30, 30 - trim)
    assert (events[2]["first_qpos"], events[2]["qpos"]) == (0, trim - 1)


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
