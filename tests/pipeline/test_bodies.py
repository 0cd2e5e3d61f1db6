"""Bodies of JSON: readable ones, and those kept as `_corrupt_record`; no query is needed."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from pipeline.connector.bodies import JsonBodies, add_corrupt_field, infer_schema
from pipeline.connector.schema import CORRUPT

DEEP = "[" * 100_000
LONG = "9" * 400
BYTE, SHORT, INT, LONGER = T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType()
TIMES, NAMES = T.TimestampType(), T.MapType(T.StringType(), LONGER)


def column(kind: T.DataType, *bodies: bytes) -> list[dict[str, Any]]:
    """Return the values read from bodies with the field `a`."""
    schema = add_corrupt_field(T.StructType([T.StructField("a", kind)]))
    field = pa.field("value", to_arrow_type(schema, timezone="UTC"))
    found: list[dict[str, Any]] = JsonBodies(schema)(pa.array(bodies, pa.binary()), field).to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "document", "value"),
    [
        (BYTE, "-128", -128),
        (LONGER, "9.223372036854775807e18", 2**63 - 1),
        (INT, "1e-0", 1),
        (T.DecimalType(38, 10), "12345678901234567890123456.5", Decimal("12345678901234567890123456.5")),
        (T.DecimalType(10, 2), "99999999.99", Decimal("99999999.99")),
        (T.DecimalType(10, 2), "0.005", Decimal("0.00")),
        (T.DecimalType(2, 2), "0.12", Decimal("0.12")),
        (T.DoubleType(), "1e400", float("inf")),
        (T.DoubleType(), "12", 12.0),
        (T.DateType(), '"0001-01-01"', date(1, 1, 1)),
        (TIMES, '"9999-12-31T23:59:59Z"', datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (TIMES, '"2026-01-01T00:00:00+01:00"', datetime(2025, 12, 31, 23, tzinfo=UTC)),
        (T.StringType(), '"\\ud83d\\ude00"', "\U0001f600"),
        (T.StringType(), '["\\ud800"]', '["\\ud800"]'),
        (NAMES, '{"x": 1, "y": null}', [("x", 1), ("y", None)]),
    ],
)
def test_matching_bodies_are_read(kind: T.DataType, document: str, value: object) -> None:
    assert column(kind, f'{{"a": {document}}}'.encode()) == [{"a": value, CORRUPT: None}]


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (BYTE, "128"),
        (SHORT, "-32769"),
        (INT, "2147483648"),
        (LONGER, LONG),
        (LONGER, "1.5"),
        (LONGER, "1e999999999"),
        (LONGER, "1e99999999999999999999"),
        (LONGER, "9" * 5000),
        (T.DecimalType(10, 2), "123456789012.5"),
        (T.DecimalType(10, 2), "100000000"),
        (T.DecimalType(10, 2), "1e999999999"),
        (T.DecimalType(2, 2), "1"),
        (T.DoubleType(), LONG),
        (T.DoubleType(), "NaN"),
        (T.FloatType(), "-Infinity"),
        (T.DateType(), '"2026-02-30"'),
        (TIMES, '"9999-12-31T23:59:59-23:59"'),
        (TIMES, '"0001-01-01T00:00:00+23:59"'),
        (TIMES, "1e30"),
        (TIMES, LONG),
        (T.StringType(), '"\\ud800"'),
        (NAMES, '{"\\ud800": 1}'),
        (T.ArrayType(T.StringType()), '["\\udfff"]'),
        (T.StringType(), DEEP),
    ],
)
def test_mismatching_bodies_are_kept_and_their_neighbours_are_read(kind: T.DataType, document: str) -> None:
    body = f'{{"a": {document}}}'

    before, corrupt, after = column(kind, b'{"a": null}', body.encode(), b"{}")

    assert corrupt == {"a": None, CORRUPT: body}
    assert before == after == {"a": None, CORRUPT: None}


def test_bodies_that_are_no_object_are_kept() -> None:
    assert [row[CORRUPT] for row in column(LONGER, b"null", b"1", b"", b"{", b"\xff")] == [
        "null",
        "1",
        "",
        "{",
        "\ufffd",
    ]


@pytest.mark.parametrize(
    "other",
    [
        b'{"a": "\\ud800"}',
        b'{"a": {"\\udfff": 1}}',
        b'{"a": ' + DEEP.encode() + b"}",
        b'{"a": ' + LONG.encode() * 20 + b"}",
    ],
    ids=["half a pair", "half a pair as a name", "deep", "long"],
)
def test_a_schema_is_inferred_without_bodies_that_cannot_be_read(other: bytes) -> None:
    schema = infer_schema([other, b'{"a": "\\ud83d\\ude00 \xc3\xa9"}'])
    assert schema == T.StructType([T.StructField("a", T.StringType())])


def test_values_that_cannot_be_written_again_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    before = json.dumps

    def dumps(found: object, **more: Any) -> str:
        if found == {"deep": []}:
            raise RecursionError
        return before(found, **more)

    monkeypatch.setattr("pipeline.connector.bodies.json.dumps", dumps)
    assert infer_schema([b'{"deep": []}', b'{"a": 1}']).names == ["a"]


@pytest.mark.parametrize(
    "schema",
    [
        infer_schema([b'{"_corrupt_record": 1, "a": 2}']),
        T.StructType([T.StructField(CORRUPT, LONGER), T.StructField("a", LONGER)]),
    ],
    ids=["inferred", "said"],
)
def test_unreadable_fields_are_text_whatever_their_type(schema: T.StructType) -> None:
    schema = add_corrupt_field(schema)
    assert schema[CORRUPT].dataType == T.StringType()
    field = pa.field("value", to_arrow_type(schema, timezone="UTC"))
    found = JsonBodies(schema)(pa.array([b'{"_corrupt_record": 1, "a": 2}', b"{"], pa.binary()), field)
    assert found.to_pylist() == [{CORRUPT: None, "a": 2}, {CORRUPT: "{", "a": None}]


def test_a_schema_is_inferred_beside_bodies_that_cannot_be_read() -> None:
    schema = infer_schema([DEEP.encode(), b"\xff", json.dumps({"a": 1}).encode()])

    assert schema == T.StructType([T.StructField("a", LONGER)])
