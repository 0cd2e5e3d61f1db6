"""Composites of AMQP 1.0 with something that does not belong: the error names the field."""

from uuid import UUID

import pytest

from protocol.amqp10.composing import compose
from protocol.amqp10.conditions import DECODE_ERROR, DecodeError
from protocol.amqp10.types import Array, Char, Described, Map, Symbol, Timestamp, Ulong, symbols
from tests.amqp10_lists import at


def refusal(value: object) -> str:
    with pytest.raises(DecodeError) as caught:
        compose(value)
    assert caught.value.condition == DECODE_ERROR
    return caught.value.text


@pytest.mark.spec("amqp-1.0", "1.3.5")
@pytest.mark.spec("amqp-1.0", "1.4")
@pytest.mark.spec("amqp-1.0", "2.8.13")
@pytest.mark.spec("amqp-1.0", "2.8.14")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (5, "int 5 where a composite is expected"),
        (Described(Ulong(0x19), []), "unknown descriptor ulong 25"),
        (Described(Symbol("amqp:opened:list"), []), "unknown descriptor symbol 'amqp:opened:list'"),
        (Described([], []), "unknown descriptor a list"),
        (Described(UUID(int=1), []), "unknown descriptor uuid"),
        (Described(Ulong(0x10), {}), "open is a dict instead of a list"),
        (Described(Ulong(0x10), None), "open is nonetype None instead of a list"),
        (Described(Ulong(0x10), []), "open.container-id is missing"),
        (Described(Ulong(0x10), ["c"] * 11), "open has 11 fields, 10 are defined"),
        (Described(Ulong(0x24), [None]), "accepted has 1 fields, 0 are defined"),
        (at(0x10, container_id=5), "open.container-id is int 5 instead of string"),
        (at(0x10, container_id=Char("c")), "open.container-id is char 'c' instead of string"),
        (at(0x10, container_id=b"c"), "open.container-id is bytes b'c' instead of string"),
        (at(0x10, container_id="c", channel_max=65536), "open.channel-max is int 65536 instead of ushort"),
        (at(0x10, container_id="c", channel_max=-1), "open.channel-max is int -1 instead of ushort"),
        (at(0x10, container_id="c", channel_max=True), "open.channel-max is bool True instead of ushort"),
        (at(0x10, container_id="c", idle_time_out=Timestamp(1)), "open.idle-time-out is timestamp 1 instead"),
        (at(0x10, container_id="c", idle_time_out=1.0), "open.idle-time-out is float 1.0 instead of uint"),
        (
            at(0x10, container_id="c", offered_capabilities=symbols(["a"]).count),
            "open.offered-capabilities is int 1",
        ),
        (at(0x10, container_id="c", offered_capabilities=[None]), "open.offered-capabilities is nonetype"),
        (at(0x10, container_id="c", offered_capabilities="\u00e9"), "instead of symbol"),
        (at(0x10, container_id="c", offered_capabilities=Array(0x40, [], (), 9)), "without width"),
        (
            at(0x10, container_id="c", offered_capabilities=Array(0xA3, [Symbol("a")], (1,))),
            "described values",
        ),
        (at(0x10, container_id="c", properties=[]), "open.properties is a list instead of map of symbols"),
        (
            at(0x10, container_id="c", properties=Map([("a", 1), ("a", 2)])),
            "open.properties is a map instead of map",
        ),
        (
            at(0x10, container_id="c", properties={5: 1}),
            "open.properties is a dict instead of map of symbols",
        ),
        (
            at(0x10, container_id="c", properties=Map([([], 1)])),
            "open.properties is a map instead of map of symbols",
        ),
        (at(0x12, name="l", handle=0), "attach.role is missing"),
        (at(0x12, name="l", handle=0, role=0), "attach.role is int 0 instead of boolean"),
        (
            at(0x12, name="l", handle=0, role=True, snd_settle_mode=3),
            "attach.snd-settle-mode is int 3, which is none",
        ),
        (at(0x12, name="l", handle=0, role=True, source=at(0x29)), "attach.source is of type target"),
        (at(0x12, name="l", handle=0, role=True, source="a"), "attach.source is str 'a' instead of source"),
        (at(0x12, name="l", handle=0, role=True, source=at(0x28, timeout="1")), "source.timeout is str '1'"),
        (
            at(0x12, name="l", handle=0, role=True, source=at(0x28, expiry_policy="soon")),
            "none of its choices",
        ),
        (at(0x12, name="l", handle=0, role=True, target=at(0x24)), "attach.target is of type accepted"),
        (
            at(0x12, name="l", handle=0, role=True, unsettled={"a": None}),
            "attach.unsettled is a dict instead of map",
        ),
        (at(0x15, role=True, first=0, state=at(0x1D, condition="a")), "disposition.state is of type error"),
        (at(0x18, error="x"), "close.error is str 'x' instead of error"),
        (at(0x18, error=at(0x1D)), "error.condition is missing"),
        (at(0x32, txn_id="a"), "discharge.txn-id is str 'a' instead of binary"),
        (at(0x34, txn_id=b"a", outcome=at(0x23, section_number=0, section_offset=0)), "is of type received"),
        (at(0x40), "sasl-mechanisms.sasl-server-mechanisms is missing"),
        (at(0x44, code=5), "sasl-outcome.code is int 5, which is none of its choices"),
        (
            at(0x73, message_id=True),
            "properties.message-id is bool True instead of ulong or uuid or binary or string",
        ),
        (at(0x73, message_id=-1), "properties.message-id is int -1"),
        (at(0x73, creation_time=5), "properties.creation-time is int 5 instead of timestamp"),
        (at(0x10, container_id=["x" * 1000]), "open.container-id is a list instead of string"),
    ],
)
def test_what_does_not_belong_is_refused_by_name(value: object, said: str) -> None:
    text = refusal(value)

    assert said in text
    assert len(text) < 200


def test_a_long_value_is_not_repeated_to_the_peer() -> None:
    assert len(refusal(at(0x10, container_id=b"x" * 100_000))) < 120
