"""Whatever stands in content that begins with octet 0: it is looked at without trouble, and always alike."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from broker.adapters.formats.amqp10 import View10
from broker.adapters.formats.either import SelectorFilter, write_letter
from broker.core.entries.entry import QueueEntry
from broker.core.message import NOWHERE, Message
from broker.core.message_view import JMS_DELIVERY_MODE, JMS_FIELDS, PROPERTIES, identity, plain, sort_key
from broker.core.ports import MessageStore
from broker.core.queues.death import Notice
from broker.core.routing.kinds import DELAY, delay_of
from broker.core.selector.selector import Selector
from broker.core.values import encode_table
from protocol.amqp10.types import Array, Decimal, Described, Symbol, Timestamp, Uint
from tests.support.amqp10.contents import bare10, content10, history_in

NAMES = [
    "a",
    "x-a",
    "x-delay",
    "x-opt-delivery-delay",
    "x-delivery-time",
    "x-group-id",
    "x-cc",
    "x-opt-deaths",
    "ü",
]
VALUES: list[object] = [
    None, True, 5, -1, 1.5, "t", "5", b"b", Symbol("s"), Timestamp(9), Timestamp(2**63 - 1), ["k", 1],
    {"k": 1}, Array(0xA1, ["k"]), Array(0x40, [], (), 9), Decimal(0x74, b"abcd"), Described(Symbol("d"), 1),
]  # fmt: skip
tables = st.one_of(st.none(), st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=4))
messages = st.fixed_dictionaries(
    {},
    optional={
        "annotations": st.one_of(
            st.none(),
            st.dictionaries(st.sampled_from(NAMES[:-1]), st.sampled_from(VALUES), max_size=4),
        ),
        "application": tables,
        "durable": st.booleans(),
        "priority": st.integers(0, 255),
        "ttl": st.integers(0, 2**32 - 1),
        "message_id": st.sampled_from(["m", b"m", "m" * 300]),
        "user_id": st.sampled_from([b"u", b"\xff"]),
        "group_id": st.just("g"),
        "group_sequence": st.sampled_from([Uint(0), Uint(2**32 - 1)]),
    },
)
selector = Selector("a = 5 OR JMSType = 't' OR properties.subject LIKE 's%' OR NOT \"x-a\" IS NULL")


def look(content: bytes) -> View10:
    """Read everything from the view."""
    view = View10(content)
    headers = view.headers()
    encode_table(headers)
    for name, value in headers.items():
        sort_key(value)
        hash(identity(value))
        looked_up = View10(content).lookup(name)
        assert looked_up == plain(value)
    for name in PROPERTIES:
        looked_up = view.property(name)
        assert looked_up is None or isinstance(looked_up, (int, str))
        if name not in headers and f"properties.{name}" not in headers and isinstance(looked_up, str):
            assert view.lookup(name) == view.lookup(f"properties.{name}") == looked_up
    for name in (*JMS_FIELDS, JMS_DELIVERY_MODE, "JMSXGroupSeq", "none", "\ud800", "x-\udc80"):
        view.lookup(name)
    view.group_id()
    view.group_sequence()
    assert all(isinstance(key, str) for key in view.further_keys())
    passes = SelectorFilter(selector, MessageStore()).passes(
        QueueEntry(Message(NOWHERE, content, 0, False, 0), 1)
    )
    assert passes == selector.matches(view)
    return view


def kill(content: bytes, died: bool) -> None:
    """Dead-letter the message, and check that the letter tells of the death and that the rest stays."""
    message = Message(NOWHERE, content, 0, False, 0)
    message.died = died
    letter = write_letter(message, MessageStore(), Notice("q", "expired", 5, True))
    [death, *_] = history_in(letter.content)
    assert (death.queue, death.reason) == ("q", "expired")
    assert letter.content.endswith(content[View10(content).layout.bare :])
    assert View10(letter.content).property("expiration") is None
    look(letter.content)


@given(st.binary(max_size=60), st.booleans())
@example(b"Sr\xc1\x04\x02\xa3\x00", False)
def test_any_bytes(rest: bytes, died: bool) -> None:
    look(b"\0" + rest)
    kill(b"\0" + rest, died)


@given(messages, st.data(), st.booleans())
def test_messages_with_some_bytes_changed(given_: dict[str, Any], data: st.DataObject, died: bool) -> None:
    content = bytearray(content10(**given_))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(1, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(content[: data.draw(st.integers(1, len(content)))])
    look(damaged)
    kill(damaged, died)


@given(messages, st.booleans())
def test_bare_messages_stay_as_they_are(given_: dict[str, Any], died: bool) -> None:
    content = content10(**given_)
    bare = bare10(
        **{
            name: value
            for name, value in given_.items()
            if name not in ("annotations", "durable", "priority", "ttl")
        }
    )
    view = look(content)
    assert content[view.layout.bare :] == bare
    kill(content, died)
    if delay_of(view) > 0:
        released = View10(view.released_content(DELAY))
        assert released.content[released.layout.bare :] == bare
        assert delay_of(released) == 0
        assert released.headers().keys() - {DELAY} == view.headers().keys() - {DELAY}
