"""Attaches with long maps of unsettled deliveries, of which the states stay encoded."""

import dataclasses
from collections.abc import Mapping

import pytest

from protocol.amqp10.composing import decode_composite, encode_composite
from protocol.amqp10.composites import Accepted, Error, Modified, Rejected, Released, Source, Target
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.encoding import encode
from protocol.amqp10.performatives import Attach, Detach
from protocol.amqp10.types import Composite, Map, Symbol
from protocol.amqp10.unsettled import EncodedState, decode_attach, encoded_state
from tests.support.amqp10.unsettled_maps import unsettled

REST_MAX = 300
STATES = [
    None,
    Accepted(),
    Released(),
    Modified(delivery_failed=True, message_annotations={Symbol("x-opt-a"): [1, "b"]}),
    Rejected(error=Error(condition="test:bad", description="it is bad", info={"n": 1})),
]
MANY = {b"%d" % number: STATES[number % len(STATES)] for number in range(1000)}


def attach(states: Mapping[bytes, object] | None, **fields: object) -> Attach:
    """An attach with this map."""
    values = {"source": Source(address="q"), "target": Target(), **fields}
    return Attach(name="link", handle=1, role=True, unsettled=states, **values)  # type: ignore[arg-type]


def decoded(data: bytes, start: int = 0, rest_max: int = REST_MAX) -> Attach | None:
    """Return the decoded attach, or None."""
    return decode_attach(data, start, len(data), rest_max)


@pytest.mark.parametrize("front", [b"", b"before"])
@pytest.mark.parametrize("incomplete", [False, True])
def test_partial_decoding_agrees_with_complete_decoding(front: bytes, incomplete: bool) -> None:
    properties = {Symbol("p"): "v"}
    sent = encode_composite(
        attach(unsettled(MANY), incomplete_unsettled=incomplete, max_message_size=7, properties=properties)
    )
    whole, _ = decode_composite(sent)
    assert isinstance(whole, Attach)
    got = decoded(front + sent, len(front))
    assert got is not None
    assert dataclasses.replace(got, unsettled=None) == dataclasses.replace(whole, unsettled=None)
    assert whole.unsettled is not None
    assert got.unsettled is not None
    assert list(got.unsettled) == list(MANY)
    for tag, value in got.unsettled.items():
        assert (value is None) == (MANY[tag] is None)
        assert encoded_state(value) == encode(whole.unsettled[tag])


BEFORE = [encode("link"), b"\x43", b"\x41", b"\x40", b"\x40", b"\x40", b"\x40"]
"""The fields in front of the map, encoded."""


def counted(fields: bytes, count: int) -> bytes:
    """An attach of so many encoded fields."""
    return b"\0S\x12\xd0" + (len(fields) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + fields


def test_fields_behind_the_map_may_be_left_out() -> None:
    got = decoded(counted(b"".join([*BEFORE, encode(unsettled(MANY))]), 8))
    assert got is not None
    assert len(got.unsettled or ()) == len(MANY)
    assert got.incomplete_unsettled is False


@pytest.mark.parametrize(
    "made",
    [
        attach(None, properties={Symbol("p"): "v" * REST_MAX}),
        attach({}, properties={Symbol("p"): "v" * REST_MAX}),
        attach(unsettled(MANY), properties={Symbol("p"): "v" * REST_MAX}),
        Detach(handle=1, error=Error(condition="test:long", description="v" * REST_MAX)),
    ],
    ids=["no map", "a map of nothing", "a map and more", "another performative"],
)
def test_long_attaches_without_a_long_unsettled_map_have_no_partial_decoding(made: Composite) -> None:
    assert decoded(encode_composite(made)) is None


TAG = encode(b"tag")
WRONG = {
    "a tag twice": [TAG, b"\x40", TAG, b"\x40"],
    "a tag that is none": [encode("tag"), b"\x40"],
    "a tag without a state": [TAG],
    "a value that goes on": [TAG, b"\xb0\0\0\1\0"],
    "a constructor that is none": [TAG, b"\x3f"],
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_malformed_unsettled_map_is_a_decode_error(wrong: list[bytes]) -> None:
    body = b"".join(wrong)
    value = b"\xd1" + (len(body) + 4).to_bytes(4, "big") + len(wrong).to_bytes(4, "big") + body
    with pytest.raises(DecodeError):
        decoded(counted(b"".join([*BEFORE, value]), 8))


@pytest.mark.parametrize("size", range(4))
def test_a_map_without_a_count(size: int) -> None:
    value = b"\xd1" + size.to_bytes(4, "big") + bytes(size)
    with pytest.raises(DecodeError):
        decoded(counted(b"".join([*BEFORE, value]), 8))


@pytest.mark.parametrize("cut", [1, 5, 100, 5000])
def test_a_truncated_attach(cut: int) -> None:
    data = encode_composite(attach(unsettled(MANY)))
    with pytest.raises(DecodeError):
        decoded(data[:-cut])


def test_an_attach_with_trailing_bytes() -> None:
    with pytest.raises(DecodeError):
        decoded(encode_composite(attach(unsettled(MANY))) + b"\x40")


def test_a_value_is_encoded_once() -> None:
    assert encoded_state(EncodedState(b"as it came")) == b"as it came"
    assert encoded_state(Map([])) == encode(Map([]))
