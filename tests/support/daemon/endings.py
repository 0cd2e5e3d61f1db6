"""Ends of a broker before a restart: stopped by a user, or killed."""

from collections.abc import Callable

import pytest

from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import Daemon


def stop(daemon: Daemon, peer: Peer) -> None:
    """Stop the broker as a user does, with a connection that answers its close."""
    daemon.terminate()
    peer.expect_close(320)
    daemon.expect_exit(0)


def crash(daemon: Daemon, peer: Peer) -> None:
    """Kill the broker as a power cut would, except that the kernel's data survive."""
    daemon.kill()
    peer.drop()


Ending = Callable[[Daemon, Peer], None]
both_endings = pytest.mark.parametrize("end", [stop, crash])
