"""The sink of recovery: the receiver of restored definitions and messages, and the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mypy_extensions import mypyc_attr

from broker.core.message import Message
from broker.store.counts import Count

NOWHERE: Final = (-1, 0)


@mypyc_attr(allow_interpreted_subclasses=True)
class RecoverySink:
    """The receiver of the definitions, and then of the messages, that survived, in the original order."""

    def apply(self, change: dict[str, object]) -> None:
        """Apply a change as it was appended, or as `definitions` returned it."""
        raise NotImplementedError

    def on_definitions_end(self) -> None:
        """Note that every definition has been given; messages follow."""

    def has(self, queue: int) -> bool:
        """Whether there is a queue with this number, once every definition has been applied."""
        raise NotImplementedError

    def message(
        self, message: Message, queues: list[int], redelivered: bool, counts: dict[int, Count]
    ) -> int:
        """Restore a message that these queues hold, or an identity that they remember.

        Return how many of these queues still exist and accepted it. The content is on disk. Called twice for
        a message that only some queues had delivered. `counts`: the delivery counts and annotations by queue,
        for queues that count. List and dict may be shared with other calls: do not change or keep them.
        """
        raise NotImplementedError


@dataclass
class RecoveryReport:
    """The result of recovery.

    A torn tail is the end of a batch that was never synced, so nothing confirmed is lost.
    """

    segments: int = 0
    batches: int = 0
    messages: int = 0
    definitions: int = 0
    clean: bool = False  # the log was closed
    is_new: bool = False  # there was no log
    torn: str = ""  # the file that was cut, "" if none
    torn_offset: int = 0
    torn_bytes: int = 0
    removed: list[str] = field(default_factory=list)  # files that were not needed any more
