"""The source of messages that come into queues, as the journal reports it."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

# how a message comes into queues
PUBLISHED: Final = 0
DEAD_LETTERED: Final = 1
MOVED: Final = 2
COPIED: Final = 3
DELAYED: Final = 4  # the message's delay is over
OWN: Final = 5  # the broker's own message, such as a receipt
EDITED: Final = 6
REDRIVEN: Final = 7  # the message was a dead letter


@mypyc_attr(allow_interpreted_subclasses=True)
class Source:
    """The source of a message that comes into queues: how the message comes, and for a session, who sent it.

    `way`: a constant of this module. A session of a client, which publishes, is a source itself.
    `names_origins`: the client forwards messages exactly once, so queues read the origins in their headers.
    """

    def __init__(self, way: i64) -> None:
        self.way = way
        self.names_origins: bool = False


BROKER: Final = Source(PUBLISHED)  # no client publishes: the actor of the request counts, if there is one
DEAD_LETTER_SOURCE: Final = Source(DEAD_LETTERED)
DELAY_SOURCE: Final = Source(DELAYED)
OWN_SOURCE: Final = Source(OWN)
