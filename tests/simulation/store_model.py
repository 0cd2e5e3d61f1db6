"""The content of a log, and the possible contents after each kind of accident."""

import copy
import random
from dataclasses import dataclass
from typing import Final

from broker.core.message import NEVER, REMEMBERED, TELLS_ARRIVAL, TELLS_CONSUMED, Message
from broker.store.counts import Count
from broker.store.log import Log
from broker.store.streams.stream import Stream
from protocol.streams.chunk import BODY
from tests.support.store.hand_log import RecordingSink, chunks_of, content_of, new_message

Time = tuple[int, int, int]
"""Date, expiration and marks; 1: it has been dead-lettered."""

NO_TIME: Final[Time] = (0, NEVER, 0)


def time_of(message: Message) -> Time:
    return message.date, message.expiration, message.died | message.marks


def random_message(rng: random.Random, number: int) -> Message:
    length = rng.choice([5, 40, 400, 3000]) if rng.random() < 0.99 else 300_000
    message = new_message(content_of(number, length))
    message.date = rng.choice([0, 0, 1, 1_700_000_000_000, (1 << 63) - 1])
    if message.date:
        message.expiration = rng.choice([NEVER, NEVER, 0, 5000])
        message.died = rng.random() < 0.5
        message.marks = rng.choice([0, REMEMBERED, TELLS_ARRIVAL, TELLS_CONSUMED])
    return message


@dataclass
class Event:
    """publish, settle, transacted (a settle) or count of a sequence; declare or delete of a queue.

    row (its content) or trim (to the offset `count`) of a stream, by its queue's number.
    """

    kind: str
    number: int
    queues: tuple[int, ...] = ()
    content: bytes = b""
    time: Time = NO_TIME
    count: int = 0


def whole(log: Log, message: Message) -> bytes:
    """The content with all pieces of the body, from memory or disk."""
    parts = [message] if message.body is None else [message, *message.body.pieces]
    return b"".join(log.load(part) if part.content is None else part.content for part in parts)


def published(message: Message, queues: list[int], content: bytes) -> Event:
    """Return the event that recovery must find for a message that was just appended."""
    return Event("publish", message.sequence, tuple(queues), content, time_of(message))


Found = tuple[bytes, set[int], Time]
Rows = tuple[int, list[bytes]]
"""The first offset of a stream that is kept, and what is there from it on."""

NOT_FOUND: Final[Found] = (b"", set(), NO_TIME)


def is_stream(queue: int) -> bool:
    """Whether the queue with this number has a stream, too."""
    return queue % 2 == 0


def rows_of(stream: Stream) -> Rows:
    """Return the readable rows of a stream's files."""
    files = chunks_of(stream)
    rows: list[bytes] = []
    place = files.find(files.first)
    while place is not None:
        chunk = files.load(place)
        first = place.header.first
        rows += [chunk.value(BODY, n) for n in range(chunk.rows) if first + n >= files.first]
        place = files.following(place)
    assert len(rows) == files.next - files.first
    return int(files.first), rows


class State:
    """The content of a log: messages (content, queues, time), counts, queues, streams."""

    def __init__(self) -> None:
        self.messages: dict[int, Found] = {}  # by sequence
        self.queues: set[int] = set()
        self.counts: dict[tuple[int, int], int] = {}  # by sequence and queue
        self.streams: dict[int, Rows] = {}  # by the queue's number

    def apply(self, event: Event) -> None:
        if event.kind == "publish":
            self.messages[event.number] = (event.content, set(event.queues), event.time)
        elif event.kind in ("settle", "transacted"):
            self._settle(event.number, event.queues[0])
        elif event.kind == "count":
            if event.queues[0] in self.messages.get(event.number, NOT_FOUND)[1]:
                self.counts[event.number, event.queues[0]] = event.count
        elif event.kind == "declare":
            self.queues.add(event.number)
            if is_stream(event.number):
                self.streams[event.number] = (0, [])
        elif event.kind == "row":
            self.streams[event.number][1].append(event.content)
        elif event.kind == "trim":
            first, rows = self.streams[event.number]
            self.streams[event.number] = (event.count, rows[event.count - first :])
        else:
            self.queues.discard(event.number)
            self.streams.pop(event.number, None)
            for sequence in list(self.messages):
                self._settle(sequence, event.number)

    def _settle(self, sequence: int, queue: int) -> None:
        found = self.messages.get(sequence)
        if found is None:
            return  # the queue was deleted meanwhile
        queues = found[1]
        queues.discard(queue)
        self.counts.pop((sequence, queue), None)
        if not queues:
            del self.messages[sequence]

    def described(self) -> list[tuple[int, bytes, list[int], Time]]:
        return [(s, content, sorted(queues), d) for s, (content, queues, d) in sorted(self.messages.items())]

    def everything(self) -> tuple[object, ...]:
        return self.described(), self.queues, self.counts, self.streams


