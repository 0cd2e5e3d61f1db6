"""Attaches whose map of unsettled deliveries is longer than other performatives may be. [amqp-1.0 2.7.3]

The state of each delivery in the map stays encoded. Finding the end of a state takes the same time whatever
the state is. Decoding does not.
"""

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from protocol.amqp10.composing import decode_composite
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import BINARY8, LIST32, MAP32, NONE, NULL, SMALL_ULONG
from protocol.amqp10.descriptors import ATTACH
from protocol.amqp10.encoding import encode
from protocol.amqp10.entries import Entries
from protocol.amqp10.fields import Fields
from protocol.amqp10.performatives import Attach

FIELDS_MAX: Final = 14
BEFORE: Final = ("name", "handle", "role", "snd-settle-mode", "rcv-settle-mode", "source", "target")


@final
class EncodedState:
    """The state of a delivery in an attach, encoded as it arrived."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def encoded_state(value: object) -> bytes:
    """Return the encoded value of an entry in an attach's map. Raises what `encode` raises."""
    return value.data if isinstance(value, EncodedState) else encode(value)


def decode_attach(data: bytes, start: i64, end: i64, rest_max: i64) -> Attach | None:
    """Return the attach from `start` to `end`, with the states in its map as `EncodedState` or None.

    None if the performative is no attach, or has more than `rest_max` bytes besides the map.
    Raises DecodeError.
    """
    fields = Fields()
    if fields.descriptor(data, start, end, "attach") != ATTACH:
        return None
    fields.open_list(data, fields.p, end, "attach", FIELDS_MAX)
    first = fields.p
    for name in BEFORE:
        fields.raw(name)
    at = fields.raw("unsettled")
    after = fields.p
    if at == NONE or data[at] != MAP32 or end - start - (after - at) > rest_max:
        return None
    if fields.end != end:
        raise DecodeError("attach: bytes follow the performative")
    body = data[first:at] + bytes((NULL,)) + data[after:end]
    count: i64 = len(BEFORE) + 1 + fields.left
    head = bytes((0, SMALL_ULONG, ATTACH, LIST32)) + (len(body) + 4).to_bytes(4, "big")
    attach, _ = decode_composite(head + int(count).to_bytes(4, "big") + body)
    assert isinstance(attach, Attach)
    attach.unsettled = _states(data, at, after)
    return attach


def _states(data: bytes, at: i64, end: i64) -> dict[bytes, object]:
    states: dict[bytes, object] = {}
    entries = Entries(data, at, end, BINARY8)
    while entries.advance():
        value = entries.key_end
        states[entries.name()] = None if data[value] == NULL else EncodedState(data[value : entries.end])
    if entries.malformed or len(states) * 2 != read_i32_be(data, at + 5):
        raise DecodeError("attach.unsettled is not a map of states by delivery-tags with each tag once")
    return states
