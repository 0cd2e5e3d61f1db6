"""The history of a dead letter, for clients of both protocols."""

from typing import Any

import pytest

from protocol.amqp091.deaths import Death, decode_deaths, encode_deaths, write_headers
from protocol.amqp10.encoding import encode
from protocol.amqp10.types import Array, Map, Symbol, Timestamp, Uint, Ulong
from tests.support.amqp091.field_bytes import field
from tests.support.conversion.contents import ANNOTATIONS, HELLO, OURS, annotations, converted091, converted10

EXPIRED = Death("q1", "expired", 1_700_000_000, "ex", ["k1", "k2"], "60000", 1)
REJECTED = Death("q2", "rejected", 1_700_000_001, "", ["q2"], "", 3)


def history(**changed: object) -> Map:
    """Return a death in the form of AMQP 1.0."""
    pairs: dict[str, object] = {
        "queue": "q1",
        "reason": Symbol("expired"),
        "count": Ulong(1),
        "first-time": Timestamp(1_700_000_000_000),
        "last-time": Timestamp(1_700_000_000_000),
        "exchange": "ex",
        "routing-keys": Array(0xB1, ["k1", "k2"]),
        "ttl": Uint(60000),
    } | changed
    return Map([(Symbol(name), value) for name, value in pairs.items() if value is not ...])


def test_x_death_is_an_array_of_maps() -> None:
    table = field(b"x-death", encode_deaths([EXPIRED, REJECTED]))
    found = converted10({}, table)[ANNOTATIONS]
    second = {"queue": "q2", "reason": Symbol("rejected"), "count": Ulong(3), "exchange": ""}
    second |= {"first-time": Timestamp(1_700_000_001_000), "routing-keys": Array(0xB1, ["q2"])}
    assert found == OURS | {
        "x-opt-deaths": Array(0xD1, [history(), history(**second, **{"last-time": ..., "ttl": ...})])
    }


def test_other_headers_about_deaths_are_annotations() -> None:
    table = b"".join(field(name, value) for name, value in write_headers([], [EXPIRED], "ex", True))
    found = converted10({}, table)[ANNOTATIONS]
    expected = {"reason": "expired", "queue": "q1", "exchange": "ex"}
    assert found.pop("x-opt-deaths") == Array(0xD1, [history()])
    assert found == OURS | {
        f"x-{which}-death-{what}": expected[what] for which in ("first", "last") for what in expected
    }


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({"original_expiration": "no number"}, {"ttl": ...}),
        ({"original_expiration": "4294967296"}, {"ttl": ...}),
        ({"original_expiration": "4294967295"}, {"ttl": Uint(4294967295)}),
        ({"routing_keys": []}, {"routing-keys": Array(0xB1, [])}),
    ],
)
def test_a_death_with_invalid_fields_is_converted_without_them(changed: Any, kept: Any) -> None:
    death = Death(**(vars(EXPIRED) | changed))
    found = converted10({}, field(b"x-death", encode_deaths([death])))[ANNOTATIONS]
    assert found["x-opt-deaths"] == Array(0xD1, [history(**kept)])


@pytest.mark.parametrize(
    "value",
    [
        b"V",
        b"A\0\0\0\0",
        b"A\0\0\0\1V",
        b"A\0\0\0\x05F\0\0\0\0",
        encode_deaths([Death("q", "\u00e9", 1, "", [])]),
        encode_deaths([Death("q", "r", 1, "", [], "", -1)]),
    ],
)
def test_an_x_death_that_is_no_history_is_left_out(value: bytes) -> None:
    found = converted10({}, field(b"x-death", value) + field(b"x-n", b"V"))[ANNOTATIONS]
    assert found == OURS | {"x-n": None}


def test_x_opt_deaths_are_x_death() -> None:
    other = {"queue": "q2", "reason": "rejected", "count": Ulong(3), "exchange": "", "ttl": ...}
    other |= {"first-time": Timestamp(1_700_000_001_999), "routing-keys": ["q2"]}
    _, headers, body = converted091(
        annotations({"x-opt-deaths": Array(0xD1, [history(), history(**other)])}), HELLO
    )
    assert list(headers) == [b"x-death"]
    assert decode_deaths(headers[b"x-death"]) == [EXPIRED, REJECTED]
    assert body == b"hello"


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        Array(0xD1, []),
        Array(0x50, [1]),
        *[
            Array(0xD1, [history(**{name: wrong})])
            for name, wrong in [
                ("queue", ...),
                ("reason", 5),
                ("exchange", b"ex"),
                ("count", Ulong(0)),
                ("count", Ulong(2**64 - 1)),
                ("first-time", Ulong(5)),
                ("first-time", Timestamp(-1)),
                ("first-time", Timestamp(2**63 - 1)),
                ("routing-keys", "k"),
            ]
        ],
    ],
)
def test_x_opt_deaths_that_are_no_history_are_left_out(value: object) -> None:
    _, headers, _ = converted091(annotations({"x-opt-deaths": value, "x-n": None}), HELLO)
    assert headers == {b"x-n": b"V"}
    assert encode(value)


def test_invalid_entries_of_x_opt_deaths_are_left_out() -> None:
    value = Array(0xD1, [history(count=Ulong(0)), history(), Map([])])
    _, headers, _ = converted091(annotations({"x-opt-deaths": value}), HELLO)
    assert decode_deaths(headers[b"x-death"]) == [EXPIRED]
