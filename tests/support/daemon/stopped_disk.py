"""A broker whose log is not synced for a while, so that whatever is to be on disk first waits."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.admin.api import Api
from tests.support.daemon.daemon import PATIENCE_S, Daemon


@contextmanager
def stopped_disk(daemon: Daemon) -> Iterator[None]:
    """Stop the sync helper, the only child of the daemon, until the end of the block."""
    (helper,) = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    os.kill(int(helper), signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(int(helper), signal.SIGCONT)


def wait_for_queue(api: Api, queue: str) -> None:
    """Wait until the default virtual host has a queue, which need not be on disk."""
    late = time.monotonic() + PATIENCE_S
    while queue not in [each["name"] for each in api.get("queues", "/")]:
        assert time.monotonic() < late, f"no queue {queue}"
        time.sleep(0.01)
