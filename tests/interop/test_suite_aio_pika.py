"""aio-pika's own tests, some of which stop brokers and start them again."""

from pathlib import Path

import pytest

from tests.interop import suite_sources, suites
from tests.interop.container_engine import ContainerEngine
from tests.support.daemon.daemon import DaemonStarter

SUITE = "aio-pika 10.2.1"
TESTS = 1076
CLIENT = ("aio-pika==10.2.1", "aiormq==7.2.4")
TOOLS = ("aiomisc-pytest==2.0.0", "pytest==9.2.0", "pytest-timeout==2.4.0", "shortuuid==1.0.13")


@pytest.mark.nightly
def test_aio_pika(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    source = suite_sources.from_pypi(tmp_path, "aio-pika", "10.2.1")
    over_tls = source / "tests/test_amqps.py"  # the tests use this machine's port 5671, whatever listens
    suite_sources.replace(over_tls, "amqp_url):", "amqp_url, rabbitmq_container):")
    suite_sources.replace(over_tls, "with_port(5671)", 'with_port(rabbitmq_container.ports["5671/tcp"])')
    python = suite_sources.environment(tmp_path, (*CLIENT, *TOOLS))

    with ContainerEngine(start_daemon, tmp_path / "containers") as engine:
        environment = suite_sources.clean_environment(DOCKER_HOST=engine.docker_host)
        outcome = suites.run_pytest(SUITE, python, source, ["-p", "patience", "tests"], environment)

    suites.check(SUITE, outcome, TESTS)
    assert not [daemon.log.text() for daemon in engine.runs if "Traceback" in daemon.log.text()]
