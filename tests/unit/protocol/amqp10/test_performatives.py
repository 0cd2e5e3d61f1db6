"""Transfer, disposition and flow, and the performatives of a recorded client (python-qpid-proton 0.40)."""

import pytest

from protocol.amqp10.composing import decode_composite, encode_composite
from protocol.amqp10.composites import Coordinator, Error, Source, Target
from protocol.amqp10.conditions import DECODE_ERROR, INVALID_FIELD, DecodeError, PeerError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.decoding import decode, decode_typed, skip
from protocol.amqp10.descriptors import ACCEPTED, MODIFIED, RECEIVED, REJECTED, RELEASED, TRANSACTIONAL_STATE
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.encoding import encode
from protocol.amqp10.flows import Flow
from protocol.amqp10.performatives import Attach, Begin, Detach, Open
from protocol.amqp10.performatives import Flow as FlowPerformative
from protocol.amqp10.states import DeliveryState, read_state
from protocol.amqp10.transfers import Transfer
from protocol.amqp10.types import Composite, Described, Symbol
from tests.support.amqp10.reference_codec import compound, described, sized, uint

NULL = b"\x40"


def transfer(*fields: bytes, payload: bytes = b"", code: int = 0xC0) -> Transfer:
    data = b"before" + described(0x14, compound(code, list(fields)))
    read = Transfer()
    read.read(data + payload, 6, len(data) + len(payload))
    assert read.payload == len(data)
    return read


def disposition(*fields: bytes) -> Disposition:
    data = described(0x15, compound(0xC0, list(fields)))
    read = Disposition()
    read.read(data + b"next", 0, len(data))
    return read


def state_of(encoded: bytes) -> DeliveryState:
    state = disposition(b"\x41", b"\x43", NULL, NULL, encoded).state
    assert state is not None
    return state


def flow(*fields: bytes) -> Flow:
    data = described(0x13, compound(0xD0, list(fields)))
    read = Flow()
    read.read(data, 0, len(data))
    return read


def test_a_transfer_with_its_handle_only() -> None:
    read = transfer(b"\x43", payload=b"body")

    assert (read.handle, read.delivery_id, read.delivery_tag, read.message_format) == (0, NONE, None, NONE)
    assert not any((read.settled, read.more, read.resume, read.aborted, read.batchable))
    assert (read.rcv_settle_mode, read.state) == (NONE, None)


def test_a_reused_transfer_resets_missing_fields() -> None:
    t = b"\x41"
    fields = [uint(5), uint(0xFFFFFFFF), sized(0xA0, b"t" * 32), uint(0x80013700), t, t, b"\x50\x01"]
    full = described(0x14, compound(0xC0, [*fields, described(0x26, b"\x45"), t, t, t]))
    read = Transfer()
    read.read(full, 0, len(full))

    assert (read.handle, read.delivery_id, read.message_format) == (5, 0xFFFFFFFF, 0x80013700)
    assert (read.delivery_tag, read.rcv_settle_mode) == (b"t" * 32, 1)
    assert read.state is not None
    assert read.state.code == RELEASED
    assert all((read.settled, read.more, read.resume, read.aborted, read.batchable))

    short = described(0x14, compound(0xC0, [b"\x43"]))
    read.read(short, 0, len(short))
    assert (read.delivery_id, read.delivery_tag, read.message_format) == (NONE, None, NONE)
    assert [read.rcv_settle_mode, read.state] == [NONE, None]
    assert not any((read.settled, read.more, read.resume, read.aborted, read.batchable))


@pytest.mark.parametrize("descriptor", [b"\x80" + b"\0" * 7 + b"\x14", sized(0xA3, b"amqp:transfer:list")])
def test_a_descriptor_may_be_long_or_a_symbol(descriptor: bytes) -> None:
    data = b"\x00" + descriptor + compound(0xC0, [uint(9)])
    read = Transfer()
    read.read(data, 0, len(data))

    assert read.handle == 9


