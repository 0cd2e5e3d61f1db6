"""Sent frames: all fields of every performative, transfers split for the peer, outcomes."""

import pytest

from protocol.amqp10 import outcomes
from protocol.amqp10.conditions import FRAME_SIZE_TOO_SMALL, PeerError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.descriptors import ACCEPTED, DECLARED, MODIFIED, REJECTED, RELEASED, TRANSACTIONAL_STATE
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.flows import Flow
from protocol.amqp10.frames import AMQP_FRAME, Frames
from protocol.amqp10.outgoing import SplitTransfer, TransferTemplate, disposition, flow
from protocol.amqp10.states import read_state
from protocol.amqp10.transfers import Transfer
from tests.support.amqp10.reference_codec import decode


def frames_of(data: bytes, size_max: int = 1 << 20) -> list[tuple[int, bytes]]:
    frames = Frames(AMQP_FRAME, size_max, 65535)
    frames.append(data)
    found = []
    while frames.advance():
        found.append((frames.channel, frames.data[frames.start : frames.end]))
    assert sum(8 + len(body) for _, body in found) == len(data)
    return found


def field_count(body: bytes) -> int:
    (kind, code, (descriptor, value)), _ = decode(body)
    assert (kind, code, descriptor[1]) == ("described", 0, 0x53)
    return len(value[2])


@pytest.mark.parametrize("handle", [0, 1, 255, 256, 2**32 - 1])
@pytest.mark.parametrize("delivery_id", [0, 2**31, 2**32 - 1])
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("tag", [b"", b"\0\0\0\x01", b"t" * 32])
def test_a_transfer_has_all_fields(handle: int, delivery_id: int, settled: bool, tag: bytes) -> None:
    head = TransferTemplate(513, handle, 4096).whole(delivery_id, tag, settled, 7)
    assert head is not None
    [(channel, body)] = frames_of(head + b"payload")
    read = Transfer()
    read.read(body, 0, len(body))

    assert channel == 513
    assert field_count(body) == 11
    assert (read.handle, read.delivery_id, read.delivery_tag, read.settled) == (
        handle,
        delivery_id,
        tag,
        settled,
    )
    assert (read.message_format, read.more, read.state, read.rcv_settle_mode) == (0, False, None, NONE)
    assert not any((read.resume, read.aborted, read.batchable))
    assert body[read.payload :] == b"payload"


def test_a_transfer_is_whole_up_to_the_last_byte_of_a_frame() -> None:
    template = TransferTemplate(0, 0, 512)
    head = template.whole(1, b"tag", False, 0)
    assert head is not None
    room = 512 - len(head)

    assert template.whole(1, b"tag", False, room) is not None
    assert template.whole(1, b"tag", False, room + 1) is None


def split(parts: list[bytes], size_max: int, **more: object) -> tuple[list[Transfer], bytes]:
    """Return the transfers of a delivery, and their payload."""
    sending = SplitTransfer(TransferTemplate(3, 4, size_max), 2**32 - 1, b"tag", False, parts, **more)  # type: ignore[arg-type]
    found = []
    payload = b""
    last = False
    while not last:
        out: list[bytes] = []
        last = sending.write(out)
        [(channel, body)] = frames_of(b"".join(out), size_max)
        read = Transfer()
        read.read(body, 0, len(body))
        assert (channel, read.handle, read.delivery_id, read.delivery_tag) == (3, 4, 2**32 - 1, b"tag")
        assert read.more == (not last)
        assert field_count(body) == 11
        assert last or 8 + len(body) == size_max
        found.append(read)
        payload += body[read.payload :]
    assert sending.left == 0
    return found, payload


