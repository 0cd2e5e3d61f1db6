"""Messages of both protocols that Hypothesis draws for filters, and an invariant of every filter."""

import struct
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from broker.adapters.formats.amqp10 import View10
from broker.core.message_view import MessageView
from protocol.amqp091 import properties as basic
from protocol.amqp10.types import Char, Decimal, Symbol, Timestamp, Ubyte, Uint, Ulong
from tests.support.amqp091.field_bytes import FIELDS, field, long_string
from tests.support.amqp10.contents import content10
from tests.support.conversion.contents import short_string

ID = UUID("12345678-9abc-def0-1234-56789abcdef0")
TEXTS = ["", "a", "ab", "b", "&a", "ab&", "\u00fc", "%"]
KEYS = ["a", "b", "x-a", "AND", "\u00fc k", "priority", "CC"]
Message = dict[str, dict[str, object]]  # "p": properties, "a": application properties

simple = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(0, 3).map(Ubyte),
    st.sampled_from([Ulong(2**64 - 1), 0.5, -1.0, 2.0, float("nan")]),
    st.sampled_from(TEXTS),
    st.sampled_from(TEXTS).filter(str.isascii).map(Symbol),
    st.sampled_from(
        [Char("a"), b"a", b"\xff", ID, Timestamp(2), Timestamp(-(2**63)), Decimal(0x74, b"abcd")]
    ),
)
texts = st.none() | st.sampled_from(TEXTS)
ids = st.sampled_from([None, *TEXTS, Ulong(1), ID, b"a", b"\xff"])
properties = st.fixed_dictionaries(
    {},
    optional={
        "message_id": ids,
        "user_id": st.sampled_from([None, b"a", b"ab", b"\xff"]),
        "to": texts,
        "subject": texts,
        "correlation_id": ids,
        "content_type": st.sampled_from([None, Symbol("a"), Symbol("ab")]),
        "creation_time": st.sampled_from([None, Timestamp(1), Timestamp(2)]),
        "group_sequence": st.sampled_from([None, Uint(0), Uint(2)]),
    },
)
messages = st.fixed_dictionaries({"p": properties, "a": st.dictionaries(st.sampled_from(KEYS), simple)})


def view_of(message: Message) -> View10:
    """A message of AMQP 1.0 with these properties."""
    bare: dict[str, Any] = message["p"]
    return View10(content10(application=message["a"], **bare))


raw_texts = st.sampled_from([text.encode() for text in TEXTS] + [b"\xff", b"urn:uuid:" + str(ID).encode()])
old_properties = st.fixed_dictionaries(
    {},
    optional={
        **{
            place: raw_texts.map(short_string)
            for place in (
                basic.CONTENT_TYPE,
                basic.CONTENT_ENCODING,
                basic.CORRELATION_ID,
                basic.REPLY_TO,
                basic.MESSAGE_ID,
                basic.TYPE,
                basic.USER_ID,
                basic.APP_ID,
            )
        },
        basic.TIMESTAMP: st.integers(0, 2**64 - 1).map(lambda number: struct.pack(">Q", number)),
        basic.PRIORITY: st.binary(min_size=1, max_size=1),
        basic.DELIVERY_MODE: st.sampled_from([b"\x01", b"\x02"]),
    },
)
old_values = st.one_of(
    st.sampled_from(list(FIELDS.values())),
    raw_texts.map(lambda raw: b"S" + long_string(raw)),
    raw_texts.map(lambda raw: b"x" + long_string(raw)),
)
old_names = st.sampled_from([key.encode() for key in KEYS] + [b"x-message-id", b"x-correlation-id"])
old_tables = st.none() | st.dictionaries(old_names, old_values, max_size=5).map(
    lambda fields: b"".join(field(name, value) for name, value in fields.items())
)


def literal(value: object) -> str:
    """A literal of SQL."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return "0x" + value.hex().upper()
    return str(value).upper() if isinstance(value, bool) else repr(value)


def check_demands(demands: list[tuple[str, str | int]], matches: bool, view: MessageView) -> None:
    """Check that a message which matches a filter has the values that the filter demands."""
    if matches:
        for name, value in demands:
            assert view.lookup(name) == value
