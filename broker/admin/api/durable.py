"""Waiting for the disk: a request that changed something is answered when the change cannot be lost."""

import asyncio
from collections.abc import Callable

from broker.admin.api.errors import ApiError
from broker.core.ports import DurableWaiter, MessageStore


class _Durable(DurableWaiter):
    """Resolves a future when the batch that is being filled is on disk."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_durable(self, batch: int) -> None:
        """It is (DurableWaiter)."""
        if not self.future.done():
            self.future.set_result(None)

    def on_store_failed(self, reason: str) -> None:
        """It will not be (DurableWaiter)."""
        if not self.future.done():
            self.future.set_exception(
                ApiError(503, "service_unavailable", f"the log has stopped, this may be lost: {reason}")
            )


async def on_disk(begin: Callable[[Callable[[str], None]], None]) -> str:
    """Begin what tells when it is on disk, with "", or why it will not be; returns that when it is told."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def tell(trouble: str) -> None:
        if not future.done():
            future.set_result(trouble)

    begin(tell)
    return await future


async def durable(store: MessageStore) -> None:
    """Wait until everything appended so far is on disk. Raises ApiError if it may be lost."""
    waiter = _Durable()
    store.wait(waiter)
    await waiter.future
