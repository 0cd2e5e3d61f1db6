"""Composites of AMQP 1.0: what is read generously, what is refused with the field's name, what is written."""

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
from tests.amqp10_lists import at

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
def test_what_is_written_is_read_again(composite: Composite) -> None:
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
def test_either_descriptor_will_do() -> None:
    for composite in FILLED:
        (named,) = [named for named in COMPOSITES if named.code == composite.DESCRIPTOR]
        value = decompose(composite)

        for descriptor in (named.code, Ulong(named.code), Uint(named.code), Symbol(named.symbol)):
            assert compose(Described(descriptor, value.value)) == composite


@pytest.mark.spec("amqp-1.0", "1.3.4")
@pytest.mark.spec("amqp-1.0", "1.4")
def test_what_is_missing_at_the_end_has_its_default() -> None:
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
    attach = compose(at(0x12, name="l", handle=0, role=False))
    assert isinstance(attach, Attach)
    assert (attach.snd_settle_mode, attach.rcv_settle_mode, attach.source) == (2, 0, None)


@pytest.mark.spec("amqp-1.0", "1.3.4")
@pytest.mark.parametrize(
    "capabilities",
    [Symbol("a"), "a", symbols(["a"]), [Symbol("a")], Array(0xB3, [Symbol("a")]), Array(0xA1, ["a"])],
)
def test_one_value_or_a_list_will_do_where_there_may_be_several(capabilities: object) -> None:
    opened = compose(at(0x10, container_id="c", offered_capabilities=capabilities))

    assert opened == Open(container_id="c", offered_capabilities=("a",))
    assert isinstance(opened, Open)
    assert type(opened.offered_capabilities[0]) is Symbol


def test_integers_have_any_width_and_are_plain() -> None:
    opened = compose(at(0x10, container_id=Symbol("c"), max_frame_size=Ulong(512), channel_max=Byte(1)))

    assert opened == Open(container_id="c", max_frame_size=512, channel_max=1)
    assert isinstance(opened, Open)
    assert type(opened.max_frame_size) is int
    assert type(opened.container_id) is str


def test_what_a_map_holds_keeps_its_types_and_its_bytes() -> None:
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
def test_what_a_field_cannot_be_is_not_written(composite: Composite) -> None:
    with pytest.raises(ValueError, match=r"(open|close)\.[a-z-]+ cannot be"):
        encode_composite(composite)
