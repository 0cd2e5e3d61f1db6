"""The parsers of frames and messages against everything: any encoding, any bytes, any cut."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.amqp10.annotations import annotations_section, check_annotations
from protocol.amqp10.conditions import DecodeError, PeerError
from protocol.amqp10.constructors import NONE, value_end
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.flows import Flow
from protocol.amqp10.frames import AMQP_FRAME, Frames
from protocol.amqp10.headers import Header
from protocol.amqp10.outgoing import SplitTransfer, TransferTemplate
from protocol.amqp10.properties import check_properties, read_text
from protocol.amqp10.sections import scan
from protocol.amqp10.transfers import Transfer
from tests.support.amqp10.reference_codec import WrongError, compound, decode, described, sized, uint
from tests.support.effort import cases

NULL = b"\x40"
MAP = b"\xc1\x01\x00"

BOOLEANS = st.sampled_from([b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"])
NUMBERS = st.one_of(
    st.just(b"\x43"),
    st.integers(0, 255).map(lambda number: uint(number, 1)),
    st.integers(0, 2**32 - 1).map(uint),
)
CONTENT = st.binary(max_size=32)
TAGS = st.builds(sized, st.sampled_from([0xA0, 0xB0]), CONTENT)
MAPS = st.sampled_from([MAP, compound(0xD1, [b"\xa3\x01k", b"\x45"])])
STATES = st.sampled_from(
    [
        described(0x24, b"\x45"),
        described(0x26, b"\xc0\x01\x00"),
        described(0x23, compound(0xC0, [b"\x43", b"\x44"])),
        described(0x25, compound(0xC0, [described(0x1D, compound(0xD0, [sized(0xB3, b"amqp:x")]))])),
        b"\x00" + sized(0xA3, b"amqp:modified:list") + compound(0xC0, [b"\x41", b"\x40", MAP]),
        described(0x34, compound(0xC0, [sized(0xA0, b"txn"), described(0x24, b"\x45")])),
    ]
)
MODES = st.sampled_from([b"\x50\x00", b"\x50\x01"])
FORMS = {
    "transfer": [NUMBERS, NUMBERS, TAGS, NUMBERS, BOOLEANS, BOOLEANS, MODES, STATES, *[BOOLEANS] * 3],
    "disposition": [BOOLEANS, NUMBERS, NUMBERS, BOOLEANS, STATES, BOOLEANS],
    "flow": [*[NUMBERS] * 8, BOOLEANS, BOOLEANS, MAPS],
}
REQUIRED = {"transfer": {0}, "disposition": {0, 1}, "flow": {1, 2, 3}}
CODES = {"transfer": 0x14, "disposition": 0x15, "flow": 0x13}
READERS: dict[str, type[Transfer] | type[Disposition] | type[Flow]] = {
    "transfer": Transfer,
    "disposition": Disposition,
    "flow": Flow,
}


@st.composite
def performatives(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw a performative in any legal encoding, and its name."""
    name = draw(st.sampled_from(sorted(FORMS)))
    forms = FORMS[name]
    count = draw(st.integers(max(REQUIRED[name]) + 1, len(forms)))
    fields = [
        draw(form if index in REQUIRED[name] else st.one_of(st.just(NULL), form))
        for index, form in enumerate(forms[:count])
    ]
    symbol = f"amqp:{name}:list".encode()
    descriptor = draw(
        st.sampled_from(
            [
                bytes((0x53, CODES[name])),
                b"\x80" + bytes(7) + bytes((CODES[name],)),
                sized(0xA3, symbol),
                sized(0xB3, symbol),
            ]
        )
    )
    code = 0xD0 if len(b"".join(fields)) > 250 else draw(st.sampled_from([0xC0, 0xD0]))
    return name, b"\x00" + descriptor + compound(code, fields)


def plain(value: Any) -> Any:
    """Return the plain value of a field of a primitive type."""
    kind, _, content = value
    if kind == "fixed":
        return int.from_bytes(content, "big")
    if kind in ("described", "map"):
        return kind
    return content


def meaning(name: str, encoded: bytes) -> list[Any]:
    """The fields of a performative, by the slow decoder; null and False as None."""
    value, end = decode(encoded)
    assert end == len(encoded)
    fields = [plain(field) for field in value[2][1][2]]
    fields += [None] * (len(FORMS[name]) - len(fields))
    if name == "disposition" and fields[2] is None:
        fields[2] = fields[1]
    return [None if field is False else field for field in fields]


def read(name: str, data: bytes, start: int, end: int) -> list[Any]:
    """The fields of a performative, by the parser; null as None."""
    made = READERS[name]()
    made.read(data, start, end)
    if isinstance(made, Transfer):
        fields: list[Any] = [made.handle, made.delivery_id, made.delivery_tag, made.message_format]
        fields += [made.settled, made.more, made.rcv_settle_mode, "described" if made.state else None]
        fields += [made.resume, made.aborted, made.batchable]
    elif isinstance(made, Disposition):
        fields = [made.receiver, made.first, made.last, made.settled, "described" if made.state else None]
        fields += [made.batchable]
    else:
        fields = [made.next_incoming_id, made.incoming_window, made.next_outgoing_id, made.outgoing_window]
        fields += [made.handle, made.delivery_count, made.link_credit, made.available, made.drain, made.echo]
        fields += ["map" if made.properties else None]
    return [None if field is False or (field == NONE and field is not True) else field for field in fields]


