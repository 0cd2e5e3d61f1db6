"""Log-ins by other mechanisms than PLAIN, and limits before a log-in."""

import re
from pathlib import Path

import pytest
from pamqp.commands import Connection
from pamqp.common import FieldTable

from broker.auth.users import Users
from broker.core.broker import Broker
from tests.conformance.conftest import Bystander, logged
from tests.support.amqp091.frames import HEAD, PROTOCOL_HEADER
from tests.support.amqp091.peer import CAPABILITIES, Dialler, Peer
from tests.support.auth.broker_with_users import ALL, folder_with_users, quick_password
from tests.support.auth.scram_client import ScramClient
from tests.support.daemon.daemon import Daemon, DaemonStarter

PROPERTIES: FieldTable = {"capabilities": CAPABILITIES}

pytestmark = pytest.mark.amqpd_only("mechanisms and bounds of its own")


def opened(peer: Peer) -> None:
    """Go on from tune to an open connection."""
    peer.tune()
    peer.write(Connection.Open("/"))
    peer.expect(Connection.OpenOk)
    peer.close()


def scram(peer: Peer, user: str, password: str) -> ScramClient:
    """SCRAM-SHA-256 up to and including the proof."""
    peer.start()
    assert "SCRAM-SHA-256" in peer.mechanisms.split()
    client = ScramClient(user, password)
    peer.write(Connection.StartOk(PROPERTIES, "SCRAM-SHA-256", client.first().decode()))
    challenge = peer.expect(Connection.Secure).challenge
    peer.write(Connection.SecureOk(client.final(octets(challenge)).decode()))
    return client


def octets(value: object) -> bytes:
    """A long string, as bytes."""
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.mark.spec("amqp-0-9-1", "connection.secure")
def test_scram_sha_256(dial: Dialler, address: object) -> None:
    peer = dial()
    client = scram(peer, "guest", "guest")
    assert octets(peer.expect(Connection.Secure).challenge) == client.expected
    peer.write(Connection.SecureOk(""))
    opened(peer)


@pytest.mark.spec("amqp-0-9-1", "connection.secure")
@pytest.mark.parametrize(("user", "password"), [("guest", "wrong"), ("nobody", "guest")])
def test_scram_sha_256_with_a_wrong_password(
    dial: Dialler, own: Daemon | None, bystander: Bystander, user: str, password: str
) -> None:
    peer = dial()
    scram(peer, user, password)
    text = peer.expect_close(403)
    assert text.startswith("ACCESS_REFUSED - Login was refused using authentication mechanism SCRAM-SHA-256.")
    logged(own, peer, f"refused.*user={user}")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_scram_salts_of_missing_users_survive_a_restart(
    dial: Dialler, start_daemon: DaemonStarter, end: str
) -> None:
    salts: list[list[bytes]] = []
    for _ in range(2):
        daemon = start_daemon()
        salts.append([])
        for user in ("guest", "nobody", "noone"):
            peer = dial(daemon.address)
            peer.start()
            first = ScramClient(user, "wrong").first().decode()
            peer.write(Connection.StartOk(PROPERTIES, "SCRAM-SHA-256", first))
            challenge = octets(peer.expect(Connection.Secure).challenge)
            salts[-1].append(challenge.split(b",")[1])
            peer.drop()
        daemon.stop() if end == "stop" else daemon.kill()
    assert salts[0] == salts[1]
    assert len(set(salts[0])) == 3


@pytest.mark.spec("amqp-0-9-1", "connection.secure-ok")
def test_unexpected_secure_ok_closes_the_connection_with_503(
    dial: Dialler, own: Daemon | None, bystander: Bystander
) -> None:
    peer = dial()
    peer.start()
    peer.write(Connection.SecureOk("x"))
    assert "COMMAND_INVALID" in peer.expect_close(503)
    logged(own, peer, r"\b503\b")


@pytest.mark.spec("amqp-0-9-1", "connection.start-ok#mechanism")
@pytest.mark.parametrize("mechanism", ["EXTERNAL", "ANONYMOUS", "CRAM-MD5", ""])
def test_mechanisms_that_are_not_offered(
    dial: Dialler, own: Daemon | None, bystander: Bystander, mechanism: str
) -> None:
    peer = dial()
    peer.start()
    assert peer.mechanisms.split() == ["PLAIN", "AMQPLAIN", "SCRAM-SHA-256"]
    peer.write(Connection.StartOk(PROPERTIES, mechanism, ""))
    assert peer.expect_close(503) == f"COMMAND_INVALID - unknown authentication mechanism '{mechanism}'"
    logged(own, peer, r"\b503\b")


