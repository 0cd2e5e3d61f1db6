"""The log's records and the part that is on disk: what must, may and must not exist after a kill.

It shares no code with the broker.
"""

from collections.abc import Iterable

MUST, MAY, NOT = "must", "may", "must not"
Key = tuple[str, int]  # a queue and a message in it


class Journal:
    """Every record has a position; records up to `durable` are on disk, later ones may be."""

    def __init__(self) -> None:
        self.position = 0
        self.durable = 0
        self.added: dict[Key, int] = {}
        self.removed: dict[Key, int] = {}
        self.counts: dict[Key, list[tuple[int, int]]] = {}
        self.dead: dict[Key, int] = {}  # entries that wait to be dead-lettered
        self.declared: dict[str, int] = {}
        self.deleted: dict[str, int] = {}
        self.held: dict[tuple[str, int, int], Key] = {}  # by queue, number and time, what was held ever
        self.moved: dict[Key, Key] = {}  # the written key, by the key removed in the same step
        self.together: list[tuple[int, list[Key], list[Key]]] = []  # transactions: added, removed

    def _next(self) -> int:
        self.position += 1
        return self.position

    def note(self) -> int:
        """Something else was written; returns where."""
        return self._next()

    def declare(self, name: str) -> None:
        self.declared[name] = self._next()

    def delete(self, name: str) -> None:
        self.deleted[name] = self._next()

    def add(self, key: Key) -> None:
        self.added[key] = self._next()

    def remove(self, key: Key) -> None:
        if key in self.added:
            self.removed.setdefault(key, self._next())

    def move(self, old: Key, new: Key) -> None:
        """`new` is there as soon as `old` is not, and the other way round."""
        if old in self.added:
            self.moved[new] = old

    def count(self, key: Key, count: int) -> None:
        if key in self.added:
            self.counts.setdefault(key, []).append((self._next(), count))

    def die(self, key: Key) -> None:
        """A message waits to be dead-lettered from now on."""
        if key in self.added:
            self.dead.setdefault(key, self._next())

    def rename(self, old: str, new: str) -> None:
        """A queue is called otherwise. It is the same to the log, which knows it by a number."""

        def key(known: Key) -> Key:
            return (new, known[1]) if known[0] == old else known

        self.added = {key(known): at for known, at in self.added.items()}
        self.removed = {key(known): at for known, at in self.removed.items()}
        self.counts = {key(known): counts for known, counts in self.counts.items()}
        self.dead = {key(known): at for known, at in self.dead.items()}
        self.declared = {new if name == old else name: at for name, at in self.declared.items()}
        self.held = {
            (new if name == old else name, note, until): key(known)
            for (name, note, until), known in self.held.items()
        }
        self.moved = {key(known): key(origin) for known, origin in self.moved.items()}
        self.together = [
            (at, [key(known) for known in added], [key(known) for known in removed])
            for at, added, removed in self.together
        ]

    def bind(self, added: list[Key], removed: list[Key]) -> None:
        """A transaction has just written these: all or nothing of it."""
        self.together.append((self.position, added, removed))

    def reached(self, position: int) -> None:
        """Record that everything up to `position` is on disk."""
        self.durable = max(self.durable, position)

    # ---- after the end

    def _sure(self, position: int | None) -> bool:
        return position is not None and position <= self.durable

    def queue_status(self, name: str) -> str:
        if name in self.deleted:
            return NOT if self._sure(self.deleted[name]) else MAY
        return MUST if self._sure(self.declared.get(name)) else MAY

    def status(self, key: Key) -> str:
        """Return the status of a message in an existing queue."""
        if key not in self.added:
            return NOT
        if key in self.removed:
            return NOT if self._sure(self.removed[key]) else MAY
        return MUST if self._sure(self.added[key]) else MAY

    def death_status(self, key: Key) -> str:
        """Whether a message that is there waits to be dead-lettered."""
        if key not in self.dead:
            return NOT
        return MUST if self._sure(self.dead[key]) else MAY

    def counts_of(self, key: Key) -> tuple[int, int]:
        """The least and the greatest number of times that the log may know it was given out."""
        records = self.counts.get(key, [])
        sure = [count for position, count in records if self._sure(position)]
        return max(sure, default=0), max((count for _, count in records), default=0)

    def torn(self, recovered: set[Key]) -> list[str]:
        """Return the steps that should be atomic and were done in part."""
        faults = []
        for new, old in self.moved.items():
            if new[0] in self.deleted or old[0] in self.deleted:
                continue
            uncertain = self.status(new) == MAY and new not in self.removed
            if uncertain and self._sure(self.added[old]) and (new in recovered) == (old in recovered):
                faults.append(f"{old} became {new}: both or neither are there")
        for position, added, removed in self.together:
            if position <= self.durable:
                continue
            done = {
                key in recovered for key in added if key not in self.removed and key[0] not in self.deleted
            }
            settled = [key for key in removed if self._sure(self.added[key]) and key[0] not in self.deleted]
            done |= {key not in recovered for key in settled}
            if len(done) > 1:
                faults.append(f"a transaction that adds {added} and removes {removed} happened in part")
        return faults

    def restart(self, recovered: dict[Key, int], queues: Iterable[str], dead: Iterable[Key] = ()) -> None:
        """Check that recovered messages, delivery counts and dead messages are those on disk."""
        self.dead = dict.fromkeys(dead, self.position)
        self.added = dict.fromkeys(recovered, self.position)
        self.counts = {key: [(self.position, count)] for key, count in recovered.items()}
        self.declared = dict.fromkeys(queues, self.position)
        self.removed, self.deleted, self.moved, self.together = {}, {}, {}, []
        self.durable = self.position