@given(performatives(), st.binary(max_size=20))
def test_every_encoding_means_what_the_slow_decoder_says(made: tuple[str, bytes], around: bytes) -> None:
    name, encoded = made
    payload = around if name == "transfer" else b""
    data = around + encoded + payload + around

    assert read(name, data, len(around), len(around) + len(encoded) + len(payload)) == meaning(name, encoded)


@given(performatives())
def test_a_performative_that_is_cut_anywhere_is_refused(made: tuple[str, bytes]) -> None:
    name, encoded = made
    for cut in range(len(encoded)):
        for behind in (b"", encoded[cut:]):  # bytes behind the frame must not be taken for the frame
            try:
                read(name, encoded[:cut] + behind, 0, cut)
            except DecodeError:
                continue
            raise AssertionError(f"{name} of {cut} bytes is taken")


@settings(max_examples=cases(300))
@given(performatives(), st.data())
def test_a_cached_frame_that_changes_has_its_new_meaning(
    made: tuple[str, bytes], data: st.DataObject
) -> None:
    name, encoded = made
    place = data.draw(st.integers(0, len(encoded) - 1))
    changed = encoded[:place] + bytes((data.draw(st.integers(0, 255)),)) + encoded[place + 1 :]
    transfer = Transfer()
    end = len(changed)
    try:
        fields = read(name, changed, 0, end)
        if name == "transfer":
            transfer.read(changed, 0, end)
            end = transfer.payload
    except PeerError:
        return
    try:
        expected = meaning(name, changed[:end])
    except WrongError:
        assert b"\xc1" in changed or b"\xd1" in changed  # maps are not looked into
        return

    assert fields == expected


STARTS = st.sampled_from(
    [b"", *(bytes((0, 0x53, code)) for code in [*range(0x13, 0x16), *range(0x70, 0x79)])]
)
SOUP = st.lists(
    st.one_of(
        st.binary(max_size=4),
        STARTS,
        st.sampled_from(
            [b"\x45", b"\xc0", b"\xd0\0\0\0", b"\xc1\x01\0", b"\xa0\x01x", b"\xb0\0\0\0", b"\xd1", b"\0"]
        ),
    )
).map(b"".join)


@settings(max_examples=cases(400))
@given(STARTS, SOUP)
def test_any_bytes_are_read_or_refused(start: bytes, soup: bytes) -> None:
    data = start + soup
    end = len(data)
    for reader in (Transfer(), Disposition(), Flow()):
        try:
            reader.read(data, 0, end)
        except PeerError:
            continue
    for attempt in (
        lambda: scan(data, 0, end),
        lambda: value_end(data, 0, end, "value"),
        lambda: Header().read(data, 3, end),
        lambda: check_properties(data, 3, end),
        lambda: [read_text(data, 3, end, index) for index in range(13)],
        lambda: check_annotations(data, 3, end),
        lambda: annotations_section(data, 3, end, [b"x"], [NULL]),
    ):
        try:
            attempt()
        except DecodeError:
            continue


@given(st.binary(max_size=60), st.integers(1, 60))
def test_any_stream_is_the_same_in_pieces(data: bytes, piece: int) -> None:
    assert taken(data, piece) == taken(data, max(1, len(data)))


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(1, 700), st.binary(max_size=12))
def test_frames_are_the_same_in_pieces(bodies: list[bytes], piece: int, rest: bytes) -> None:
    data = b"".join((8 + len(body)).to_bytes(4, "big") + b"\x02\0\0\x05" + body for body in bodies) + rest
    frames = taken(data, piece)

    assert frames == taken(data, max(1, len(data)))
    assert frames[: len(bodies)] == [(5, body) for body in bodies]


def taken(data: bytes, piece: int) -> list[tuple[int, bytes] | str]:
    frames = Frames(AMQP_FRAME, 512, 255)
    bodies: list[tuple[int, bytes] | str] = []
    for at in range(0, len(data), piece):
        frames.append(data[at : at + piece])
        try:
            while frames.advance():
                bodies.append((frames.channel, frames.data[frames.start : frames.end]))
        except PeerError as error:
            return [*bodies, error.text]
    return bodies


@given(
    st.lists(st.binary(max_size=900), max_size=4),
    st.lists(st.binary(max_size=900), max_size=4),
    st.integers(512, 1024),
    st.integers(0, 2**32 - 1),
)
def test_split_transfers_are_complete(
    parts: list[bytes], further: list[bytes], size_max: int, delivery_id: int
) -> None:
    taken: list[bytes] = []
    size = len(b"".join(further))
    sending = SplitTransfer(
        TransferTemplate(1, 2, size_max),
        delivery_id,
        b"tag",
        False,
        list(parts),
        further=(taken.append(piece) or piece for piece in further),  # type: ignore[func-returns-value]
        further_bytes=size,
    )
    out: list[bytes] = []
    before = len(b"".join(parts)) + size
    last = False
    while not last:
        last = sending.write(out)
        written = before - sending.left - len(b"".join(parts))  # bytes written of later parts
        assert len(b"".join(taken)) >= written, "each is asked for in time"
        assert len(b"".join(taken[:-1])) <= max(0, written), "and not before that"
    assert sending.left == 0
    frames = Frames(AMQP_FRAME, size_max, 1)
    frames.append(b"".join(out))
    payload = b""
    transfer = Transfer()
    transfer.more = True
    while frames.advance():
        assert transfer.more
        transfer.read(frames.data, frames.start, frames.end)
        assert transfer.delivery_id == delivery_id
        payload += frames.data[transfer.payload : frames.end]

    assert not transfer.more
    assert payload == b"".join(parts + further)
