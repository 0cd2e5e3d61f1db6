"""Restored and lost messages of a restart, as the journal records them."""

from pathlib import Path
from shutil import copytree, ignore_patterns, rmtree

from typer.testing import CliRunner

from broker.journal.command import app
from tests.support.amqp091.peer import Connector
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.endings import Ending, both_endings, stop
from tests.support.journal.daemon_journal import (
    LIFECYCLE,
    Reader,
    cat,
    channel_with_queues,
    publish,
    summaries,
)
from tests.support.journal.handmade_journal import wait_for


@both_endings
def test_staged_messages_over_a_restart(
    start_daemon: DaemonStarter, connect: Connector, folder: Path, end: Ending
) -> None:
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(daemon, connect, "q")
    publish(channel, "q", 3)
    reader = Reader(daemon, "q")
    reader.advance(0, 2)
    reader.api.close()
    wait_for(folder, "stage")
    end(daemon, channel.peer)
    daemon = start_daemon(*LIFECYCLE)
    channel = connect(daemon.address).channel()
    reader = Reader(daemon, "q")
    reader.advance(2, 0)
    reader.api.close()
    stop(daemon, channel.peer)
    events = summaries(cat(folder))
    assert events[events.index("recover q") :] == [
        "recover q",
        "recover q",
        "recover q",
        "recover q lifecycle 3",
        "stage q",
        "stage q",
        "ack q",
        "ack q",
        "checkpoint q shutdown 1",
    ]


@both_endings
def test_messages_lost_with_the_broker(
    start_daemon: DaemonStarter, connect: Connector, folder: Path, end: Ending
) -> None:
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(daemon, connect, "q")
    channel_with_queues(daemon, connect, "volatile", volatile=True)
    channel.declare("transient")
    for name in ("q", "volatile", "transient"):
        publish(channel, name, 3)
    for _ in range(2):
        channel.publish(b"", "q")
    channel.round_trip()
    channel.ack(channel.take("q").tag)
    wait_for(folder, "ack")
    end(daemon, channel.peer)
    daemon = start_daemon(*LIFECYCLE)
    channel = connect(daemon.address).channel()
    publish(channel, "q", 1)
    stop(daemon, channel.peer)
    events = cat(folder)
    again = next(at for at, event in enumerate(events) if event["op"] == "recover")
    kept = [event["persistent"] for event in events if event["op"] == "enqueue"]
    assert kept == [True] * 3 + [False] * 8 + [True]
    gone = [
        "checkpoint q shutdown 2",
        "checkpoint volatile shutdown",
        "lost q shutdown 2",
        "lost volatile shutdown 3",
        "queue_delete transient shutdown 3",
    ]
    before_restart = summaries(events[:again])
    assert sorted(before_restart[before_restart.index("ack q") + 1 :]) == (gone if end is stop else [])
    assert summaries(events[again:]) == [
        "recover q",
        "recover q",
        "recover q lifecycle 2",
        "recover volatile lifecycle",
        "enqueue q",
        "checkpoint q shutdown 3",
        "checkpoint volatile shutdown",
    ]


def test_verify_finds_unexpected_message_counts_after_a_restart(
    start_daemon: DaemonStarter, connect: Connector, folder: Path, tmp_path: Path
) -> None:
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(daemon, connect, "q")
    publish(channel, "q", 3)
    stop(daemon, channel.peer)
    before = copytree(folder.parent, tmp_path / "before", ignore=ignore_patterns("journal"))
    daemon = start_daemon(*LIFECYCLE)
    channel = connect(daemon.address).channel()
    publish(channel, "q", 2)
    channel.publish(b"", "q")
    stop(daemon, channel.peer)
    copytree(folder, before / "journal")
    rmtree(folder.parent)
    before.rename(folder.parent)
    daemon = start_daemon(*LIFECYCLE)
    stop(daemon, connect(daemon.address).channel().peer)
    done = CliRunner().invoke(app, ["verify", str(folder)])
    assert done.exit_code == 2, done.output
    assert "says 3 messages, what came and left makes it 5" in done.output
    assert ": 1 findings" in done.output


def test_verify_expects_no_events_of_a_run_without_a_journal(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(daemon, connect, "q")
    publish(channel, "q", 3)
    stop(daemon, channel.peer)
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.ack(channel.take("q").tag)
    stop(daemon, channel.peer)
    daemon = start_daemon(*LIFECYCLE)
    stop(daemon, connect(daemon.address).channel().peer)
    assert summaries(cat(folder))[4:] == [
        "checkpoint q shutdown 3",
        "level off",
        "recover q",
        "recover q",
        "recover q lifecycle 2",
        "checkpoint q shutdown 2",
    ]


def test_waiting_dead_letters_over_a_restart(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(*LIFECYCLE)
    arguments = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead", "overflow": "reject-publish"}
    channel = channel_with_queues(daemon, connect, "q", dead_letter_strategy="at-least-once", **arguments)
    publish(channel, "q", 2)
    channel.publish(b"transient", "q")
    channel.nack([channel.take("q").tag for _ in range(3)][-1], multiple=True, requeue=False)
    channel.round_trip()
    stop(daemon, channel.peer)
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(daemon, connect, "dead")
    channel.consume("dead", "c", no_ack=True)
    assert [message.body for message in channel.deliveries(2)] == [b"0", b"1"]
    stop(daemon, channel.peer)
    events = summaries(cat(folder))
    assert events[events.index("lost q shutdown 1") :] == [
        "lost q shutdown 1",
        "checkpoint q shutdown 2",
        "recover q",
        "recover q",
        "recover q lifecycle 2",
        "declare dead lifecycle",
        "dead_letter q rejected",
        "enqueue dead dead_letter",
        "dead_letter q rejected",
        "enqueue dead dead_letter",
        "ack dead",
        "ack dead",
        "checkpoint q shutdown",
        "checkpoint dead shutdown",
    ]
