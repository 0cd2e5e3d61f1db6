"""Invariants for any bytes that a peer of AMQP 1.0 may send.

Only the documented errors are raised, all decoders of the same bytes agree, and the cuts of a stream have
no effect. `check_invariants` checks all invariants and raises AssertionError for a violated one.
"""

from collections.abc import Callable, Iterator

from broker.adapters.amqp10.assembly import read_message
from protocol.amqp10.annotations import annotations_section
from protocol.amqp10.bodies import START_BYTES_MAX, BodyScan
from protocol.amqp10.composing import decode_composite, encode_composite
from protocol.amqp10.conditions import DecodeError, PeerError
from protocol.amqp10.constructors import NONE, find_value_end, value_end
from protocol.amqp10.decoding import decode, decode_typed, skip
from protocol.amqp10.descriptors import DATA
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.encoding import encode
from protocol.amqp10.flows import Flow
from protocol.amqp10.frames import AMQP_FRAME, SASL_FRAME, Frames
from protocol.amqp10.headers import Header, read_priority
from protocol.amqp10.kinds import WRONG, kind_of
from protocol.amqp10.performatives import Disposition as GeneralDisposition
from protocol.amqp10.performatives import Flow as GeneralFlow
from protocol.amqp10.performatives import Transfer as GeneralTransfer
from protocol.amqp10.properties import NAMES, read_property, read_text, read_user_id
from protocol.amqp10.sections import Sections, scan, scan_preamble
from protocol.amqp10.states import DeliveryState
from protocol.amqp10.transfers import DELIVERY_TAG_MAX, Transfer
from protocol.amqp10.types import Composite
from protocol.conversion.to091 import content091

FRAME_BYTES_MAX = 4096
PIECES = (1, 7)  # how a stream is cut, besides not at all
TEXTS = (2, 3, 4, 10, 12)  # places of the properties that are text
_FIELDS = kind_of("fields")


def check_invariants(data: bytes) -> None:
    """Check all invariants for these bytes: as a stream, as a frame body, as a value and as a message."""
    stream(data, AMQP_FRAME)
    stream(data, SASL_FRAME)
    performative(data)
    value(data)
    message(data)
    body(data)


def stream(data: bytes, kind: int) -> None:
    """Frames out of a stream are the same however it is cut; their bodies are looked at too."""
    found = list(frames(data, len(data), kind))
    for piece in PIECES:
        assert list(frames(data, piece, kind)) == found, f"in pieces of {piece}"
    for taken in found:
        if isinstance(taken, tuple):
            performative(taken[1])
            value(taken[1])


def frames(data: bytes, piece: int, kind: int) -> Iterator[tuple[int, bytes] | str]:
    """Yield the channels and bodies of a stream in pieces; the error of a wrong stream comes last."""
    reader = Frames(kind, FRAME_BYTES_MAX, 255)
    for at in range(0, len(data), max(1, piece)):
        reader.append(data[at : at + piece])
        try:
            while reader.advance():
                yield reader.channel, reader.data[reader.start : reader.end]
        except PeerError as error:
            yield error.text
            return
        assert reader.unconsumed_bytes() <= FRAME_BYTES_MAX + piece


def performative(data: bytes) -> None:
    """Check that the fast decoder of a performative agrees with the general decoder, or declines."""
    transfer, disposition, flow = Transfer(), Disposition(), Flow()
    if _is_taken(lambda: transfer.read(data, 0, len(data))):
        assert transfer.payload <= len(data)
        performative_agrees(data[: transfer.payload], _of_transfer(transfer), _maps(transfer.state))
        message(data[transfer.payload :])
    if _is_taken(lambda: disposition.read(data, 0, len(data))):
        performative_agrees(data, _of_disposition(disposition), _maps(disposition.state))
    if _is_taken(lambda: flow.read(data, 0, len(data))):
        performative_agrees(data, _of_flow(flow), [flow.properties])


def performative_agrees(data: bytes, quick: list[object], maps: list[bytes | None]) -> None:
    """Check the general decoder, which may only refuse one of `maps`, because fast decoders skip them."""
    try:
        composite, end = decode_composite(data)
    except DecodeError:
        assert any(raw is not None and not _is_fields(raw) for raw in maps), "only one takes it"
        return
    assert end == len(data)
    assert quick == _of_general(composite)


def value(data: bytes) -> None:
    """Check that all decoders agree on the end of a value, and that encoding restores it."""
    try:
        typed, behind = decode_typed(data)
    except DecodeError:
        assert not _is_taken(lambda: decode(data))
        return
    assert decode(data)[1] == skip(data) == behind <= len(data)
    assert value_end(data, 0, len(data), "value") == behind
    again, length = decode_typed(encode(typed))
    assert length <= behind
    assert encode(again) == encode(typed)
    try:
        composite, _ = decode_composite(data)
    except DecodeError:
        return
    assert decode_composite(encode_composite(composite))[0] is not None


def message(data: bytes) -> None:
    """Check the sections, and the fields of an accepted message."""
    scan_preamble(data)
    try:
        layout = scan(data, 0, len(data))
    except DecodeError:
        return
    try:
        kept = read_message(data, Header()).content
    except PeerError:
        return
    assert kept.endswith(data[layout.bare :])
    read(kept)
    content091(kept)
    if layout.body != NONE:
        body(data[layout.body :])


