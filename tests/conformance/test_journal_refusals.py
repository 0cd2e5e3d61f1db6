"""Publishes that are refused: each leaves an event with the reason, over both protocols and HTTP."""

from pathlib import Path
from typing import Any

import pytest
from pamqp.commands import Basic, Queue, Tx
from pamqp.common import FieldTable

from protocol.amqp10.composites import Discharge
from protocol.amqp10.performatives import Attach
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.controller import Controller, condition, within
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import PeerSession10, sender
from tests.support.daemon.daemon import Daemon, DaemonStarter
from tests.support.daemon.endings import stop
from tests.support.daemon.stopped_disk import stopped_disk, wait_for_queue
from tests.support.journal.daemon_journal import cat
from tests.support.journal.handmade_journal import wait_for

FULL = ("--journal", "full")
PERSISTENT = Basic.Properties(delivery_mode=2, message_id="m")
FULL_QUEUE: FieldTable = {"x-max-length": 0, "x-overflow": "reject-publish"}
MIB = 1024 * 1024


def with_queues(daemon: Daemon, connect: Connector) -> PeerChannel:
    """A channel, and the queues 'full' and 'stopped', which take nothing."""
    channel = connect(daemon.address).channel()
    channel.declare("full", durable=True, arguments=FULL_QUEUE)
    channel.declare("stopped", durable=True)
    api = Api(daemon.admin)
    api.post("queues", "/", "stopped", "actions", status=204, body={"action": "stop-enqueue"})
    api.close()
    return channel


def refusals(folder: Path) -> list[tuple[Any, ...]]:
    """The refusals in the journal: reason, which queue was in the way, and where the message was to go."""
    names = ("reason", "queue", "routing_key")
    return [tuple(event[name] for name in names) for event in cat(folder, "refuse")]


