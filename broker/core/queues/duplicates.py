"""Deduplication: a queue remembers messages, so that it accepts none of them twice.

A queue remembers message-ids, for a time and up to a number, and the highest sequence of each producer that
numbers its messages. For persistent messages the log has separate records of both, in the batch of the
message. Each record is settled when the queue forgets the id or the producer. So the memory outlives the
message.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.queue import DEDUP_LIMIT, DEDUP_PRODUCERS, DEDUP_WINDOW, number_argument
from broker.core.message import NEVER, REMEMBERED, Address, Message
from broker.core.queues.hooks import MemoryHook
from broker.core.queues.queue import Queue
from broker.core.queues.virtual_host import QueueHost

LIMIT: Final = 100_000  # ids, unless the queue says otherwise
SLICE: Final[i64] = 2000  # the marks forgotten in one turn: a millisecond or two
LOOK_MS: Final[i64] = 1000  # the least time between two sweeps for outdated ids


def new_mark(key: str, sequence: i64, persistent: bool, date: i64) -> Message:
    """Return the log's record of an id or, with a sequence, of a producer, remembered at `date`."""
    mark = Message(Address("", key), b"", 0, persistent, 0)
    mark.date = date
    mark.expiration = sequence
    mark.marks = REMEMBERED
    return mark


@final
class Progress:
    """The highest sequence of a producer.

    `logged`: the marks of the producer in the log, the latest last, each with its batch. A mark is settled
    when a later one is durable: until then only the earlier one survives a crash. `unlogged`: the highest
    sequence that the log does not know.
    """

    def __init__(self) -> None:
        self.logged: deque[tuple[Message, int]] = deque()
        self.unlogged: i64 = -1

    @property
    def highest(self) -> i64:
        """The sequence up to which messages are duplicates."""
        logged = self.logged
        highest = self.unlogged
        while logged:
            mark = logged[-1][0]
            if mark.sequence > 0:
                return mark.expiration if mark.expiration > highest else highest
            logged.pop()  # the batch did not reach the disk: it was refused
        return highest

    def add(self, mark: Message, batch: int) -> None:
        """Insert a mark that is in the log at its place, because the marks of transactions come late."""
        logged = self.logged
        place = len(logged)
        while place > 0 and logged[place - 1][0].expiration > mark.expiration:
            place -= 1
        logged.insert(place, (mark, batch))


