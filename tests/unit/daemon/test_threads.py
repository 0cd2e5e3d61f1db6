"""The daemon's threads: passwords and the log have threads of their own."""

import asyncio
import threading
from pathlib import Path

from broker.daemon import Daemon
from config.settings import Settings


async def test_a_flood_of_log_ins_does_not_hold_up_the_log(tmp_path: Path) -> None:
    daemon = Daemon(Settings(data_dir=tmp_path), asyncio.get_running_loop())
    go = threading.Event()
    answers: list[bool] = []
    for _ in range(20):
        daemon.password_threads.check(lambda: go.wait(60), answers.append)
    written: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    try:
        daemon._off_loop(lambda: None, written.set_result)
        assert await asyncio.wait_for(written, 30) is None
        assert answers == []
    finally:
        go.set()
        daemon.writers.shutdown()
        await asyncio.get_running_loop().run_in_executor(None, daemon.password_threads._threads.shutdown)
