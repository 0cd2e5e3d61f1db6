"""Memory that deliveries are about to need, asked for before they do.

What has been in a long queue for a while is in no cache of the processor any more. A delivery follows entry,
message and content, each of which says where the next one is, and waits for memory three times. Here nothing
depends on what is read, so the processor waits for many of them at once. `python -m tests.bench passing` has
what a backlog costs.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from broker.core.entry import QueueEntry

AHEAD: Final[i64] = 16  # entries, a power of 2: about as many misses as are under way at once


def fetch_ahead(entry: QueueEntry) -> i64:
    """Touch what follows `entry`; returns what nobody needs, so that nothing is optimised away."""
    touched: i64 = 0
    left: i64 = AHEAD
    following = entry.next
    while following is not None and left > 0:
        content = following.message.content
        if content is not None:
            touched += len(content)
        following = following.next
        left -= 1
    return touched
