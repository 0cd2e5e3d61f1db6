"""The levels of the journal, by queue, and a journal without room."""

from pathlib import Path

import pytest
from pamqp.commands import Basic, Connection

from broker.journal.reader import JournalReader
from broker.journal.verification import Verification
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.daemon.daemon import Daemon, DaemonStarter
from tests.support.daemon.endings import stop
from tests.support.journal.handmade_journal import OF_THE_BROKER, out_of_turn, wait_for


def events_by_queue(folder: Path) -> dict[str | None, list[str]]:
    """Return the journal's events of each queue; the journal must pass its verification."""
    rows = list(JournalReader(folder).rows())
    found = Verification()
    found.take(rows)
    assert found.findings == []
    assert out_of_turn(rows) == []
    queues: dict[str | None, list[str]] = {}
    for row in rows:
        if row.op not in OF_THE_BROKER:
            text = row.op if row.reason is None else f"{row.op} {row.reason}"
            queues.setdefault(row.queue, []).append(text)
    return queues


def live(channel: PeerChannel, queue: str) -> None:
    """A message comes, is confirmed and goes."""
    channel.publish(b"", queue)
    channel.expect(Basic.Ack)
    channel.ack(channel.take(queue).tag)
    channel.round_trip()


def opened(connect: Connector, daemon: Daemon) -> PeerChannel:
    channel = connect(daemon.address).channel()
    channel.confirm_select()
    return channel


def test_no_journal_is_written_by_default(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon()
    channel = opened(connect, daemon)
    channel.declare("q")
    live(channel, "q")
    stop(daemon, channel.peer)
    assert not folder.exists()


def test_ways_in_and_out_only(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon("--journal", "lifecycle")
    channel = opened(connect, daemon)
    channel.declare("q")
    live(channel, "q")
    stop(daemon, channel.peer)
    assert events_by_queue(folder) == {
        "q": ["declare lifecycle", "enqueue", "ack", "queue_delete shutdown"],
        None: ["end"],
    }


def test_queues_override_the_journal_level_by_their_argument(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon("--journal", "lifecycle")
    channel = opened(connect, daemon)
    for level in ("off", "lifecycle", "full"):
        channel.declare(level, arguments={"x-journal": level})
        live(channel, level)
    stop(daemon, channel.peer)
    assert events_by_queue(folder) == {
        "lifecycle": ["declare lifecycle", "enqueue", "ack", "queue_delete shutdown"],
        "full": ["declare full", "enqueue", "deliver", "ack", "queue_delete shutdown"],
        None: ["end"],
    }


def test_an_unknown_journal_level_is_refused(channel: PeerChannel) -> None:
    with pytest.raises(Exception, match="x-journal") as refusal:
        channel.declare("q", arguments={"x-journal": "most"})
    assert "off, lifecycle, full" in str(refusal.value)


def test_policies_come_first_and_may_change(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    channel = opened(connect, daemon)
    channel.declare("q", arguments={"x-journal": "off"})
    live(channel, "q")
    channel.publish(b"stays", "q")
    channel.expect(Basic.Ack)
    for level, status in (("full", 201), ("lifecycle", 204), ("off", 204)):
        api.put("policies", "/", "p", status=status, pattern="q", definition={"journal": level})
        live(channel, "q")
    api.delete("policies", "/", "p")
    api.close()
    stop(daemon, channel.peer)
    assert events_by_queue(folder) == {
        "q": [
            "checkpoint level",
            "enqueue",
            "deliver",
            "ack",
            "level lifecycle",
            "enqueue",
            "ack",
            "checkpoint level",
            "level off",
        ],
        None: ["end"],
    }


@pytest.mark.parametrize(
    ("own", "queues", "of_queue", "of_none"),
    [
        ("off", "full", ["enqueue", "deliver", "ack"], []),
        ("lifecycle", "full", ["enqueue", "deliver", "ack"], ["unroutable"]),
        ("full", "lifecycle", ["enqueue", "ack"], ["confirm", "confirm", "unroutable", "confirm"]),
        ("full", "off", [], ["confirm", "confirm", "unroutable", "confirm"]),
    ],
    ids=["off below full", "lifecycle below full", "full above lifecycle", "full above off"],
)
def test_events_without_a_queue_have_the_level_of_the_broker(
    start_daemon: DaemonStarter,
    connect: Connector,
    folder: Path,
    own: str,
    queues: str,
    of_queue: list[str],
    of_none: list[str],
) -> None:
    daemon = start_daemon("--journal", own)
    api = Api(daemon.admin)
    api.put("policies", "/", "p", status=201, pattern="^policy$", definition={"journal": queues})
    api.close()
    channel = opened(connect, daemon)
    channel.declare("argument", arguments={"x-journal": queues})
    channel.declare("policy")
    live(channel, "argument")
    live(channel, "policy")
    channel.publish(b"", "nowhere")
    channel.expect(Basic.Ack)
    stop(daemon, channel.peer)
    found = events_by_queue(folder)
    assert found.pop(None) == [*of_none, "end"]
    life = [f"declare {queues}", *of_queue, "queue_delete shutdown"]
    assert found == ({"argument": life, "policy": life} if of_queue else {})


def test_another_folder_and_name(start_daemon: DaemonStarter, connect: Connector, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "j"
    options = ("--journal", "full", "--journal-dir", str(folder), "--node-name", "east-1")
    daemon = start_daemon(*options, "--journal-sync", "second", "--journal-file-s", "1")
    channel = opened(connect, daemon)
    channel.declare("q")
    wait_for(folder, "declare")
    while not list((folder / "live").glob("*.ajl")):  # the file is a second old soon
        channel.round_trip()
    live(channel, "q")
    while daemon.metric("amqpd_journal_events_total") < 5:
        channel.round_trip()
    assert daemon.metric("amqpd_journal_events_lost_total") == 0
    stop(daemon, channel.peer)
    rows = list(JournalReader(folder).rows())
    assert {row.node for row in rows} == {"east-1"}
    assert len(list((folder / "live").glob("east-1-*.ajl"))) >= 2
    assert "Traceback" not in daemon.log.text()


def test_too_little_space_for_a_journal(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon("--journal", "full", "--journal-free-min", str(1 << 60))
    channel = opened(connect, daemon)
    channel.declare("q")
    wait_for(folder, "level")
    live(channel, "q")  # messages go on
    stop(daemon, channel.peer)
    ops = [row.op for row in JournalReader(folder).rows() if row.op not in OF_THE_BROKER]
    assert ops == ["level", "end"]
    assert "the space for journals has changed" in daemon.log.text()


def test_publishers_wait_for_a_journal_that_is_mandatory(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(
        "--journal", "full", "--journal-free-min", str(1 << 60), "--journal-mandatory", "true"
    )
    channel = connect(daemon.address, capabilities={"connection.blocked": True}).channel()
    channel.declare("q")
    wait_for(folder, "level")
    daemon.log.wait_for("publishers are held back")
    channel.publish(b"", "q")
    assert channel.peer.expect(Connection.Blocked).reason == "low on disk"
    daemon.kill()
