"""Dead letters in the log: a message leaves one queue and arrives in others, both or neither.

Both records are in one batch, the removal last. If that batch does not reach the disk, or the log accepts no
appends because the disk is full, the letter becomes a substitute for the message. The log goes on holding the
message: after a crash it is at its place. When all queues have released the letter, the message is settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from mypy_extensions import i64

from broker.core.message import Message, copy_of
from broker.core.ports import LoggedQueue
from broker.store.batch import LetteredRemoval
from broker.store.state import LogState

SUBSTITUTE: Final[i64] = -1  # the sequence of a letter that the log knows only by its origin


@final
class Origin:
    """A message that the log goes on holding for `queue`, and the count of letters that replace it in memory.

    `leaving`: transactions settle all of these letters, and the settle of the message has been appended for
    them.
    """

    def __init__(self, message: Message, queue: LoggedQueue) -> None:
        self.message = message
        self.queue = queue
        self.letters: i64 = 0
        self.leaving = False


@final
class Substitution:
    """The link from a letter to its origin.

    The link ends when `only_queue`, or if None all queues, has released the letter.
    """

    def __init__(self, origin: Origin, only_queue: LoggedQueue | None) -> None:
        self.origin = origin
        self.only_queue = only_queue

    def ends(self, queue: LoggedQueue, left: i64) -> bool:
        """Whether the link ends when `queue` releases the letter and `left` queues still hold the letter."""
        return left <= 0 if self.only_queue is None else self.only_queue is queue


@final
class Substitutes:
    """The letters that are substitutes for messages.

    A letter of a substitute is a substitute for the same message.

    A message that has replaced another one in a queue is a substitute too, while it is in that queue.
    A message that has replaced messages in several queues is a substitute for each of them.
    """

    def __init__(self, log: LogState) -> None:
        self.log = log
        self.letters: dict[Message, list[Substitution]] = {}
        # transactions that are not durable yet:
        self._leaving: dict[Message, set[LoggedQueue]] = {}  # the queues that will release a letter
        self._ending: dict[Origin, set[Substitution]] = {}  # the links of an origin that will end

    def append(
        self, letter: Message, queues: Sequence[LoggedQueue], message: Message, queue: LoggedQueue
    ) -> None:
        """Append that `queues` hold `letter`, and `queue` no longer holds `message`."""
        log = self.log
        is_substitute = message.sequence == SUBSTITUTE
        origins = self._origins(message, queue)
        if log.failure or (is_substitute and origins):
            self._add(letter, len(queues), None, origins)
            if is_substitute:
                self.settle(message, queue)
            return
        log.append_message(letter, queues)
        if not is_substitute:
            self._append_removal(letter, message, queue, False)

    def append_burial(self, message: Message, queue: LoggedQueue) -> None:
        """Append that `queue` no longer holds `message`, whose letter is a row of the batch being filled.

        If that batch fails, a letter that no queue holds becomes the message's substitute.
        """
        nobody = copy_of(message, b"")
        nobody.references = 1
        self._append_removal(nobody, message, queue, False)

    def append_replacement(self, message: Message, replaced: Message, queue: LoggedQueue) -> None:
        """Append that `queue` has `message` in the place of `replaced`, which is logged or a substitute."""
        origins = self._origins(replaced, queue)
        if message.sequence >= self._first_sequence():
            if origins:
                self._append_removal(message, replaced, queue, True)
        elif message.sequence <= 0 and message.persistent:  # the batch has failed
            is_substitute = replaced.sequence == SUBSTITUTE
            self._add(message, 1, queue, origins)
            if is_substitute:
                self.settle(replaced, queue)
        else:  # the new message is durable, or need not be
            self.log.append_settle(replaced, queue)

    def _first_sequence(self) -> i64:
        """Return the first sequence that is not on disk.

        If the batch in flight fails, the batch being filled fails too.
        """
        log = self.log
        sealed = log.sealed
        return log.filling.first_sequence if sealed is None or not log.in_flight else sealed.first_sequence

    def _append_removal(self, letter: Message, message: Message, queue: LoggedQueue, replaced: bool) -> None:
        """Append that `queue` no longer holds `message`: as the last record of the batch being filled.

        `letter` is in that batch, or in the one in flight.
        """
        log = self.log
        log.append_transacted_settle(message, queue)
        log.filling.burials.append(LetteredRemoval(letter, message, queue, replaced))

    def settle(self, letter: Message, queue: LoggedQueue) -> None:
        """Note that a queue has released a substitute."""
        letter.references -= 1
        leaving = self._leaving.get(letter)
        if leaving is not None:
            leaving.discard(queue)
            if not leaving:
                del self._leaving[letter]
        left: list[Substitution] = []
        for substitution in self.letters.pop(letter):
            origin = substitution.origin
            if not substitution.ends(queue, letter.references):
                left.append(substitution)
                continue
            origin.letters -= 1
            ending = self._ending.get(origin)
            if ending is not None:
                ending.discard(substitution)
                if not ending:
                    del self._ending[origin]
            if origin.letters == 0:
                self.log.append_settle(origin.message, origin.queue)
            else:
                self._settle_with_last_letter(origin)
        if left:
            self.letters[letter] = left
            if leaving and letter.references <= len(leaving):
                for substitution in left:
                    if substitution.only_queue is None:
                        self._note_ending(substitution)
        else:
            letter.sequence = 0

    def append_transacted_settle(self, letter: Message, queue: LoggedQueue) -> None:
        """Append that a transaction settles a letter. The last substitute settles the letter's message.

        Other substitutes may have been settled by this transaction or by an earlier one, which is done before
        this one.
        """
        leaving = self._leaving.setdefault(letter, set())
        leaving.add(queue)
        left: i64 = letter.references - len(leaving)
        for substitution in self.letters[letter]:
            if substitution.ends(queue, left):
                self._note_ending(substitution)

    def _note_ending(self, substitution: Substitution) -> None:
        """Note that transactions will end this link."""
        origin = substitution.origin
        self._ending.setdefault(origin, set()).add(substitution)
        self._settle_with_last_letter(origin)

    def _settle_with_last_letter(self, origin: Origin) -> None:
        """Settle a message with the last of these transactions, if it has no other substitute."""
        if not origin.leaving and len(self._ending.get(origin, ())) == origin.letters:
            origin.leaving = True
            self.log.append_transacted_settle(origin.message, origin.queue)

    def take_over(self, burials: list[LetteredRemoval]) -> None:
        """Turn the burials of failed batches into substitutes; the publishes of these batches are disowned.

        A message that was published in these batches was never confirmed, and needs no substitute.
        """
        for origin in self._ending:
            origin.leaving = False
        self._leaving.clear()
        self._ending.clear()
        for burial in burials:
            message = burial.message
            if message.sequence == 0:
                continue
            is_substitute = message.sequence == SUBSTITUTE
            waits = burial.references > 0 and burial.letter.sequence <= 0  # neither on disk nor settled
            if waits:
                only_queue = burial.queue if burial.replaced else None
                self._add(burial.letter, burial.references, only_queue, self._origins(message, burial.queue))
            if is_substitute:
                self.settle(message, burial.queue)
            elif not waits:
                self.log.append_settle(message, burial.queue)

    def _origins(self, message: Message, queue: LoggedQueue) -> list[Origin]:
        """Return the messages that the log holds for a message in a queue: itself, or its origins."""
        if message.sequence > 0:
            return [Origin(message, queue)]
        return [
            substitution.origin
            for substitution in self.letters.get(message, [])
            if substitution.only_queue is None or substitution.only_queue is queue
        ]

    def _add(
        self, letter: Message, references: i64, only_queue: LoggedQueue | None, origins: list[Origin]
    ) -> None:
        if not origins:
            return
        letter.sequence = SUBSTITUTE
        if only_queue is None:
            letter.references = references
        for origin in origins:
            origin.letters += 1
        substitutes = [Substitution(origin, only_queue) for origin in origins]
        self.letters[letter] = self.letters.get(letter, []) + substitutes