class TopologySink(RecordingSink):
    """A sink that knows which queues the definitions leave."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: set[int] = set()
        self.streams: dict[int, Stream] = {}

    def on_definitions_end(self) -> None:
        assert self.log is not None
        self.streams = {n: self.log.streams.open(n) for n in sorted(self.queues) if is_stream(n)}

    def apply(self, change: dict[str, object]) -> None:
        number = change["number"]
        assert isinstance(number, int)
        if change["kind"] == "queue":
            self.queues.add(number)
        else:
            self.queues.discard(number)

    def has(self, queue: int) -> bool:
        return queue in self.queues

    def message(
        self, message: Message, queues: list[int], redelivered: bool, counts: dict[int, Count]
    ) -> int:
        taken = [queue for queue in queues if queue in self.queues]
        self.remember(message, {queue: counts[queue] for queue in taken if queue in counts})
        if taken:
            self.messages.append((message, taken, redelivered))
        return len(taken)


class Model:
    """The changes of a log since its last recovery, batch by batch, and so the possible recovered states."""

    def __init__(self) -> None:
        self.base = State()  # as of the last recovery
        self.events: list[tuple[int, Event]] = []  # with the batch that each is in

    def add(self, batch: int, event: Event) -> None:
        self.events.append((batch, event))

    def recovered(self, found: State) -> None:
        """Begin with the recovered state."""
        self.base = found
        self.events = []

    def refuse(self, durable: int, moved: int) -> set[int]:
        """After a full disk, what the failed batches said of older messages is in the batch after them.

        The settlements of their transactions are not. Return the sequences of the messages that these batches
        published and that are lost.
        """
        gone = {e.number for batch, e in self.events if batch > durable and e.kind == "publish"}
        self.events = [
            (batch if batch <= durable else moved, event)
            for batch, event in self.events
            if batch <= durable or event.kind not in ("publish", "transacted", "row")
        ]
        of_messages = ("settle", "count")
        self.events = [(b, e) for b, e in self.events if not (e.kind in of_messages and e.number in gone)]
        return gone

    def close(self, last: int) -> None:
        """Put all later events into the batch that closing the log has written."""
        self.events = [(min(batch, last), event) for batch, event in self.events]

    def content(self, sequence: int) -> bytes:
        if sequence in self.base.messages:
            return self.base.messages[sequence][0]
        return next(e.content for _, e in self.events if e.kind == "publish" and e.number == sequence)

    def possible(self, log: Log) -> list[State]:
        """Return the possible states: of the last durable batch, and with the batch being written."""
        return [self._state(log.durable), self._state(self._on_its_way(log))]

    def _state(self, last: int) -> State:
        state = copy.deepcopy(self.base)
        for batch, event in self.events:
            if batch <= last:
                state.apply(event)
        return state

    def _on_its_way(self, log: Log) -> int:
        """The batch that may be on the disk without anybody knowing."""
        if log.in_flight or not log.stopped:
            return log.in_flight
        return min((batch for batch, _ in self.events if batch > log.durable), default=0)


def difference(found: State, possible: list[State]) -> str:
    """Describe the found state and its difference from each possible state, for people."""
    lines = [f"queues {found.queues}"]
    have = {s: (c[:12], *rest) for s, c, *rest in found.described()}
    for state in possible:
        want = {s: (c[:12], *rest) for s, c, *rest in state.described()}
        counts = dict(found.counts.items() ^ state.counts.items())
        lost = {s: want[s] for s in want if have.get(s) != want[s]}
        extra = {s: have[s] for s in have if want.get(s) != have[s]}
        lines.append(f"or: queues {state.queues} lost {lost} extra {extra} counts {counts}")
        lines.append(f"    streams {_shown(state)} instead of {_shown(found)}")
    return "\n".join(lines)


def _shown(state: State) -> dict[int, tuple[int, list[bytes]]]:
    return {number: (first, [row[:8] for row in rows]) for number, (first, rows) in state.streams.items()}
