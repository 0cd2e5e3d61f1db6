r"""JSON documents of clients: strict reading, typed fields, and field tables.

The functions for fields raise PreconditionFailed. A field that is null counts as absent.

JSON can spell halves of surrogate pairs (`"\ud800"`), which UTF-8 cannot encode. Python's reader accepts
numbers that JSON does not have (`NaN`, and `1e999` as infinity). Neither could be logged or shown, so both
are refused.
"""

import json
import math
import re
from collections.abc import Generator, Mapping
from typing import Any, Final

from broker.core.errors import PreconditionFailed

Fields = Mapping[str, Any]

_I64_MIN = -(2**63)
_I64_MAX = 2**63 - 1

LEVELS_MAX: Final = 128
"""Maximum levels of nested objects and lists in a JSON document. An export of stored values has up to 103."""

STORED_LEVELS_MAX: Final = 100
"""Maximum levels of nested objects and lists in a stored value, as in field tables of AMQP 0-9-1."""

_OPENING: Final = ("{", "[")
_TOO_DEEP: Final = f"the JSON document is nested more than {LEVELS_MAX} levels deep"

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_HALVES: Final = ("\\ud", "\\uD")  # the beginning of an escaped half of a surrogate pair


def require_field(fields: Fields, name: str) -> Any:
    """Return a required field, whose value may be null."""
    if name not in fields:
        raise PreconditionFailed(f"'{name}' is missing")
    return fields[name]


def read_text(fields: Fields, name: str, default: str | None = None) -> str:
    """Return a string. A field without a default is required."""
    value = _find_value(fields, name, default)
    if not isinstance(value, str):
        raise _refuse_type(name, "a string", value)
    return value


def read_flag(fields: Fields, name: str, default: bool = False) -> bool:
    """Return a boolean. The strings "true" and "false" are accepted too."""
    value = _find_value(fields, name, default)
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise _refuse_type(name, "a boolean", value)
    return value


def read_number(fields: Fields, name: str) -> int:
    """Return a required whole number. A string of digits is accepted too."""
    value = _find_value(fields, name, None)
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    if not isinstance(value, int) or isinstance(value, bool):
        raise _refuse_type(name, "a whole number", value)
    return value


def read_table(fields: Fields, name: str) -> dict[str, Any]:
    """Return an object, by default empty. An empty list counts as an empty object. [RabbitMQ]"""
    value = fields.get(name)
    if value is None or value == []:
        return {}
    if not isinstance(value, Mapping):
        raise _refuse_type(name, "an object", value)
    return dict(value)


def read_tags(fields: Fields) -> tuple[str, ...]:
    """Return the tags: a list or, as in RabbitMQ before 3.9, a string with commas between the tags."""
    value = _find_value(fields, "tags", "")
    if isinstance(value, str):
        return tuple(tag.strip() for tag in value.split(",") if tag.strip())
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise _refuse_type("tags", "a list of strings", value)
    return tuple(value)


def _find_value(fields: Fields, name: str, default: Any) -> Any:
    value = fields.get(name)
    if value is None and default is None:
        raise PreconditionFailed(f"'{name}' is missing")
    return default if value is None else value


def _refuse_type(name: str, wanted: str, value: Any) -> PreconditionFailed:
    return PreconditionFailed(f"'{name}' is not {wanted}: {json.dumps(value)}")


def read_field_table(value: object, where: str) -> dict[str, object]:
    """Return a JSON object as a field table.

    Raises:
        PreconditionFailed: a value does not fit into a field table; `where` names the owner of the arguments.
    """
    if value is None or value == []:
        return {}
    if not isinstance(value, Mapping):
        raise PreconditionFailed(f"the arguments of {where} are not an object")
    _require_levels(value, f"the arguments of {where} are")
    _check_value(value, where)
    return dict(value)


def read_stored_value(fields: Fields, name: str) -> Any:
    """Return a required field whose value, which may be null, is stored as it is.

    Raises:
        PreconditionFailed: the field is missing, or its value has more than STORED_LEVELS_MAX levels.
    """
    value = require_field(fields, name)
    _require_levels(value, f"'{name}' is")
    return value


def _require_levels(value: object, subject: str) -> None:
    """Raise PreconditionFailed if a value is too deep to be shown again; `subject` includes the verb."""
    if _is_deeper(value, STORED_LEVELS_MAX):
        raise PreconditionFailed(f"{subject} nested more than {STORED_LEVELS_MAX} levels deep")


def _is_deeper(value: object, levels: int) -> bool:
    """Whether a JSON value has more than `levels` objects and lists within each other."""
    containers = [value] if isinstance(value, (dict, list)) else []
    while containers and levels:
        levels -= 1
        containers = [
            item
            for container in containers
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, (dict, list))
        ]
    return bool(containers)


