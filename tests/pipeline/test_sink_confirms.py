"""A writing task waits for confirms: for a limited number of messages, and for a limited time."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Connection
from pyspark.sql.types import StringType, StructField, StructType

from pipeline.connector.options import sink_options
from pipeline.connector.server import ServerError
from pipeline.connector.sink import AmqpWriter
from tests.support.amqp091.frames import HEAD, METHOD, PROTOCOL_HEADER, Frame, decode_method, method_bytes
from tests.support.daemon.daemon import PATIENCE_S

SILENCE_S: Final = 0.1  # so long nothing comes of who waits for confirms
SLACK_S: Final = 10.0  # for a machine that has other things to do
SCHEMA: Final = StructType([StructField("value", StringType())])
ANSWERS: Final[dict[type[base.Frame], base.Frame]] = {
    Connection.StartOk: Connection.Tune(2047, 131072, 0),
    Connection.Open: Connection.OpenOk(),
    Channel.Open: Channel.OpenOk(),
    Confirm.Select: Confirm.SelectOk(),
    Connection.Close: Connection.CloseOk(),
}


class Peer:
    """A broker that takes all messages, and confirms them when no more come for a while.

    `never`: not these. `multiple`: with one confirm for all that are there; else each has its own, that of
    the last one first. `most`: how many there were at a time that were not confirmed.
    """

    def __init__(self) -> None:
        self.never: set[int] = set()
        self.multiple = True
        self.published = 0
        self.waiting: list[int] = []
        self.most = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """End, with the client that there was."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(PATIENCE_S)

    def _serve(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:  # nobody came
            return
        connection.settimeout(PATIENCE_S)
        with connection:
            assert _read(connection, len(PROTOCOL_HEADER)) == PROTOCOL_HEADER
            connection.sendall(method_bytes(Connection.Start()))
            while True:
                if not select.select([connection], [], [], SILENCE_S)[0]:
                    self._confirm(connection)
                elif not self._take(connection):
                    return

    def _take(self, connection: socket.socket) -> bool:
        """Take and answer a frame; return whether there was any."""
        head = _read(connection, HEAD.size)
        if not head:
            return False
        kind, channel, size = HEAD.unpack(head)
        payload = _read(connection, size + 1)[:-1]
        if kind == METHOD:
            method = decode_method(Frame(kind, channel, payload))
            if isinstance(method, Basic.Publish):
                self.published += 1
                self.waiting.append(self.published)
                self.most = max(self.most, len(self.waiting))
            elif type(method) in ANSWERS:
                connection.sendall(method_bytes(ANSWERS[type(method)], channel))
        return True

    def _confirm(self, connection: socket.socket) -> None:
        """Confirm the waiting messages."""
        due = [tag for tag in reversed(self.waiting) if tag not in self.never]
        for tag in due[:1] if self.multiple else due:
            connection.sendall(method_bytes(Basic.Ack(tag, self.multiple), 1))
        self.waiting = [tag for tag in self.waiting if tag in self.never]


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (found := connection.recv(size - len(data))):
        data += found
    return data


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


def publish(peer: Peer, count: int, **options: int) -> int:
    """Have a task write so many rows; how many it says that it has written."""
    given_options = {"url": f"amqp://127.0.0.1:{peer.port}", "routingKey": "q"}
    given_options |= {name: str(value) for name, value in options.items()}
    writer = AmqpWriter(sink_options(given_options, SCHEMA, overwrite=False, streaming=False))
    rows = pa.RecordBatch.from_pydict({"value": [str(row) for row in range(count)]})
    return writer.write(iter([rows])).count


@pytest.mark.parametrize("multiple", [True, False], ids=["all at once", "the last one first"])
def test_no_more_are_under_way_than_may_be(peer: Peer, multiple: bool) -> None:
    peer.multiple = multiple
    assert publish(peer, 50, maxInFlight=7) == 50
    assert (peer.published, peer.waiting, peer.most) == (50, [], 7)


@pytest.mark.parametrize(
    ("in_flight", "never", "multiple", "left"),
    [(2000, {3, 4, 5}, True, 3), (2, {3, 4, 5}, True, 2), (2000, {1}, False, 1)],
    ids=["when all are sent", "before more are sent", "the first one only"],
)
def test_a_broker_that_does_not_confirm_in_time_fails_the_task(
    peer: Peer, in_flight: int, never: set[int], multiple: bool, left: int
) -> None:
    peer.never = never
    peer.multiple = multiple
    begun = time.monotonic()
    with pytest.raises(ServerError, match=rf"^{left} messages are not confirmed within 1\.5 s$"):
        publish(peer, 5, maxInFlight=in_flight, confirmTimeoutMs=1500)
    assert 1.5 <= time.monotonic() - begun < 1.5 + SLACK_S