def test_over_http(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon(*FULL, "--message-size-max", "1MiB")
    channel = with_queues(daemon, connect)
    api = Api(daemon.admin)
    path = ("exchanges", "/", "amq.default", "publish")
    for queue, payload in (("full", "x"), ("stopped", "x"), ("stopped", "x" * (MIB + 1))):
        body = {"routing_key": queue, "properties": {}, "payload": payload, "payload_encoding": "string"}
        api.refused(400, "POST", *path, body=body)
    api.close()
    stop(daemon, channel.peer)

    assert refusals(folder) == [
        ("queue_full", "full", "full"),
        ("stopped", "stopped", "stopped"),
        ("invalid", None, "stopped"),
    ]
    assert {(event["user"], event["request"]) for event in cat(folder, "refuse")} == {
        ("guest", "POST /api/exchanges/%2F/amq.default/publish")
    }


@pytest.mark.parametrize(("queue", "reason"), [("full", "queue_full"), ("stopped", "stopped")])
def test_at_a_commit(
    start_daemon: DaemonStarter, connect: Connector, folder: Path, queue: str, reason: str
) -> None:
    daemon = start_daemon(*FULL)
    channel = with_queues(daemon, connect)
    other = channel.peer.channel(2)
    other.call(Tx.Select(), Tx.SelectOk)
    other.publish(b"", queue, properties=PERSISTENT)
    other.refused(Tx.Commit(), 406)
    stop(daemon, channel.peer)

    assert refusals(folder) == [(reason, queue, queue)]
    refused, undone = cat(folder, "refuse", "rollback")
    assert (refused["message_id"], refused["channel"], undone["quantity"]) == ("m", other.number, 1)


@pytest.mark.parametrize(("queue", "reason"), [("full", "queue_full"), ("stopped", "stopped")])
def test_at_a_discharge(
    start_daemon: DaemonStarter, connect: Connector, meet: Meet, folder: Path, queue: str, reason: str
) -> None:
    daemon = start_daemon(*FULL)
    channel = with_queues(daemon, connect)
    peer = meet(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    controller = Controller(session)
    session.sends(queue, 0)
    session.sends("/exchanges/amq.fanout", 1)
    txn_id = controller.declare()
    session.transfer(0, bare10(message_id="m-10"), 0, state=within(txn_id))
    session.outcome(0)
    session.transfer(1, bare10(message_id="nowhere"), 1, state=within(txn_id))
    session.outcome(1)
    assert condition(controller.ask(Discharge(txn_id=txn_id))) == "amqp:transaction:rollback"
    peer.socket.close()
    stop(daemon, channel.peer)

    assert refusals(folder) == [(reason, queue, queue)]
    unroutable, refused = cat(folder, "unroutable", "refuse")
    assert (unroutable["message_id"], refused["message_id"]) == ("nowhere", "m-10")
    assert (unroutable["user"], unroutable["conn"]) == (refused["user"], refused["conn"])


def test_bodies_that_are_too_large(
    start_daemon: DaemonStarter, connect: Connector, meet: Meet, folder: Path
) -> None:
    daemon = start_daemon(*FULL, "--message-size-max", "1MiB")
    channel = with_queues(daemon, connect)
    other = channel.peer.channel(2)
    other.publish(bytes(MIB + 1), "stopped")
    other.expect_close(406)
    peer = meet(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    session.sends("stopped")
    for _ in range(11):
        session.transfer(0, bytes(100_000), 0, more=True)
    wait_for(folder, "refuse", 2)
    peer.socket.close()
    stop(daemon, channel.peer)

    assert refusals(folder) == [("invalid", None, "stopped")] * 2
    sizes = [event["size"] for event in cat(folder, "refuse")]
    assert sizes == [MIB + 1, 1_100_000]


@pytest.mark.parametrize("level", ["full", "off"])
def test_an_immediate_message_whose_value_the_queue_has(
    start_daemon: DaemonStarter, connect: Connector, folder: Path, level: str
) -> None:
    daemon = start_daemon("--journal", level)
    channel = connect(daemon.address).channel()
    latest: FieldTable = {"x-last-value-key": "k", "x-journal": "lifecycle"}
    channel.declare("latest", durable=True, arguments=latest)
    value = Basic.Properties(delivery_mode=2, message_id="m", headers={"k": "v"})
    channel.publish(b"", "latest", properties=value)
    channel.publish(b"", "latest", properties=value, immediate=True)
    channel.returned()
    stop(daemon, channel.peer)

    assert refusals(folder) == [("immediate", "latest", "latest")]
    (refused,) = cat(folder, "refuse")
    assert (refused["message_id"], refused["user"], refused["channel"]) == ("m", "guest", channel.number)
    assert [event["quantity"] for event in cat(folder, "checkpoint")][-1:] == [1]


def test_links_of_senders(start_daemon: DaemonStarter, connect: Connector, meet: Meet, folder: Path) -> None:
    daemon = start_daemon(*FULL)
    channel = with_queues(daemon, connect)
    peer = meet(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    for handle, address in enumerate(("/queues/nowhere", "/exchanges/nothing/key", "/bad/address")):
        session.write(sender(address, handle))
        session.expect(Attach)
        session.expect_detach(handle, "amqp:invalid-field" if handle == 2 else "amqp:not-found")
    peer.socket.close()
    stop(daemon, channel.peer)

    rows = [
        (event["reason"], event["exchange"], event["routing_key"], event["user"])
        for event in cat(folder, "refuse")
    ]
    assert rows == [
        ("not_found", "", "nowhere", "guest"),
        ("not_found", "nothing", "key", "guest"),
        ("not_found", "", "/bad/address", "guest"),
    ]


def test_a_link_of_a_sender_that_waited_for_the_disk(
    start_daemon: DaemonStarter, connect: Connector, meet: Meet, folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    api = Api(daemon.admin)
    peer = meet(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    with stopped_disk(daemon):
        session.write(sender("/queue/made"))
        wait_for_queue(api, "made")
        channel.write(Queue.Delete(queue="made", nowait=True))
        channel.round_trip()
    session.expect(Attach)
    session.expect_detach(0, "amqp:not-found")
    api.close()
    peer.socket.close()
    stop(daemon, channel.peer)

    assert refusals(folder) == [("not_found", None, "made")]
    (refused,) = cat(folder, "refuse")
    assert (refused["exchange"], refused["user"]) == ("", "guest")


def test_only_refusals_of_the_single_journaled_queue_are_journaled(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True, arguments={**FULL_QUEUE, "x-journal": "full"})
    channel.declare("other", durable=True, arguments=FULL_QUEUE)
    channel.confirm_select()
    for queue in ("q", "other"):
        channel.publish(b"", queue, properties=PERSISTENT)
        channel.expect(Basic.Nack)
    stop(daemon, channel.peer)

    assert refusals(folder) == [("queue_full", "q", "q")]
