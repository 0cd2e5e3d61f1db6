"""Kombu's own tests of the transport that Celery uses, as its source distribution carries them."""

from pathlib import Path

import pytest

from tests.interop import suite_sources, suites
from tests.support.daemon.daemon import DaemonStarter

SUITE = "Kombu 5.7.0"
TESTS = 51
REQUIREMENTS = ("kombu==5.7.0", "amqp==5.4.2", "pytest==9.2.0", "pytest-timeout==2.4.0")


@pytest.mark.nightly
def test_kombu(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    source = suite_sources.from_pypi(tmp_path, "kombu", "5.7.0")
    python = suite_sources.environment(tmp_path, REQUIREMENTS)
    host, port = start_daemon().address
    environment = suite_sources.clean_environment(RABBITMQ_HOST=host, RABBITMQ_5672_TCP=str(port))

    outcome = suites.run_pytest(SUITE, python, source, ["t/integration/test_py_amqp.py"], environment)

    suites.check(SUITE, outcome, TESTS)
