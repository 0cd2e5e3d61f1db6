"""Cached transfers and dispositions are decoded as without a cache."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import (
    Accepted,
    DeliveryState,
    Modified,
    Received,
    Released,
    TransactionalState,
)
from protocol.amqp10.conditions import PeerError
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.performatives import Disposition as DispositionFrame
from protocol.amqp10.performatives import Transfer as TransferFrame
from protocol.amqp10.states import DeliveryState as ReadState
from protocol.amqp10.transfers import Transfer
from tests.support.effort import cases

Performative = TransferFrame | DispositionFrame

uints = st.sampled_from([0, 1, 255, 256, 2**31, 2**32 - 1])
states: st.SearchStrategy[DeliveryState | None] = st.sampled_from(
    [
        None,
        Accepted(),
        Released(),
        Modified(delivery_failed=True),
        Received(section_number=1, section_offset=300),
        TransactionalState(txn_id=b"\0\1", outcome=Accepted()),
    ]
)
flags = st.booleans()
transfers = st.builds(
    TransferFrame,
    handle=st.sampled_from([0, 1, 255, 256]),
    delivery_id=st.none() | uints,
    delivery_tag=st.none() | st.sampled_from([b"", b"t", bytes(32), bytes(33)]),
    message_format=st.none() | st.just(0),
    settled=st.none() | flags,
    more=flags,
    rcv_settle_mode=st.none() | st.integers(0, 1),
    state=states,
    resume=flags,
    aborted=flags,
)
dispositions = st.builds(
    DispositionFrame, role=flags, first=uints, last=st.none() | uints, settled=flags, state=states
)


def sparse(data: bytes, count: int) -> bytes:
    """The same list of up to 255 bytes without its last fields, if these are null or false."""
    body, fields = data[6:], data[5]
    while fields > count and body[-1:] in (b"\x40", b"\x42"):
        body, fields = body[:-1], fields - 1
    return data[:4] + bytes([len(body) + 1, fields]) + body


def encoded(performative: Performative, count: int) -> bytes:
    """A performative, with no more fields than it needs or so many."""
    data = encode_composite(performative)
    return sparse(data, count) if data[3] == 0xC0 else data


@st.composite
def frames(draw: st.DrawFn, performatives: st.SearchStrategy[Performative]) -> list[bytes]:
    """Several performatives, many of them alike, as they stand before payloads."""
    some = draw(st.lists(performatives, min_size=1, max_size=3))
    chosen = draw(st.lists(st.sampled_from(some), min_size=2, max_size=8))
    return [encoded(performative, draw(st.sampled_from([3, 5, 11]))) for performative in chosen]


def damaged(data: bytes) -> Iterator[bytes]:
    """These bytes cut off anywhere, with more behind them, and with each octet replaced by others.

    Where that changes the length, the list says so or does not.
    """
    for at in range(len(data)):
        for octet in range(256):
            yield data[:at] + bytes([octet]) + data[at + 1 :]
    for at in range(5, len(data)):
        for changed in (data[:at], data[:at] + b"\x70\0\0\0\1" + data[at + 1 :], data[:at] + data[at + 5 :]):
            yield changed
            yield changed[:4] + bytes([max(len(changed) - 5, 0)]) + changed[5:]
    for more in (b"\0", b"\x40", b"\x42", b"\x43" * 40):
        yield data + more


def state(read: ReadState | None) -> object:
    return (
        None
        if read is None
        else {name: getattr(read, name) for name in STATE} | {"outcome": state(read.outcome)}
    )


NAMES = (
    *("handle", "delivery_id", "delivery_tag", "message_format", "settled", "more", "rcv_settle_mode"),
    *("resume", "aborted", "batchable", "payload", "receiver", "first", "last"),
)
STATE = (
    "code",
    "section_number",
    "section_offset",
    "delivery_failed",
    "undeliverable_here",
    "annotations",
    "txn_id",
)


def fields_or_error(read: Transfer | Disposition, data: bytes, start: int) -> object:
    """Return all decoded fields, or the error."""
    try:
        read.read(data, start, len(data))
    except PeerError as error:
        return type(error), error.condition, error.text
    return [getattr(read, name) for name in NAMES if hasattr(read, name)], state(read.state)


@settings(max_examples=cases(300))
@given(frames(transfers), st.sampled_from([b"", b"x", bytes(40)]))
def test_transfers(made: list[bytes], payload: bytes) -> None:
    remembering = Transfer()
    for frame in made:
        data = b"head" + frame + payload
        assert fields_or_error(remembering, data, 4) == fields_or_error(Transfer(), data, 4)


@settings(max_examples=cases(300))
@given(frames(dispositions))
def test_dispositions(made: list[bytes]) -> None:
    remembering = Disposition()
    for frame in made:
        data = b"head" + frame
        assert fields_or_error(remembering, data, 4) == fields_or_error(Disposition(), data, 4)


USUAL = [
    TransferFrame(handle=0, delivery_id=256, delivery_tag=b"tag!", message_format=0, settled=False),
    TransferFrame(handle=0, delivery_id=256, delivery_tag=b"tag!"),
    TransferFrame(handle=7, delivery_id=2**32 - 1, delivery_tag=b"", settled=True, state=Accepted()),
    DispositionFrame(role=True, first=256, last=257, settled=True, state=Accepted()),
    DispositionFrame(role=True, first=256, settled=True, state=Accepted()),
    DispositionFrame(role=False, first=256, last=256),
    DispositionFrame(role=False, first=256),
]


@pytest.mark.parametrize("performative", USUAL)
@pytest.mark.parametrize("count", [3, 11], ids=["short", "all fields"])
def test_similar_frames_are_not_confused(performative: Performative, count: int) -> None:
    frame = encoded(performative, count)
    made = Transfer if isinstance(performative, TransferFrame) else Disposition
    for almost in damaged(frame):
        remembering = made()
        remembering.read(frame, 0, len(frame))
        assert fields_or_error(remembering, almost, 0) == fields_or_error(made(), almost, 0), almost.hex()
        assert fields_or_error(remembering, frame, 0) == fields_or_error(made(), frame, 0), almost.hex()
