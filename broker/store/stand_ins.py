"""Dead letters in the log: a message leaves one queue and arrives in others, both or neither.

Both are in one batch, the removal last. If that batch does not reach the disk, or the log accepts nothing as
the disk is full, then the letter stands in for the message, which the log goes on holding: after a crash it
is where it was. When all queues have let go of the letter, the message is settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from mypy_extensions import i64

from broker.core.message import Message, copy_of
from broker.core.ports import LoggedQueue
from broker.store.append import HeldMessages
from broker.store.batch import Burial

STANDS_IN: Final[i64] = -1  # the sequence of a letter that the log knows only by what it stands in for


@final
class Origin:
    """A message that the log goes on holding for `queue`, and how many letters stand in for it.

    `leaving`: transactions settle all of these, and the log has been told what that means for the message.
    """

    def __init__(self, message: Message, queue: LoggedQueue) -> None:
        self.message = message
        self.queue = queue
        self.letters: i64 = 0
        self.leaving = False


@final
class StandIn:
    """What a letter stands in for: until `place` has let go of it, None: until all its queues have."""

    def __init__(self, origin: Origin, place: LoggedQueue | None) -> None:
        self.origin = origin
        self.place = place

    def ends(self, queue: LoggedQueue, left: i64) -> bool:
        """Whether it ends when `queue` lets go of the letter and so many hold it still."""
        return left <= 0 if self.place is None else self.place is queue


@final
class StandIns:
    """The letters that stand in for messages. A letter of such a letter stands in for the same message.

    So does what has replaced a message in a queue, for as long as it is in that queue; and if it has in
    several, then for each of those messages.
    """

    def __init__(self, log: HeldMessages) -> None:
        self.log = log
        self.letters: dict[Message, list[StandIn]] = {}
        # what transactions have appended and not done yet: which queues let go of a letter, and what is to
        # stand in for a message no longer
        self._leaving: dict[Message, set[LoggedQueue]] = {}
        self._ending: dict[Origin, set[StandIn]] = {}

    def append(
        self, letter: Message, queues: Sequence[LoggedQueue], message: Message, queue: LoggedQueue
    ) -> None:
        """Append that `queues` hold `letter`, and `queue` no longer holds `message`."""
        log = self.log
        stands_in = message.sequence == STANDS_IN
        origins = self._origins(message, queue)
        if log.failure or (stands_in and origins):
            self._add(letter, len(queues), None, origins)
            if stands_in:
                self.settle(message, queue)
            return
        log.append_message(letter, queues)
        if not stands_in:
            self._append_removal(letter, message, queue, False)

    def append_burial(self, message: Message, queue: LoggedQueue) -> None:
        """Append that `queue` no longer holds `message`, whose letter is a row of the batch being filled.

        If that fails, a letter that nobody holds stands in for it.
        """
        nobody = copy_of(message, b"")
        nobody.references = 1
        self._append_removal(nobody, message, queue, False)

    def append_replacement(self, message: Message, replaced: Message, queue: LoggedQueue) -> None:
        """Append that `queue` has `message` in the place of `replaced`, which the log has, or a stand-in."""
        origins = self._origins(replaced, queue)
        if message.sequence >= self._first_sequence():
            if origins:
                self._append_removal(message, replaced, queue, True)
        elif message.sequence <= 0 and message.persistent:  # its batch has failed
            stands_in = replaced.sequence == STANDS_IN
            self._add(message, 1, queue, origins)
            if stands_in:
                self.settle(replaced, queue)
        else:  # what replaces it is durable, or is not to be
            self.log.append_settle(replaced, queue)

    def _first_sequence(self) -> i64:
        """Of what is not on the disk: if the batch in flight fails, so does the one being filled."""
        log = self.log
        sealed = log.sealed
        return log.filling.first_sequence if sealed is None or not log.in_flight else sealed.first_sequence

    def _append_removal(self, letter: Message, message: Message, queue: LoggedQueue, replaced: bool) -> None:
        """Append that `queue` no longer holds `message`: as the last word of the batch being filled.

        `letter` is in that batch, or in the one in flight.
        """
        log = self.log
        log.append_transacted_settle(message, queue)
        log.filling.burials.append(Burial(letter, message, queue, replaced))

    def settle(self, letter: Message, queue: LoggedQueue) -> None:
        """A queue has let go of a letter that stands in."""
        letter.references -= 1
        leaving = self._leaving.get(letter)
        if leaving is not None:
            leaving.discard(queue)
            if not leaving:
                del self._leaving[letter]
        left: list[StandIn] = []
        for stand_in in self.letters.pop(letter):
            origin = stand_in.origin
            if not stand_in.ends(queue, letter.references):
                left.append(stand_in)
                continue
            origin.letters -= 1
            ending = self._ending.get(origin)
            if ending is not None:
                ending.discard(stand_in)
                if not ending:
                    del self._ending[origin]
            if origin.letters == 0:
                self.log.append_settle(origin.message, origin.queue)
            else:
                self._look(origin)
        if left:
            self.letters[letter] = left
            if leaving and letter.references <= len(leaving):
                for stand_in in left:
                    if stand_in.place is None:
                        self._ends(stand_in)
        else:
            letter.sequence = 0

    def append_transacted_settle(self, letter: Message, queue: LoggedQueue) -> None:
        """Append that a transaction settles a letter: its message goes with the last that stands in for it.

        Others may have been settled by this transaction or by one before it, which are done before this one.
        """
        leaving = self._leaving.setdefault(letter, set())
        leaving.add(queue)
        left: i64 = letter.references - len(leaving)
        for stand_in in self.letters[letter]:
            if stand_in.ends(queue, left):
                self._ends(stand_in)

    def _ends(self, stand_in: StandIn) -> None:
        """Transactions will have it stand in for its message no longer."""
        origin = stand_in.origin
        self._ending.setdefault(origin, set()).add(stand_in)
        self._look(origin)

    def _look(self, origin: Origin) -> None:
        """Settle a message with the last of these transactions, once nothing else stands in for it."""
        if not origin.leaving and len(self._ending.get(origin, ())) == origin.letters:
            origin.leaving = True
            self.log.append_transacted_settle(origin.message, origin.queue)

    def take_over(self, burials: list[Burial]) -> None:
        """The batches with these have failed, and what they published is disowned.

        A message that was published in them was confirmed to nobody, and nothing stands in for it.
        """
        for origin in self._ending:
            origin.leaving = False
        self._leaving.clear()
        self._ending.clear()
        for burial in burials:
            message = burial.message
            if message.sequence == 0:
                continue
            stands_in = message.sequence == STANDS_IN
            waits = burial.references > 0 and burial.letter.sequence <= 0  # not on the disk, and not settled
            if waits:
                place = burial.queue if burial.replaced else None
                self._add(burial.letter, burial.references, place, self._origins(message, burial.queue))
            if stands_in:
                self.settle(message, burial.queue)
            elif not waits:
                self.log.append_settle(message, burial.queue)

    def _origins(self, message: Message, queue: LoggedQueue) -> list[Origin]:
        """What the log holds of a message in a queue: the message itself, or what it stands in for."""
        if message.sequence > 0:
            return [Origin(message, queue)]
        return [
            stand_in.origin
            for stand_in in self.letters.get(message, [])
            if stand_in.place is None or stand_in.place is queue
        ]

    def _add(
        self, letter: Message, references: i64, place: LoggedQueue | None, origins: list[Origin]
    ) -> None:
        if not origins:
            return
        letter.sequence = STANDS_IN
        if place is None:
            letter.references = references
        for origin in origins:
            origin.letters += 1
        stand_ins = [StandIn(origin, place) for origin in origins]
        self.letters[letter] = self.letters.get(letter, []) + stand_ins
