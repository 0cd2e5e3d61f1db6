"""Admin HTTP over TLS: certificates, reload, the served answers, and the warning of a plain port."""

import os
import signal
import socket
from pathlib import Path

import httpx
import pytest

from tests.support.daemon.amqpctl import Amqpctl
from tests.support.daemon.certificates import Certificates
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter

ANYWHERE = ("--admin-tls-listen", "127.0.0.1:0")


def options(certificates: Certificates, *more: str) -> tuple[str, ...]:
    """Flags of a broker that serves admin HTTP over TLS too."""
    return (*ANYWHERE, "--admin-tls-certificate", str(certificates.server), *more)


def client(
    certificates: Certificates, certificate: Path | None = None, password: str = "guest"
) -> httpx.Client:
    return httpx.Client(
        verify=certificates.trusting(certificate),
        auth=("guest", password),
        timeout=PATIENCE_S,
        trust_env=False,
    )


def url(daemon: Daemon, path: str) -> str:
    return f"https://localhost:{daemon.admin_tls.port}{path}"


def test_all_that_is_served_is_served_over_tls(
    start_daemon: DaemonStarter, certificates: Certificates
) -> None:
    daemon = start_daemon(*options(certificates))
    with client(certificates) as secure:
        assert secure.get(url(daemon, "/health/ready")).json() == {"status": "ready"}
        assert "amqpd_queues" in secure.get(url(daemon, "/metrics")).text
        overview = secure.get(url(daemon, "/api/overview")).json()
        at = {(each["protocol"], each["port"]) for each in overview["listeners"]}
        assert ("https", daemon.admin_tls.port) in at
        assert ("http", int(daemon.admin.rpartition(":")[2])) in at
        assert secure.get(url(daemon, "/api/health/checks/protocol-listener/https")).status_code == 200
    with client(certificates, password="wrong") as wrong:
        assert wrong.get(url(daemon, "/api/overview")).status_code == 401


def test_the_plain_port_can_be_off_and_the_certificate_that_of_amqp(
    start_daemon: DaemonStarter, certificates: Certificates
) -> None:
    daemon = start_daemon(*certificates.options(), *ANYWHERE, "--admin", "off")
    assert "admin=off" in daemon.stdout.text()
    with client(certificates) as secure:
        assert secure.get(url(daemon, "/api/whoami")).json()["name"] == "guest"


def test_chunks_of_a_stream_come_over_tls_as_they_are(
    start_daemon: DaemonStarter, certificates: Certificates
) -> None:
    """The kernel sends files over plain HTTP; over TLS they are read, and nothing goes out in clear."""
    daemon = start_daemon(*options(certificates))
    with client(certificates) as secure:
        made = secure.put(
            url(daemon, "/api/queues/%2F/s"), json={"durable": True, "arguments": {"x-queue-type": "stream"}}
        )
        assert made.status_code == 201, made.text
        for number in range(40):
            message = {
                "properties": {},
                "routing_key": "s",
                "payload": f"{number:08d}" * 10_000,
                "payload_encoding": "string",
            }
            assert secure.post(
                url(daemon, "/api/exchanges/%2F/amq.default/publish"), json=message
            ).json() == {"routed": True}
        path = "/api/streams/%2F/s/0/chunks?from=0&to=40"
        over_tls = secure.get(url(daemon, path))
        plain = secure.get(daemon.admin + path)
        assert over_tls.status_code == plain.status_code == 200, over_tls.text
        assert over_tls.content == plain.content
        assert len(plain.content) > 40 * 80_000


def test_clients_may_have_to_show_a_certificate(
    start_daemon: DaemonStarter, certificates: Certificates
) -> None:
    authority = str(certificates.folder / "ca.pem")
    verify = ("--admin-tls-verify", "required", "--admin-tls-ca", authority)
    daemon = start_daemon(*options(certificates, *verify))
    with client(certificates, certificates.client("any")) as shown:
        assert shown.get(url(daemon, "/api/whoami")).status_code == 200
    with client(certificates, certificates.foreign("any")) as foreign, pytest.raises(httpx.TransportError):
        foreign.get(url(daemon, "/api/whoami"))
    with client(certificates) as none, pytest.raises(httpx.TransportError):
        none.get(url(daemon, "/api/whoami"))
    daemon.log.wait_for("TLS handshake failed.*peer=127[.]0[.]0[.]1")


