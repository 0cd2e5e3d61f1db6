"""Whether every message arrived exactly once and in order, judged by sequence numbers.

A *lane* is what one publisher sends to one queue: numbered from 0 without gaps. The number travels in the
body as one unsigned 64-bit integer, lane << LANE_SHIFT | sequence.
"""

from typing import Final

LANE_SHIFT: Final = 48
SEQUENCE_MASK: Final = (1 << LANE_SHIFT) - 1


class Checker:
    """Counts losses, duplicates and messages out of order over all lanes.

    `expected` maps a lane to the number that must come next, while everything before it has come and in order
    and only one consumer reads the lane; a receiver that meets exactly this number may advance it itself.
    Every other number goes to `see`.
    """

    def __init__(self, lanes: int, shared: bool = False) -> None:
        """Watch `lanes` lanes; `shared` when several consumers read one queue and each sees gaps."""
        self.expected: dict[int, int] = {} if shared else {lane: lane << LANE_SHIFT for lane in range(lanes)}
        self.duplicates = 0
        self.reordered = 0
        self.foreign = 0  # of no lane
        self._shared = shared
        self._next = [0] * lanes  # everything below has come; stale while `expected` has the lane
        self._ahead: list[set[int]] = [
            set() for _ in range(lanes)
        ]  # came before something that belongs before

    def see(self, number: int, last: dict[int, int]) -> None:
        """Take `number` from a body; `last` is the receiver's own: its highest sequence per lane."""
        lane, sequence = number >> LANE_SHIFT, number & SEQUENCE_MASK
        if lane >= len(self._next):
            self.foreign += 1
            return
        expected = self.expected.pop(lane, None)
        if expected is not None:
            self._next[lane] = expected & SEQUENCE_MASK
            last[lane] = self._next[lane] - 1
        ahead = self._ahead[lane]
        if sequence < self._next[lane] or sequence in ahead:
            self.duplicates += 1
        else:
            if sequence < last.get(lane, -1):
                self.reordered += 1
            else:
                last[lane] = sequence
            ahead.add(sequence)
        self._advance(lane)

    def received(self, lane: int) -> int:
        """How many different messages of `lane` have come."""
        expected = self.expected.get(lane)
        if expected is not None:
            return expected & SEQUENCE_MASK
        return self._next[lane] + len(self._ahead[lane])

    def lost(self, published: list[int]) -> int:
        """How many of the messages published on each lane have not come."""
        return sum(count - self.received(lane) for lane, count in enumerate(published))

    def _advance(self, lane: int) -> None:
        ahead, sequence = self._ahead[lane], self._next[lane]
        while sequence in ahead:
            ahead.remove(sequence)
            sequence += 1
        self._next[lane] = sequence
        if not ahead and not self._shared:
            self.expected[lane] = lane << LANE_SHIFT | sequence
