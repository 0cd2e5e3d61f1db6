"""The unsettled deliveries of a channel or session. [amqp-0-9-1 1.8.3.13]"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, final

from mypy_extensions import i64

from broker.core.durations import SAMPLE, Stopwatch
from broker.core.entries.entry import QueueEntry
from broker.core.queues.consumer import QueueConsumer

GAPS_MIN: Final = 64

Delivery = tuple[QueueEntry, QueueConsumer]


@final
class OldDeliveries:
    """Deliveries in the order of their tags, with gaps of None for settled deliveries.

    The gaps are closed when they outnumber the deliveries, so memory follows the number of unsettled
    deliveries.
    """

    def __init__(self) -> None:
        self.count: i64 = 0  # the number of unsettled deliveries
        self._tags: list[int] = []
        self._deliveries: list[Delivery | None] = []
        self._first: i64 = 0  # all deliveries before this index are settled

    def append(self, tag: i64, entry: QueueEntry, consumer: QueueConsumer) -> None:
        """Add a delivery, whose tag is above all others."""
        self._tags.append(tag)
        self._deliveries.append((entry, consumer))
        self.count += 1

    def find(self, tag: i64) -> Delivery | None:
        """Return the unsettled delivery with this tag, if there is one."""
        index = self._index(tag)
        return self._deliveries[index] if index >= 0 else None

    def take(self, tag: i64) -> Delivery | None:
        """Settle and return the unsettled delivery with this tag, if there is one."""
        index = self._index(tag)
        delivery = self._deliveries[index] if index >= 0 else None
        if delivery is not None:
            self._deliveries[index] = None
            self.count -= 1
            if len(self._tags) > 2 * self.count + GAPS_MIN:
                self._arrange(self._outstanding())
        return delivery

    def tags_up_to(self, tag: i64) -> list[i64]:
        """Return the tags of unsettled deliveries up to and including `tag`, oldest first; 0 means all."""
        deliveries = self._deliveries
        end: i64 = len(deliveries) if tag == 0 else bisect_right(self._tags, tag)
        i = self._first
        while i < end and deliveries[i] is None:
            i += 1
        self._first = i
        tags: list[i64] = []
        while i < end:
            if deliveries[i] is not None:
                tags.append(self._tags[i])
            i += 1
        return tags

    def put_back(self, deliveries: dict[int, Delivery]) -> None:
        """Make settled deliveries unsettled again."""
        closed: dict[int, Delivery] = {}  # deliveries whose gaps have been closed
        for tag, delivery in deliveries.items():
            index = self._index(tag)
            if index < 0:
                closed[tag] = delivery
            else:
                self._deliveries[index] = delivery
                self._first = min(self._first, index)
                self.count += 1
        if closed:
            self._arrange(self._outstanding() | closed)

    def forget(self, most: i64) -> i64:
        """Forget up to `most` deliveries, the latest first, settled ones too; return their number."""
        count: i64 = min(most, len(self._tags))
        if count > 0:
            left = len(self._tags) - count
            self.count -= count - self._deliveries[left:].count(None)
            del self._tags[left:]
            del self._deliveries[left:]
            self._first = min(self._first, left)
        return count

    def _index(self, tag: i64) -> i64:
        """Return the index of this tag, with a delivery or a gap; -1 if there is none."""
        index: i64 = bisect_left(self._tags, tag)
        return index if index < len(self._tags) and self._tags[index] == tag else -1

    def _outstanding(self) -> dict[int, Delivery]:
        pairs = zip(self._tags, self._deliveries, strict=True)
        return {tag: delivery for tag, delivery in pairs if delivery is not None}

    def _arrange(self, deliveries: dict[int, Delivery]) -> None:
        """Set the deliveries, without gaps."""
        self._tags = sorted(deliveries)
        self._deliveries = [deliveries[tag] for tag in self._tags]
        self.count = len(self._tags)
        self._first = 0


TRIM: Final = 1024
SPARSE: Final = 8  # slots for each unsettled delivery: with more slots, the oldest deliveries leave the ring
FORGIVEN_MAX: Final = 4096


@final
class Unacked:
    """A ring of deliveries, indexed by tag: tags are consecutive, so there is no hashing and no scan.

    `_entries[i]` is the delivery with tag `base + i`. The slot is None after the delivery was settled, and
    for a delivery that needs no settlement. Unsettled deliveries older than the ring are `OldDeliveries`, so
    a delivery that is never settled does not keep the slots of all later ones. `watch` times deliveries until
    they are acknowledged.
    """

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch
        self.base: i64 = 1
        self.holder: QueueConsumer | None = None  # the consumer of the delivery found or taken last
        self._entries: list[QueueEntry | None] = []
        self._consumers: list[QueueConsumer | None] = []
        self._old: OldDeliveries | None = None
        self._first: i64 = 0  # all deliveries before this index are settled
        self._trim_at: i64 = TRIM
        self._forgiven: set[int] | None = None
        self._forgiven_up_to: i64 = 0

    def next_tag(self) -> i64:
        """Return the tag of the next delivery."""
        return self.base + len(self._entries)

    def count(self) -> i64:
        """Return the number of unsettled deliveries; looks at each slot."""
        count: i64 = len(self._entries) - self._entries.count(None)
        return count if self._old is None else count + self._old.count

    def add(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """Give the next tag to a delivery that must be settled; return the tag."""
        count: i64 = len(self._entries)
        if count >= self._trim_at:
            self.trim()
            count = len(self._entries)
        self._entries.append(entry)
        self._consumers.append(consumer)
        tag = self.base + count
        if tag & SAMPLE == 1:
            self._watch(tag)
        return tag

    def _watch(self, tag: i64) -> None:
        """Time a delivery, unless another one is being timed and is not settled yet."""
        watch = self.watch
        holder = self.holder
        if watch.number != 0 and self.find(watch.number) is None:
            watch.cancel()
        self.holder = holder
        watch.start(tag)

    def skip(self) -> i64:
        """Give the next tag to a delivery that counts as settled; return the tag."""
        count: i64 = len(self._entries)
        if count == 0:
            self.base += 1
            return self.base - 1
        if count >= self._trim_at:
            self.trim()
            return self.skip()
        self._entries.append(None)
        self._consumers.append(None)
        return self.base + count

    def find(self, tag: i64) -> QueueEntry | None:
        """Return the entry of an unsettled delivery, with its consumer in `holder`; None if there is none."""
        index = tag - self.base
        if index < 0:
            return self._set_holder(self._old.find(tag)) if self._old is not None else None
        if index >= len(self._entries):
            return None
        self.holder = self._consumers[index]
        return self._entries[index]

    def take(self, tag: i64) -> QueueEntry | None:
        """Settle a delivery; return its entry, with its consumer in `holder`, or None if not unsettled."""
        index = tag - self.base
        if index < 0:
            return self._set_holder(self._old.take(tag)) if self._old is not None else None
        if index >= len(self._entries):
            return None
        entry = self._entries[index]
        if entry is not None:
            self.holder = self._consumers[index]
            self._entries[index] = None
            self._consumers[index] = None
        return entry

    def acknowledge(self, tag: i64) -> QueueEntry | None:
        """`take` a delivery that the client acknowledges."""
        entry = self.take(tag)
        if tag == self.watch.number and entry is not None:
            self.watch.stop()
        return entry

    def note_acknowledged(self, first: i64, last: i64) -> None:
        """Note that the client acknowledges the deliveries from `first` to `last`, which are taken next."""
        number = self.watch.number
        if first <= number <= last and number != 0 and self.find(number) is not None:
            self.watch.stop()

    def take_up_to(self, tag: i64) -> list[tuple[QueueConsumer, list[QueueEntry]]]:
        """Settle all deliveries up to and including `tag`, 0: all deliveries.

        Return the entries, oldest first, in runs of the same consumer.
        """
        runs: list[tuple[QueueConsumer, list[QueueEntry]]] = []
        last: QueueConsumer | None = None
        run: list[QueueEntry] = []
        old_deliveries = self._old
        if old_deliveries is not None:
            for old in old_deliveries.tags_up_to(tag):
                delivery = old_deliveries.take(old)
                if delivery is not None:
                    if delivery[1] is not last:
                        last = delivery[1]
                        run = []
                        runs.append((last, run))
                    run.append(delivery[0])
        entries, consumers = self._entries, self._consumers
        i = self._first
        end: i64 = len(entries)
        if tag != 0 and tag - self.base + 1 < end:
            end = tag - self.base + 1
            self._first = max(i, end)
        else:
            self._entries, self._consumers = [], []
            self.base += end
            self._first = 0
            self._trim_at = TRIM
        while i < end:
            entry, holder = entries[i], consumers[i]
            entries[i] = consumers[i] = None
            i += 1
            if entry is None or holder is None:
                continue
            if holder is not last:  # mostly the same consumer
                last = holder
                run = []
                runs.append((last, run))
            run.append(entry)
        return runs

    def take_all(self, tag: i64 = 0) -> dict[QueueConsumer, list[QueueEntry]]:
        """Settle all deliveries and return the entries by their consumers."""
        taken: dict[QueueConsumer, list[QueueEntry]] = {}
        for holder, run in self.take_up_to(tag):
            taken.setdefault(holder, []).extend(run)
        return taken

    def _set_holder(self, delivery: Delivery | None) -> QueueEntry | None:
        if delivery is None:
            return None
        self.holder = delivery[1]
        return delivery[0]

    def forgive(self, tags: list[i64]) -> None:
        """Note deliveries that are taken back: a later settlement of such a delivery is no error.

        The client may never settle these deliveries, so at most FORGIVEN_MAX tags are kept. After more tags,
        no tag up to the highest earlier one is an error.
        """
        forgiven = self._forgiven
        if forgiven is None:
            forgiven = self._forgiven = set()
        elif len(forgiven) >= FORGIVEN_MAX:
            self._forgiven_up_to = max(forgiven)
            forgiven.clear()
        forgiven.update(tags)

    def is_forgiven(self, tag: i64) -> bool:
        """Whether the delivery with `tag` was taken back."""
        forgiven = self._forgiven
        return forgiven is not None and (tag in forgiven or 0 < tag <= self._forgiven_up_to)

    def put_back(self, tags: list[int], entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Make settled deliveries unsettled again, unless they were forgotten."""
        old: dict[int, Delivery] = {}
        count: i64 = len(self._entries)
        for tag, entry in zip(tags, entries, strict=True):
            index: i64 = tag - self.base
            if index < 0:
                old[tag] = (entry, consumer)
            elif index < count:
                self._entries[index] = entry
                self._consumers[index] = consumer
                self._first = min(self._first, index)
        if old:
            if self._old is None:
                self._old = OldDeliveries()
            self._old.put_back(old)

    def tags_up_to(self, tag: i64) -> list[i64]:
        """Return the tags of unsettled deliveries up to and including `tag`, oldest first; 0 means all."""
        tags: list[i64] = [] if self._old is None else self._old.tags_up_to(tag)
        end: i64 = len(self._entries)
        if tag != 0 and tag - self.base + 1 < end:
            end = tag - self.base + 1
        i = self._first
        while i < end and self._entries[i] is None:
            i += 1
        if i > self._first:
            self._first = i
        while i < end:
            if self._entries[i] is not None:
                tags.append(self.base + i)
            i += 1
        return tags

    def tags_between(self, first: i64, last: i64) -> list[i64]:
        """Return the unsettled tags from `first` to `last`, oldest first; looks at each slot between."""
        tags: list[i64] = []
        if self._old is not None and last > 0 and first < self.base:
            tags = [tag for tag in self._old.tags_up_to(last) if first <= tag <= last]
        i = max(first - self.base, 0)
        end: i64 = min(last - self.base + 1, len(self._entries))
        while i < end:
            if self._entries[i] is not None:
                tags.append(self.base + i)
            i += 1
        return tags

    def forget(self, most: i64) -> i64:
        """Forget up to `most` deliveries, the latest first, settled ones too; return their number."""
        count: i64 = min(most, len(self._entries))
        if count > 0:
            del self._entries[-count:]
            del self._consumers[-count:]
            self._first = min(self._first, len(self._entries))
        if self._old is not None:
            count += self._old.forget(most - count)
        return count

    def trim(self) -> None:
        """Drop settled deliveries at the front; move the oldest others out of the ring if few.

        `add` does this when the lists have doubled, so the cost is spread, and settling costs nothing more.
        """
        n: i64 = len(self._entries)
        first = self._first
        while first < n and self._entries[first] is None:
            first += 1
        if 2 * first < n:  # the ring has not shrunk much
            first = self._move_oldest(first)
        del self._entries[:first]
        del self._consumers[:first]
        self.base += first
        self._first = 0
        self._trim_at = 2 * len(self._entries) + TRIM

    def _move_oldest(self, first: i64) -> i64:
        """Move the oldest deliveries, from `first` on, out of the ring; return the first remaining index."""
        n: i64 = len(self._entries)
        outstanding: i64 = 0
        for i in range(first, n):
            if self._entries[i] is not None:
                outstanding += 1
        end = n - SPARSE * outstanding
        if first < end and self._old is None:
            self._old = OldDeliveries()
        while first < n and (first < end or self._entries[first] is None):
            entry = self._entries[first]
            consumer = self._consumers[first]
            if entry is not None and consumer is not None and self._old is not None:
                self._old.append(self.base + first, entry, consumer)
            first += 1
        return first
