"""amqplib's own tests for Node.js, from the last of its packages that carries them."""

import socket
from pathlib import Path

import pytest

from tests.interop import suite_sources, suites
from tests.support.daemon.daemon import DaemonStarter

SUITE = "amqplib 2.1.0"
FILES = ("test/callback_api.test.js", "test/channel_api.test.js", "test/connect.test.js")
PACKAGES = ("amqplib@2.1.0", "claire@0.4.1", "node@22.23.3")


def free_port() -> int:
    """Return a port that is free on both loopback addresses, or on the only one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def has_ipv6() -> bool:
    """Whether this machine has a loopback address of IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.nightly
def test_amqplib(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    modules = suite_sources.from_npm(tmp_path, PACKAGES)
    port = free_port()
    both = ("--listen", f"[::1]:{port}") if has_ipv6() else ()
    start_daemon(*both, port=port)
    source = modules / "amqplib"
    suite_sources.replace(source / "lib/connect.js", "5672 : 5671", f"{port} : 5671")

    left_out = () if both else ("ipv6",)
    environment = suite_sources.clean_environment()
    outcome = suites.run_node(SUITE, modules / ".bin/node", source, FILES, environment, left_out)

    suites.check(SUITE, outcome, 75 - len(left_out))
