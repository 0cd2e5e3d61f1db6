"""The threads that check passwords, separate from others: a flood of log-ins does not delay the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, final

import structlog

THREADS: Final = 2

T = TypeVar("T")

_log = structlog.get_logger("amqpd.net")


@final
class PasswordThreads:
    """A pool of threads for work that is slow on purpose."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="amqpd-password")

    def check(self, work: Callable[[], bool], answer: Callable[[bool], None]) -> None:
        """Run `work` in a thread, then `answer` with the result on the loop; a failure counts as False."""
        future = self._loop.run_in_executor(self._threads, work)
        future.add_done_callback(lambda done: answer(_outcome(done)))

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread."""
        return await self._loop.run_in_executor(self._threads, work)

    def stop(self) -> None:
        """Stop the threads: no further work begins."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _outcome(done: asyncio.Future[bool]) -> bool:
    if done.cancelled():
        return False
    error = done.exception()
    if error is not None:
        _log.error("password check failed", error=repr(error))
        return False
    return done.result()
