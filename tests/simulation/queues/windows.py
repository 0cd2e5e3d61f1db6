"""Windows, and the sessions and connections that share them. No code is shared with the broker."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Window:
    """The limit of unacknowledged deliveries; 0: none."""

    count_max: int = 0
    bytes_max: int = 0
    used: int = 0
    used_bytes: int = 0

    def has(self) -> bool:
        return (not self.count_max or self.used < self.count_max) and (
            not self.bytes_max or self.used_bytes < self.bytes_max
        )

    def fits(self, size: int) -> bool:
        if self.count_max and self.used >= self.count_max:
            return False
        return not self.bytes_max or not self.used_bytes or self.used_bytes + size <= self.bytes_max


@dataclass(eq=False)
class Line:
    """A connection."""

    blocked: bool = False


@dataclass(eq=False)
class Talk:
    """A session of a connection, and the window that its takers may share."""

    line: Line
    shared: Window = field(default_factory=Window)
    flow: bool = True
