"""py-amqp's own tests of a broker, plain and over TLS, as its source distribution carries them."""

from pathlib import Path

import pytest

from tests.interop import suite_sources, suites
from tests.support.daemon.certificates import Certificates, secure_address
from tests.support.daemon.daemon import DaemonStarter

SUITE = "py-amqp 5.4.2"
TESTS = 25
REQUIREMENTS = ("amqp==5.4.2", "pytest==9.2.0", "pytest-timeout==2.4.0")


def provide_certificates(folder: Path, certificates: Certificates) -> Path:
    """Write the files of py-amqp's own RabbitMQ, with their names; return the authority's file.

    A broken pair is one that another authority has signed: the broker must not take it.
    """
    folder.mkdir()
    authority = folder / "ca_certificate.pem"
    certificates.authority.cert_pem.write_to_path(str(authority))
    for suffix, pair in (("", certificates.client("client")), ("_broken", certificates.foreign("client"))):
        for kind in ("key", "certificate"):
            (folder / f"client_{kind}{suffix}.pem").write_bytes(pair.read_bytes())
    return authority


@pytest.mark.nightly
def test_py_amqp(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    source = suite_sources.from_pypi(tmp_path, "amqp", "5.4.2")
    python = suite_sources.environment(tmp_path, REQUIREMENTS)
    certificates = Certificates(tmp_path / "authority")
    authority = provide_certificates(source / "t/certs", certificates)
    daemon = start_daemon(*certificates.options("--tls-verify", "optional"))
    environment = suite_sources.clean_environment(
        RABBITMQ_HOST=daemon.address.host,
        RABBITMQ_5672_TCP=str(daemon.address.port),
        RABBITMQ_5671_TCP=str(secure_address(daemon).port),
        SSL_CERT_FILE=str(authority),  # the broken pair is shown to a broker that the client trusts
    )

    outcome = suites.run_pytest(SUITE, python, source, ["t/integration/test_rmq.py"], environment)

    suites.check(SUITE, outcome, TESTS)
