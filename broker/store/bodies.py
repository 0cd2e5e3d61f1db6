"""Large bodies in the log: pieces that were appended as they came, and the messages that name them."""

from __future__ import annotations

from typing import final

from broker.core.message import Body, Message


@final
class Bodies:
    """What a replay has found of large bodies: pieces, and the records that name them, in whatever order.

    A message and its dead letter share a body, so they name the same pieces.
    """

    def __init__(self) -> None:
        self.pieces: dict[int, Message] = {}  # by sequence
        self.named: dict[int, list[int]] = {}  # by the sequence of the message that names them
        self._found: dict[int, Body] = {}  # by the sequence of their first piece

    def missing(self, sequence: int) -> int:
        """A piece that the message with this sequence names and the log has not; 0 if there is none."""
        numbers = self.named.get(sequence)
        if numbers is not None and numbers[0] not in self._found:
            for number in numbers:
                if number not in self.pieces:
                    return number
        return 0

    def join(self, message: Message, orphans: list[Message]) -> None:
        """Give a message its body, if it has a large one of which no piece is missing."""
        numbers = self.named.get(message.sequence)
        if numbers is None:
            return
        body = self._found.get(numbers[0])
        if body is None:
            body = Body(orphans)
            body.pieces = [self.pieces.pop(number) for number in numbers]
            self._found[numbers[0]] = body
        message.body = body

    def unnamed(self) -> list[Message]:
        """The pieces that belong to no living message, once all of those have been joined."""
        return list(self.pieces.values())