@pytest.mark.parametrize(
    "sizes", [[], [0], [1], [0, 0, 5], [400], [478], [479], [480], [3, 0, 2000, 1], [1000, 1000], [1] * 1500]
)
def test_transfers_split_for_frames_of_512_bytes_are_complete(sizes: list[int]) -> None:
    parts = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    found, payload = split(parts, 512)
    head = TransferTemplate(3, 4, 512).whole(1, b"tag", False, 0)
    assert head is not None
    room = 512 - len(head)

    assert payload == b"".join(parts)
    assert len(found) == max(1, -(-sum(sizes) // room))


def test_parts_that_fit_are_not_copied() -> None:
    parts = [b"a" * 10, b"b" * 20]
    out: list[bytes] = []
    assert SplitTransfer(TransferTemplate(0, 0, 512), 1, b"t", True, parts).write(out)

    assert out[1] is parts[0]
    assert out[2] is parts[1]


@pytest.mark.parametrize("id_bytes", [4, 32, 210, 300])
def test_a_state_and_a_format_are_in_every_frame(id_bytes: int) -> None:
    state = outcomes.transactional(b"x" * id_bytes)
    found, payload = split([b"p" * 3000], 1024, state=state, message_format=0x80013700, resume=True)

    assert payload == b"p" * 3000
    assert len(found) > 2
    for read in found:
        assert read.state is not None
        assert read.state.txn_id == b"x" * id_bytes
        assert (read.message_format, read.resume) == (0x80013700, True)


def test_an_abandoned_delivery_is_aborted() -> None:
    sending = SplitTransfer(TransferTemplate(0, 0, 512), 5, b"t", False, [b"x" * 1000])
    assert not sending.write([])
    [(_, body)] = frames_of(sending.abort())
    read = Transfer()
    read.read(body, 0, len(body))

    assert (read.delivery_id, read.delivery_tag, read.aborted, read.more) == (5, b"t", True, False)
    assert read.payload == len(body)


def test_frames_without_room_for_a_payload_are_refused() -> None:
    with pytest.raises(PeerError) as caught:
        SplitTransfer(
            TransferTemplate(0, 0, 512), 1, b"", False, [b"x"], state=outcomes.transactional(b"x" * 600)
        )

    assert caught.value.condition == FRAME_SIZE_TOO_SMALL


ERROR = outcomes.error("amqp:internal-error", "\u00fc" * 200)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (outcomes.ACCEPTED_VALUE, ACCEPTED),
        (outcomes.RELEASED_VALUE, RELEASED),
        (outcomes.rejected(), REJECTED),
        (outcomes.rejected(ERROR), REJECTED),
        (outcomes.modified(True, False, b"\xc1\x01\x00"), MODIFIED),
        (outcomes.transactional(b"id", outcomes.ACCEPTED_VALUE), TRANSACTIONAL_STATE),
    ],
)
@pytest.mark.parametrize("settled", [True, False])
def test_a_disposition_has_all_fields(state: bytes, code: int, settled: bool) -> None:
    [(channel, body)] = frames_of(disposition(9, settled, 2**32 - 2, 3, settled, state))
    read = Disposition()
    read.read(body, 0, len(body))

    assert (channel, field_count(body)) == (9, 6)
    assert (read.receiver, read.first, read.last, read.settled) == (settled, 2**32 - 2, 3, settled)
    assert read.state is not None
    assert read.state.code == code


@pytest.mark.parametrize("size", range(200, 260))
def test_lists_and_states_grow_out_of_their_short_forms(size: int) -> None:
    state = outcomes.rejected(outcomes.error("amqp:x", "d" * size))
    [(_, body)] = frames_of(disposition(9, True, 1, 2, True, state))
    read = Disposition()
    read.read(body, 0, len(body))

    assert read.state is not None
    assert read.state.description == "d" * size
    assert field_count(body) == 6
    assert state[3] == (0xC0 if len(state) <= 3 + 2 + 255 else 0xD0)
    assert body[3] == (0xC0 if len(state) + 13 <= 254 else 0xD0)


def test_encoded_outcomes_have_the_given_fields() -> None:
    rejected = read_state(outcomes.rejected(ERROR), 0, len(outcomes.rejected(ERROR)), "state")
    assert (rejected.condition, rejected.description) == ("amqp:internal-error", "\u00fc" * 200)
    modified = outcomes.modified(False, True, b"\xc1\x01\x00")
    state = read_state(modified, 0, len(modified), "state")
    assert (state.delivery_failed, state.undeliverable_here, state.annotations) == (
        False,
        True,
        b"\xc1\x01\x00",
    )
    assert decode(outcomes.declared(b"id"))[0][2][0] == ("fixed", 0x53, bytes([DECLARED]))
    assert decode(outcomes.declared(b"id"))[0][2][1][2] == [("content", 0xA0, b"id")]


@pytest.mark.parametrize("number", [0, 1, 255, 256, 2**31, 2**32 - 1])
@pytest.mark.parametrize(
    "properties", [b"\x40", b"\xc1\x01\x00", b"\xd1" + (252).to_bytes(4, "big") + bytes(252)]
)
def test_a_flow_has_all_fields(number: int, properties: bytes) -> None:
    numbers = [number, 1, number, 2, number, 3, number, 4]
    made = flow(1, number, 1, number, 2, number, 3, number, 4, True, False, properties)
    [(channel, body)] = frames_of(made)
    read = Flow()
    read.read(body, 0, len(body))

    found = [read.next_incoming_id, read.incoming_window, read.next_outgoing_id, read.outgoing_window]
    found += [read.handle, read.delivery_count, read.link_credit, read.available]
    assert (channel, found) == (1, numbers)
    assert (read.drain, read.echo) == (True, False)
    assert read.properties == (None if properties == b"\x40" else properties)


def test_a_flow_of_a_session_has_nulls_for_a_link() -> None:
    [(_, body)] = frames_of(flow(0, NONE, 1, 2, 3, NONE, NONE, NONE, NONE, False, True))
    read = Flow()
    read.read(body, 0, len(body))

    assert field_count(body) == 11
    assert (read.next_incoming_id, read.handle, read.delivery_count, read.link_credit, read.available) == (
        NONE,
    ) * 5
    assert read.echo
