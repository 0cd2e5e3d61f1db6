"""Every way of a message into a queue and out of it, in `amqpd journal cat` and `verify`."""

from pathlib import Path

from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable

from tests.support.amqp091.peer import Connector
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.endings import stop
from tests.support.journal.daemon_journal import (
    LIFECYCLE,
    Reader,
    cat,
    channel_with_queues,
    publish,
    run_operation,
    summaries,
)


def test_move_and_copy(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(daemon, connect, "q", "to")
    publish(channel, "q", 1)
    run_operation(daemon, "q", "copy", to={"queue": "to"})
    run_operation(daemon, "q", "move", to={"queue": "to"})
    stop(daemon, channel.peer)
    events = cat(folder)
    assert summaries(events) == [
        "declare q lifecycle",
        "declare to lifecycle",
        "enqueue q",
        "enqueue to copied",
        "enqueue to moved",
        "remove q moved",
        "checkpoint q shutdown",
        "checkpoint to shutdown 2",
    ]
    uid = events[2]["msg_uid"]
    assert [event["origin_uid"] for event in events[3:5]] == [uid, uid]
    assert events[5]["msg_uid"] == uid


def test_edit(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(daemon, connect, "q")
    publish(channel, "q", 1)
    run_operation(daemon, "q", "edit", payload="edited", payload_encoding="string")
    stop(daemon, channel.peer)
    events = cat(folder)
    assert summaries(events)[1:] == [
        "enqueue q",
        "enqueue q edited",
        "remove q edited",
        "checkpoint q shutdown 1",
    ]
    assert events[2]["origin_uid"] == events[3]["msg_uid"] == events[1]["msg_uid"]


def test_redrive(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(
        daemon, connect, "q", dead_letter_exchange="", dead_letter_routing_key="dead"
    )
    channel.declare("dead", durable=True)
    publish(channel, "q", 1)
    channel.reject(channel.take("q").tag, requeue=False)
    channel.round_trip()
    run_operation(daemon, "dead", "redrive")
    stop(daemon, channel.peer)
    events = cat(folder)
    assert summaries(events)[2:] == [
        "enqueue q",
        "dead_letter q rejected",
        "enqueue dead dead_letter",
        "enqueue q redriven",
        "remove dead redriven",
        "checkpoint q shutdown 1",
        "checkpoint dead shutdown",
    ]
    assert events[5]["origin_uid"] == events[6]["msg_uid"] == events[4]["msg_uid"]


def test_conflation(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(daemon, connect, "q", queue_kind="last-value", last_value_key="k")
    named = Basic.Properties(delivery_mode=2, headers={"k": "same"})
    channel.publish(b"", "q", properties=named)
    taken = channel.take("q")
    for _ in range(2):
        channel.publish(b"", "q", properties=named)
    channel.nack(taken.tag)
    stop(daemon, channel.peer)
    assert summaries(cat(folder))[1:] == [
        "enqueue q",
        "enqueue q",
        "replace q replaced",
        "enqueue q",
        "replace q replaced",
        "checkpoint q shutdown 1",
    ]


def test_deletion(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(daemon, connect, "q")
    publish(channel, "q", 1)
    run_operation(daemon, "q", "delete")
    publish(channel, "q", 2)
    channel.call(Queue.Purge(queue="q"), Queue.PurgeOk)
    publish(channel, "q", 3)
    channel.call(Queue.Delete(queue="q"), Queue.DeleteOk)
    stop(daemon, channel.peer)
    out = [word for word in summaries(cat(folder)) if not word.startswith(("declare", "enqueue"))]
    assert out == ["remove q", "purge q 2", "queue_delete q 3"]


def test_staging(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(daemon, connect, "q")
    publish(channel, "q", 4)
    reader = Reader(daemon, "q")
    reader.advance(0, 2)
    reader.attach()  # fences the former reader; staged messages stay
    reader.advance(1, 1)
    reader.api.delete(*reader.path)
    reader.attach()
    reader.advance(0, 1)
    channel.call(Queue.Delete(queue="q"), Queue.DeleteOk)
    reader.api.close()
    stop(daemon, channel.peer)
    events = cat(folder)[5:]
    assert summaries(events) == [
        "stage q",
        "stage q",
        "stage q",
        "ack q",
        "requeue q released",
        "requeue q released",
        "stage q",
        "queue_delete q 3",
    ]
    uids = [event["msg_uid"] for event in events[:-1]]
    assert uids == [uids[0], uids[1], uids[2], uids[0], uids[1], uids[2], uids[1]]
    assert {event["consumer"] for event in events[:-1]} == {"spark"}


def test_a_receipt_in_a_stream_comes_from_the_broker(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(daemon, connect, "q")
    channel.declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_select()
    wanted: FieldTable = {"x-receipt-to": "s", "x-receipt-on": "arrival"}
    channel.publish(b"", "q", properties=Basic.Properties(delivery_mode=2, headers=wanted))
    channel.publish(b"", "s", properties=Basic.Properties(delivery_mode=2))
    channel.expect_confirms(2)
    stop(daemon, channel.peer)
    appended = [event for event in cat(folder) if event["op"] == "append"]
    assert sorted((str(event["reason"]), str(event["user"])) for event in appended) == [
        ("None", "guest"),
        ("own", "None"),
    ]
