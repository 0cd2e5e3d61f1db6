"""Messages in bulk: batches that a shovel saves up, and windows of time in which a shovel runs.

[Bernstein and Newcomer, Principles of Transaction Processing 4.5: save up messages and send them in bulk]
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from broker.core.cron import NO_DATE, Windows
from broker.core.schedule import Schedule
from broker.forwarding.attempt import ForwardingAttempt
from broker.forwarding.ports import Timer

BYTES_MAX: Final = 64 << 20  # with messages of so many bytes a batch is sent, however few they are
SENT_MAX: Final = 256  # messages sent in a turn
LOOK_MS: Final = 60_000  # the longest time until the calendar, which may be set, is read again

Saved = tuple[int, bytes, bytes, bool, int]
"""The arguments of `EndOwner.on_message`."""


@final
class BatchRule:
    """The batches of a shovel.

    `size`: the number of messages that are sent together, 0: no number. `interval`: the longest time in
    milliseconds that a message waits for its batch, 0: no limit.
    """

    def __init__(self, size: int, interval: int) -> None:
        self.size = size
        self.interval = interval


class BatchOwner(ForwardingAttempt):
    """The attempt of a shovel, as its batch sees it."""

    def forward(self, number: i64, address: bytes, content: bytes, has_pieces: bool, traits: i64) -> None:
        """Send a message now."""
        raise NotImplementedError

    def may_send(self) -> bool:
        """Whether saved messages may be sent now."""
        raise NotImplementedError


@final
class Batch:
    """The messages of an attempt that wait until there are enough, or until they have waited long enough.

    The messages are unacknowledged at the source, so a failure returns them. `goes`: the batch is being sent,
    and messages that arrive meanwhile go with the batch.
    """

    def __init__(self, owner: BatchOwner, schedule: Schedule, rule: BatchRule) -> None:
        self.goes = False
        self._owner = owner
        self._schedule = schedule
        self._rule = rule
        self._saved: deque[Saved] = deque()
        self._bytes: i64 = 0
        self._timer = Timer(owner, self._on_timer)

    def __len__(self) -> int:
        return len(self._saved)

    def add(self, number: i64, address: bytes, content: bytes, traits: i64) -> None:
        """Save a message, and send the batch if the batch is complete."""
        self._saved.append((number, address, content, False, traits))
        self._bytes += len(content)
        size = self._rule.size
        if self.goes or (size and len(self._saved) >= size) or self._bytes >= BYTES_MAX:
            self.send()
        elif self._rule.interval and self._timer.due == 0:
            self._schedule.set(self._timer, self._schedule.after(self._rule.interval))

    def send(self) -> None:
        """Send the saved messages as far as the attempt may send, the rest in later turns."""
        self.goes = True
        self._schedule.cancel(self._timer)
        for _ in range(SENT_MAX):
            if not self._saved or not self._owner.may_send():
                break
            self._send_first()
        if not self._saved:
            self.goes = False
        elif self._owner.may_send():
            self._schedule.set(self._timer, self._schedule.now())

    def send_all(self) -> None:
        """Send the saved messages in this turn: the next message cannot be saved."""
        while self._saved:
            self._send_first()
        self.goes = False
        self._schedule.cancel(self._timer)

    def end(self) -> None:
        """Forget the saved messages: the source returns them."""
        self._saved.clear()
        self._schedule.cancel(self._timer)

    def _send_first(self) -> None:
        number, address, content, has_pieces, traits = self._saved.popleft()
        self._bytes -= len(content)
        self._owner.forward(number, address, content, has_pieces, traits)

    def _on_timer(self) -> None:
        self.send()
        self._owner.end_turn()


@final
class Gate:
    """The windows of a shovel, by the calendar of the schedule."""

    def __init__(self, schedule: Schedule, windows: Windows) -> None:
        self._schedule = schedule
        self._windows = windows

    def is_open(self) -> bool:
        """Whether a window is open now."""
        return self._windows.end_of(int(self._schedule.date())) != NO_DATE

    def opens(self) -> int:
        """Return the date of the next beginning of a window, in milliseconds since 1970; NO_DATE: never."""
        return self._windows.next_begin(int(self._schedule.date()))

    def next_look(self) -> int:
        """Return the time on the clock at which `is_open` may change, or the calendar is to be read again."""
        date = int(self._schedule.date())
        change = self._windows.end_of(date) or self._windows.next_begin(date)
        wait = LOOK_MS if change == NO_DATE else min(change - date, LOOK_MS)
        return int(self._schedule.now()) + max(wait, 1)
