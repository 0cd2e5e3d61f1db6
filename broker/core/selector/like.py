"""The patterns of LIKE: `%` is any number of characters, `_` is one. [JMS 1.1, 3.8.1.1]"""

from __future__ import annotations

from typing import final


@final
class Piece:
    """The part of a pattern between two `%`: the characters of `text`, any character where `wild` is set.

    `offsets`: by character, the positions in the piece of the characters that are not wild.
    """

    def __init__(self) -> None:
        self.text = ""
        self.wild: list[bool] = []
        self.offsets: dict[str, list[int]] = {}
        self.plain = True

    def add(self, character: str, wild: bool) -> None:
        """Add one character."""
        self.text += character
        self.wild.append(wild)
        if wild:
            self.plain = False
        else:
            self.offsets.setdefault(character, []).append(len(self.wild) - 1)

    def begins(self, text: str) -> bool:
        """Whether `text` begins with the piece."""
        return text.startswith(self.text) if self.plain else self._stands(text, 0)

    def ends(self, text: str) -> bool:
        """Whether `text` ends with the piece."""
        return text.endswith(self.text) if self.plain else self._stands(text, len(text) - len(self.text))

    def _stands(self, text: str, start: int) -> bool:
        if start < 0 or start + len(self.text) > len(text):
            return False
        for index, wild in enumerate(self.wild):
            if not wild and self.text[index] != text[start + index]:
                return False
        return True

    def find(self, text: str, start: int, end: int) -> int:
        """Return the first place of the piece between `start` and `end`, -1 if there is none.

        All places are tried at once, as the bits of one number. Otherwise a long piece that nearly matches
        everywhere in a long text would be compared with it character by character.
        """
        if self.plain:
            return text.find(self.text, start, end)
        places = end - start - len(self.text) + 1
        if places <= 0:
            return -1
        left = (1 << places) - 1
        for character, offsets in self.offsets.items():
            positions = _places(text, character, start, end)
            for offset in offsets:
                left &= positions >> offset
            if not left:
                return -1
        return start + (left & -left).bit_length() - 1


def _places(text: str, character: str, start: int, end: int) -> int:
    """Return the places of a character between `start`, which is bit 0, and `end`."""
    marks = bytearray(((end - start) >> 3) + 1)
    place = text.find(character, start, end)
    while place >= 0:
        bit = place - start
        marks[bit >> 3] |= 1 << (bit & 7)
        place = text.find(character, place + 1, end)
    return int.from_bytes(marks, "little")


@final
class Like:
    """A pattern; `escape` is "" or the character that makes the next one literal.

    A match takes some steps for each character of the text. For each character of the pattern it takes one
    step on a number with as many bits as the text has characters.

    Raises:
        ValueError: the pattern ends with the escape character.
    """

    def __init__(self, pattern: str, escape: str) -> None:
        self._pieces = [Piece()]
        escaped = False
        for character in pattern:
            if escaped:
                self._pieces[-1].add(character, False)
                escaped = False
            elif character == escape:
                escaped = True
            elif character == "%":
                self._pieces.append(Piece())
            else:
                self._pieces[-1].add(character, character == "_")
        if escaped:
            raise ValueError("the escape character escapes nothing")

    def matches(self, text: str) -> bool:
        """Whether the whole text matches the pattern."""
        first = self._pieces[0]
        start = len(first.text)
        if len(self._pieces) == 1:
            return start == len(text) and first.begins(text)
        last = self._pieces[-1]
        end = len(text) - len(last.text)
        if end < start or not first.begins(text) or not last.ends(text):
            return False
        for piece in self._pieces[1:-1]:  # the first place is best: it leaves the most text for the others
            place = piece.find(text, start, end)
            if place < 0:
                return False
            start = place + len(piece.text)
        return True
