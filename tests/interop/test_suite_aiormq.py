"""aiormq's own tests, with the certificates that its source distribution carries for a broker."""

from pathlib import Path

import pytest

from tests.interop import suite_sources, suites
from tests.support.daemon.certificates import secure_address
from tests.support.daemon.daemon import DaemonStarter

SUITE = "aiormq 7.2.4"
TESTS = 1030
REQUIREMENTS = ("aiormq==7.2.4", "aiomisc-pytest==2.0.0", "pytest==9.2.0", "pytest-timeout==2.4.0")


@pytest.mark.nightly
def test_aiormq(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    source = suite_sources.from_pypi(tmp_path, "aiormq", "7.2.4")
    python = suite_sources.environment(tmp_path, REQUIREMENTS)
    certificates = source / "tests/certs"
    daemon = start_daemon(
        *("--tls-listen", "127.0.0.1:0", "--tls-verify", "optional"),
        *("--tls-ca", str(certificates / "ca.pem")),
        *("--tls-certificate", str(certificates / "server.pem")),
        *("--tls-key", str(certificates / "server.key")),
    )
    environment = suite_sources.clean_environment(
        AIORMQ_URL=f"amqp://guest:guest@{daemon.address.host}:{daemon.address.port}//",
        AIORMQ_TLS_PORT=str(secure_address(daemon).port),
    )

    arguments = ["-p", "patience", "-p", "aiormq_broker", "tests"]
    outcome = suites.run_pytest(SUITE, python, source, arguments, environment)

    suites.check(SUITE, outcome, TESTS)
