"""Field tables and method arguments: the same values as pamqp's, read in a single pass within bounds."""

import struct
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands, decode, encode

from protocol.amqp091 import constants as c
from protocol.amqp091.fields import TABLE_DEPTH_MAX, Reader
from protocol.amqp091.methods import decode_method
from protocol.amqp091.table import encode_table
from protocol.errors import SYNTAX_ERROR, ProtocolError
from tests.support.effort import CountedBytes, cases

names = st.text(max_size=20)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, width=32),
    st.text(max_size=50),
    st.binary(max_size=50).map(bytearray),
    st.integers(0, 2**32 - 1).map(lambda seconds: datetime.fromtimestamp(seconds, tz=UTC)),
    st.integers(0, 2**31 - 1).map(lambda n: Decimal(n) / 100),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


def table_bytes(entries: bytes) -> bytes:
    return struct.pack(">I", len(entries)) + entries


def nested(depth: int) -> bytes:
    """Return `depth` nested tables."""
    encoded = table_bytes(b"")
    for _ in range(depth - 1):
        encoded = table_bytes(b"\1aF" + encoded)
    return encoded


@settings(max_examples=cases(150), deadline=None)
@given(st.dictionaries(names, values, max_size=6))
def test_tables_encoded_by_pamqp_are_decoded_the_same(table: dict[str, object]) -> None:
    encoded = encode.field_table(table)  # type: ignore[arg-type]
    reader = Reader(encoded)
    assert reader.table() == decode.field_table(encoded)[1]
    assert reader.position == len(encoded)


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (b"t\x01", True),
        (b"t\x00", False),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xff", -1),
        (b"i\xff\xff\xff\xff", 4294967295),
        (b"l" + b"\xff" * 8, -1),
        (b"L" + b"\xff" * 8, -1),
        (b"f\x3f\x80\x00\x00", 1.0),
        (b"d\x3f\xf0\x00\x00\x00\x00\x00\x00", 1.0),
        (b"D\x02\x00\x00\x00\x7b", Decimal("1.23")),
        (b"S\x00\x00\x00\x02hi", "hi"),
        (b"S\x00\x00\x00\x02\xff\xfe", b"\xff\xfe"),
        (b"x\x00\x00\x00\x02hi", bytearray(b"hi")),
        (b"T\x00\x00\x00\x00\x00\x00\x00\x01", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (b"A\x00\x00\x00\x04t\x01t\x00", [True, False]),
        (b"F\x00\x00\x00\x03\x01aV", {"a": None}),
        (b"V", None),
    ],
)
def test_every_type(encoded: bytes, value: object) -> None:
    assert Reader(table_bytes(b"\1k" + encoded)).table() == {"k": value}


@pytest.mark.parametrize(
    "entries",
    [
        b"\1",  # a name that is cut short
        b"\1k",  # no value
        b"\1kZ",  # no such type
        b"\1kI\0\0",
        b"\1kS\0\0\0\5four",  # longer than the table
        b"\1kF\0\0\0\1",
        b"\1kA\xff\xff\xff\xff",
        b"\1kT" + b"\xff" * 8,  # no date
    ],
)
def test_a_malformed_table_is_refused(entries: bytes) -> None:
    with pytest.raises(ValueError, match=r"announced|unknown type|out of range|utf-8"):
        Reader(table_bytes(entries) + b"behind the table").table()


@pytest.mark.parametrize(
    ("entries", "what"),
    [(b"\1q\2k\xff", "a short string"), (b"\2q\xff\1k", "a short string"), (None, "a field name")],
)
def test_a_text_in_arguments_that_is_not_utf_8_is_named(entries: bytes | None, what: str) -> None:
    payload = struct.pack(">IH", c.QUEUE_DECLARE, 0) + b"\1q\0" + table_bytes(b"\2k\xffV")
    if entries is not None:
        payload = struct.pack(">IH", c.QUEUE_BIND, 0) + entries + b"\0\0" + table_bytes(b"")
    with pytest.raises(ProtocolError, match=f"{what} is not valid UTF-8 at byte 1"):
        decode_method(c.QUEUE_DECLARE if entries is None else c.QUEUE_BIND, payload)


def test_a_name_that_is_not_utf_8_keeps_its_bytes() -> None:
    table = Reader(table_bytes(b"\2\xff\xfeV")).table()
    assert [name.encode(errors="surrogateescape") for name in table] == [b"\xff\xfe"]


def test_tables_may_lie_in_each_other_but_not_without_end() -> None:
    deepest: object = Reader(nested(TABLE_DEPTH_MAX)).table()
    for _ in range(TABLE_DEPTH_MAX - 1):
        assert isinstance(deepest, dict)
        deepest = deepest["a"]
    assert deepest == {}
    with pytest.raises(ValueError, match="100 nested tables"):
        Reader(nested(TABLE_DEPTH_MAX + 1)).table()


def test_many_small_values_cost_no_more_than_they_are_long() -> None:
    array = b"V" * 130000
    encoded = table_bytes(b"\1aA" + table_bytes(array))
    counted = CountedBytes.of(encoded)
    assert Reader(counted).table() == {"a": [None] * 130000}
    assert counted.copied[0] <= 4 * len(encoded)  # a copy of the rest for each value: thousands of times that


def test_arguments_are_all_that_a_method_frame_holds() -> None:
    command = commands.Queue.Declare(queue="q", durable=True, auto_delete=True, arguments={"a": 1})
    payload = struct.pack(">I", c.QUEUE_DECLARE) + command.marshal()
    assert dict(decode_method(c.QUEUE_DECLARE, payload)) == dict(command)
    for wrong in (payload + b"\0", payload[:-1]):
        with pytest.raises(ProtocolError) as refused:
            decode_method(c.QUEUE_DECLARE, wrong)
        assert refused.value.code == SYNTAX_ERROR


SAMPLES = {
    "bit": True,
    "octet": 200,
    "short": 65535,
    "long": 4294967295,
    "longlong": 2**62,
    "shortstr": "short",
    "longstr": "long",
    "table": {"a": "b"},
}


RESERVED = {"ticket", "capabilities", "channel_id", "cluster_id", "known_hosts", "out_of_band", "insist"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", commands.INDEX_MAPPING)
def test_every_method_is_decoded_as_it_was_encoded(method: int) -> None:
    command = commands.INDEX_MAPPING[method]()
    for name in set(command.__slots__) - RESERVED:
        setattr(command, name, SAMPLES[command.amqp_type(name)])
    payload = struct.pack(">I", method) + command.marshal()
    assert dict(decode_method(method, payload)) == dict(command)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4))
)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_written_tables_are_read_back(table: dict[str, object]) -> None:
    assert Reader(encode_table(table)).table() == table


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"": 1}, "has 0 bytes"),
        ({"n" * 256: 1}, "has 256 bytes"),
        ({"n": 2**63}, "does not fit into 64 bits"),
        ({"n": [{"m": object()}]}, "cannot hold"),
        ({"n": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_values_that_cannot_be_written(table: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        encode_table(table)
