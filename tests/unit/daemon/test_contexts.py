"""The turns that connections and the log ask for are not part of the HTTP request that asks first."""

import asyncio
from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace

import pytest
from mypy_extensions import i64

from broker.core.delivery.journal import Operator
from broker.core.delivery.session import Connection
from broker.daemon import Daemon
from broker.journal.recorder import CURRENT
from config.settings import Settings


class Probe(Connection):
    """A connection that records the operator of its callbacks."""

    def __init__(self, daemon: Daemon, seen: list[Operator | None]) -> None:
        super().__init__(daemon.pump)
        self.seen = seen

    def pump(self, budget: i64) -> None:
        self.seen.append(CURRENT.get())


async def test_the_operator_of_a_request_is_not_inherited_by_later_callbacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(Settings(data_dir=tmp_path), asyncio.get_running_loop())
    seen: list[Operator | None] = []
    monkeypatch.setattr(daemon, "log", SimpleNamespace(commit=lambda: seen.append(CURRENT.get())))
    connection = Probe(daemon, seen)

    def request() -> None:
        CURRENT.set(Operator("boss", "9.9.9.9:1", "GET /"))
        connection.schedule()
        daemon._wants_commit()

    try:
        copy_context().run(request)
        await asyncio.sleep(0)
        assert seen == [None, None]
    finally:
        daemon.writers.shutdown()
        daemon.password_threads.stop()
