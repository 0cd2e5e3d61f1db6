"""Bodies as text, or as columns of a schema for JSON bodies."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.json as pj
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.connector.choices import OptionError
from pipeline.connector.schema import CORRUPT

Reader = Callable[[Any], Any]
"""Converts a JSON value into a value of a Spark type. Raises _UNREADABLE."""

_UNREADABLE: Final = (ValueError, TypeError, ArithmeticError, RecursionError)
"""Errors while a body is read, and while pyarrow converts the values."""

_INTEGERS: Final = {T.ByteType: 7, T.ShortType: 15, T.IntegerType: 31, T.LongType: 63}


def decode_text(values: pa.Array, field: pa.Field) -> pa.Array:
    """Return bodies as text; octets that are not UTF-8 are replaced."""
    try:
        return values.cast(field.type)
    except pa.ArrowInvalid:
        return pa.array([each.as_py().decode(errors="replace") for each in values], field.type)


class JsonBodies:
    """Reads JSON objects into the fields of a schema; missing fields are null.

    The field `_corrupt_record` of the schema has an unreadable body, and all other fields are null then.
    [Spark from_json, mode PERMISSIVE]
    """

    def __init__(self, schema: T.StructType) -> None:
        self._read = make_reader(T.StructType([each for each in schema.fields if each.name != CORRUPT]))
        self._nothing = dict.fromkeys(schema.names)

    def __call__(self, values: pa.Array, field: pa.Field) -> pa.Array:
        """Return the column."""
        bodies = values.to_pylist()
        rows = [self._row(body) for body in bodies]
        try:
            return pa.array(rows, field.type)
        except _UNREADABLE:  # for example text with a half of a surrogate pair
            return pa.array(
                [
                    row if _fits(row, field.type) else self._unread(body)
                    for row, body in zip(rows, bodies, strict=True)
                ],
                field.type,
            )

    def _row(self, body: bytes) -> dict[str, Any]:
        try:
            row = self._read(json.loads(body, parse_float=Decimal))
        except _UNREADABLE:
            return self._unread(body)
        if row is None:  # JSON's null is no object
            return self._unread(body)
        return {**self._nothing, **row}

    def _unread(self, body: bytes) -> dict[str, Any]:
        return self._nothing | {CORRUPT: body.decode(errors="replace")}


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except _UNREADABLE:
        return False
    return True


def add_corrupt_field(schema: T.StructType) -> T.StructType:
    """Return a schema with the text field for unreadable bodies."""
    text = T.StructField(CORRUPT, T.StringType())
    fields = [text if each.name == CORRUPT else each for each in schema.fields]
    return T.StructType(fields if text in fields else [*fields, text])


def infer_schema(bodies: Sequence[bytes]) -> T.StructType:
    """Return the schema of JSON objects.

    Raises OptionError: no body is an object, or their schemas differ.
    """
    objects = []
    for body in bodies:
        try:
            document = json.loads(body)
            text = json.dumps(document, ensure_ascii=False).encode()  # refuses a half of a surrogate pair
        except _UNREADABLE:
            continue
        if isinstance(document, dict):
            objects.append(text)
    if not objects:
        raise OptionError(
            f"option 'bodySchema' is 'infer', but none of {len(bodies)} bodies is a JSON object"
        )
    try:
        table = pj.read_json(pa.BufferReader(b"\n".join(objects)))
    except pa.ArrowInvalid as error:
        raise OptionError(f"option 'bodySchema' is 'infer', but bodies differ: {error}") from error
    fields = [each.with_type(_known(each.type)) for each in table.schema]
    found_schema: T.StructType = from_arrow_schema(pa.schema(fields))
    return found_schema


def _known(kind: pa.DataType) -> pa.DataType:
    """Return a type that Spark supports: null becomes text, and times have the zone UTC."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_list(kind):
        return pa.list_(_known(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_known(each.type)) for each in kind])
    return kind


def make_reader(kind: T.DataType) -> Reader:
    """Return the function that reads a type from JSON; null is always accepted.

    Raises OptionError: the type cannot be read from JSON.
    """
    read = _reader(kind)
    return lambda value: None if value is None else read(value)


def _reader(kind: T.DataType) -> Reader:
    for integer, bits in _INTEGERS.items():
        if isinstance(kind, integer):
            return lambda value: _integer(value, bits)
    if isinstance(kind, T.StringType):
        return lambda value: value if isinstance(value, str) else json.dumps(value, default=float)
    if isinstance(kind, T.FloatType | T.DoubleType):
        return lambda value: float(_require_type(value, int, Decimal))
    if isinstance(kind, T.BooleanType):
        return lambda value: _require_type(value, bool)
    if isinstance(kind, T.TimestampType):
        return _timestamp
    if isinstance(kind, T.DateType):
        return lambda value: date.fromisoformat(_require_type(value, str))
    if isinstance(kind, T.DecimalType):
        step, digits = Decimal(1).scaleb(-kind.scale), Context(kind.precision)
        return lambda value: Decimal(_require_type(value, int, Decimal)).quantize(step, context=digits)
    if isinstance(kind, T.ArrayType):
        element = make_reader(kind.elementType)
        return lambda value: [element(each) for each in _require_type(value, list)]
    if isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        entry = make_reader(kind.valueType)
        return lambda value: {key: entry(each) for key, each in _require_type(value, dict).items()}
    if isinstance(kind, T.StructType):
        fields = {each.name: make_reader(each.dataType) for each in kind.fields}
        return lambda value: _struct(_require_type(value, dict), fields)
    raise OptionError(f"option 'bodySchema' has the type {kind.simpleString()}, which JSON is not read into")


def _struct(value: dict[str, Any], fields: dict[str, Reader]) -> dict[str, Any]:
    return {name: read(value.get(name)) for name, read in fields.items()}


def _require_type(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(f"{value!r} is of another type")
    return value


def _integer(value: Any, bits: int) -> int:
    number = _require_type(value, int, Decimal)
    if not -(1 << bits) <= number < 1 << bits or number != int(number):  # int(1e999999999) would not end
        raise ValueError(f"{value!r} is no integer of {bits + 1} bits")
    return int(number)


def _timestamp(value: Any) -> datetime:
    """Read a time in ISO 8601, by default in UTC, or in seconds since 1970."""
    if isinstance(value, str):
        time = datetime.fromisoformat(value)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    try:
        return datetime.fromtimestamp(float(_require_type(value, int, Decimal)), UTC)
    except OSError as error:
        raise ValueError(f"{value!r} is no time") from error
