"""Composites of AMQP 1.0: reading, writing, and errors that name the refused field."""

from uuid import UUID

import pytest

from protocol.amqp10 import composites, performatives
from protocol.amqp10.composing import compose, decode_composite, decompose, encode_composite
from protocol.amqp10.composites import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    DeleteOnClose,
    Discharge,
    Error,
    Modified,
    Properties,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from protocol.amqp10.conditions import DECODE_ERROR, DecodeError
from protocol.amqp10.decoding import decode, decode_typed
from protocol.amqp10.definitions import COMPOSITES
from protocol.amqp10.encoding import encode
from protocol.amqp10.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
)
from protocol.amqp10.types import (
    Array,
    Byte,
    Char,
    Composite,
    Described,
    Map,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    symbols,
)
from tests.support.amqp10.described_lists import described_list

FILLED: list[Composite] = [
    Open(
        container_id="c", hostname="h", idle_time_out=0, outgoing_locales=("en",), properties={"a": Uint(1)}
    ),
    Begin(remote_channel=65535, next_outgoing_id=0, incoming_window=2**32 - 1, outgoing_window=1),
    Attach(
        name="l",
        handle=7,
        role=True,
        snd_settle_mode=1,
        rcv_settle_mode=1,
        source=Source(
            address="a", filter={"f": Described(Symbol("f"), Ulong(300))}, default_outcome=Accepted()
        ),
        target=Coordinator(capabilities=("amqp:local-transactions",)),
        unsettled={b"\0": None, b"\1": Described(Ulong(0x24), [])},
        max_message_size=2**64 - 1,
    ),
    Transfer(
        handle=0, delivery_id=0, delivery_tag=b"t", state=TransactionalState(txn_id=b"x", outcome=Accepted())
    ),
    Disposition(role=False, first=1, last=2, settled=True, state=Modified(message_annotations={"x": "y"})),
    Detach(handle=1, closed=True, error=Error(condition="amqp:not-found", info={"field": Symbol("filter")})),
    SaslMechanisms(sasl_server_mechanisms=("PLAIN", "ANONYMOUS")),
    SaslInit(mechanism="PLAIN", initial_response=b"\0a\0b"),
    SaslOutcome(code=4, additional_data=b""),
    Declare(global_id=Described(Symbol("any"), b"\0")),
    Declared(txn_id=b"\0"),
    Discharge(txn_id=b"\0", fail=True),
    Rejected(error=Error(condition="x:own")),
    Properties(message_id=5, correlation_id=UUID(int=1), creation_time=Timestamp(-1), group_sequence=0),
    Properties(message_id="m", correlation_id=b"c", user_id=b"u", content_type="text/plain"),
]


@pytest.mark.parametrize("composite", FILLED, ids=lambda composite: type(composite).__name__)
def test_written_composites_are_read_again(composite: Composite) -> None:
    data = encode_composite(composite)

    assert decode_composite(b"\xff" + data + b"\xff", 1) == (composite, 1 + len(data))
    assert compose(decode(data)[0]) == compose(decode_typed(data)[0])


def test_all_fields_are_written_behind_a_short_numeric_descriptor() -> None:
    for composite in FILLED:
        (named,) = [named for named in COMPOSITES if named.code == composite.DESCRIPTOR]
        data = encode_composite(composite)
        described, _ = decode(data)

        assert data[:3] == bytes([0x00, 0x53, named.code])
        assert data[3] in (0xC0, 0xD0)
        assert isinstance(described, Described)
        assert isinstance(described.value, list)
        assert len(described.value) == len(named.fields)


def test_a_composite_has_a_size_even_without_any_field_and_none_within_another() -> None:
    assert encode_composite(Accepted()).hex() == "005324c00100"
    assert (
        encode_composite(Disposition(role=True, first=1, state=Accepted())).hex()
        == "005315c00b0641520140420053244542"
    )


def test_there_is_a_class_for_every_definition() -> None:
    found = {
        made.DESCRIPTOR
        for module in (performatives, composites)
        for made in vars(module).values()
        if isinstance(made, type) and issubclass(made, Composite) and made is not Composite
    }

    assert found == {named.code for named in COMPOSITES}


