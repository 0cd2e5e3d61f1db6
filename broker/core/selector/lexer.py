"""The lexer of selectors: it makes tokens of the text."""

from __future__ import annotations

from typing import Final, final

from broker.core.errors import PreconditionFailed

# kinds of tokens
NAME: Final = "name"
WORD: Final = "word"  # a reserved one, in upper case
NUMBER: Final = "number"
STRING: Final = "string"
SIGN: Final = "sign"
END: Final = "end"

WORDS: Final = frozenset(
    ("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE")
)
INTEGER_MAX: Final = 2**63 - 1

_LONG_SIGNS: Final = ("<>", "<=", ">=")
_SHORT_SIGNS: Final = "=<>+-*/(),"


@final
class Token:
    """A token.

    `text` is the token as it was written, `value` the name, word, literal or sign that it means.
    """

    def __init__(self, kind: str, text: str, value: str | int | float | bytes, position: int) -> None:
        self.kind = kind
        self.text = text
        self.value = value
        self.position = position  # position of the token's first character, counted from 1


def refusal(position: int, why: str) -> PreconditionFailed:
    """Return the refusal of a selector, with the position of the error."""
    return PreconditionFailed(f"position {position}: {why}")


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a selector, END last.

    Raises:
        PreconditionFailed: a character that begins no token, a literal without an end or out of range.
    """
    tokens: list[Token] = []
    start = 0
    while True:
        while start < len(text) and text[start].isspace():
            start += 1
        token = _token_at(text, start) if start < len(text) else Token(END, "", "", start + 1)
        tokens.append(token)
        if token.kind == END:
            return tokens
        start += len(token.text)


def is_plain(name: str) -> bool:
    """Whether a name needs no quotes."""
    return (
        name != ""
        and _begins_name(name[0])
        and all(_continues_name(character) for character in name)
        and name.upper() not in WORDS
    )


def _token_at(text: str, start: int) -> Token:
    first = text[start]
    if first == "'":
        return _quoted(text, start, STRING)
    if first == '"':
        return _quoted(text, start, NAME)
    if _is_digit(first) or (first == "." and start + 1 < len(text) and _is_digit(text[start + 1])):
        return _number(text, start)
    if _begins_name(first):
        end = start + 1
        while end < len(text) and _continues_name(text[end]):
            end += 1
        name = text[start:end]
        word = name.upper()
        return Token(WORD, name, word, start + 1) if word in WORDS else Token(NAME, name, name, start + 1)
    if text[start : start + 2] in _LONG_SIGNS:
        return Token(SIGN, text[start : start + 2], text[start : start + 2], start + 1)
    if first in _SHORT_SIGNS:
        return Token(SIGN, first, first, start + 1)
    raise refusal(start + 1, f"{first!r} begins nothing that a selector knows")


def _begins_name(character: str) -> bool:
    return character.isalpha() or character in "_$"


def _continues_name(character: str) -> bool:
    return character.isalnum() or character in "_$."


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"


def _quoted(text: str, start: int, kind: str) -> Token:
    """Read a string, or a name in double quotes; the quote itself is written twice."""
    quote = text[start]
    end = start + 1
    while True:
        end = text.find(quote, end)
        if end < 0:
            raise refusal(start + 1, f"the {kind} that begins here has no end")
        if text[end + 1 : end + 2] != quote:
            break
        end += 2
    value = text[start + 1 : end].replace(quote * 2, quote)
    if kind == NAME and not value:
        raise refusal(start + 1, "a name without characters")
    return Token(kind, text[start : end + 1], value, start + 1)


def _number(text: str, start: int) -> Token:
    """Read an integer, also octal, hexadecimal or with the suffix L, or a float, also with F or D. [Java]"""
    end = start
    while end < len(text) and (_continues_name(text[end]) or _is_exponent_sign(text, start, end)):
        end += 1
    written = text[start:end]
    value = _value_of(written)
    if value is None:
        raise refusal(start + 1, f"{written!r} is no number")
    if (isinstance(value, int) and value > INTEGER_MAX + 1) or value == float("inf"):
        raise refusal(start + 1, f"{written!r} is out of range")
    return Token(NUMBER, written, value, start + 1)


def _is_exponent_sign(text: str, start: int, at: int) -> bool:
    return text[at] in "+-" and text[at - 1] in "eE" and text[start : start + 2] not in ("0x", "0X")


def _value_of(written: str) -> int | float | None:
    if "_" in written or not written.isascii():
        return None
    digits = written.rstrip("lL") if len(written) > 1 and written[-2] not in "lL" else written
    try:
        if digits[:2] in ("0x", "0X"):
            return int(digits, 16)
        if digits.isdigit():
            return int(digits, 8) if digits[0] == "0" else int(digits)
        return float(written[:-1] if written[-1] in "fFdD" else written)
    except ValueError:
        return None
