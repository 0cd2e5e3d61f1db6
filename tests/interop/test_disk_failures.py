"""Publishers and consumers while the disk fails under the broker: no confirmed message is lost."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from pamqp.commands import Basic, Queue

from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.daemon.daemon import Address, Daemon, DaemonStarter

PERSISTENT = Basic.Properties(delivery_mode=2)
KIB = b"x" * 1024


def children(pid: int) -> list[int]:
    """The processes that `pid` has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def answer(channel: PeerChannel) -> Basic.Ack | Basic.Nack:
    """The broker's answer to a publish."""
    command = channel.peer.expect_any((Basic.Ack, Basic.Nack), channel.number)
    assert isinstance(command, Basic.Ack | Basic.Nack)
    return command


def readiness(daemon: Daemon) -> tuple[int, str]:
    """Status and text of the readiness check."""
    try:
        with urllib.request.urlopen(daemon.admin + "/health/ready") as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, json.dumps(json.loads(error.read()))


def test_the_death_of_the_sync_helper_ends_the_broker_for_a_supervisor_to_start_it_again(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    daemon = start_daemon()
    assert "clean=" not in daemon.log.wait_for(".*log read.*").group(0), "there was no log to be closed"
    assert daemon.metric("amqpd_log_sync_seconds_sum") < 60.0
    publisher = connect(daemon.address).channel()
    publisher.declare("q", durable=True)
    publisher.confirm_select()
    publisher.publish(b"kept", "q", properties=PERSISTENT)
    publisher.expect_confirms(1)
    (helper,) = children(daemon.pid)
    os.kill(helper, signal.SIGKILL)
    daemon.log.wait_for("the process that syncs the log has died")
    daemon.expect_exit(1)
    after = start_daemon()
    assert "clean=False" in after.log.wait_for(".*log read.*").group(0)
    assert connect(after.address).channel().take("q").body == b"kept"


def test_the_death_of_the_sync_helper_stops_only_publishing_if_set_so(
    start_daemon: DaemonStarter, connect: Connector, tmp_path: Path
) -> None:
    daemon = start_daemon(environment={"AMQPD_SYNC_HELPER_LOST": "refuse"})
    publisher = connect(daemon.address).channel()
    publisher.declare("q", durable=True)
    publisher.confirm_select()
    for number in range(3):
        publisher.publish(b"%d" % number, "q", properties=PERSISTENT)
    publisher.expect_confirms(3)
    assert readiness(daemon)[0] == 200

    (helper,) = children(daemon.pid)
    os.kill(helper, signal.SIGKILL)
    daemon.log.wait_for("publishes are refused.*sync helper")
    publisher.publish(b"3", "q", properties=PERSISTENT)
    assert isinstance(answer(publisher), Basic.Nack)
    publisher.publish(b"transient", "q")
    assert isinstance(answer(publisher), Basic.Ack)

    plain = connect(daemon.address).channel()
    plain.publish(b"4", "q", properties=PERSISTENT)
    assert "sync helper" in plain.expect_close(406)
    durable = connect(daemon.address).channel()
    assert "sync helper" in durable.refused(Queue.Declare(queue="other", durable=True), 406)

    consumer = connect(daemon.address).channel()
    consumer.consume("q", "c")
    delivered = consumer.deliveries(4)
    assert [message.body for message in delivered] == [b"0", b"1", b"2", b"transient"]
    consumer.ack(delivered[0].tag)
    consumer.round_trip()
    status, text = readiness(daemon)
    assert status == 503
    assert "sync helper" in text
    api = Api(daemon.load_api().admin)
    alarm = api.ask("GET", "health", "checks", "alarms")
    expected = [{"node": api.get("overview")["node"], "resource": "disk"}]
    assert (alarm.status_code, alarm.json()["alarms"]) == (503, expected)
    api.close()

    daemon.terminate()
    daemon.expect_exit(1)
    after = start_daemon()
    reader = connect(after.address).channel()
    reader.consume("q", "c")
    # the settle of the first could not be recorded, so it comes again, and says so
    again = reader.deliveries(3)
    assert [message.body for message in again] == [b"0", b"1", b"2"]
    assert all(message.redelivered for message in again)
    reader.expect_silence()


def small_disk(folder: Path, size: str) -> tuple[str, ...]:
    """A wrapper that gives the broker a small disk in `folder`, and runs it once more when it has ended."""
    script = f'mount -t tmpfs -o size={size} none "{folder}" || exit 99; "$@"; exec "$@"'
    alone = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--mount")
    tried = subprocess.run(
        [*alone, "sh", "-c", script, "sh", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"this machine lets nobody mount a small disk: {tried.stderr.strip()}")
    return (*alone, "sh", "-c", script, "sh")


def publish_until_refused(channel: PeerChannel, queue: str, limit: int) -> list[bytes]:
    """Publish persistent messages singly until a nack; return the confirmed ones."""
    confirmed: list[bytes] = []
    for number in range(limit):
        body = b"%08d" % number + KIB
        channel.publish(body, queue, properties=PERSISTENT)
        if isinstance(answer(channel), Basic.Nack):
            return confirmed
        confirmed.append(body)
    raise AssertionError(f"{limit} messages of 1 KiB fit on the small disk")


def publish_until_taken(channel: PeerChannel, name: bytes) -> bytes:
    """Publish persistent messages to `q` singly until a confirm; return the confirmed one."""
    for number in range(100_000):
        body = b"%s %d" % (name, number)
        channel.publish(body, "q", properties=PERSISTENT)
        if isinstance(answer(channel), Basic.Ack):
            return body
    raise AssertionError("publishing never came back")


def test_a_full_disk_refuses_publishes_serves_consumers_and_recovers(
    start_daemon: DaemonStarter, connect: Connector, tmp_path: Path
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    options = ("--segment-bytes", "1MiB", "--disk-free-min", "0")
    daemon = start_daemon(*options, data_dir=folder / "data", wrapper=small_disk(folder, "24m"))
    publisher = connect(daemon.address).channel()
    publisher.declare("q", durable=True)
    publisher.confirm_select()
    confirmed = publish_until_refused(publisher, "q", 30_000)
    assert len(confirmed) > 5_000
    status, _ = readiness(daemon)
    assert status == 503

    consumer = connect(daemon.address).channel()
    consumer.consume("q", "c")
    taken = consumer.deliveries(len(confirmed))
    assert [message.body for message in taken] == confirmed
    keep = 50
    consumer.ack(taken[-keep - 1].tag, multiple=True)
    consumer.round_trip()

    # settles make room: publishing comes back by itself
    again = publish_until_taken(publisher, b"again")
    # very many deliveries are settled in slices; a confirm behind the last slice has all of them on disk
    while daemon.metric("amqpd_messages_acked_total") < len(confirmed) - keep:
        consumer.round_trip()
    expected = [*confirmed[-keep:], again, publish_until_taken(publisher, b"behind")]

    (broker,) = children(daemon.pid)
    os.kill(broker, signal.SIGKILL)
    reader = connect(address_after(daemon)).channel()
    reader.consume("q", "c")
    assert [message.body for message in reader.deliveries(len(expected))] == expected
    reader.expect_silence()


def address_after(daemon: Daemon) -> Address:
    """Return the address of the second broker that the wrapper has started."""
    match = daemon.stdout.wait_for(rf"amqp=(?P<host>\S+):(?!{daemon.address.port}\b)(?P<port>\d+)\s")
    return Address(match["host"], int(match["port"]))
