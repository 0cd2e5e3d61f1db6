"""The deliveries of one channel that wait to be settled, by delivery tag. [amqp-0-9-1 1.8.3.13]"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.consumer import QueueConsumer
from broker.core.entry import QueueEntry

TRIM: Final = 1024
FORGIVEN_MAX: Final = 4096


@final
class Unacked:
    """A ring indexed by tag: tags are consecutive, so nothing is hashed and nothing scans.

    `entries[i]` is the delivery with tag `base + i`, None once it is settled or when it never had to be.
    """

    def __init__(self) -> None:
        self.base: i64 = 1
        self.entries: list[QueueEntry | None] = []
        self.consumers: list[QueueConsumer | None] = []
        self.taken_from: QueueConsumer | None = None
        self._first: i64 = 0  # nothing before it is outstanding
        self._trim_at: i64 = TRIM
        self._forgiven: set[int] | None = None
        self._forgiven_up_to: i64 = 0

    def next_tag(self) -> i64:
        """The tag that the next delivery gets."""
        return self.base + len(self.entries)

    def add(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """Give the next tag to a delivery that must be settled; returns it."""
        count: i64 = len(self.entries)
        if count >= self._trim_at:
            self.trim()
            count = len(self.entries)
        self.entries.append(entry)
        self.consumers.append(consumer)
        return self.base + count

    def skip(self) -> i64:
        """Give the next tag to a delivery that counts as settled; returns it."""
        count: i64 = len(self.entries)
        if count == 0:
            self.base += 1
            return self.base - 1
        if count >= self._trim_at:
            self.trim()
            return self.skip()
        self.entries.append(None)
        self.consumers.append(None)
        return self.base + count

    def take(self, tag: i64) -> QueueEntry | None:
        """Settle one delivery: its entry, and its consumer in `taken_from`; None if it is not outstanding."""
        index = tag - self.base
        if index < 0 or index >= len(self.entries):
            return None
        entry = self.entries[index]
        if entry is not None:
            self.taken_from = self.consumers[index]
            self.entries[index] = None
            self.consumers[index] = None
        return entry

    def find(self, tag: i64) -> i64:
        """Index of an outstanding delivery, -1 if the tag is unknown or settled."""
        index = tag - self.base
        if index < 0 or index >= len(self.entries) or self.entries[index] is None:
            return -1
        return index

    def remove(self, index: i64) -> None:
        """The delivery at `index` is settled; other indices stay valid."""
        self.entries[index] = None
        self.consumers[index] = None

    def forgive(self, tags: list[i64]) -> None:
        """Should these deliveries, which are taken back, be settled after all, then that is no error.

        A client may never do that, so no more than FORGIVEN_MAX are told apart: after that, no tag up to the
        highest of them is an error.
        """
        forgiven = self._forgiven
        if forgiven is None:
            forgiven = self._forgiven = set()
        elif len(forgiven) >= FORGIVEN_MAX:
            self._forgiven_up_to = max(forgiven)
            forgiven.clear()
        forgiven.update(tags)

    def is_forgiven(self, tag: i64) -> bool:
        """Whether `tag` is that of a delivery that was taken back."""
        forgiven = self._forgiven
        return forgiven is not None and (tag in forgiven or 0 < tag <= self._forgiven_up_to)

    def put_back(self, tag: i64, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """The delivery with this tag, which had been settled, is outstanding again.

        Of several, the lowest tag comes first: the room for all of them is then made once.
        """
        missing = self.base - tag
        if missing > 0:
            gap: list[None] = [None] * missing
            self.entries[:0] = gap
            self.consumers[:0] = gap
            self.base = tag
        self.entries[tag - self.base] = entry
        self.consumers[tag - self.base] = consumer
        self._first = 0

    def up_to(self, tag: i64) -> list[i64]:
        """Indices of what is outstanding up to and including `tag`, oldest first; 0 means all."""
        end: i64 = len(self.entries)
        if tag != 0 and tag - self.base + 1 < end:
            end = tag - self.base + 1
        found: list[i64] = []
        i = self._first
        while i < end and self.entries[i] is None:
            i += 1
        self._first = i
        while i < end:
            if self.entries[i] is not None:
                found.append(i)
            i += 1
        return found

    def trim(self) -> None:
        """Let go of the settled deliveries at the front; indices found before are void afterwards.

        `add` does this when the lists have doubled: its cost is spread, and settling costs nothing more.
        """
        first = self._first
        n: i64 = len(self.entries)
        while first < n and self.entries[first] is None:
            first += 1
        if first == n:
            self.base += n
            self.entries.clear()
            self.consumers.clear()
        else:
            del self.entries[:first]
            del self.consumers[:first]
            self.base += first
        self._first = 0
        self._trim_at = 2 * len(self.entries) + TRIM