@pytest.mark.spec("amqp-1.0", "1.1.2")
@pytest.mark.spec("amqp-1.0", "1.3.3")
@pytest.mark.spec("amqp-1.0", "1.5")
def test_a_composite_is_read_by_its_numeric_or_symbolic_descriptor() -> None:
    for composite in FILLED:
        (named,) = [named for named in COMPOSITES if named.code == composite.DESCRIPTOR]
        value = decompose(composite)

        for descriptor in (named.code, Ulong(named.code), Uint(named.code), Symbol(named.symbol)):
            assert compose(Described(descriptor, value.value)) == composite


@pytest.mark.spec("amqp-1.0", "1.3.4")
@pytest.mark.spec("amqp-1.0", "1.4")
def test_missing_fields_at_the_end_have_their_defaults() -> None:
    expected = Open(container_id="c")

    assert compose(Described(Ulong(0x10), ["c"])) == expected
    assert compose(Described(Ulong(0x10), ["c"] + [None] * 9)) == expected
    assert (expected.max_frame_size, expected.channel_max, expected.offered_capabilities) == (
        2**32 - 1,
        65535,
        (),
    )
    assert compose(Described(Ulong(0x29), [])) == Target()
    assert (Target().durable, Target().expiry_policy, Target().timeout) == (0, "session-end", 0)
    attach = compose(described_list(0x12, name="l", handle=0, role=False))
    assert isinstance(attach, Attach)
    assert (attach.snd_settle_mode, attach.rcv_settle_mode, attach.source) == (2, 0, None)


@pytest.mark.spec("amqp-1.0", "1.3.4")
@pytest.mark.parametrize(
    "capabilities",
    [Symbol("a"), "a", symbols(["a"]), [Symbol("a")], Array(0xB3, [Symbol("a")]), Array(0xA1, ["a"])],
)
def test_a_single_value_or_a_list_is_read_for_a_multiple_field(capabilities: object) -> None:
    opened = compose(described_list(0x10, container_id="c", offered_capabilities=capabilities))

    assert opened == Open(container_id="c", offered_capabilities=("a",))
    assert isinstance(opened, Open)
    assert type(opened.offered_capabilities[0]) is Symbol


def test_integers_have_any_width_and_are_plain() -> None:
    opened = compose(
        described_list(0x10, container_id=Symbol("c"), max_frame_size=Ulong(512), channel_max=Byte(1))
    )

    assert opened == Open(container_id="c", max_frame_size=512, channel_max=1)
    assert isinstance(opened, Open)
    assert type(opened.max_frame_size) is int
    assert type(opened.container_id) is str


def test_values_of_a_map_keep_their_types_and_bytes() -> None:
    filters = {
        "f": Described(Ulong(0x468C00000004), "a = 1"),
        "g": [Ubyte(1), Map([(Char("k"), Timestamp(1))])],
    }
    source, _ = decode_composite(encode_composite(Source(filter=filters)))

    assert isinstance(source, Source)
    assert source.filter is not None
    assert [encode(item) for item in source.filter.values()] == [encode(item) for item in filters.values()]


def test_composites_in_maps_are_written_as_such() -> None:
    source = Source(dynamic_node_properties={"lifetime-policy": DeleteOnClose()})
    found, _ = decode_composite(encode_composite(source))

    assert isinstance(found, Source)
    assert found.dynamic_node_properties is not None
    assert compose(found.dynamic_node_properties["lifetime-policy"]) == DeleteOnClose()


