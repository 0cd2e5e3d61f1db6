"""Field values that must survive JSON with their types."""

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from broker.core.values import decode, decode_table, encode, encode_table, fingerprint, show, type_name

VALUES = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    1.5,
    0.1,
    -0.0,
    math.inf,
    -math.inf,
    "",
    "a string, ü and \U0001f600",
    b"",
    b"\x00\xff",
    bytearray(b"\x01\x02"),
    datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone(timedelta(hours=2))),
    Decimal("1.10"),
    Decimal("-0.000000000000001"),
    [],
    [1, [b"x", {"y": None}]],
    {},
    {"bytes": "00"},
    {"table": {"decimal": "1"}, "b": b"1"},
]


def same(left: object, right: object) -> bool:
    """Equality that tells types apart, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    return repr(left) == repr(right)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_from_json_with_its_type(value: object) -> None:
    assert same(decode(json.loads(json.dumps(encode(value), allow_nan=False))), value)


def test_not_a_number_comes_back() -> None:
    back = decode(json.loads(json.dumps(encode(math.nan), allow_nan=False)))
    assert isinstance(back, float)
    assert math.isnan(back)


def test_a_table_comes_back_in_its_order() -> None:
    table: dict[str, object] = {"z": b"1", "a": {"y": 1, "b": [True]}}
    assert same(decode_table(json.loads(json.dumps(encode_table(table)))), table)


def test_values_of_no_field_table_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot hold a set"):
        encode({1})


@pytest.mark.parametrize(
    "encoded", [{}, {"a": "1", "b": "2"}, {"bytes": 1}, {"complex": "1j"}, {"table": "x"}]
)
def test_values_that_were_never_encoded_are_refused(encoded: object) -> None:
    with pytest.raises(ValueError, match=r"encoded|no type"):
        decode(encoded)


def test_a_list_instead_of_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="is an object, not list"):
        decode_table([])


def test_fingerprints_tell_tables_apart_but_not_their_order() -> None:
    tables: list[dict[str, object]] = [{"k": value} for value in VALUES]
    prints = [fingerprint(table) for table in tables]
    assert len(set(prints)) == len(prints)
    assert fingerprint({}) == ""
    assert fingerprint({"a": 1, "b": {"c": 1, "d": 2}}) == fingerprint({"b": {"d": 2, "c": 1}, "a": 1})


@pytest.mark.parametrize(
    ("value", "name", "shown"),
    [
        (None, "void", "undefined"),
        (True, "bool", "true"),
        (5, "signedint", "5"),
        (2**31, "long", "2147483648"),
        ("a", "longstr", "a"),
        (b"\xffa", "longstr", r"\xffa"),
        (bytearray(b"a"), "binary", "a"),
        (1.5, "double", "1.5"),
        ({}, "table", "{}"),
        ([], "array", "[]"),
        (datetime(2026, 1, 1, tzinfo=UTC), "timestamp", "2026-01-01 00:00:00+00:00"),
        (Decimal("1.0"), "decimal", "1.0"),
    ],
)
def test_names_and_texts_for_refusals(value: object, name: str, shown: str) -> None:
    assert type_name(value) == name
    assert show(value) == shown
