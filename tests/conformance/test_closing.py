"""A connection that the client closes while it is still sending."""

import socket

import pytest
from pamqp.commands import Connection, Queue

from tests.frames import method_bytes
from tests.peer import Connector


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
