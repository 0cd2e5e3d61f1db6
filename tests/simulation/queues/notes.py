"""The messages of the model, and the headers of their groups. No code is shared with the broker."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

KEYS: tuple[object, ...] = ("a", "a", "b", "c", 7, "7", "", True, 0.5)
NAMES = ("x-group-id", "x-group-id", "x-group-id", "JMSXGroupID", "team")
SEQUENCES = ("x-group-seq", "JMSXGroupSeq")


@dataclass(eq=False)
class Note:
    """A message. `appended`: when it was appended to the log, by ticks: its place after a restart.

    `date`: the same by time. `deaths`: queue and reason of each, the latest first.
    """

    number: int
    size: int
    priority: int = 0
    persistent: bool = False
    expiration: int | None = None
    kind: int = 0
    deaths: tuple[tuple[str, str], ...] = ()
    appended: int = 0
    date: int = 0
    dated: bool = False  # the log knows `date`
    headers: dict[str, object] = field(default_factory=dict)
    until: int | None = None  # the queues delay the message

    def again(self, number: int) -> Note:
        """The same under another number, without deaths and without an end."""
        return Note(number, self.size, self.priority, self.persistent, kind=self.kind, headers=self.headers)


def group_headers(share: float, rng: random.Random) -> dict[str, object]:
    """Headers of a message; of so many of all messages they name a group, mostly."""
    if share == 0 or rng.random() >= share:
        return {}
    headers = {rng.choice(NAMES): rng.choice(KEYS)}
    if rng.random() < 0.2:
        headers[rng.choice(NAMES)] = rng.choice(KEYS[:4])
    if rng.random() < 0.2:
        headers[rng.choice(SEQUENCES)] = rng.choice((-1, -1, 1))
    return headers
