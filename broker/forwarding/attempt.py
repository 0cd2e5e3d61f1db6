"""An attempt to forward: the messages on their way, refusals of the destination, and holds of the source.

Shovels, federation links and the links of remote queues forward by attempts. An attempt lasts until its first
end fails.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from broker.core.schedule import Schedule
from broker.forwarding.ports import EndOwner, MessageSource, Run, Timer, Window

REFUSED_MS: Final = 1000  # the pause after a refused message
INTERNAL_ERROR: Final = "internal error, see the broker's log"

# Reasons for taking no messages. Bits, so that further reasons are further bits.
HOLD_BLOCKED: Final = 1  # the destination takes none
HOLD_REFUSED: Final = 2  # the destination has refused some


@mypyc_attr(allow_interpreted_subclasses=True)
class ForwardingAttempt(EndOwner):
    """An attempt, whose subclass opens the ends and sends the messages.

    `window`: the messages that are sent and not confirmed. `is_over`: an end has failed, or the attempt was
    ended. `blocked`: why the destination takes nothing, "": it takes messages. The source is held while there
    is a reason: `hold` and `release`. Refused messages return to the source after a pause, in which no others
    are taken.
    """

    _source: MessageSource

    def __init__(self, schedule: Schedule) -> None:
        self.window = Window()
        self.is_over = False
        self.blocked = ""
        self._schedule = schedule
        self._refused: list[Run] = []
        self._retry = Timer(self, self.return_refused)
        self._holds = 0  # the reasons for which the source is held
        self._is_held = False
        self._is_incomplete = False  # a part of the body of the last message has not been sent

    # -- outcomes

    def on_confirm(self, number: i64, multiple: bool, accepted: bool) -> None:
        """Take the answer of the destination to a message, or to all messages up to this one."""
        self.on_outcomes(1 if multiple else number, number, accepted)

    def on_outcomes(self, first: i64, last: i64, accepted: bool) -> None:
        """Take the answers of the destination to consecutive messages."""
        if self.is_over:
            return
        if last < 1 or last > self.window.sent:
            self.on_failed(f"the destination confirms message {last}, {self.window.sent} were sent")
            return
        runs = self.window.confirm_between(first, last)
        count: i64 = 0
        for first, last in runs:
            count += last - first + 1
        if not accepted:
            self.take_refusals(runs, count)
        elif count > 0:
            self.take_confirms(runs, last, count)

    def take_confirms(self, runs: list[Run], last: i64, count: i64) -> None:
        """Settle `count` confirmed messages at the source, up to the message `last`."""
        if not self._refused and self.window.has_all(last):
            self._source.settle(last, True)
        else:  # a multiple acknowledgement would include refused messages
            for first, last in runs:
                for each in range(first, last + 1):
                    self._source.settle(each, False)

    def take_refusals(self, runs: list[Run], count: i64) -> None:
        """Take no more messages, and return the `count` refused messages after a pause."""
        self._refused += runs
        self.hold(HOLD_REFUSED)
        if self._retry.due == 0:
            self.retry_later()

    def retry_later(self) -> None:
        """Return the refused messages after the pause."""
        self._schedule.set(self._retry, self._schedule.after(REFUSED_MS))

    def return_refused(self) -> None:
        """Return the refused messages to the source, and take messages again, once all have an answer."""
        if self.window.count() > 0:
            self.retry_later()
            return
        refused, self._refused = self._refused, []
        self._source.return_refused(refused)
        self.release(HOLD_REFUSED)
        self.end_turn()

    # -- holds

    def on_blocked(self, reason: str) -> None:
        """Take no messages while the destination takes none."""
        self.blocked = reason
        if reason:
            self.hold(HOLD_BLOCKED)
        else:
            self.release(HOLD_BLOCKED)

    def hold(self, reason: int) -> None:
        """Take no messages until each reason has been released."""
        self._holds |= reason
        self.apply_holds()

    def release(self, reason: int) -> None:
        """Release a reason for taking no messages."""
        self._holds &= ~reason
        self.apply_holds()

    def apply_holds(self) -> None:
        """Hold or release the source.

        Refused messages wait for the answers to all messages, so the last one must be completed meanwhile.
        """
        reasons = self._holds & ~HOLD_REFUSED if self._is_incomplete else self._holds
        if bool(reasons) == self._is_held:
            return
        self._is_held = not self._is_held
        if self._is_held:
            self._source.hold()
        else:
            self._source.release()
