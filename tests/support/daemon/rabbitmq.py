"""A RabbitMQ of a test's own: the server that Debian has, with its management."""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.admin.api import Api
from tests.support.daemon.daemon import PATIENCE_S

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def lasting_port() -> int:
    """A port that nobody listens on, and that the system gives to no connection while its broker is down."""
    for port in random.SystemRandom().sample(range(15_000, 30_000), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(folder: Path, *plugins: str) -> Iterator[tuple[Api, int]]:
    """Run RabbitMQ with its management and these plugins; yield its HTTP API and its AMQP port."""
    if not SERVER.exists() or shutil.which("erl") is None:
        assert os.environ.get("CI") != "true", "rabbitmq-server is not installed"
        pytest.skip("rabbitmq-server is not installed")
    amqp_port, admin_port, dist_port, epmd_port = (free_port() for _ in range(4))
    (folder / "plugins").write_text(f"[{','.join(('rabbitmq_management', *plugins))}].")
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.local = 127.0.0.1:{amqp_port}\n"
        "distribution.listener.interface = 127.0.0.1\n"
        f"management.tcp.port = {admin_port}\nmanagement.tcp.ip = 127.0.0.1\n"
    )
    environment = os.environ | {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"exporter{amqp_port}@localhost",
        "RABBITMQ_DIST_PORT": str(dist_port),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",  # the port mapper ends even if it still knows of the server
    }
    output = folder / "output"
    with output.open("wb") as written:
        process = subprocess.Popen(
            [SERVER], env=environment, stdout=written, stderr=written, start_new_session=True
        )
    api = Api(f"http://127.0.0.1:{admin_port}")
    try:
        wait_for(api, process, output)
        yield api, amqp_port
    finally:
        api.close()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # the port mapper is a daemon of its own
        subprocess.run(["epmd", "-port", str(epmd_port), "-kill"], capture_output=True, check=False)


def wait_for(api: Api, process: subprocess.Popen[bytes], output: Path) -> None:
    """Wait until it answers."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        try:
            if api.ask("GET", "overview").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)  # RabbitMQ has no event to wait for
    raise AssertionError(f"RabbitMQ does not start:\n{output.read_text()}")
