"""The messages of the model. No code is shared with the broker."""

from __future__ import annotations

from dataclasses import dataclass, field


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
