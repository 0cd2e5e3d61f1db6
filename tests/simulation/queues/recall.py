"""The deduplication records of a queue. No code is shared with the broker."""

from dataclasses import dataclass

from tests.simulation.queues.journal import Journal
from tests.simulation.queues.notes import Note

MESSAGE_ID, PRODUCER, SEQUENCE = "message-id", "x-producer", "x-sequence"
ID, NUMBER = "id", "number"
What = tuple[str, str]  # ID and an id, or NUMBER and a producer


@dataclass(frozen=True)
class Knows:
    """The deduplication settings of a queue: the last `limit` ids, each for `window` ms, and producers."""

    window: int = 0
    limit: int = 100_000
    producers: int = 0

    def arguments(self) -> dict[str, object]:
        """Return the arguments of the declaration."""
        return {
            "x-dedup-window": self.window or None,
            "x-dedup-limit": self.limit if self.window else None,
            "x-dedup-producers": self.producers or None,
        }


@dataclass(frozen=True)
class Event:
    """A log record at `position`: the time of an id, the sequence of a producer; None: nothing."""

    position: int
    value: int | None
    note: int  # the note that said so


class Recall:
    """The deduplication records of a queue. `coming`: records of open transactions."""

    def __init__(self, knows: Knows | None, journal: Journal) -> None:
        self.knows = knows or Knows()
        self.journal = journal
        self.ids: dict[str, int] = {}  # when they were said, the latest last
        self.producers: dict[str, int] = {}  # how far they are, the one that was heard of last is last
        self.coming: list[Note] = []
        self.events: dict[What, list[Event]] = {}

    def says(self, note: Note) -> list[tuple[What, int]]:
        """Return the keys under which this queue records a message, with the producer's sequence."""
        headers, keys = note.headers, []
        if self.knows.window and MESSAGE_ID in headers:
            keys.append(((ID, str(headers[MESSAGE_ID])), 0))
        if self.knows.producers and PRODUCER in headers:
            keys.append(((NUMBER, str(headers[PRODUCER])), int(str(headers[SEQUENCE]))))
        return keys

    def has_had(self, note: Note, now: int) -> bool:
        """Whether the queue has had `note`, or a transaction is about to give it."""
        coming = [each for other in self.coming for each in self.says(other)]
        for what, number in self.says(note):
            if what[0] == ID:
                since = self.ids.get(what[1])
                if (what, 0) in coming or (since is not None and now < since + self.knows.window):
                    return True
            elif number <= max(
                [other for who, other in coming if who == what], default=self.producers.get(what[1], -1)
            ) or number <= self.producers.get(what[1], -1):
                return True
        return False

    def append(self, note: Note) -> None:
        """Append `note` and its records."""
        for what, number in self.says(note):
            value = note.date if what[0] == ID else max(number, self.last(what) or 0)
            self.events.setdefault(what, []).append(Event(self.journal.position, value, note.number))

    def keep(self, note: Note, logged: bool) -> None:
        """The queue has taken `note`. `logged`: so the log says."""
        for (kind, name), number in self.says(note):
            if kind == ID:
                self.ids.pop(name, None)
                self.ids[name] = note.date
                if not logged:
                    self.forget((kind, name))  # forget that the fact was said before
            else:
                self.producers[name] = max(self.producers.pop(name, -1), number)
        self.trim()

    def trim(self) -> None:
        """Forget the oldest records beyond the limits."""
        while len(self.ids) > self.knows.limit:
            oldest = next(iter(self.ids))
            del self.ids[oldest]
            self.forget((ID, oldest))
        while len(self.producers) > self.knows.producers:
            silent = next(iter(self.producers))
            del self.producers[silent]
            self.forget((NUMBER, silent))

    def forget(self, what: What) -> None:
        """Append the removal of a record, except of an open transaction's."""
        if self.last(what) is None:
            return
        written = {event.note for event in self.events[what]}
        coming = [note for note in self.coming if note.number in written]
        values = [
            note.date if who[0] == ID else number
            for note in coming
            for who, number in self.says(note)
            if who == what
        ]
        self.events[what].append(Event(self.journal.note(), max(values, default=None), 0))

    def last(self, what: What) -> int | None:
        """Return the last value in the log."""
        events = self.events.get(what)
        return events[-1].value if events else None

    def in_doubt(self, note: Note) -> int:
        """Return the position that must be on disk before `note` is a duplicate; 0: none."""
        return max(
            (self.events[what][-1].position for what, _ in self.says(note) if self.last(what)), default=0
        )

    # ---- after a restart

    def possible(self, what: What) -> list[int | None]:
        """Return the possible values after a kill: the last durable one, and any written after it."""
        events = self.events.get(what, [])
        sure = [event.value for event in events if event.position <= self.journal.durable]
        return [sure[-1] if sure else None, *(e.value for e in events if e.position > self.journal.durable)]

    def is_over(self, since: int | None, now: int) -> bool:
        """Whether an id that was said then need not be known any more."""
        return since is None or since + self.knows.window <= now

    def adopt(self, ids: dict[str, int], producers: dict[str, int]) -> None:
        """Take the recovered records."""
        self.ids, self.producers, self.coming = ids, producers, []
        known = {(ID, key): since for key, since in ids.items()}
        known |= {(NUMBER, name): number for name, number in producers.items()}
        self.events = {what: [Event(self.journal.position, value, 0)] for what, value in known.items()}
        self.trim()
