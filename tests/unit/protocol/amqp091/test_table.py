"""The encoder of field tables: each type of value, and the values that do not fit."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from protocol.amqp091.fields import Reader
from protocol.amqp091.table import encode_table


def test_what_is_decoded_is_encoded_again() -> None:
    table = {
        "none": None,
        "flag": True,
        "small": -5,
        "large": 2**40,
        "float": 0.1,
        "text": "tëxt",
        "octets": b"\xff\xfe",
        "bytes": bytearray(b"\x00\xff"),
        "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "decimal": Decimal("12.34"),
        "table": {"list": [1, {"a": "b"}]},
        "\udcff": 1,
    }
    encoded = encode_table(table)
    assert Reader(encoded).table() == table
    assert encode_table(Reader(encoded).table()) == encoded


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2**63, "9223372036854775808 does not fit into 64 bits"),
        (Decimal(2**32), "4294967296 does not fit into 32 bits"),
        (Decimal("-1"), "-1 does not fit into 32 bits"),
        (Decimal("1E+3"), "a field table cannot hold Decimal"),
        (Decimal("NaN"), "a field table cannot hold Decimal"),
        (datetime(1969, 1, 1, tzinfo=UTC), "does not fit into 64 bits"),
        (object, "a field table cannot hold <class 'object'>"),
    ],
)
def test_values_that_do_not_fit_are_refused(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=r"fit|hold") as refusal:
        encode_table({"a": value})
    assert words in str(refusal.value)