@pytest.mark.parametrize(
    "descriptor", [b"\x80\xff" + b"\0" * 6 + b"\x14", b"\x44", b"\x53\x15", b"\xa3\x01x"]
)
def test_another_descriptor_is_refused(descriptor: bytes) -> None:
    data = b"\x00" + descriptor + compound(0xC0, [uint(9)])
    with pytest.raises(DecodeError, match="transfer has a wrong descriptor"):
        Transfer().read(data, 0, len(data))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([], "transfer.handle is missing"),
        ([NULL], "transfer.handle is missing"),
        ([b"\x53\x01"], "transfer.handle: constructor 0x53 is not allowed"),
        ([b"\x70\x00\x00\x00"], "transfer.handle is truncated"),
        ([b"\x57\x01"], "transfer.handle: constructor 0x57 does not exist"),
        ([b"\x43", b"\x41"], "transfer.delivery-id"),
        ([b"\x43", NULL, b"\xa1\x01a"], "transfer.delivery-tag: constructor 0xa1"),
        ([b"\x43", NULL, NULL, b"\x54\x00"], "transfer.message-format"),
        ([b"\x43", NULL, NULL, NULL, b"\x43"], "transfer.settled"),
        ([b"\x43", NULL, NULL, NULL, b"\x56\x02"], "transfer.settled: boolean of value 2"),
        ([b"\x43", *[NULL] * 4, b"\x50\x01"], "transfer.more"),
        ([b"\x43", *[NULL] * 5, b"\x50\x02"], "transfer.rcv-settle-mode is 2, expected 0 or 1"),
        ([b"\x43", *[NULL] * 5, b"\x52\x01"], "transfer.rcv-settle-mode"),
        ([b"\x43", *[NULL] * 6, b"\x41"], "transfer.state has no descriptor"),
        (
            [b"\x43", *[NULL] * 6, described(0x33, b"\xc0\x04\x01\xa0\x01x")],
            "transfer.state has a descriptor",
        ),
        ([b"\x43", *[NULL] * 7, b"\x43"], "transfer.resume"),
        ([b"\x43", *[NULL] * 8, b"\x43"], "transfer.aborted"),
        ([b"\x43", *[NULL] * 9, b"\x43"], "transfer.batchable"),
        ([b"\x43", *[NULL] * 11], "transfer has more than 11 fields"),
    ],
)
def test_errors_of_a_transfer_name_the_field(fields: list[bytes], reason: str) -> None:
    with pytest.raises(DecodeError, match=reason) as caught:
        transfer(*fields)

    assert caught.value.condition == DECODE_ERROR


@pytest.mark.spec("amqp-1.0", "2.8.7")
def test_a_long_delivery_tag_is_the_fault_of_the_link() -> None:
    read = Transfer()
    data = described(0x14, compound(0xC0, [uint(3), NULL, sized(0xB0, b"t" * 33)]))

    with pytest.raises(PeerError) as caught:
        read.read(data, 0, len(data))

    assert caught.value.condition == INVALID_FIELD
    assert read.handle == 3


@pytest.mark.parametrize(
    "body", [b"\xc0\x03\x01\x43\x43", b"\xc0\x01\x01", b"\xd0\0\0\0\x03\0\0\0", b"\xc1\x01\0"]
)
def test_a_list_of_another_length_than_its_fields_is_refused(body: bytes) -> None:
    data = described(0x14, body)
    with pytest.raises(DecodeError):
        Transfer().read(data, 0, len(data))


def test_a_disposition_says_a_range() -> None:
    read = disposition(b"\x41", uint(0xFFFFFFFE), uint(3, 1), b"\x41", described(0x24, b"\x45"), b"\x56\x01")

    assert (read.receiver, read.first, read.last, read.settled) == (True, 0xFFFFFFFE, 3, True)
    assert read.batchable
    assert read.state is not None
    assert read.state.code == ACCEPTED


