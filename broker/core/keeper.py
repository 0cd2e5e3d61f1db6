"""What an exchange keeps messages with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64, mypyc_attr

from broker.core.message import Message

if TYPE_CHECKING:
    from broker.core.queue import Queue


@mypyc_attr(allow_interpreted_subclasses=True)
class Keeper:
    """Keeps messages in `queue`, which no client knows; the log knows it if the exchange is durable.

    `takes`: 1 if a message that it keeps is on its way by that, and so is not unroutable.
    """

    def __init__(self, queue: Queue, takes: i64) -> None:
        self.queue = queue
        self.takes = takes

    def add(self, message: Message) -> None:
        """Keep a message, which was appended for `queue` if need be."""
        raise NotImplementedError
