"""What recovery tells, and whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mypy_extensions import mypyc_attr

from broker.core.message import Message
from broker.store.counts import Count

NOWHERE: Final = (-1, 0)


@mypyc_attr(allow_interpreted_subclasses=True)
class RecoverySink:
    """Receives what survived: first every definition, then every message, each in its original order."""

    def apply(self, change: dict[str, object]) -> None:
        """A change as it was appended, or as `definitions` gave it."""
        raise NotImplementedError

    def defined(self) -> None:
        """Every definition has been given; messages follow."""

    def has(self, queue: int) -> bool:
        """Whether there is a queue with this number, once every definition has been applied."""
        raise NotImplementedError

    def message(
        self, message: Message, queues: list[int], redelivered: bool, counts: dict[int, Count]
    ) -> int:
        """A message that these queues hold, or remember; returns how many still exist and took it.

        Its content is on disk. Called twice for a message that only some queues had delivered. `counts`: how
        often a queue had given it out, of queues that count, and what was added to it there. List and dict
        may be shared with other calls: they are not to be changed or kept.
        """
        raise NotImplementedError


@dataclass
class RecoveryReport:
    """What recovery found. A torn tail is the end of a batch that had never been synced: nobody missed it."""

    segments: int = 0
    batches: int = 0
    messages: int = 0
    definitions: int = 0
    clean: bool = False  # the log had been closed
    is_new: bool = False  # there was none
    torn: str = ""  # the file that was cut, "" if none
    torn_offset: int = 0
    torn_bytes: int = 0
    removed: list[str] = field(default_factory=list)  # files that nothing needed any more
