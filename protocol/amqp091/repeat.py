"""The recognition of repeated publishes: publishers often send messages that differ in their bodies only."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from protocol.amqp091.constants import FRAME_END
from protocol.amqp091.incoming import EXPECT_METHOD, IncomingChannel

RECOGNISES_REPEATS: Final = __file__.endswith(".py")
"""Whether repeated publishes are recognised, which is faster than parsing in interpreted code only."""
SKIPPED_MAX: Final = 64  # publishes until the next try, after a publish that differed
NEVER: Final = 1 << 62


@final
class Repeat:
    """The bytes of a publish up to its body, and the arguments of the call to `incoming`.

    `header_at` and `last_at`: the offsets of the content header's frame and of the last octet from the
    beginning of the publish.
    """

    def __init__(
        self,
        incoming: IncomingChannel,
        start: bytes,
        arguments: bytes,
        header_at: i64,
        last_at: i64,
        size: i64,
        traits: i64,
    ) -> None:
        self.incoming = incoming
        self.start = start
        self.arguments = arguments
        self.header_at = header_at
        self.last_at = last_at
        self.size = size
        self.traits = traits

    def publish(self, data: bytes, p: i64) -> i64:
        """Make the call if the same publish is at `p` of `data`, and is complete.

        Return the offset after the publish, 0 for any other bytes.
        """
        last = p + self.last_at
        if (
            last >= len(data)
            or data[last] != FRAME_END
            or not data.startswith(self.start, p)
            or self.incoming.expecting != EXPECT_METHOD
        ):
            return 0
        content = data[p + self.header_at : last + 1]
        self.incoming.on_publish(self.arguments, content, self.size, self.traits)
        return last + 1