@final
class DuplicatesMemory(MemoryHook):
    """The duplicates filter of one queue.

    `Queue.memory` is None for queues without such an argument or policy.

    `window`: for how many ms an id is remembered, 0: ids are not. `limit`: the largest number of ids; the
    oldest is forgotten first. `producers_max`: the largest number of producers; the one silent for longest is
    forgotten first.
    `duplicates` counts the messages that the queue did not accept.
    """

    def __init__(self, queue: Queue, host: QueueHost) -> None:
        super().__init__(host.schedule, SLICE)
        self.queue = queue
        self.host = host
        self.window: i64 = 0
        self.limit: i64 = LIMIT
        self.producers_max: i64 = 0
        self.duplicates: i64 = 0
        self.ids: OrderedDict[str, Message] = OrderedDict()
        self.producers: OrderedDict[str, Progress] = OrderedDict()
        self._outdated: list[Message] = []  # restored by recovery, and superseded
        # reservations of transactions: ids, and by producer the sequences, ascending
        self._reserved: set[str] = set()
        self._reserved_sequences: dict[str, list[int]] = {}

    def apply(self, effective: dict[str, object]) -> None:
        """Apply the arguments from now on."""
        self.window = number_argument(effective, DEDUP_WINDOW, 0)
        self.limit = number_argument(effective, DEDUP_LIMIT, LIMIT)
        self.producers_max = number_argument(effective, DEDUP_PRODUCERS, 0)
        if len(self) > 0 or self._is_off():
            self._arm(0)

    def __len__(self) -> int:
        return len(self.ids) + len(self.producers)

    # ---- the memory

    def knows_id(self, key: str, date: i64) -> bool:
        """Whether a message with this id has arrived within the window; `date` is now."""
        if key in self._reserved:
            return True
        mark = self.ids.get(key)
        return mark is not None and mark.date + self.window > date and self._holds(mark)

    def knows_sequence(self, producer: str, sequence: i64) -> bool:
        """Whether a message of the producer with this or a higher number has arrived."""
        reserved = self._reserved_sequences.get(producer)
        if reserved is not None and sequence <= reserved[-1]:
            return True
        progress = self.producers.get(producer)
        return progress is not None and sequence <= progress.highest

    def is_next(self, producer: str, sequence: i64, preceding: i64) -> bool:
        """Whether a message of the producer is new, and no message is missing before it.

        `preceding`: the number of the message before. False also if that is not known for sure.
        """
        progress = self.producers.get(producer)
        if progress is None or self._reserved_sequences:
            return False
        highest = progress.highest
        return preceding <= highest and highest < sequence

    def keep(self, mark: Message, batch: i64) -> None:
        """Remember the id or producer of a mark; if the mark is logged, it is in `batch`."""
        key = mark.address.routing_key
        if mark.expiration == NEVER:
            old = self.ids.pop(key, None)
            if old is not None:
                self._settle(old)
            self.ids[key] = mark
            self._forget_ids(2)
        else:
            progress = self._progress(key)
            if self._logs(mark):
                progress.add(mark, batch)
                self._settle_passed(progress)
            else:
                progress.unlogged = max(progress.unlogged, mark.expiration)
            self._forget_producers(1)
        self._watch()

    def raise_mark(self, producer: str, sequence: i64) -> bool:
        """Raise the producer's last mark to a higher sequence; false: the mark's batch takes no changes.

        All messages of a batch are durable together, so a single mark with the highest sequence is enough.
        """
        progress = self.producers.get(producer)
        if progress is None or not progress.logged:
            return False
        mark = progress.logged[-1][0]
        if mark.expiration >= sequence or not self.host.store.raise_mark(mark, sequence):
            return False
        self.producers.move_to_end(producer)
        return True

    def restore(self, mark: Message) -> None:
        """Remember a mark from before the restart. Called in the order in which the marks were appended."""
        key = mark.address.routing_key
        if mark.expiration == NEVER:
            old = self.ids.pop(key, None)
            if old is not None:
                self._outdated.append(old)
            self.ids[key] = mark
        else:
            progress = self._progress(key)
            progress.add(mark, 0)
            while len(progress.logged) > 1:
                self._outdated.append(progress.logged.popleft()[0])
        if self._outdated:
            self._arm(0)
        self._watch()

    def take(self, most: i64) -> list[Message]:
        """Forget some marks of a deleted queue. Return them."""
        taken, self._outdated = self._outdated, []
        while self.ids and len(taken) < most:
            taken.append(self.ids.popitem()[1])
        while self.producers and len(taken) < most:
            taken += [mark for mark, _ in self.producers.popitem()[1].logged]
        return taken

    # ---- reservations of transactions

    def reserve_id(self, key: str) -> None:
        """Count an id as known until `unreserve_id`."""
        self._reserved.add(key)

    def unreserve_id(self, key: str) -> None:
        """End the reservation of an id: the transaction is over."""
        self._reserved.discard(key)

    def reserve_sequence(self, producer: str, sequence: i64) -> None:
        """Count a sequence as known until `unreserve_sequence`.

        The producer itself is not remembered before `keep`.
        """
        self._reserved_sequences.setdefault(producer, []).append(sequence)

    def unreserve_sequence(self, producer: str, sequence: i64) -> None:
        """End the reservation of a sequence: the transaction is over."""
        reserved = self._reserved_sequences.get(producer)
        if reserved is not None and sequence in reserved:
            reserved.remove(sequence)
            if not reserved:
                del self._reserved_sequences[producer]

    # ---- forgetting

    def step(self, budget: i64) -> bool:
        """Forget up to `budget` of the outdated or excess ids, and as many producers."""
        if self._forget_ids(budget) == budget or self._forget_producers(budget) == budget:
            return True
        if len(self) > 0:
            self._watch()
        elif self._is_off():
            self.queue.memory = None
            self.host.on_routes_changed()
        return False

    def _forget_ids(self, most: i64) -> i64:
        """Forget up to `most` ids that are too old, too many, or superseded at recovery. Return how many."""
        count: i64 = 0
        while count < most and self._outdated:
            self._settle(self._outdated.pop())
            count += 1
        date = self.host.schedule.date()
        limit = self.limit if self.window > 0 else 0
        while count < most and self.ids:
            oldest = next(iter(self.ids.values()))
            if len(self.ids) <= limit and oldest.date + self.window > date:
                break
            self.ids.popitem(last=False)
            self._settle(oldest)
            count += 1
        return count

    def _forget_producers(self, most: i64) -> i64:
        """Forget up to `most` producers that are too many. Return how many."""
        count: i64 = 0
        while count < most and len(self.producers) > self.producers_max:
            _, progress = self.producers.popitem(last=False)
            for mark, _ in progress.logged:
                self._settle(mark)
            count += 1
        return count

    def _settle_passed(self, progress: Progress) -> None:
        logged = progress.logged
        durable = self.host.store.durable
        while len(logged) > 1 and logged[1][0].sequence > 0 and logged[1][1] <= durable:
            self._settle(logged.popleft()[0])

    def _settle(self, mark: Message) -> None:
        if self.queue.logged and mark.sequence != 0:
            self.host.store.append_settle(mark, self.queue)

    def _progress(self, producer: str) -> Progress:
        progress = self.producers.get(producer)
        if progress is None:
            progress = Progress()
            self.producers[producer] = progress
        else:
            self.producers.move_to_end(producer)
        return progress

    def _logs(self, mark: Message) -> bool:
        return mark.persistent and self.queue.logged

    def _holds(self, mark: Message) -> bool:
        """Whether a mark is valid.

        A logged one that did not reach the disk is not: its message was refused.
        """
        return mark.sequence > 0 or not self._logs(mark)

    def _is_off(self) -> bool:
        return self.window == 0 and self.producers_max == 0

    def _watch(self) -> None:
        """Set the task for the oldest id, or for now if too much is remembered."""
        if len(self.ids) > self.limit or len(self.producers) > self.producers_max:
            self._arm(0)
        elif self.due == 0 and self.ids:
            oldest = next(iter(self.ids.values()))
            self._arm(max(oldest.date + self.window - self.host.schedule.date(), LOOK_MS))

    def _arm(self, wait: i64) -> None:
        self.schedule.set(self, self.schedule.now() + wait)


def memory_of(queue: Queue) -> DuplicatesMemory | None:
    """Return the duplicates filter of `queue`; None: the queue remembers nothing."""
    memory = queue.memory
    assert memory is None or isinstance(memory, DuplicatesMemory), "this module makes all memories"
    return memory


def apply(queue: Queue, host: QueueHost) -> None:
    """Apply the queue's effective arguments for deduplication from now on."""
    effective = queue.effective
    memory = memory_of(queue)
    if memory is None:
        if DEDUP_WINDOW not in effective and DEDUP_PRODUCERS not in effective:
            return
        memory = DuplicatesMemory(queue, host)
        queue.memory = memory
        host.on_routes_changed()  # resolved routes depend on this
    memory.apply(effective)
