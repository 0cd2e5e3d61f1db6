"""Invariants for any bytes of AMQP 1.0, tried with frames and messages that are altered at random."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.amqp10.bodies import START_BYTES_MAX
from tests.support.amqp10.invariants import body, check_invariants, is_body, scanned
from tests.support.amqp10.reference_codec import compound, described, message, sized
from tests.support.amqp10.seeds import MESSAGES, SEEDS
from tests.support.effort import cases

OCTETS = st.one_of(
    st.sampled_from([0, 1, 0x40, 0x45, 0x53, 0x7F, 0x80, 0xC0, 0xC1, 0xFF]), st.integers(0, 255)
)
BODIES = [
    described(0x75, b"\xa0\x01x"),
    described(0x75, sized(0xB0, b"x" * 300)),
    described(0x76, b"\x45"),
    described(0x76, compound(0xD0, [b"\x40"])),
    described(0x77, b"\x53\x05"),
    described(0x77, described(0x01, described(0x02, b"\x40"))),
    described(0x78, b"\xc1\x01\x00"),
    described(0x73, b"\x45"),
    b"\0" + sized(0xA3, b"amqp:data:binary") + b"\xa0\x00",
]
SLOW = sized(0xB3, b"s" * START_BYTES_MAX)  # a scan this long finds that the next value is a descriptor's


@st.composite
def altered(draw: st.DrawFn) -> bytes:
    """Draw a seed or two, with a few octets changed, left out or inserted."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(SEEDS[1:]), min_size=1, max_size=2))))
    for _ in range(draw(st.integers(0, 3))):
        p = draw(st.integers(0, len(data) - 1))
        data[p : p + draw(st.integers(0, 2))] = bytes(draw(st.lists(OCTETS, max_size=2)))
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("seed", SEEDS, ids=range(len(SEEDS)))
def test_all_decoders_read_the_bytes_of_peers_alike(seed: bytes) -> None:
    check_invariants(seed)


@settings(max_examples=cases(300))
@given(altered())
def test_all_decoders_read_or_refuse_altered_bytes_alike(data: bytes) -> None:
    check_invariants(data)


@given(st.lists(st.sampled_from(BODIES), max_size=4), st.binary(max_size=6), st.integers(0, 400))
@example([b"\0\x53\x76\xc0\x01\x05"], b"", 0)  # counts of what cannot be there
@example([b"\0\x53\x76\xc0\x00"], b"", 0)
@example([b"\0\x53\x78\xc1\x01\x03"], b"", 0)
@example([b"\0\x53\x76\xd0\0\0\0\x04\0\0\0\x01"], b"", 0)
@example([b"\0\x53\x76\xd0\0\0\0\x04\0\0\0"], b"", 0)
@example([b"\0\x53\x77\0" + SLOW + b"\x40"], b"", 0)
@example([BODIES[0]] * 1000, b"", 0)
@example([BODIES[0]] * 1001, b"", 0)
def test_a_body_that_is_cut_anywhere_is_taken_as_the_whole_of_it(
    sections: list[bytes], behind: bytes, without: int
) -> None:
    data = b"".join(sections) + behind
    for part in (data, data[: max(0, len(data) - without)]):
        body(part)


@pytest.mark.parametrize("seed", MESSAGES, ids=range(len(MESSAGES)))
def test_a_body_is_the_same_in_pieces_of_any_size(seed: bytes) -> None:
    rest = message((0x75, sized(0xB0, b"x" * 40)), (0x75, b"\xa0\x00"), (0x78, b"\xd1\0\0\0\4\0\0\0\0"))
    for data in (rest, seed):
        for cut in range(1, len(data)):
            assert scanned(data, cut) == is_body(data)
