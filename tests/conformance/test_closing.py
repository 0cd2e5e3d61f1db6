"""Connections that the client closes: while it is still sending, from several threads, without hanging up."""

import select
import socket
import time

import pytest
from pamqp.commands import Connection, Queue

from broker.adapters.amqp091.connection import HANGUP_SECONDS
from tests.support.amqp091.frames import method_bytes
from tests.support.amqp091.peer import Connector, Peer

CLOSE = method_bytes(Connection.Close(200, "", 0, 0))
QUIET_S = 0.2


def expect_open(peer: Peer) -> None:
    """The broker must neither say more nor end the connection."""
    assert select.select([peer.socket], [], [], QUIET_S)[0] == []


@pytest.mark.spec("amqp-0-9-1", "connection.close")
def test_frames_behind_the_close_do_not_cost_the_close_ok(connect: Connector, name: str) -> None:
    watcher = connect().channel()
    watcher.declare(name)
    peer = connect()
    late = peer.channel().encode_publish(bytes(100_000), name)
    peer.send(method_bytes(Connection.Close(200, "", 0, 0)) + late)
    for _ in range(100):
        peer.send(late)
    peer.expect(Connection.CloseOk)
    peer.socket.shutdown(socket.SHUT_WR)
    assert peer.socket.recv(1) == b""
    assert watcher.call(Queue.Delete(queue=name), Queue.DeleteOk).message_count == 0


@pytest.mark.spec("amqp-0-9-1", "connection.close-ok")
def test_a_client_that_has_closed_hangs_up_first(connect: Connector) -> None:
    peer = connect()
    peer.send(CLOSE)
    peer.expect(Connection.CloseOk)
    expect_open(peer)  # the end of the stream would look like a failure to clients that still read
    peer.socket.shutdown(socket.SHUT_WR)
    assert peer.socket.recv(1) == b""


@pytest.mark.spec("amqp-0-9-1", "connection.close-ok")
@pytest.mark.parametrize("apart", [False, True])
def test_several_threads_that_close_a_connection_are_all_answered(connect: Connector, apart: bool) -> None:
    peer = connect()
    peer.send(CLOSE)
    if apart:
        peer.expect(Connection.CloseOk)
    peer.send(CLOSE + method_bytes(Connection.CloseOk()) + CLOSE)
    for _ in range(2 if apart else 3):
        peer.expect(Connection.CloseOk)
    expect_open(peer)


@pytest.mark.spec("amqp-0-9-1", "connection.close-ok")
def test_a_close_that_crosses_the_brokers_own_is_answered_before_the_end(connect: Connector) -> None:
    peer = connect()
    peer.send(method_bytes(Queue.Declare(queue="q"), 5))  # the channel is not open
    peer.expect(Connection.Close)
    peer.send(CLOSE)
    peer.expect(Connection.CloseOk)
    expect_open(peer)


@pytest.mark.nightly
@pytest.mark.spec("amqp-0-9-1", "connection.close-ok")
def test_a_client_that_does_not_hang_up_is_hung_up_on(connect: Connector) -> None:
    peer = connect()
    begin = time.monotonic()
    peer.send(CLOSE)
    peer.expect(Connection.CloseOk)
    assert peer.socket.recv(1) == b""
    assert time.monotonic() - begin > HANGUP_SECONDS / 2
