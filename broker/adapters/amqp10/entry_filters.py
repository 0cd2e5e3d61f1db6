"""The filters of entries that a link cannot get: too large or undeliverable there.

[amqp-1.0 2.7.3 max-message-size, 3.4.5 undeliverable-here]
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.entries.entry import DEQUEUED, EntryFilter, QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.message import Message, held_bytes
from broker.core.queues.attach import change_filter
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import queue_of
from broker.core.queues.undeliverable import Undeliverable

PREAMBLE_BYTES: Final[i64] = 600  # for the header and the address, which are added to the stored content
_SWEEP_MIN: Final = 64


def sent_bytes(message: Message) -> i64:
    """Return an upper limit for the size of a message when it is sent, without annotations of consumers."""
    return max(held_bytes(message), message.length) + PREAMBLE_BYTES


@final
class SizeFilter(EntryFilter):
    """The filter of entries that pass another filter and are not too large for the peer.

    A message that the peer refuses would be delivered again and again, and block the messages after it.
    """

    def __init__(self, inner: EntryFilter | None, size_max: i64) -> None:
        super().__init__(f"of {size_max} bytes: {'' if inner is None else inner.key}")
        if inner is not None:
            self.demands = inner.demands
        self._inner = inner
        self._size_max = size_max

    def passes(self, entry: QueueEntry) -> bool:
        """Whether the message fits."""
        if sent_bytes(entry.message) > self._size_max:
            return False
        return self._inner is None or self._inner.passes(entry)


@final
class DeliverableFilter(EntryFilter):
    """The filter of entries that pass another filter and are not undeliverable to a link.

    No two consumers share such a filter.
    """

    def __init__(self, inner: EntryFilter | None, link: str) -> None:
        super().__init__(f"deliverable to {link}: {'' if inner is None else inner.key}")
        if inner is not None:
            self.demands = inner.demands
        self._inner = inner
        self._undeliverable: set[QueueEntry] = set()
        self._sweep_at = _SWEEP_MIN

    def exclude(self, entries: list[QueueEntry]) -> None:
        """Exclude these entries."""
        self._undeliverable.update(entries)
        if len(self._undeliverable) >= self._sweep_at:
            self._undeliverable = {entry for entry in self._undeliverable if entry.state != DEQUEUED}
            self._sweep_at = 2 * len(self._undeliverable) + _SWEEP_MIN

    def passes(self, entry: QueueEntry) -> bool:
        """Whether the link may get the entry."""
        return entry not in self._undeliverable and (self._inner is None or self._inner.passes(entry))

    def excludes(self, entry: QueueEntry) -> bool:
        """Whether the entry is undeliverable to the link."""
        return entry in self._undeliverable


def exclude_undeliverable(consumer: QueueConsumer, entries: list[QueueEntry], link: str) -> None:
    """Exclude entries, which are being released, from a link that found them undeliverable. [amqp-1.0 3.4.5]

    The link's consumer stays attached and gets all other entries. `consumer`: the owner of the entries, which
    may have been detached since, if the link has resumed an earlier link.

    A queue checks at most `FILTERS_MAX` filters for a message. If the link's filter would exceed
    this limit, the link may get the entries again.
    """
    queue = queue_of(consumer)
    for present in list(consumer.target.consumers):
        if queue is not present.queue:
            continue
        known = present.filter
        if not isinstance(known, DeliverableFilter):
            known = DeliverableFilter(known, link)
            try:
                change_filter(queue, present, known)
            except PreconditionFailed:
                continue
        known.exclude(entries)
    if queue.discipline is not None:
        queue.discipline.note_exclusion(consumer, entries)
    manager = queue.manager
    if manager.undeliverable is None and queue.host is not None:
        manager.undeliverable = Undeliverable(queue, queue.host.schedule)
    if manager.undeliverable is not None:
        manager.undeliverable.add(entries)
