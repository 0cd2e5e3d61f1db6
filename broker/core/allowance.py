"""What one peer may have done in one turn of the broker, before all others have theirs.

A piece of what a client sends may carry thousands of requests. Publishing and settling ordinary messages is
cheap, and is bounded by the size of the piece. All that costs more says so here, and when it comes to more
than a turn may cost, whoever works for the peer goes on with the next request in another turn.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

# all in microseconds, as compiled modules on an ordinary machine take them
TURN: Final[i64] = 2000
METHOD: Final[i64] = 10  # most of it to decode a small one
PAYLOAD: Final[i64] = 16  # bytes of it for each of which it is a microsecond more
PROPERTIES: Final[i64] = 10  # of a message, to decode them and route by them
REQUEST: Final[i64] = 50  # over AMQP 1.0, to the node of management: to decode and to answer it
DELIVERY: Final[i64] = 5  # of a message to a consumer, before the request that waits for it
RECEIPT: Final[i64] = 10
LETTER: Final[i64] = 20
MODIFICATION: Final[i64] = 5  # of a message to which something is added
BINDING: Final[i64] = 1  # to let go of one
ENTRIES: Final[i64] = 4  # that can be let go of in a microsecond
QUEUES: Final[i64] = 4  # that a message can be put into in one
FAN_OUT: Final[i64] = 16  # queues of one message that are not worth counting


@mypyc_attr(allow_interpreted_subclasses=True)
class Worker:
    """Does in turns what a peer asks for."""

    def give_way(self) -> None:
        """Begin nothing more in this turn."""
        raise NotImplementedError


@final
class Allowance:
    """The one for the turn that is under way. Costs count while a worker has begun one, else for nothing."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._left: i64 = 0

    def begin(self, worker: Worker) -> Worker | None:
        """A turn of `worker` begins; returns whose turn it is within, for `end`."""
        before = self._worker
        self._worker = worker
        self._left = TURN
        return before

    def end(self, before: Worker | None) -> None:
        """It is over."""
        self._worker = before

    def use(self, cost: i64) -> None:
        """Something is about to be done, or has been done, that takes so many microseconds."""
        self._left -= cost
        worker = self._worker
        if self._left < 0 and worker is not None:
            self._worker = None
            worker.give_way()