@pytest.mark.parametrize(
    "composite",
    [
        Open(container_id="c", channel_max=65536),
        Open(container_id=None),  # type: ignore[arg-type]
        Open(container_id="c", properties={"\u00e9": 1}),
        Open(container_id="c", offered_capabilities=("\u00e9",)),
        Close(error=Accepted()),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_invalid_field_values_are_not_written(composite: Composite) -> None:
    with pytest.raises(ValueError, match=r"(open|close)\.[a-z-]+ is .* instead of"):
        encode_composite(composite)


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
    ("value", "reason"),
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
        (described_list(0x10, container_id=5), "open.container-id is int 5 instead of string"),
        (described_list(0x10, container_id=Char("c")), "open.container-id is char 'c' instead of string"),
        (described_list(0x10, container_id=b"c"), "open.container-id is bytes b'c' instead of string"),
        (
            described_list(0x10, container_id="c", channel_max=65536),
            "open.channel-max is int 65536 instead of ushort",
        ),
        (
            described_list(0x10, container_id="c", channel_max=-1),
            "open.channel-max is int -1 instead of ushort",
        ),
        (
            described_list(0x10, container_id="c", channel_max=True),
            "open.channel-max is bool True instead of ushort",
        ),
        (
            described_list(0x10, container_id="c", idle_time_out=Timestamp(1)),
            "open.idle-time-out is timestamp 1 instead",
        ),
        (
            described_list(0x10, container_id="c", idle_time_out=1.0),
            "open.idle-time-out is float 1.0 instead of uint",
        ),
        (
            described_list(0x10, container_id="c", offered_capabilities=symbols(["a"]).count),
            "open.offered-capabilities is int 1",
        ),
        (
            described_list(0x10, container_id="c", offered_capabilities=[None]),
            "open.offered-capabilities is nonetype",
        ),
        (described_list(0x10, container_id="c", offered_capabilities="\u00e9"), "instead of symbol"),
        (
            described_list(0x10, container_id="c", offered_capabilities=Array(0x40, [], (), 9)),
            "without width",
        ),
        (
            described_list(0x10, container_id="c", offered_capabilities=Array(0xA3, [Symbol("a")], (1,))),
            "described values",
        ),
        (
            described_list(0x10, container_id="c", properties=[]),
            "open.properties is a list instead of map of symbols",
        ),
        (
            described_list(0x10, container_id="c", properties=Map([("a", 1), ("a", 2)])),
            "open.properties is a map instead of map",
        ),
        (
            described_list(0x10, container_id="c", properties={5: 1}),
            "open.properties is a dict instead of map of symbols",
        ),
        (
            described_list(0x10, container_id="c", properties=Map([([], 1)])),
            "open.properties is a map instead of map of symbols",
        ),
        (described_list(0x12, name="l", handle=0), "attach.role is missing"),
        (described_list(0x12, name="l", handle=0, role=0), "attach.role is int 0 instead of boolean"),
        (
            described_list(0x12, name="l", handle=0, role=True, snd_settle_mode=3),
            "attach.snd-settle-mode is int 3, which is not an allowed value",
        ),
        (
            described_list(0x12, name="l", handle=0, role=True, source=described_list(0x29)),
            "attach.source is of type target",
        ),
        (
            described_list(0x12, name="l", handle=0, role=True, source="a"),
            "attach.source is str 'a' instead of source",
        ),
        (
            described_list(0x12, name="l", handle=0, role=True, source=described_list(0x28, timeout="1")),
            "source.timeout is str '1'",
        ),
        (
            described_list(
                0x12, name="l", handle=0, role=True, source=described_list(0x28, expiry_policy="soon")
            ),
            "not an allowed value",
        ),
        (
            described_list(0x12, name="l", handle=0, role=True, target=described_list(0x24)),
            "attach.target is of type accepted",
        ),
        (
            described_list(0x12, name="l", handle=0, role=True, unsettled={"a": None}),
            "attach.unsettled is a dict instead of map",
        ),
        (
            described_list(0x15, role=True, first=0, state=described_list(0x1D, condition="a")),
            "disposition.state is of type error",
        ),
        (described_list(0x18, error="x"), "close.error is str 'x' instead of error"),
        (described_list(0x18, error=described_list(0x1D)), "error.condition is missing"),
        (described_list(0x32, txn_id="a"), "discharge.txn-id is str 'a' instead of binary"),
        (
            described_list(
                0x34, txn_id=b"a", outcome=described_list(0x23, section_number=0, section_offset=0)
            ),
            "is of type received",
        ),
        (described_list(0x40), "sasl-mechanisms.sasl-server-mechanisms is missing"),
        (described_list(0x44, code=5), "sasl-outcome.code is int 5, which is not an allowed value"),
        (
            described_list(0x73, message_id=True),
            "properties.message-id is bool True instead of ulong or uuid or binary or string",
        ),
        (described_list(0x73, message_id=-1), "properties.message-id is int -1"),
        (described_list(0x73, creation_time=5), "properties.creation-time is int 5 instead of timestamp"),
        (described_list(0x10, container_id=["x" * 1000]), "open.container-id is a list instead of string"),
    ],
)
def test_unexpected_values_are_refused_by_name(value: object, reason: str) -> None:
    text = refusal(value)

    assert reason in text
    assert len(text) < 200


def test_a_long_value_is_not_repeated_to_the_peer() -> None:
    assert len(refusal(described_list(0x10, container_id=b"x" * 100_000))) < 120
