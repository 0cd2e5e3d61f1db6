"""How a broker ends that is started again: stopped as by a user, or killed."""

from collections.abc import Callable

import pytest

from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import Daemon


def stop(daemon: Daemon, peer: Peer) -> None:
    """End as a user ends it, with one connection that answers its close."""
    daemon.terminate()
    peer.expect_close(320)
    daemon.expect_exit(0)


def crash(daemon: Daemon, peer: Peer) -> None:
    """End as the power ends it, except that what the kernel has is kept."""
    daemon.kill()
    peer.drop()


Ending = Callable[[Daemon, Peer], None]
both_endings = pytest.mark.parametrize("end", [stop, crash])