def _check_value(value: object, where: str) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not 0 < len(name.encode("utf-8", "surrogatepass")) <= 255:
                raise PreconditionFailed(f"an argument of {where} has a name of not 1 to 255 bytes: '{name}'")
            _check_value(item, where)
    elif isinstance(value, list):
        for item in value:
            _check_value(item, where)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise PreconditionFailed(f"an argument of {where} is not valid UTF-8: {value!a}") from error
    elif isinstance(value, int) and not _I64_MIN <= value <= _I64_MAX:
        raise PreconditionFailed(f"an argument of {where} does not fit into 64 bits: {value}")


class JsonError(ValueError):
    """The text is not JSON, or has a value that cannot be stored.

    The message names the fault and its place.
    """


def read_json(content: bytes | str) -> Any:
    """Return the value of a JSON text. Raises JsonError."""
    reader = _Reader(content)
    value = reader.value("")
    reader.expect_end()
    return value


def read_json_steps(content: bytes | str) -> Generator[None, None, Any]:
    """Read a JSON text in steps: a member of the outermost object, or an element of a list that is a member.

    Returns the value. Raises JsonError.
    """
    reader = _Reader(content)
    if not reader.passes("{"):
        value = reader.value("")
        reader.expect_end()
        return value
    document: dict[str, Any] = {}
    more = not reader.passes("}")
    while more:
        name = reader.name()
        if reader.passes("["):
            elements: list[Any] = []
            document[name] = elements
            more = not reader.passes("]")
            while more:
                elements.append(reader.value(f"{name}[{len(elements)}]", LEVELS_MAX - 2))
                more = reader.goes_on("]")
                yield
        else:
            document[name] = reader.value(name, LEVELS_MAX - 1)
        more = reader.goes_on("}")
        yield
    reader.expect_end()
    return document


class _Reader:
    """Reads a text from its beginning. All methods raise JsonError."""

    def __init__(self, content: bytes | str) -> None:
        try:
            encoded = content.encode() if isinstance(content, str) else content
            self._text = encoded.decode("utf-8-sig")
        except UnicodeError as error:
            place = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
            raise JsonError(f"not JSON: not valid UTF-8{place}") from error
        self._decoder = json.JSONDecoder(parse_float=self._number, parse_constant=self._number)
        self._odd = False  # whether the value read last has a number that JSON does not have
        self._at = 0
        self._skip()

    def value(self, place: str, levels: int = LEVELS_MAX) -> Any:
        """Read the next value, which may have `levels` levels; `place` is its name in refusals."""
        start = self._at
        try:
            value, self._at = self._decoder.raw_decode(self._text, start)
        except ValueError as error:
            raise JsonError(f"not JSON: {error}") from error
        except RecursionError as error:
            raise JsonError(_TOO_DEEP) from error
        openings = sum(self._text.count(mark, start, self._at) for mark in _OPENING)
        if openings > levels and _is_deeper(value, levels):
            raise JsonError(_TOO_DEEP)
        if self._odd or any(self._text.find(half, start, self._at) >= 0 for half in _HALVES):
            self._odd = False
            _check_values(value, place)
        self._skip()
        return value

    def name(self) -> str:
        """Read the name of a member, and the colon behind the name."""
        name = self.value("") if self._text.startswith('"', self._at) else None
        if not isinstance(name, str) or not self.passes(":"):
            raise self._unexpected('a name and ":"')
        return name

    def passes(self, mark: str) -> bool:
        """Whether `mark` comes next. If so, the reader moves behind the mark."""
        if not self._text.startswith(mark, self._at):
            return False
        self._at += 1
        self._skip()
        return True

    def goes_on(self, closing: str) -> bool:
        """Whether another item follows; False at the closing mark. The reader moves behind either mark."""
        if self.passes(","):
            return True
        if not self.passes(closing):
            raise self._unexpected(f'"," or "{closing}"')
        return False

    def expect_end(self) -> None:
        """Require the end of the text."""
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


def _check_values(value: Any, place: str) -> None:
    """Refuse numbers and halves of surrogate pairs that cannot be stored, at any depth. Raises JsonError."""
    waiting = [(value, place)]
    while waiting:
        value, place = waiting.pop()
        if isinstance(value, str):
            _check_text(value, place or "the value")
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise JsonError(f"{place or 'the value'} is {value}, a number that JSON does not have")
        elif isinstance(value, dict):
            for name, member in value.items():
                _check_text(name, f"a name in {place}" if place else "a name")
                waiting.append((member, f"{place}.{name}" if place else name))
        elif isinstance(value, list):
            waiting += [(element, f"{place}[{index}]") for index, element in enumerate(value)]


def _check_text(text: str, subject: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise JsonError(f"{subject} is not valid UTF-8: {text!a}") from error
