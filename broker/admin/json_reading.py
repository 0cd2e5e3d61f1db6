r"""JSON that others wrote, read strictly: what comes out can be written down again.

JSON can spell halves of characters (`"\ud800"`), which UTF-8 cannot, and Python's reader takes numbers that
JSON does not have (`NaN`, and `1e999` as infinity). Neither could be logged or shown, so neither is let in.
"""

import json
import math
import re
from collections.abc import Generator
from typing import Any, Final

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_HALVES: Final = ("\\ud", "\\uD")  # how halves of characters begin where they are spelt


class JsonError(ValueError):
    """It is no JSON, or holds what cannot be kept; the text says what is wrong, and where."""


def read_json(content: bytes | str) -> Any:
    """The value that a text has. Raises JsonError."""
    reader = _Reader(content)
    value = reader.value("")
    reader.expect_end()
    return value


def read_json_steps(content: bytes | str) -> Generator[None, None, Any]:
    """The same step by step: a member of the outermost object, or an element of a list that is a member.

    Raises JsonError.
    """
    reader = _Reader(content)
    if not reader.passes("{"):
        value = reader.value("")
        reader.expect_end()
        return value
    found: dict[str, Any] = {}
    more = not reader.passes("}")
    while more:
        name = reader.name()
        if reader.passes("["):
            elements: list[Any] = []
            found[name] = elements
            more = not reader.passes("]")
            while more:
                elements.append(reader.value(f"{name}[{len(elements)}]"))
                more = reader.goes_on("]")
                yield
        else:
            found[name] = reader.value(name)
        more = reader.goes_on("}")
        yield
    reader.expect_end()
    return found


class _Reader:
    """Reads a text from its beginning on. All methods raise JsonError."""

    def __init__(self, content: bytes | str) -> None:
        try:
            encoded = content.encode() if isinstance(content, str) else content
            self._text = encoded.decode("utf-8-sig")
        except UnicodeError as error:
            raise JsonError(f"not JSON: {error}") from error
        self._decoder = json.JSONDecoder(parse_float=self._number, parse_constant=self._number)
        self._odd = False  # whether a number was among what was read that JSON does not have
        self._at = 0
        self._skip()

    def value(self, place: str) -> Any:
        """The value that comes next; `place` is what refusals call it."""
        start = self._at
        try:
            value, self._at = self._decoder.raw_decode(self._text, start)
        except (ValueError, RecursionError) as error:
            raise JsonError(f"not JSON: {error}") from error
        if self._odd or any(self._text.find(half, start, self._at) >= 0 for half in _HALVES):
            self._odd = False
            _check(value, place)
        self._skip()
        return value

    def name(self) -> str:
        """The name of a member, with the colon behind it."""
        name = self.value("") if self._text.startswith('"', self._at) else None
        if not isinstance(name, str) or not self.passes(":"):
            raise self._unexpected('a name and ":"')
        return name

    def passes(self, mark: str) -> bool:
        """Whether a mark comes next; it is passed then."""
        if not self._text.startswith(mark, self._at):
            return False
        self._at += 1
        self._skip()
        return True

    def goes_on(self, closing: str) -> bool:
        """Whether another item follows; false when the closing mark does. Either is passed."""
        if self.passes(","):
            return True
        if not self.passes(closing):
            raise self._unexpected(f'"," or "{closing}"')
        return False

    def expect_end(self) -> None:
        """Nothing may follow."""
        if self._at < len(self._text):
            raise self._unexpected("the end")

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        assert space is not None, "it matches nothing too"
        self._at = space.end()

    def _number(self, literal: str) -> float:
        value = float(literal)
        if not math.isfinite(value):
            self._odd = True
        return value

    def _unexpected(self, wanted: str) -> JsonError:
        return JsonError(f"not JSON: {json.JSONDecodeError(f'Expecting {wanted}', self._text, self._at)}")


def _check(value: Any, place: str) -> None:
    """Refuse what cannot be kept, wherever it stands in a value. Raises JsonError."""
    waiting = [(value, place)]
    while waiting:
        value, place = waiting.pop()
        if isinstance(value, str):
            _check_text(value, place)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise JsonError(f"{place or 'the value'} is {value}, a number that JSON does not have")
        elif isinstance(value, dict):
            for name, member in value.items():
                _check_text(name, place)
                waiting.append((member, f"{place}.{name}" if place else name))
        elif isinstance(value, list):
            waiting += [(element, f"{place}[{index}]") for index, element in enumerate(value)]


def _check_text(text: str, place: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise JsonError(f"{place or 'a name'} has half a character: {text!a}") from error