def test_sighup_reloads_the_certificate_of_the_admin_port(
    start_daemon: DaemonStarter, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    daemon = start_daemon(*options(certificates))

    def shown() -> bytes | None:
        plain = socket.create_connection(daemon.admin_tls, PATIENCE_S)
        with certificates.trusting().wrap_socket(plain, server_hostname="localhost") as secure:
            return secure.getpeercert(binary_form=True)

    first = shown()
    certificates.renew()
    os.kill(daemon.pid, signal.SIGHUP)
    daemon.log.wait_for(f"TLS certificates reloaded.*{certificates.server}")
    second = shown()
    assert second != first
    certificates.server.write_text("no certificate")
    os.kill(daemon.pid, signal.SIGHUP)
    daemon.log.wait_for("TLS files not reloaded.*admin_tls_certificate")
    assert shown() == second


def test_plain_http_on_the_port_for_tls_is_not_answered(
    start_daemon: DaemonStarter, certificates: Certificates
) -> None:
    daemon = start_daemon(*options(certificates))
    with socket.create_connection(daemon.admin_tls, PATIENCE_S) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in plain.recv(100)
    with client(certificates) as secure:
        assert secure.get(url(daemon, "/health/live")).status_code == 200


def test_a_port_for_tls_that_is_taken_ends_the_start(tmp_path: Path, certificates: Certificates) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"127.0.0.1:{other.getsockname()[1]}"
        daemon = Daemon(tmp_path, options(certificates, "--admin-tls-listen", place)[2:])
        daemon.expect_exit(1)
        daemon.log.wait_for(f"cannot listen on {place} for admin HTTP over TLS: address already in use; set")


def test_a_plain_admin_port_beyond_loopback_is_warned_of(start_daemon: DaemonStarter) -> None:
    loopback = start_daemon()
    assert "not encrypted" not in loopback.log.text()
    loopback.stop()
    daemon = start_daemon("--admin", "0.0.0.0:0")
    daemon.log.wait_for("admin HTTP is not encrypted.*set admin_tls_listen.*admin=0.0.0.0:0")


def test_amqpctl_over_tls(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    authority = certificates.folder / "ca.pem"
    verify = ("--admin-tls-verify", "required", "--admin-tls-ca", str(authority))
    daemon = start_daemon(*options(certificates, *verify))
    control = Amqpctl(f"https://localhost:{daemon.admin_tls.port}")
    shown = str(certificates.client("any"))
    assert "guest" in control("--ca", str(authority), "--certificate", shown, "list_users").stdout
    assert "CERTIFICATE_VERIFY_FAILED" in control("list_users", status=3).stderr
    assert "absent.pem: No such file" in control("--ca", "absent.pem", "list_users", status=2).stderr


def test_bounds_hold_over_tls(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    bounds = ("--admin-header-timeout-ms", "300", "--admin-connections-per-address", "3")
    daemon = start_daemon(*options(certificates, *bounds))
    idle = []
    for _ in range(5):
        plain = socket.create_connection(daemon.admin_tls, PATIENCE_S)
        idle.append(certificates.trusting().wrap_socket(plain, server_hostname="localhost"))
    daemon.log.wait_for("too many HTTP connections from one address.*max=3")
    assert idle[-1].recv(100).startswith(b"HTTP/1.1 408 ")
    for each in idle:
        each.close()
    with client(certificates) as secure:
        answer = secure.put(url(daemon, "/api/vhosts/x"), headers={"origin": "https://evil.example"})
        assert answer.status_code == 403


def test_handshakes_are_bounded_by_address(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    daemon = start_daemon(*options(certificates, "--admin-connections-per-address", "3"))
    half_open = [socket.create_connection(daemon.admin_tls, PATIENCE_S) for _ in range(5)]
    daemon.log.wait_for("too many TLS handshakes from one address.*at most 3")
    for given_up in half_open[:2]:
        assert given_up.recv(1) == b""
        given_up.close()
    for under_way in half_open[2:]:
        under_way.settimeout(0.2)
        with pytest.raises(TimeoutError):
            under_way.recv(1)
        under_way.close()
    with client(certificates) as secure:
        assert secure.get(url(daemon, "/health/live")).status_code == 200


def test_a_flood_of_failed_handshakes_does_not_fill_the_log(
    start_daemon: DaemonStarter, certificates: Certificates
) -> None:
    daemon = start_daemon(*options(certificates))
    for _ in range(20):
        with socket.create_connection(daemon.admin_tls, PATIENCE_S) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            plain.recv(100)
    daemon.log.wait_for("TLS handshake failed")
    assert daemon.log.text().count("TLS handshake failed") < 5
