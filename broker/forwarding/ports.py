"""The ports between the attempt of a shovel and its ends, and the messages that are on their way.

An end calls its owner, the attempt. The attempt calls a source and a destination.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, final

from mypy_extensions import i64, mypyc_attr

from broker.core.schedule import TimedTask

Run = tuple[int, int]
"""The first and the last of consecutive messages."""


@final
class Window:
    """The messages of an attempt that are not confirmed. `sent`: the number of the last message."""

    def __init__(self) -> None:
        self.sent: i64 = 0
        self._upto: i64 = 0  # all up to this number are confirmed
        self._beyond: set[int] = set()  # confirmed alone, beyond that number

    def count(self) -> i64:
        """Return the number of messages that are not confirmed."""
        return self.sent - self._upto - len(self._beyond)

    def has_all(self, number: i64) -> bool:
        """Whether all messages up to this one are confirmed."""
        return number <= self._upto

    def confirm(self, number: i64, multiple: bool) -> list[Run]:
        """Note a confirm of a message, or of all up to this one; return the messages that it answers."""
        return self.confirm_between(1 if multiple else number, number)

    def confirm_between(self, first: i64, last: i64) -> list[Run]:
        """Note a confirm of consecutive messages; return the messages that it answers, in runs."""
        beyond = self._beyond
        first = max(first, self._upto + 1)
        if first == last:
            if first in beyond:
                return []
            beyond.add(first)
            self._close_gap()
            return [(first, first)]
        runs: list[Run] = []
        begin = first
        if beyond:
            for each in sorted(each for each in beyond if first <= each <= last):
                if begin < each:
                    runs.append((begin, each - 1))
                begin = each + 1
        if begin <= last:
            runs.append((begin, last))
        if first > self._upto + 1:
            beyond.update(range(first, last + 1))
        elif first <= last:
            self._upto = last
            self._beyond = {each for each in beyond if each > last}
        self._close_gap()
        return runs

    def _close_gap(self) -> None:
        beyond = self._beyond
        while beyond and self._upto + 1 in beyond:
            self._upto += 1
            beyond.remove(self._upto)


@mypyc_attr(allow_interpreted_subclasses=True)
class EndOwner:
    """The attempt of a shovel, as its ends see it."""

    def on_source_ready(self, ready: i64) -> None:
        """Note that the source is about to deliver; `ready` messages are in its queue."""
        raise NotImplementedError

    def on_destination_ready(self) -> None:
        """Note that messages can be published."""
        raise NotImplementedError

    def on_message(self, number: i64, address: bytes, content: bytes, has_pieces: bool, traits: i64) -> None:
        """Take a message; `number` counts the deliveries of the source from 1, without gaps.

        `has_pieces`: the body is large and follows with `on_piece`, and `content` is the header alone.
        If both ends are of AMQP 1.0, `content` is sections, and `traits` the message-format.
        """
        raise NotImplementedError

    def on_piece(self, frames: bytes, is_last: bool) -> None:
        """Take body frames of the large body of the last message."""
        raise NotImplementedError

    def on_confirm(self, number: i64, multiple: bool, accepted: bool) -> None:
        """Note that the destination has taken or refused a message, or all messages up to this one."""
        raise NotImplementedError

    def on_outcomes(self, first: i64, last: i64, accepted: bool) -> None:
        """Note that the destination has taken or refused consecutive messages, also repeatedly."""
        raise NotImplementedError

    def on_blocked(self, reason: str) -> None:
        """Note why the destination takes nothing for now; "": no reason is left, and it takes messages."""
        raise NotImplementedError

    def on_failed(self, reason: str) -> None:
        """Note that an end has failed, so that the attempt is over."""
        raise NotImplementedError

    def end_turn(self) -> None:
        """Write the output of both ends."""
        raise NotImplementedError

    def on_broken(self) -> None:
        """Log the exception that is being handled, an error of this broker, and end the attempt over it."""
        raise NotImplementedError


def guard(owner: EndOwner, call: Callable[[], None]) -> None:
    """Make a call of an attempt. An exception ends the attempt, and does not reach the event loop."""
    try:
        call()
    except Exception:
        owner.on_broken()


@final
class Timer(TimedTask):
    """A call of an attempt at a time."""

    def __init__(self, owner: EndOwner, call: Callable[[], None]) -> None:
        super().__init__()
        self._owner = owner
        self._call = call

    def do_due_work(self) -> None:
        """Make the call."""
        guard(self._owner, self._call)


class MessageSource(Protocol):
    """The source of an attempt: a connection, or a queue that is staged."""

    def open(self) -> None:
        """Begin to deliver; `EndOwner.on_source_ready` follows."""

    def close(self) -> None:
        """End. Messages that are not settled stay in the source."""

    def settle(self, number: i64, multiple: bool) -> None:
        """Note that the destination has a message, or all messages up to this one."""

    def give_up(self) -> None:
        """Return the messages that stay staged for the reader: the source will not be opened again."""

    def return_refused(self, runs: list[Run]) -> None:
        """Have refused messages delivered again; all messages that were delivered are answered."""

    def hold(self) -> None:
        """Deliver nothing until `release`."""

    def release(self) -> None:
        """Deliver again."""

    def flush(self) -> None:
        """Write the output of this turn."""


class MessageDestination(Protocol):
    """The destination of an attempt, of either protocol."""

    def open(self) -> None:
        """Begin to connect; `EndOwner.on_destination_ready` follows."""

    def close(self) -> None:
        """End."""

    def send(self, address: bytes, content: bytes, has_pieces: bool, traits: i64) -> i64:
        """Publish a message, as for `EndOwner.on_message`; return its number.

        Raises ValueError for a message that cannot be published.
        """

    def send_piece(self, frames: bytes) -> None:
        """Send body frames of the message that was published last."""

    def flush(self) -> None:
        """Write the output of this turn."""
