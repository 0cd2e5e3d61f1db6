"""The image's health check, as the container runtime runs it."""

import runpy
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon.certificates import Certificates
from tests.support.daemon.daemon import ROOT, Daemon, DaemonStarter

CHECK: dict[str, Any] = runpy.run_path(str(ROOT / "docker" / "healthcheck.py"))
healthy: Callable[[list[str]], bool] = CHECK["healthy"]
setting: Callable[[str, list[str]], str] = CHECK["setting"]


def test_a_ready_broker_is_healthy(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    where = daemon.admin.removeprefix("http://")
    monkeypatch.setenv("AMQPD_ADMIN", where.replace("127.0.0.1", "0.0.0.0"))
    assert healthy(["amqpd", "serve"])
    monkeypatch.setenv("AMQPD_ADMIN", "127.0.0.1:1")
    assert not healthy(["amqpd", "serve"])
    assert healthy(["amqpd", "serve", "--admin", where, ""])


def test_without_the_admin_server_the_check_connects_to_the_amqp_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AMQPD_ADMIN", "Off")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("AMQPD_LISTEN", f"{address},127.0.0.1:1")
        assert healthy(["amqpd", "serve"])
    assert not healthy(["amqpd", "serve"])


@pytest.mark.parametrize(
    "address", ["", "off ", "nonsense", "127.0.0.1:", "[::1", "127.0.0.1:99999", "a b:1"]
)
def test_an_unreachable_broker_is_not_healthy(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMQPD_ADMIN", address)
    monkeypatch.setenv("AMQPD_LISTEN", address)
    assert not healthy(["amqpd", "serve"])


def test_the_flag_is_stronger_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMQPD_ADMIN", "a:1")
    assert setting("admin", ["amqpd", "serve"]) == "a:1"
    assert setting("admin", ["amqpd", "serve", "--admin=b:2"]) == "b:2"
    assert setting("admin", ["amqpd", "--admin", "c:3", "--listen", "d:4"]) == "c:3"
    assert setting("admin", ["amqpd", "serve", "--admin"]) == ""


def test_the_settings_file_counts(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = daemon.admin.removeprefix("http://")
    file = tmp_path / "amqpd.toml"
    file.write_text(f'admin = "{where}"\n')
    for name in ("AMQPD_ADMIN", "AMQPD_LISTEN", "AMQPD_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    command = ["amqpd", "serve", "--config", str(file)]
    assert healthy(command)
    monkeypatch.setenv("AMQPD_CONFIG", str(file))
    assert healthy(["amqpd", "serve"])
    monkeypatch.setenv("AMQPD_ADMIN", "127.0.0.1:1")
    assert not healthy(command)
    assert healthy([*command, f"--admin={where}"])


def test_lists_and_defaults_of_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AMQPD_ADMIN", "AMQPD_LISTEN", "AMQPD_ADMIN_TLS_LISTEN", "AMQPD_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "amqpd.toml"
    file.write_text('listen = ["a:1", "b:2"]\nadmin_tls_listen = []\n')
    command = ["amqpd", "serve", f"--config={file}"]
    assert setting("listen", command) == "a:1,b:2"
    assert setting("admin_tls_listen", command) == "off"
    assert setting("admin", command) == "127.0.0.1:15672"
    file.write_text("listen = [")
    assert setting("listen", command) == "127.0.0.1:5672"
    monkeypatch.setenv("AMQPD_CONFIG", str(tmp_path / "missing.toml"))
    assert setting("admin", ["amqpd", "serve"]) == "127.0.0.1:15672"


def test_the_defaults_file_of_the_image_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AMQPD_ADMIN", "AMQPD_LISTEN", "AMQPD_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AMQPD_CONFIG_DEFAULTS", str(ROOT / "docker" / "defaults.toml"))
    file = tmp_path / "amqpd.toml"
    file.write_text('admin = "off"\n')
    command = ["amqpd", "serve", f"--config={file}"]
    assert setting("admin", command) == "off"
    assert setting("listen", command) == "0.0.0.0:5672"
    assert setting("admin", ["amqpd", "serve"]) == "0.0.0.0:15672"


def test_an_admin_server_over_tls_alone_is_asked(
    start_daemon: DaemonStarter, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--admin", "off", "--admin-tls-listen", "127.0.0.1:0")
    daemon = start_daemon(*options, "--admin-tls-certificate", str(certificates.server))
    monkeypatch.setenv("AMQPD_LISTEN", "127.0.0.1:1")
    monkeypatch.setenv("AMQPD_ADMIN", "off")
    port = daemon.admin_tls.port
    assert healthy(["amqpd", "serve", "--admin-tls-listen", f"0.0.0.0:{port}"])
    daemon.stop()
    assert not healthy(["amqpd", "serve", "--admin-tls-listen", f"0.0.0.0:{port}"])
