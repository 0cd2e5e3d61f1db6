"""Nameko's own tests, from its source distribution: a release of 2022, with a Kombu of that time."""

import os
from pathlib import Path

import pytest

from tests.interop import suite_sources, suites
from tests.support.daemon.certificates import Certificates, secure_address
from tests.support.daemon.daemon import DaemonStarter

SUITE = "Nameko 2.14.1"
TESTS = 588
LIBRARIES = ("amqp==5.4.2", "eventlet==0.41.3", "kombu==5.2.0", "Werkzeug==2.3.8", "websocket-client==1.9.2")
PYTEST = ("pytest==7.4.4", "pytest-timeout==2.4.0")


def provide_certificates(folder: Path, certificates: Certificates) -> None:
    """Files under the names that Nameko's plugin for pytest takes by itself; the client is the user guest."""
    folder.mkdir()
    certificates.authority.cert_pem.write_to_path(str(folder / "cacert.pem"))
    client = certificates.client("guest").read_bytes()
    for name in ("clientcert.pem", "clientkey.pem"):
        (folder / name).write_bytes(client)


@pytest.mark.nightly
def test_nameko(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    source = suite_sources.from_pypi(tmp_path, "nameko", "2.14.1")
    certificates = Certificates(tmp_path / "authority")
    provide_certificates(source / "certs", certificates)
    tls = certificates.options("--tls-verify", "optional", "--tls-login-from", "common_name")
    daemon = start_daemon(*tls)
    host, port = daemon.address
    # Some tests start programs, or pytest within pytest, and these go to where brokers are by default.
    plugin = source / "nameko/testing/pytest.py"
    suite_sources.replace(plugin, "guest@localhost:5672", f"guest@{host}:{port}")
    suite_sources.replace(plugin, "guest@localhost:15672", f"guest@{daemon.admin.removeprefix('http://')}")
    suite_sources.replace(plugin, "default=5671", f"default={secure_address(daemon).port}")
    suite_sources.replace(source / "nameko/cli/commands.py", "guest@localhost", f"guest@{host}:{port}")
    python = suite_sources.environment(tmp_path, (str(source), *LIBRARIES, *PYTEST))
    nameko = python.with_name("nameko")
    path = f"{nameko.parent}{os.pathsep}{os.environ['PATH']}"

    outcome = suites.run_pytest(
        SUITE,
        python,
        source,
        ["--ignore=test/web", "test"],
        suite_sources.clean_environment(PATH=path),
        [nameko, "test"],
    )

    suites.check(SUITE, outcome, TESTS)
