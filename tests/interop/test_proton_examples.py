"""proton's own examples for a broker, unmodified but for the port: they run from an empty broker.

Its sources are Debian's; PyPI has the binding only.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop import suite_sources
from tests.interop.proton_connection import proton
from tests.support.daemon.daemon import DaemonStarter

PATIENCE_S = 300
BROKERED = (
    "helloworld",
    "helloworld_blocking",
    "simple_send_recv",
    "client_server",
    "sync_client_server",
    "client_server_tx",
    "sync_client_server_tx",
    "db_send_recv",
    "tx_send_tx_recv",
    "selected_recv",
)
"""The others need no broker, or Tornado."""


@pytest.mark.nightly
def test_brokered_examples(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    assert proton.VERSION >= (0, 37)
    port = start_daemon("--auto-create", "^examples$", "--anonymous-user", "guest").address.port
    source = suite_sources.from_debian(tmp_path, "qpid-proton", "0.37.0-2", "bookworm")
    examples = source / "python" / "examples"
    for example in examples.glob("*.py"):
        text = example.read_text(encoding="utf-8")
        example.write_text(text.replace("localhost:5672", f"127.0.0.1:{port}"), encoding="utf-8")
        example.chmod(0o755)
    tools = tmp_path / "tools"  # `env python3` is to have proton
    tools.mkdir()
    python = tools / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    names = [f"test_examples.ExamplesTest.test_{name}" for name in BROKERED]
    environment = suite_sources.clean_environment(PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "-v", *names],
        cwd=examples,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert f"Ran {len(BROKERED)} tests" in done.stdout
