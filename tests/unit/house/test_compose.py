"""Compose files name existing commands, existing settings and existing files."""

from __future__ import annotations

import re
import shlex
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml

from config.settings import Settings
from pipeline.arguments import parser

DOCKER = Path(__file__).resolve().parents[3] / "docker"
COMPOSES = sorted(DOCKER.glob("compose*.yaml"))
MOUNTED = ("/lake", "/var/lib/amqpd")


def services(path: Path) -> dict[str, dict[str, Any]]:
    """Return the services by name."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["services"]
    return found


def commands(service: dict[str, Any]) -> Iterator[list[str]]:
    """The words of each command of ours."""
    command = service.get("command", "")
    words = shlex.split(
        command if isinstance(command, str) else command[-1].replace(";", " ; ").replace("&&", " && ")
    )
    while "amqpd" in words:
        words = words[words.index("amqpd") + 1 :]
        ends = [words.index(end) for end in (";", "&&") if end in words]
        yield words[: min(ends, default=len(words))]


@pytest.mark.parametrize("path", COMPOSES, ids=lambda path: path.name)
def test_settings_are_those_of_the_broker(path: Path) -> None:
    broker = services(path)["amqpd"]
    assert broker["environment"]
    for name in broker["environment"]:
        assert name.removeprefix("AMQPD_").lower() in Settings.model_fields, name


def test_compose_services_run_existing_jobs() -> None:
    jobs = []
    for name, service in services(DOCKER / "compose.spark.yaml").items():
        for words in commands(service):
            if words[0] == "pipeline":
                options = parser().parse_args(words[1:])
                jobs.append(options.job)
                assert options.out.startswith(MOUNTED)
                assert options.master == "spark://spark-master:7077"
                assert f"spark.driver.host={name}" in options.conf
                assert service["hostname"] == name
            else:
                assert words[:2] == ["journal", "seal"]
    assert jobs == ["stream-to-parquet", "audit"]


def test_the_certificate_is_one_that_clients_trust(tmp_path: Path) -> None:
    if which("openssl") is None:
        pytest.skip("the command of the compose file was not run: there is no openssl")
    shell, flag, script = services(DOCKER / "compose.spark.yaml")["certificate"]["command"]
    own = script.replace("/tls", str(tmp_path)).replace("chown 10001", "chown $(id -u)")
    for _ in range(2):  # the second start leaves it
        subprocess.run([shell, flag, own], check=True, capture_output=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ca.pem", "server.pem"]
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem")
    client = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        shaken = pool.submit(server.wrap_socket, theirs, server_side=True)
        with client.wrap_socket(ours, server_hostname="amqpd"), shaken.result():
            pass


@pytest.mark.parametrize("path", [DOCKER.parent / "Dockerfile", DOCKER / "spark.Dockerfile"], ids=str)
def test_files_that_an_image_copies_exist(path: Path) -> None:
    copied = [line.split() for line in path.read_text().splitlines() if line.startswith("COPY")]
    assert copied
    for line in copied:
        # a missing build argument has its default
        words = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in line[1:-1]]
        sources = [word for word in words if not word.startswith("--")]
        if not any(word.startswith("--from") for word in line):
            assert [each for each in sources if not (DOCKER.parent / each).exists()] == []
