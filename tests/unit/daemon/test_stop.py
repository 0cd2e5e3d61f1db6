"""The daemon's stop, also after a start that has failed: nobody is served, and no timer runs any more."""

import asyncio
import gc
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from broker import daemon as daemon_module
from broker.core.schedule import TimedTask
from broker.daemon import Daemon
from config.settings import Settings
from config.values import Endpoint
from tests.support.daemon.daemon import PATIENCE_S

ANY_PORT: Final = Endpoint("127.0.0.1", 0)
TICK_S: Final = 0.01


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The garbage collector of the tests stays as it is, and the daemon ticks often."""
    before = gc.get_threshold()
    monkeypatch.setattr(daemon_module, "STORE_TICK_SECONDS", TICK_S)
    monkeypatch.setattr(daemon_module, "LAG_INTERVAL_SECONDS", TICK_S)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class Bell(TimedTask):
    """An alarm that must not ring."""

    def __init__(self) -> None:
        super().__init__()
        self.rung = False

    def do_due_work(self) -> None:
        self.rung = True


def takes_connections(daemon: Daemon) -> bool:
    (bound,) = daemon.listener.bound
    try:
        socket.create_connection((bound.host, bound.port), PATIENCE_S).close()
    except ConnectionRefusedError:
        return False
    return True


async def test_no_timer_runs_after_the_stop(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    daemon = Daemon(Settings(data_dir=tmp_path, listen=(ANY_PORT,), admin=None), loop)
    bell = Bell()
    with capture_logs() as log_lines:
        life = loop.create_task(daemon.main())
        while not daemon.started:
            await asyncio.sleep(TICK_S)
            assert not life.done(), await life
        schedule = daemon.alarm_clock.schedule
        schedule.set(bell, schedule.now() + 1000)
        daemon.stopping.set()
        assert await asyncio.wait_for(life, PATIENCE_S) == 0
        schedule.set(bell, schedule.now())
        measured = sum(daemon.lag.counts)
        await asyncio.sleep(10 * TICK_S)

    assert [line for line in log_lines if line["log_level"] == "error"] == []
    assert (bell.rung, sum(daemon.lag.counts)) == (False, measured)


async def test_a_failed_start_accepts_no_connections(tmp_path: Path) -> None:
    taken = socket.create_server((ANY_PORT.host, 0))
    admin = Endpoint(ANY_PORT.host, taken.getsockname()[1])
    loop = asyncio.get_running_loop()
    daemon = Daemon(Settings(data_dir=tmp_path, listen=(ANY_PORT,), admin=admin), loop)

    with pytest.raises(OSError, match="cannot listen on"):
        await asyncio.wait_for(daemon.main(), PATIENCE_S)

    assert not takes_connections(daemon)
    taken.close()
