"""Which entries of a queue a consumer sees. [JMS 1.1, 3.8.1 message selectors]"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from broker.core.entry import QueueEntry


@mypyc_attr(allow_interpreted_subclasses=True)
class EntryFilter:
    """A condition that holds for an entry, or not, as long as it is in its queue.

    `key`: filters with the same key let the same entries pass.
    `demands`: equalities without which it lets nothing pass; see `Criterion`.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.demands: list[tuple[str, str | int]] = []

    def passes(self, entry: QueueEntry) -> bool:
        """Whether consumers with this filter see `entry`."""
        raise NotImplementedError

    def excludes(self, entry: QueueEntry) -> bool:
        """Whether consumers with this filter have sent `entry` away for themselves."""
        return False
