"""Dead letters in the log: a message leaves one queue and arrives in others, both or neither.

Both are in one batch, the removal last. If that batch does not reach the disk, or the log accepts nothing as
the disk is full, then the letter stands in for the message, which the log goes on holding: after a crash it
is where it was. When all queues have let go of the letter, the message is settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.message import Message

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.store.log import Log

STANDS_IN: Final[i64] = -1  # the sequence of a letter that the log knows only by what it stands in for


@final
class Burial:
    """In a batch that is not durable yet: `queue` no longer holds `message`, and others hold `letter`."""

    def __init__(self, letter: Message, message: Message, queue: Queue) -> None:
        self.letter = letter
        self.message = message
        self.queue = queue
        self.references: i64 = 0  # of the letter, when the batch fails


@final
class Origin:
    """A message that the log goes on holding for `queue`, and how many letters stand in for it."""

    def __init__(self, message: Message, queue: Queue) -> None:
        self.message = message
        self.queue = queue
        self.letters: i64 = 0


@final
class StandIns:
    """The letters that stand in for messages. A letter of such a letter stands in for the same message.

    A message that has replaced others, each in a queue of its own, stands in for all of them.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.origins: dict[Message, list[Origin]] = {}

    def append(self, letter: Message, queues: list[Queue], message: Message, queue: Queue) -> None:
        """Append that `queues` hold `letter`, and `queue` no longer holds `message`."""
        log = self.log
        origins = self.origins.get(message) if message.sequence == STANDS_IN else None
        if origins is not None:
            self._add(letter, len(queues), origins)
            self.settle(message)
        elif log.failure:
            self._add(letter, len(queues), [Origin(message, queue)])
        else:
            log.append_message(letter, queues)
            self._append_removal(letter, message, queue)

    def append_replacement(self, message: Message, replaced: Message, queue: Queue) -> None:
        """Append that `queue` has `message` in the place of `replaced`."""
        if replaced.sequence > 0 and message.sequence >= self._first_sequence():
            self._append_removal(message, replaced, queue)
        elif replaced.sequence > 0 and message.sequence <= 0 and message.persistent:  # its batch has failed
            self._add(message, max(message.references, 1), [Origin(replaced, queue)])
        else:  # what replaces it is durable, or is not to be
            self.log.append_settle(replaced, queue)

    def _first_sequence(self) -> i64:
        """Of what is not on the disk: if the batch in flight fails, so does the one being filled."""
        log = self.log
        sealed = log.sealed
        return log.filling.first_sequence if sealed is None or not log.in_flight else sealed.first_sequence

    def _append_removal(self, letter: Message, message: Message, queue: Queue) -> None:
        """Append that `queue` no longer holds `message`: as the last word of the batch being filled.

        `letter` is in that batch, or in the one in flight.
        """
        log = self.log
        log.append_transacted_settle(message, queue)
        log.filling.burials.append(Burial(letter, message, queue))

    def settle(self, letter: Message) -> None:
        """A queue has let go of a letter that stands in."""
        letter.references -= 1
        if letter.references > 0:
            return
        letter.sequence = 0
        for origin in self.origins.pop(letter):
            origin.letters -= 1
            if origin.letters == 0:
                self.log.append_settle(origin.message, origin.queue)

    def append_transacted_settle(self, letter: Message) -> None:
        """Append that a transaction settles a letter: its message goes with it if nobody else stands in."""
        for origin in self.origins[letter]:
            if letter.references == 1 and origin.letters == 1:
                self.log.append_transacted_settle(origin.message, origin.queue)

    def take_over(self, burials: list[Burial]) -> None:
        """The batches with these have failed, and what they published is disowned.

        A message that was published in them was confirmed to nobody, and nothing stands in for it.
        """
        for burial in burials:
            message = burial.message
            origins = self.origins.get(message)
            stands_in = origins is not None
            if origins is None:
                if message.sequence == 0:
                    continue
                origins = [Origin(message, burial.queue)]
            waits = burial.references > 0 and burial.letter.sequence <= 0  # not on the disk, and not settled
            if waits:
                self._add(burial.letter, burial.references, origins)
            if stands_in:
                self.settle(message)
            elif not waits:
                self.log.append_settle(message, burial.queue)

    def _add(self, letter: Message, references: i64, origins: list[Origin]) -> None:
        letter.sequence = STANDS_IN
        letter.references = references
        for origin in origins:
            origin.letters += 1
        self.origins[letter] = self.origins.get(letter, []) + origins
