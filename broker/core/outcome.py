"""How a delivery can end without having been settled, so that its entry comes back to the queue."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# bits, so that a queue can say which of them it means
NACK: Final[i64] = 1  # the client gave it back
REJECT: Final[i64] = 2  # the client refused it, but not for good
RECOVER: Final[i64] = 4  # the client asked for all that it had again
TIMEOUT: Final[i64] = 8  # the client kept it for too long
CRASH: Final[i64] = 16  # channel, connection or broker was lost
RELEASED: Final[i64] = 32  # it was not even tried
ALL: Final[i64] = 63

OUTCOMES: Final[tuple[str, ...]] = ("nack", "reject", "recover", "timeout", "crash", "released")
"""The names under which arguments choose, in the order of the bits."""


def outcomes_of(text: str) -> i64:
    """The bits of outcomes that are named with commas between them."""
    bits: i64 = 0
    for name in text.split(","):
        bits |= 1 << OUTCOMES.index(name.strip())
    return bits
