"""pika's own acceptance tests, with every adapter. PyPI has pika without them, Debian's sources have them."""

from pathlib import Path

import pytest

from tests.interop import suite_sources, suites
from tests.support.daemon.daemon import DaemonStarter

SUITE = "pika 1.3.2"
TESTS = 545
TOOLS = ("gevent==26.9.0", "nose==1.3.7", "tornado==6.6.1", "Twisted==26.10.0")
PYTEST = ("pytest==9.2.0", "pytest-timeout==2.4.0")


@pytest.mark.nightly
def test_pika(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    source = suite_sources.from_debian(tmp_path, "python-pika", "1.3.2-1", "trixie")
    python = suite_sources.environment(tmp_path, (*TOOLS, *PYTEST))
    port = start_daemon().address.port
    suite_sources.replace(source / "tests/base/async_test_base.py", "port=5672", f"port={port}")
    blocking = source / "tests/acceptance/blocking_adapter_test.py"
    suite_sources.replace(blocking, "{'port': 5672}", f"{{'port': {port}}}")

    arguments = ["-o", "python_files=*test*.py", "tests/acceptance"]
    outcome = suites.run_pytest(SUITE, python, source, arguments, suite_sources.clean_environment())

    suites.check(SUITE, outcome, TESTS)
