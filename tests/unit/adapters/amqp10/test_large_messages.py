"""A large message that arrives in parts is stored in pieces, with the same content as a whole one."""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.adapters.amqp10.assembly import PIECE_BYTES, LargeMessage, read_message
from protocol.amqp10.conditions import DecodeError, PeerError
from protocol.amqp10.headers import Header
from tests.support.adapters.connection10_without_socket import Client10
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.adapters.queued_messages10 import data
from tests.support.amqp10.contents import content10
from tests.support.amqp10.reference_codec import compound, described, message, sized
from tests.support.amqp10.seeds import MESSAGES

FRONT = content10({"x-own": 1}, {"x-b": 2}, durable=True, priority=3, ttl=5000, body=b"", subject="s")
FOOT = described(0x78, b"\xc1\x01\x00")


def arrives(bench: BrokerBench, parts: list[bytes]) -> LargeMessage:
    """Return a large message of which all parts have arrived."""
    large = LargeMessage(Client10(bench).connection, parts[0], Header())
    for part in parts[1:]:
        large.feed(part)
    return large


def kept_body(large: LargeMessage) -> bytes:
    body = large.end().body
    assert body is not None
    return b"".join(piece.content or b"" for piece in body.pieces)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([FRONT + data(b"x" * 900) + FOOT, *MESSAGES]), st.data())
@example(MESSAGES[0], None)
def test_a_message_in_any_frames_equals_the_whole_message(sent: bytes, draw: st.DataObject | None) -> None:
    whole = read_message(sent, Header())
    behind = len(sent) if whole.layout.body < 0 else int(whole.layout.body)  # the end of the front
    cuts = [] if draw is None else draw.draw(st.lists(st.integers(behind, len(sent)), max_size=5))
    places = [0, *sorted(cuts), len(sent)]
    parts = [sent[start:end] for start, end in itertools.pairwise(places)]
    large = arrives(BrokerBench(), parts)
    body = kept_body(large)
    made = large.message

    assert made.content + body == whole.content
    assert body == sent[behind:]
    assert (made.size, made.needs_view) == (len(body), whole.needs_view)
    assert (made.durable, made.priority, made.ttl) == (whole.durable, whole.priority, whole.ttl)


@pytest.mark.parametrize("durable", [True, False])
def test_pieces_are_kept_as_they_come_and_logged_if_they_are_durable(
    bench: BrokerBench, durable: bool
) -> None:
    front = content10(durable=durable, body=b"")
    sections = data(b"x" * (2 * PIECE_BYTES)) + FOOT
    sent = front + sections
    step = PIECE_BYTES // 4
    parts = [sent[at : at + step] for at in range(0, len(sent), step)]
    large = arrives(bench, parts)
    logged = [piece.size for piece in bench.store.pieces]
    assert [PIECE_BYTES <= size < PIECE_BYTES + step for size in logged] == [True] * (durable * len(logged))
    assert bool(logged) == durable

    assert kept_body(large) == sections
    assert large.message.size == len(sections)
    assert sum(int(piece.size) for piece in bench.store.pieces) == durable * len(sections)


@pytest.mark.parametrize(
    "rest",
    [
        data(b"x" * 90)[:-1],
        data(b"x") + b"\0",
        data(b"x") + described(0x76, b"\x45"),
        described(0x77, b"\x40") + described(0x77, b"\x40"),
        data(b"x") + FOOT + FOOT,
        FOOT + data(b"x"),
        described(0x73, b"\x45"),
        message((0x75, sized(0xA1, b"text"))),
        described(0x76, b"\xc0\x01\x02"),
        b"none",
    ],
)
@pytest.mark.parametrize("step", [1, 5, 10000])
def test_an_invalid_body_is_refused(bench: BrokerBench, rest: bytes, step: int) -> None:
    parts = [FRONT, *(rest[at : at + step] for at in range(0, len(rest), step))]
    with pytest.raises(DecodeError):
        arrives(bench, parts).end()


def test_the_sections_before_the_body_are_checked_before_anything_is_stored(bench: BrokerBench) -> None:
    connection = Client10(bench).connection
    wrong = described(0x70, compound(0xC0, [b"\xa1\x01x"])) + data(b"x")
    long = content10({"x-long": "x" * 140_000}, body=b"") + data(b"x")
    with pytest.raises(DecodeError):
        LargeMessage(connection, wrong, Header())
    with pytest.raises(PeerError, match="before the body"):
        LargeMessage(connection, long, Header())

    assert bench.store.pieces == []
