"""The daemon's look at the log and the machine, every second or so."""

import asyncio
from pathlib import Path

import pytest

from broker import daemon as daemon_module
from broker.daemon import Daemon
from config.settings import Settings


async def test_the_tick_continues_after_any_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "STORE_TICK_SECONDS", 0.005)
    loop = asyncio.get_running_loop()
    daemon = Daemon(Settings(data_dir=tmp_path), loop)
    looks: list[bool] = []
    enough = asyncio.Event()
    errors: list[BaseException] = []

    def check(log_is_full: bool) -> None:
        looks.append(log_is_full)
        if len(looks) == 3:
            enough.set()
        raise OSError("the machine does not say")

    monkeypatch.setattr(daemon.resources, "check", check)
    daemon.log.stopped = True  # a stopped log has no work
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    loop.call_soon(daemon._tick_store)
    try:
        await asyncio.wait_for(enough.wait(), 30)
        await asyncio.sleep(0)
        assert len(errors) >= 2
    finally:
        daemon.writers.shutdown()
        daemon.password_threads.stop()