def test_anonymous_login_is_accepted_if_an_anonymous_user_is_set(
    dial: Dialler, start_daemon: DaemonStarter
) -> None:
    daemon = start_daemon("--anonymous-user", "guest", "--sasl-mechanisms", "AMQPLAIN")
    peer = dial(daemon.address)
    peer.start()
    assert peer.mechanisms.split() == ["AMQPLAIN", "ANONYMOUS"]
    peer.write(Connection.StartOk(PROPERTIES, "ANONYMOUS", "anybody"))
    opened(peer)
    daemon.log.wait_for("connection opened.*user=guest")


def test_hashes_of_rabbitmq(dial: Dialler, start_daemon: DaemonStarter, tmp_path: Path) -> None:
    def people(users: Users, broker: Broker) -> None:
        broker.declare_vhost("/")
        for digest in ("sha256", "sha512"):
            users.add(digest, quick_password("secret", digest))
            users.permit(digest, "/", ALL, ALL, ALL)

    daemon = start_daemon(data_dir=folder_with_users(tmp_path / "data", people))
    for user in ("sha256", "sha512"):
        peer = dial(daemon.address)
        peer.start()
        peer.login(user, "secret")
        opened(peer)
        peer = dial(daemon.address)
        peer.start()
        peer.login(user, "Secret")
        peer.expect_close(403)


# -- strangers


@pytest.mark.spec("amqp-0-9-1", "4.2.3")
def test_a_stranger_sends_no_large_frames(dial: Dialler, own: Daemon | None, bystander: Bystander) -> None:
    peer = dial()
    peer.start()
    peer.send(HEAD.pack(1, 0, 8193))
    peer.expect_close(501)
    logged(own, peer, r"\b501\b")


def test_a_stranger_sends_no_end_of_frames(dial: Dialler, own: Daemon | None, bystander: Bystander) -> None:
    peer = dial()
    peer.start()
    heartbeats = HEAD.pack(8, 0, 0) + b"\xce"
    peer.send(heartbeats * 8193)  # 64 KiB and a bit
    assert peer.expect_close(506) == "RESOURCE_ERROR - more than 65536 bytes before the log-in"
    logged(own, peer, r"\b506\b")


def test_the_oldest_of_too_many_strangers_gives_way(dial: Dialler, start_daemon: DaemonStarter) -> None:
    daemon = start_daemon("--strangers-max", "3", "--handshake-timeout-s", "3600")
    known = dial(daemon.address).open()
    strangers = [dial(daemon.address) for _ in range(3)]
    for each in strangers[:2]:
        each.start()
    strangers[2].send(PROTOCOL_HEADER[:3])
    for _ in range(3):
        dial(daemon.address).open().close()
    strangers[0].expect_end()
    daemon.log.wait_for(f"too many connections that have not logged in.*{strangers[0].name}")
    known.channel().declare(exclusive=True)
    for peer in (known, *strangers):
        peer.drop()


def test_guesses_are_slowed_down_and_the_right_password_elsewhere_is_not(
    dial: Dialler, start_daemon: DaemonStarter
) -> None:
    daemon = start_daemon("--handshake-timeout-s", "2")
    dial(daemon.address).open().close()  # the password is remembered from now on
    guesses = [dial(daemon.address) for _ in range(30)]
    for number, peer in enumerate(guesses):
        peer.start()
        peer.login("guest", f"guess {number}", capabilities={})
    for peer in guesses:
        peer.expect_end()
    assert len(re.findall("login refused", daemon.log.text())) < 10  # the other logins were never tried
    daemon.log.wait_for("handshake timeout")
    dial(daemon.address).open().close()


def test_tls_on_the_plain_port_is_told(dial: Dialler, own: Daemon | None, bystander: Bystander) -> None:
    peer = dial()
    peer.send(bytes.fromhex("160301020001000001fc0303"))
    assert peer.expect_end() == b""
    logged(own, peer, "looks_like=tls")