def body(data: bytes) -> None:
    """Sections of a body in parts, cut anywhere, against the same as a whole."""
    assert value_reach_agrees(data)
    whole = scanned(data, len(data))
    for piece in PIECES:
        assert scanned(data, piece) == whole, f"in pieces of {piece}"
    assert whole == is_body(data)


def scanned(data: bytes, piece: int) -> bool:
    """Whether BodyScan takes these bytes, which come in pieces."""
    scan_of_body = BodyScan()

    def feed() -> None:
        for at in range(0, len(data), max(1, piece)):
            scan_of_body.feed(data[at : at + piece])
        scan_of_body.end()

    return _is_taken(feed)


def is_body(data: bytes) -> bool:
    """Whether these bytes, as a whole, are sections of a body and perhaps a footer.

    A section of which more than START_BYTES_MAX tell how far it reaches is none.
    """
    sections = Sections(data, 0, len(data))
    try:
        while sections.advance():
            start = data[sections.start : sections.start + START_BYTES_MAX]
            reach = find_value_end(start, sections.value - sections.start, len(start), "section")
            if sections.code < DATA or reach == NONE:
                return False
    except DecodeError:
        return False
    return True


def value_reach_agrees(data: bytes) -> bool:
    """Whether the reach of every prefix of a value is unknown or agrees with the reach of the value."""
    known = [_reach(data[:end]) for end in range(min(len(data), 24) + 1)]
    reaches = [reach for reach in known if reach != NONE]
    return reaches == known[len(known) - len(reaches) :] and len(set(reaches)) <= 1


def _reach(data: bytes) -> int | str:
    try:
        return int(find_value_end(data, 0, len(data), "value"))
    except DecodeError:
        return "refused"


def read(kept: bytes) -> None:
    """Read all fields before the body of a stored message."""
    layout = scan(kept, 0, len(kept))
    read_priority(kept, layout.header, layout.header_end)
    if layout.annotations != NONE:
        annotations_section(kept, layout.annotations, layout.annotations_end, [b"x-exchange"], [b"\x40"])
    if layout.properties != NONE:
        for place in range(len(NAMES)):
            read_property(kept, layout.properties, layout.properties_end, place)
        read_user_id(kept, layout.properties, layout.properties_end)
        for place in TEXTS:
            try:
                read_text(kept, layout.properties, layout.properties_end, place)
            except DecodeError:
                continue


def _is_taken(read: Callable[[], object]) -> bool:
    """Whether `read` raises none of the errors for peers; any other error is a fault."""
    try:
        read()
    except PeerError:
        return False
    return True


def _is_fields(raw: bytes) -> bool:
    try:
        return _FIELDS.read(decode_typed(raw)[0]) is not WRONG
    except DecodeError:
        return False


def _maps(state: DeliveryState | None) -> list[bytes | None]:
    if state is None:
        return []
    return [state.info, state.annotations, *_maps(state.outcome)]


def _number(number: int) -> int | None:
    return None if number == NONE else number


def _code(state: DeliveryState | None) -> int | None:
    return None if state is None else int(state.code)


def _of_transfer(made: Transfer) -> list[object]:
    fields: list[object] = [made.handle, _number(made.delivery_id), made.delivery_tag]
    fields += [_number(made.message_format), made.settled, made.more, _number(made.rcv_settle_mode)]
    return [*fields, _code(made.state), made.resume, made.aborted, made.batchable]


def _of_disposition(made: Disposition) -> list[object]:
    return [made.receiver, made.first, made.last, made.settled, _code(made.state), made.batchable]


def _of_flow(made: Flow) -> list[object]:
    fields: list[object] = [_number(made.next_incoming_id), made.incoming_window, made.next_outgoing_id]
    fields += [made.outgoing_window, _number(made.handle), _number(made.delivery_count)]
    fields += [_number(made.link_credit), _number(made.available), made.drain, made.echo]
    return [*fields, made.properties is not None]


def _of_general(made: Composite) -> list[object]:
    """The same fields out of the general decoder's composite."""
    if isinstance(made, GeneralTransfer):
        tag = made.delivery_tag
        assert tag is None or len(tag) <= DELIVERY_TAG_MAX
        fields: list[object] = [made.handle, made.delivery_id, tag, made.message_format, bool(made.settled)]
        fields += [made.more, made.rcv_settle_mode, None if made.state is None else made.state.DESCRIPTOR]
        return [*fields, made.resume, made.aborted, made.batchable]
    if isinstance(made, GeneralDisposition):
        last = made.first if made.last is None else made.last
        state = None if made.state is None else made.state.DESCRIPTOR
        return [made.role, made.first, last, made.settled, state, made.batchable]
    assert isinstance(made, GeneralFlow)
    fields = [made.next_incoming_id, made.incoming_window, made.next_outgoing_id, made.outgoing_window]
    fields += [made.handle, made.delivery_count, made.link_credit, made.available, made.drain, made.echo]
    return [*fields, made.properties is not None]
