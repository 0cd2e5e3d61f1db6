"""The properties section of a message, whose fields are read without decoding the others. [amqp-1.0 3.2.4]"""

from typing import Final

from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import undefined_error
from protocol.amqp10.fields import Fields

MESSAGE_ID: Final = 0
USER_ID: Final = 1
TO: Final = 2
SUBJECT: Final = 3
REPLY_TO: Final = 4
CORRELATION_ID: Final = 5
CONTENT_TYPE: Final = 6
CONTENT_ENCODING: Final = 7
ABSOLUTE_EXPIRY_TIME: Final = 8
CREATION_TIME: Final = 9
GROUP_ID: Final = 10
GROUP_SEQUENCE: Final = 11
REPLY_TO_GROUP_ID: Final = 12

NAMES: Final[tuple[str, ...]] = (
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)

_ULONG_OR_UUID: Final = 1  # bits for the types that a property may have
_BINARY: Final = 2
_STRING: Final = 4
_SYMBOL: Final = 8
_TIMESTAMP: Final = 16
_UINT: Final = 32
_MESSAGE_ID: Final = _ULONG_OR_UUID | _BINARY | _STRING
_TYPES: Final = bytes(
    [
        _MESSAGE_ID,
        _BINARY,
        _STRING,
        _STRING,
        _STRING,
        _MESSAGE_ID,
        _SYMBOL,
        _SYMBOL,
        _TIMESTAMP,
        _TIMESTAMP,
        _STRING,
        _UINT,
        _STRING,
    ]
)


def _types_by_constructor() -> bytes:
    types = bytearray(256)
    for bit, constructors in (
        (_ULONG_OR_UUID, "80 53 44 98"),
        (_BINARY, "a0 b0"),
        (_STRING, "a1 b1"),
        (_SYMBOL, "a3 b3"),
        (_TIMESTAMP, "83"),
        (_UINT, "70 52 43"),
    ):
        for constructor in bytes.fromhex(constructors):
            types[constructor] = bit
    return bytes(types)


_TYPE: Final = _types_by_constructor()
_LONG: Final = 0xB0  # the first constructor with a size of four octets instead of one


def check_properties(data: bytes, value: i64, end: i64) -> None:
    """Raise DecodeError unless all properties of the list from `value` to `end` have their types."""
    _skip_to(data, value, end, len(NAMES)).close()


def read_property(data: bytes, value: i64, end: i64, index: int) -> bytes | None:
    """Return the encoded property at place `index` of the list from `value` to `end`; None if it is null.

    The properties after this place are not checked. Raises DecodeError.
    """
    fields = _skip_to(data, value, end, index)
    start = _skip_field(fields, index)
    return None if start < 0 else data[start : fields.p]


def read_text(data: bytes, value: i64, end: i64, index: int) -> str | None:
    """Return a property that is a string or symbol, decoded; otherwise as `read_property`."""
    raw = read_property(data, value, end, index)
    if raw is None:
        return None
    kind: i64 = _TYPE[raw[0]]
    if kind != _STRING and kind != _SYMBOL:
        raise undefined_error(raw[0], "properties", NAMES[index])
    try:
        return _content(raw).decode("ascii" if kind == _SYMBOL else "utf-8")
    except UnicodeDecodeError:
        raise DecodeError(
            f"properties.{NAMES[index]} is not {'ASCII' if kind == _SYMBOL else 'valid UTF-8'}"
        ) from None


def read_user_id(data: bytes, value: i64, end: i64) -> bytes | None:
    """Return the bytes of the user-id; otherwise as `read_property`."""
    raw = read_property(data, value, end, USER_ID)
    return None if raw is None else _content(raw)


def _skip_to(data: bytes, value: i64, end: i64, count: int) -> Fields:
    """Open the list of properties, and skip the first `count` fields. Raises DecodeError."""
    fields = Fields()
    fields.open_list(data, value, end, "properties", len(NAMES))
    for index in range(count):
        _skip_field(fields, index)
    return fields


def _skip_field(fields: Fields, index: int) -> i64:
    """Skip the field at place `index`, and return its offset, NONE if it is null. Raises DecodeError."""
    start = fields.raw(NAMES[index])
    if start >= 0 and _TYPE[fields.data[start]] & _TYPES[index] == 0:
        raise undefined_error(fields.data[start], "properties", NAMES[index])
    return start


def _content(raw: bytes) -> bytes:
    """Return the content of an encoded binary, string or symbol."""
    return raw[5:] if raw[0] >= _LONG else raw[2:]