def test_a_disposition_without_last_is_for_one_delivery() -> None:
    read = disposition(b"\x42", uint(7))

    assert (read.receiver, read.first, read.last, read.settled, read.state) == (False, 7, 7, False, None)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([], "disposition.role is missing"),
        ([b"\x41"], "disposition.first is missing"),
        ([b"\x43", b"\x43"], "disposition.role"),
        ([b"\x41", b"\x43", b"\x41"], "disposition.last"),
        ([b"\x41", b"\x43", *[NULL] * 5], "more than 6 fields"),
    ],
)
def test_errors_of_a_disposition_name_the_field(fields: list[bytes], reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        disposition(*fields)


@pytest.mark.parametrize("read", [Disposition(), Flow()])
def test_bytes_after_a_performative_without_payload_are_refused(read: Disposition | Flow) -> None:
    fields = [b"\x41", b"\x43"] if isinstance(read, Disposition) else [b"\x43"] * 4
    data = described(0x15 if isinstance(read, Disposition) else 0x13, compound(0xC0, fields))
    read.read(data, 0, len(data))

    with pytest.raises(DecodeError, match="bytes follow"):
        read.read(data + b"\x40", 0, len(data) + 1)


def test_the_plain_outcomes() -> None:
    error = described(
        0x1D, compound(0xC0, [sized(0xA3, b"amqp:x"), sized(0xA1, "\u00fc".encode()), b"\xc1\x01\0"])
    )
    rejected = state_of(described(0x25, compound(0xC0, [error])))
    assert (rejected.code, rejected.condition, rejected.description) == (REJECTED, "amqp:x", "\u00fc")
    assert rejected.info == b"\xc1\x01\0"
    assert state_of(described(0x25, b"\x45")).condition == ""

    modified = state_of(described(0x27, compound(0xD0, [b"\x41", b"\x56\x01", b"\xc1\x01\0"])))
    assert (modified.code, modified.delivery_failed, modified.undeliverable_here) == (MODIFIED, True, True)
    assert modified.annotations == b"\xc1\x01\0"

    received = state_of(described(0x23, compound(0xC0, [uint(3, 1), b"\x80" + b"\xff" * 8])))
    assert (received.code, received.section_number, received.section_offset) == (RECEIVED, 3, 2**64 - 1)
    assert state_of(described(0x24, b"\xc0\x01\0")).code == ACCEPTED
    assert state_of(described(0x26, b"\xd0\0\0\0\x04\0\0\0\0")).code == RELEASED


def test_a_state_in_a_transaction_has_its_outcome_inside() -> None:
    state = state_of(described(0x34, compound(0xC0, [sized(0xA0, b"tx"), described(0x27, b"\x45")])))

    assert (state.code, state.txn_id) == (TRANSACTIONAL_STATE, b"tx")
    assert state.outcome is not None
    assert (state.outcome.code, state.outcome.delivery_failed) == (MODIFIED, False)
    assert state_of(described(0x34, compound(0xC0, [sized(0xA0, b"tx")]))).outcome is None


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (described(0x28, b"\x45"), "disposition.state has a descriptor"),
        (described(0x24, b"\xc0\x02\x01\x40"), "accepted has more than 0 fields"),
        (described(0x24, b"\x40"), "accepted: constructor"),
        (described(0x23, b"\xc0\x02\x01\x43"), "received.section-offset is missing"),
        (described(0x23, b"\xc0\x03\x02\x43\x43"), "received.section-offset"),
        (described(0x25, b"\xc0\x02\x01\x41"), "error has no descriptor"),
        (described(0x25, compound(0xC0, [described(0x1D, b"\x45")])), "error.condition is missing"),
        (
            described(0x25, compound(0xC0, [described(0x1D, compound(0xC0, [b"\xa3\x01\xff"]))])),
            "error: condition is not ASCII",
        ),
        (described(0x27, compound(0xC0, [NULL, NULL, b"\x45"])), "modified.message-annotations"),
        (described(0x34, b"\x45"), "transactional-state.txn-id is missing"),
        (
            described(0x34, compound(0xC0, [b"\xa0\x00", described(0x34, b"\x45")])),
            "outcome has a descriptor",
        ),
        (
            described(0x34, compound(0xC0, [b"\xa0\x00", described(0x23, b"\x45")])),
            "outcome has a descriptor",
        ),
    ],
)
def test_errors_of_a_state_are_explained(state: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        state_of(state)


def test_bytes_after_a_delivery_state_are_refused() -> None:
    encoded = described(0x26, b"\x45")
    assert read_state(encoded, 0, len(encoded), "state").code == RELEASED

    with pytest.raises(DecodeError, match="state: bytes follow"):
        read_state(encoded + b"\x45", 0, len(encoded) + 1, "state")


def test_a_flow_says_windows_and_credit() -> None:
    numbers = [uint(number) for number in (0xFFFFFFFF, 2, 3, 4, 5, 0xFFFFFFF0, 7, 8)]
    read = flow(*numbers, b"\x41", b"\x41", b"\xc1\x01\x00")

    found = [read.next_incoming_id, read.incoming_window, read.next_outgoing_id, read.outgoing_window]
    found += [read.handle, read.delivery_count, read.link_credit, read.available]
    assert found == [0xFFFFFFFF, 2, 3, 4, 5, 0xFFFFFFF0, 7, 8]
    assert (read.drain, read.echo, read.properties) == (True, True, b"\xc1\x01\x00")


def test_a_flow_of_a_session_only() -> None:
    read = flow(NULL, b"\x43", b"\x43", b"\x43")

    assert (read.next_incoming_id, read.handle, read.delivery_count, read.link_credit, read.available) == (
        NONE,
    ) * 5
    assert (read.drain, read.echo, read.properties) == (False, False, None)


@pytest.mark.parametrize("missing", ["incoming-window", "next-outgoing-id", "outgoing-window"])
def test_a_flow_without_its_windows_is_refused(missing: str) -> None:
    place = ["", "incoming-window", "next-outgoing-id", "outgoing-window"].index(missing)
    with pytest.raises(DecodeError, match=f"flow.{missing} is missing"):
        flow(*[b"\x43"] * place, NULL, *[b"\x43"] * 4)


RECORDED: list[tuple[str, Composite]] = [
    (
        (
            "005310c06a0aa108636c69656e742d31a10776686f73743a617000008000607fff404040f00000000f000000"
            "02b300000001610000000162f00000001800000001b30000000f414e4f4e594d4f55532d52454c4159d10000"
            "001500000004a30770726f64756374a10178a3016e5501"
        ),
        Open(
            container_id="client-1",
            hostname="vhost:a",
            max_frame_size=32768,
            channel_max=32767,
            offered_capabilities=("a", "b"),
            desired_capabilities=("ANONYMOUS-RELAY",),
            properties={"product": "x", "n": 1},
        ),
    ),
    (
        "005311c012054043707fffffff707fffffff707fffffff",
        Begin(next_outgoing_id=0, incoming_window=2**31 - 1, outgoing_window=2**31 - 1, handle_max=2**31 - 1),
    ),
    (
        (
            "005312c03f0ba1066c696e6b2d73434250025000005328c00a05a10373726343404342005329c01807a1092f"
            "7175657565732f714340434240a305717565756540404344"
        ),
        Attach(
            name="link-s",
            handle=0,
            role=False,
            source=Source(address="src"),
            target=Target(address="/queues/q", capabilities=("queue",)),
            initial_delivery_count=0,
            max_message_size=0,
        ),
    ),
    (
        (
            "005312c07b0ba1066c696e6b2d7252014150015000005328c05708a1092f7175657565732f715202a3056e65"
            "76657243424040d10000003900000002a30873656c6563746f7200a3216170616368652e6f72673a73656c65"
            "63746f722d66696c7465723a737472696e67a10561203e2031005329c00605404340434240404344"
        ),
        Attach(
            name="link-r",
            handle=1,
            role=True,
            snd_settle_mode=1,
            source=Source(
                address="/queues/q",
                durable=2,
                expiry_policy="never",
                filter={"selector": Described(Symbol("apache.org:selector-filter:string"), "a > 1")},
            ),
            target=Target(),
            initial_delivery_count=0,
            max_message_size=0,
        ),
    ),
    (
        (
            "005312c0390aa102747852024250025000005328c006054043404342005330c01a01a317616d71703a6c6f63"
            "616c2d7472616e73616374696f6e73404043"
        ),
        Attach(
            name="tx",
            handle=2,
            role=False,
            source=Source(),
            target=Coordinator(capabilities=("amqp:local-transactions",)),
            initial_delivery_count=0,
        ),
    ),
    (
        "005313c0140940707fffffff43707fffffff520143520a4042",
        FlowPerformative(
            incoming_window=2**31 - 1,
            next_outgoing_id=0,
            outgoing_window=2**31 - 1,
            handle=1,
            delivery_count=0,
            link_credit=10,
        ),
    ),
    (
        (
            "005316c03703434100531dc02f03a30e616d71703a6e6f742d666f756e64a1046e6f6e65d100000013000000"
            "02a3056669656c64a30666696c746572"
        ),
        Detach(
            handle=0,
            closed=True,
            error=Error(condition="amqp:not-found", description="none", info={"field": "filter"}),
        ),
    ),
    (
        "005316c003015201",
        Detach(handle=1),
    ),
]


@pytest.mark.parametrize(("digits", "expected"), RECORDED)
def test_recorded_performatives_are_decoded(digits: str, expected: Composite) -> None:
    data = bytes.fromhex(digits)

    assert decode_composite(data + b"payload") == (expected, len(data))
    assert decode_composite(encode_composite(expected))[0] == expected


@pytest.mark.parametrize(("digits", "expected"), RECORDED)
def test_recorded_values_keep_their_types(digits: str, expected: Composite) -> None:
    typed, _ = decode_typed(bytes.fromhex(digits))
    again, _ = decode_typed(encode(typed))

    assert encode(again) == encode(typed)
    assert decode(encode(typed))[0] == decode(bytes.fromhex(digits))[0]


@pytest.mark.parametrize(("digits", "expected"), RECORDED)
def test_a_truncated_performative_is_a_decode_error(digits: str, expected: Composite) -> None:
    data = bytes.fromhex(digits)
    for length in range(len(data)):
        for read in (decode, decode_typed, decode_composite, skip):
            with pytest.raises(DecodeError):
                read(data[:length])
