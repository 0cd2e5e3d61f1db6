"""What consumers add to messages that go back to their queue: it is the entry's, as a message never changes.

What chooses by message, such as selectors, groups, keys and routes, sees messages as they were published. The
annotations are encoded by their protocol; the core only keeps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64, mypyc_attr

from broker.core.consumer import QueueConsumer
from broker.core.delivery_limit import append_count
from broker.core.entry import QueueEntry

if TYPE_CHECKING:
    from broker.core.queue import Queue


@mypyc_attr(allow_interpreted_subclasses=True)
class Addition:
    """What a consumer adds to messages that it gives back. `cost`: as if there were so many more of each."""

    def __init__(self, cost: i64) -> None:
        self.cost = cost

    def add(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Annotate those of `entries` that `consumer`, which acquires, has."""
        raise NotImplementedError

    def added_to(self, before: bytes) -> bytes:
        """Return encoded annotations with what is added; `before` if that would be too much."""
        raise NotImplementedError


def annotate(queue: Queue, entry: QueueEntry, annotations: bytes) -> None:
    """Have all who are given `entry` from now on be given these with it; the log is told."""
    restore_annotations(queue, entry, annotations)
    append_count(queue, entry)


def restore_annotations(queue: Queue, entry: QueueEntry, annotations: bytes) -> None:
    """The same of an entry of which the log knows that."""
    entries = queue.entries
    if entries.annotations is None:
        entries.annotations = {}
    entries.annotations[entry] = annotations
