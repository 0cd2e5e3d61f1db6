"""Connections without a log-in: the limits on their costs, and which connections are closed."""

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pamqp.commands import Basic

from tests.support.amqp091.frames import PROTOCOL_HEADER
from tests.support.amqp091.peer import Dialler
from tests.support.daemon.certificates import Certificates, secure_address
from tests.support.daemon.daemon import PATIENCE_S, Address, DaemonStarter

LIMITED = (
    sys.executable,
    "-c",
    "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (48, 160));"
    "os.execv(sys.argv[1], sys.argv[1:])",
)
"""A wrapper: the process may have 48 file descriptors, and up to 160 if it asks for them."""

FOREVER = ("--handshake-timeout-s", "3600")

Knock = Callable[[Address], socket.socket]


@pytest.fixture
def knock() -> Iterator[Knock]:
    """Open sockets that say nothing by themselves."""
    opened: list[socket.socket] = []

    def connect(address: Address) -> socket.socket:
        opened.append(socket.create_connection(address, timeout=PATIENCE_S))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


def test_a_logged_in_client_is_no_stranger(dial: Dialler, start_daemon: DaemonStarter) -> None:
    """However many clients log in, a stranger stays as long as the limit allows."""
    daemon = start_daemon("--strangers-max", "2", *FOREVER)
    stranger = dial(daemon.address)
    stranger.start()
    known = [dial(daemon.address).open() for _ in range(5)]
    stranger.login()
    stranger.tune()
    assert "too many connections" not in daemon.log.text()
    for peer in [stranger, *known]:
        peer.drop()


def test_connections_in_a_tls_handshake_count_as_strangers(
    dial: Dialler, knock: Knock, start_daemon: DaemonStarter, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    daemon = start_daemon("--strangers-max", "3", *FOREVER, *certificates.options())
    secure = secure_address(daemon)
    first = dial(daemon.address)
    first.start()
    second = knock(secure)
    dial(daemon.address).open().drop()  # the second one has been accepted by now
    third = dial(daemon.address)
    third.start()
    fourth = knock(secure)
    first.expect_end()
    daemon.log.wait_for(f"too many connections that have not logged in.*{first.name}")
    with certificates.trusting().wrap_socket(fourth, server_hostname="localhost") as shaken:
        shaken.sendall(PROTOCOL_HEADER)
        assert shaken.recv(1) == b"\x01", "it is the same stranger after its handshake"
        fifth = dial(daemon.address)
        fifth.start()
        assert second.recv(1) == b""
        third.login()
        third.tune()
    for peer in (third, fifth):
        peer.drop()


def test_connections_leave_the_log_its_file_descriptors(
    dial: Dialler, knock: Knock, start_daemon: DaemonStarter
) -> None:
    """More connect than the process may have descriptors; publishes over many segments are confirmed."""
    daemon = start_daemon("--segment-bytes", "64KiB", *FOREVER, wrapper=LIMITED)
    publisher = dial(daemon.address).open().channel()
    publisher.declare("kept", durable=True)
    publisher.confirm_select()
    for _ in range(200):
        knock(daemon.address)
    daemon.log.wait_for("too many connections for the available file descriptors.*logged_in=1 .*max=80")
    persistent = Basic.Properties(delivery_mode=2)
    for tag in range(1, 61):
        body = bytes(30_000 if tag % 20 else 2_000_000)
        publisher.publish(body, "kept", properties=persistent)
        publisher.expect_confirms(tag, tag)
    newcomer = dial(daemon.address).open()
    assert newcomer.channel().counts("kept") == (60, 0)
    assert "waits for a file descriptor" not in daemon.log.text()
    publisher.peer.drop()
    newcomer.drop()
