"""The end of a broker process: stopped once or twice, with peers that do not answer."""

import os
import signal
import socket

import pytest
from pamqp.commands import Basic, Connection

from tests.support.amqp091.frames import decode_method
from tests.support.amqp091.peer import Connector, Dialler
from tests.support.daemon.daemon import DaemonStarter


@pytest.mark.spec("amqp-0-9-1", "connection.close")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_a_signal_closes_every_connection_with_320(
    start_daemon: DaemonStarter, dial: Dialler, connect: Connector, number: signal.Signals
) -> None:
    daemon = start_daemon()
    idle, busy = connect(daemon.address), connect(daemon.address)
    half = dial(daemon.address)  # has not finished its handshake
    half.start()
    channel = busy.channel()
    queue = channel.declare()
    channel.consume(queue)
    channel.publish(b"held", queue)
    channel.delivery()
    os.kill(daemon.pid, number)
    for peer in (idle, busy):
        assert peer.expect_close(320).startswith("CONNECTION_FORCED - ")
    half.expect_end()
    daemon.expect_exit(0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(daemon.address)


@pytest.mark.spec("amqp-0-9-1", "connection.close")
def test_a_peer_that_does_not_answer_close_does_not_delay_the_stop(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    daemon = start_daemon()
    silent = connect(daemon.address)
    daemon.terminate()
    close = silent.expect(Connection.Close)
    assert close.reply_code == 320
    daemon.expect_exit(0)  # although silent never says close-ok


@pytest.mark.spec("amqp-0-9-1", "connection.close")
def test_a_peer_that_does_not_read_does_not_delay_the_stop(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    daemon = start_daemon()
    deaf = connect(daemon.address)
    channel = deaf.channel()
    queue = channel.declare()
    for _ in range(30):
        channel.publish(bytes(1_000_000), queue)
    channel.round_trip()
    channel.write(Basic.Consume(queue=queue, no_ack=True))
    deaf.read_exactly(1000)  # the broker is sending now, and nobody reads on
    daemon.stop()


@pytest.mark.spec("rabbitmq-extensions", "publisher confirms")
def test_messages_confirmed_before_the_close_survive_the_restart(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    daemon = start_daemon()
    peer = connect(daemon.address)
    channel = peer.channel()
    channel.declare("durable", durable=True)
    channel.confirm_select()
    persistent = Basic.Properties(delivery_mode=2)
    stream = [
        channel.encode_publish(b"%d" % number, "durable", properties=persistent) for number in range(2000)
    ]
    peer.send(b"".join(stream))
    channel.expect(Basic.Ack)  # the first of many, while the rest is still on its way
    confirmed = 1
    daemon.terminate()
    while True:
        frame = peer.receive()
        command = decode_method(frame)
        if isinstance(command, Connection.Close):
            peer.write(Connection.CloseOk())
            break
        assert isinstance(command, Basic.Ack), command
        assert command.delivery_tag is not None
        confirmed = max(confirmed, command.delivery_tag)
    daemon.expect_exit(0)
    again = start_daemon()
    channel = connect(again.address).channel()
    ready, _ = channel.counts("durable")
    assert confirmed <= ready <= 2000
    channel.consume("durable", no_ack=True)
    received = [int(message.body) for message in channel.deliveries(ready)]
    assert received == list(range(ready))


def test_a_second_signal_is_harmless(start_daemon: DaemonStarter, connect: Connector) -> None:
    daemon = start_daemon()
    silent = connect(daemon.address)
    daemon.terminate()
    silent.expect(Connection.Close)
    daemon.terminate()
    daemon.expect_exit(0)


def test_a_second_daemon_on_the_same_folder_is_refused(
    start_daemon: DaemonStarter, connect: Connector
) -> None:
    first = start_daemon()
    with pytest.raises(AssertionError, match=r"(?s)not ready; exit [1-9].*(lock|another|in use)"):
        start_daemon()
    connect(first.address).channel().round_trip()


def test_a_port_that_is_taken_ends_the_start(start_daemon: DaemonStarter) -> None:
    first = start_daemon()
    port = first.address.port
    with pytest.raises(AssertionError, match=rf"(?s)not ready; exit [1-9].*{port}"):
        start_daemon("--listen", f"127.0.0.1:{port}", data_dir=first.folder / "other")


def test_the_daemon_leaves_no_process_behind(start_daemon: DaemonStarter) -> None:
    """After a crash, too, the sync helper ends by itself, and so releases the folder."""
    daemon = start_daemon()
    daemon.kill()  # ends only when nobody holds the output of the process any more
    start_daemon().stop()
