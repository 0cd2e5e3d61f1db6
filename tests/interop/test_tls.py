"""AMQP over TLS with unmodified clients: certificates of both sides, and refusals."""

import importlib
import os
import re
import signal
import socket
import ssl
from contextlib import closing
from pathlib import Path
from typing import Any

import aio_pika
import pika
import pika.exceptions
import pytest

from tests.support.admin.api import Api, fetch
from tests.support.daemon.certificates import Certificates, connect, secure_address
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter


def test_messages_of_every_size_over_tls(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    daemon = start_daemon(*certificates.options())
    with connect(daemon, certificates.trusting()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        queue = channel.queue_declare("", exclusive=True).method.queue
        bodies = [os.urandom(size) for size in (0, 1, 100, 16384, 131072, 262144, 300_000, 5_000_000, 3)]
        for body in bodies:
            channel.basic_publish("", queue, body)
        for body in bodies:
            assert channel.basic_get(queue, auto_ack=True)[2] == body
    daemon.log.wait_for(r"connection opened.*tls=TLSv1\.[23]")


def test_many_messages_through_one_consumer_over_tls(
    start_daemon: DaemonStarter, certificates: Certificates
) -> None:
    daemon = start_daemon(*certificates.options())
    with connect(daemon, certificates.trusting()) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        for number in range(5000):
            channel.basic_publish("", queue, b"%d" % number)
        got = []
        for method, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=PATIENCE_S):
            assert method is not None
            got.append(int(body))
            if len(got) == 5000:
                break
        assert got == list(range(5000))


async def test_aio_pika_over_tls(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    address = secure_address(start_daemon(*certificates.options()))
    connection = await aio_pika.connect(
        host=address.host, port=address.port, ssl=True, ssl_context=certificates.trusting()
    )
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await channel.default_exchange.publish(aio_pika.Message(b"x"), queue.name)
        message = await queue.get()
        assert message.body == b"x"


def test_kombu_over_tls(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    address = secure_address(start_daemon(*certificates.options()))
    secure = {
        "ca_certs": str(certificates.folder / "ca.pem"),
        "cert_reqs": ssl.CERT_REQUIRED,
        "server_hostname": "localhost",
    }
    url = f"amqp://guest:guest@{address.host}:{address.port}//"
    kombu: Any = importlib.import_module("kombu")  # kombu ships types for a few of its modules only
    with kombu.Connection(url, ssl=secure) as connection:
        queue = connection.SimpleBuffer("over-tls")
        queue.put({"a": 1})
        assert queue.get(timeout=PATIENCE_S).payload == {"a": 1}
        queue.close()


def test_certificates_of_another_authority_are_refused(
    start_daemon: DaemonStarter, certificates: Certificates
) -> None:
    for verify in ("optional", "required"):
        daemon = start_daemon(*certificates.options("--tls-verify", verify))
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connect(daemon, certificates.trusting(certificates.foreign("guest")))
        daemon.log.wait_for(r"TLS handshake failed.*peer=127[.]0[.]0[.]1.*unable to get local issuer")
        daemon.stop()


def greet(secure: ssl.SSLSocket) -> None:
    """Say hello and wait for an answer, as a client does that has not noticed yet that it was refused."""
    secure.do_handshake()
    secure.sendall(b"AMQP\x00\x00\x09\x01" * 100)  # stays unread, and must not reset the connection
    secure.recv(1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("shows", "reason"),
    [("a foreign certificate", "UNKNOWN_CA"), ("none", "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE")],
)
def test_a_refused_client_gets_the_reason(
    start_daemon: DaemonStarter,
    certificates: Certificates,
    version: ssl.TLSVersion,
    shows: str,
    reason: str,
) -> None:
    address = secure_address(start_daemon(*certificates.options("--tls-verify", "required")))
    context = certificates.trusting(None if shows == "none" else certificates.foreign("guest"))
    context.minimum_version = context.maximum_version = version
    plain = socket.create_connection((address.host, address.port), PATIENCE_S)
    with (
        context.wrap_socket(plain, do_handshake_on_connect=False, server_hostname="localhost") as secure,
        pytest.raises(ssl.SSLError, match=reason),
    ):
        greet(secure)


def test_a_certificate_can_be_required(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    daemon = start_daemon(*certificates.options("--tls-verify", "required"))
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(daemon, certificates.trusting())
    with connect(daemon, certificates.trusting(certificates.client("any"))) as connection:
        connection.channel()


def test_old_versions_are_not_spoken(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    daemon = start_daemon(*certificates.options("--tls-min-version", "1.3"))
    context = certificates.trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((pika.exceptions.AMQPConnectionError, ssl.SSLError)):
        connect(daemon, context)
    daemon.log.wait_for("TLS handshake failed")
    with connect(daemon, certificates.trusting()) as connection:
        connection.channel()


def test_amqp_on_the_port_for_tls(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    daemon = start_daemon(*certificates.options())
    address = secure_address(daemon)
    with socket.create_connection((address.host, address.port), PATIENCE_S) as plain:
        plain.sendall(b"AMQP\x00\x00\x09\x01")
        assert b"AMQP" not in plain.recv(100)
    daemon.log.wait_for("TLS handshake failed")


def test_a_new_certificate_on_sighup(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    daemon = start_daemon(*certificates.options())

    def shown() -> bytes | None:
        address = secure_address(daemon)
        plain = socket.create_connection((address.host, address.port), PATIENCE_S)
        with certificates.trusting().wrap_socket(plain, server_hostname="localhost") as secure:
            return secure.getpeercert(binary_form=True)

    with connect(daemon, certificates.trusting()) as before:
        first = shown()
        assert shown() == first
        certificates.renew()
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.log.wait_for("certificates reloaded")
        second = shown()
        assert second != first
        certificates.server.write_text("no certificate")
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.log.wait_for("TLS files not reloaded.*tls_certificate")
        assert shown() == second
        before.channel()  # open connections stay open


def test_a_broker_without_tls_survives_sighup(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    os.kill(daemon.pid, signal.SIGHUP)
    daemon.log.wait_for("no TLS certificates to reload")
    assert daemon.alive


@pytest.mark.parametrize("broken", ["certificate", "key", "ca"])
def test_invalid_certificate_files_are_refused(
    tmp_path: Path, certificates: Certificates, broken: str
) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("not PEM")
    for path, why in ((wrong, r"\w"), (tmp_path / "absent.pem", "cannot be read: No such file")):
        files = ("--tls-key", str(certificates.server), f"--tls-{broken}", str(path))
        options = certificates.options("--tls-verify", "optional", *files)
        daemon = Daemon(tmp_path / f"{path.stem}", options)
        daemon.expect_exit(1)
        daemon.log.wait_for(rf"amqpd: .*tls_{broken} = {path}.*: .*{why}")


def test_handshakes_that_do_not_end_give_way(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    options = certificates.options("--strangers-max", "3", "--handshake-timeout-s", "60")
    daemon = start_daemon(*options)
    address = secure_address(daemon)
    idle = [socket.create_connection((address.host, address.port), PATIENCE_S) for _ in range(3)]
    with connect(daemon, certificates.trusting()) as connection:
        connection.channel()
        assert idle[0].recv(1) == b""
    for each in idle:
        each.close()


def test_a_handshake_takes_no_longer_than_it_may(
    start_daemon: DaemonStarter, certificates: Certificates
) -> None:
    daemon = start_daemon(*certificates.options("--handshake-timeout-s", "1"))
    address = secure_address(daemon)
    with socket.create_connection((address.host, address.port), PATIENCE_S) as idle:
        assert idle.recv(1) == b""
    daemon.log.wait_for("TLS handshake failed")


def test_the_api_lists_where_tls_is_spoken(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    daemon = start_daemon(*certificates.options())
    answer = fetch(f"{daemon.admin}/api/overview", auth=("guest", "guest"))
    found = {listener["protocol"]: listener["port"] for listener in answer.json()["listeners"]}
    assert found["amqp"] == daemon.address.port
    assert found["amqp/ssl"] == secure_address(daemon).port


def test_operators_see_certificates(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    daemon = start_daemon(*certificates.options("--tls-verify", "optional"))
    context = certificates.trusting(certificates.client("robot"))
    with connect(daemon, context), closing(Api(daemon.admin)) as api:
        (shown,) = api.get("connections")
        assert shown["peer_cert_subject"].startswith("CN=robot,")
        assert shown["peer_cert_issuer"].startswith("OU=")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\S+Z - \d{4}-\d\d-\d\dT\S+Z", shown["peer_cert_validity"])
        assert shown["ssl_protocol"] == "TLSv1.3"
        assert (shown["ssl_key_exchange"], shown["ssl_hash"]) == ("any", "aead")
        check = ("health", "checks", "certificate-expiration")
        assert api.get(*check, "1", "weeks")["status"] == "ok"
        answer = api.ask("GET", *check, "999", "years")
        assert answer.status_code == 503
        (expired,) = answer.json()["expired"]
        assert (expired["protocol"], expired["certfile"]) == ("amqp/ssl", str(certificates.server))


def test_operators_see_the_key_exchange_of_tls_1_2(
    start_daemon: DaemonStarter, certificates: Certificates
) -> None:
    daemon = start_daemon(*certificates.options())
    context = certificates.trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with connect(daemon, context), closing(Api(daemon.admin)) as api:
        (shown,) = api.get("connections")
        assert shown["ssl_key_exchange"] == f"ecdhe_{shown['ssl_cipher'].split('-')[1].lower()}"
        assert shown["ssl_hash"] == "aead"
