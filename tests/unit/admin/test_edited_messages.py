"""Messages of AMQP 1.0 that operators edit and revive: only the named fields change."""

from typing import Any

import pytest

from broker.adapters.formats.amqp10 import View10
from broker.adapters.formats.either import write_letter
from broker.admin.api.answers import ApiError
from broker.admin.api.operations import Edit, restore_dead_letter
from broker.core.message import Address, Body, Message, piece_of
from broker.core.ports import MessageStore
from broker.core.queues.death import Notice
from protocol.amqp10.decoding import decode_typed
from protocol.amqp10.encoding import encode
from protocol.amqp10.headers import header_section
from protocol.amqp10.types import Described, Map, Symbol, Timestamp, Ulong
from protocol.conversion.to091 import content091
from tests.support.amqp10.contents import BODY, content10
from tests.support.amqp10.reference_codec import described
from tests.support.conversion.contents import FOOTER, decoded_content

FOOT = described(FOOTER, b"\xc1\x01\x00")
STORE = MessageStore()
ANNOTATIONS: dict[str, object] = {"x-a": ["a"], "x-opt-jms-dest": 1, "other": Ulong(7)}
APPLICATION: dict[str, object] = {"kind": 1, "n": Ulong(5)}
WHOLE = content10(
    ANNOTATIONS,
    APPLICATION,
    True,
    7,
    60_000,
    BODY + FOOT,
    message_id=Ulong(5),
    subject="s",
    content_type=Symbol("text/plain"),
    to="/queues/q",
)


def message(content: bytes = WHOLE) -> Message:
    made = Message(Address("x", "k"), content, len(BODY), True, 7)
    made.expiration = 60_000
    return made


def edit(kept: Message, **body: Any) -> Message:
    return Edit({"properties": {}} | body, 131072, 1 << 27).of(kept, STORE)


def edited(content: bytes = WHOLE, **body: Any) -> bytes:
    found = edit(message(content), **body).content
    assert found is not None
    decoded_content(content091(found))
    return found


def sections(content: bytes) -> list[tuple[int, object]]:
    found: list[tuple[int, object]] = []
    p = 0
    while p < len(content):
        value, p = decode_typed(content, p)
        assert isinstance(value, Described)
        assert isinstance(value.descriptor, int)
        inside = value.value
        found.append((int(value.descriptor), dict(inside.pairs) if isinstance(inside, Map) else inside))
    return found


def annotated(**changed: object) -> dict[str, object]:
    return {name: value for name, value in (ANNOTATIONS | changed).items() if value is not ...}


def test_a_header_that_is_edited_is_an_application_property_or_an_annotation() -> None:
    before = sections(WHOLE)
    found = sections(edited(properties={"headers": {"kind": "b", "x-a": None, "x-b": [1], "new": True}}))
    assert found[0] == before[0]
    assert found[1] == (0x72, {"x-opt-jms-dest": 1, "other": Ulong(7), "x-b": [1]})
    assert (found[2][0], found[2][1]) == (before[2][0], [*before[2][1], None, None, None][:13])  # type: ignore[misc]
    assert found[3] == (0x74, {"n": Ulong(5), "kind": "b", "new": True})
    assert found[4:] == before[4:]


def test_a_header_is_edited_whatever_kind_it_was() -> None:
    content = content10({"x-a": 1, "x-cc": ["k"]}, {"x-a": 2, "b": 3})
    found = dict(sections(edited(content, properties={"headers": {"x-a": "new", "CC": ["l"]}})))
    assert found[0x72] == {"x-a": "new", "x-cc": ["l"]}
    assert found[0x74] == {"b": 3}


def test_removing_all_headers_keeps_annotations_that_are_no_headers() -> None:
    content = content10({"x-a": 1, "x-basic-type": "t", "x-opt-deaths": 1, "own": 2}, {"b": 3})
    found = dict(sections(edited(content, properties={"headers": None})))
    assert found[0x72] == {"x-basic-type": "t", "own": 2}
    assert 0x74 not in found


def test_properties_are_edited() -> None:
    properties = {
        "content_type": None,
        "content_encoding": "gzip",
        "correlation_id": "c",
        "reply_to": "back",
        "timestamp": 1_700_000_000,
        "user_id": "me",
        "app_id": "g",
        "type": "t",
    }
    content = edited(properties=properties)
    found = dict(sections(content))
    assert found[0x72] == annotated(**{"x-basic-type": "t"})
    assert found[0x73] == [
        Ulong(5), b"me", "/queues/q", "s", "/queues/back", "c", None, Symbol("gzip"), None,
        Timestamp(1_700_000_000_000), "g", None, None,
    ]  # fmt: skip
    assert content.endswith(BODY + FOOT)
    assert (found[0x70], found[0x74]) == (dict(sections(WHOLE))[0x70], APPLICATION)
    again = dict(sections(edited(content, properties={"type": None, "message_id": "m"})))
    assert again[0x72] == ANNOTATIONS
    assert isinstance(again[0x73], list)
    assert again[0x73][0] == "m"


@pytest.mark.parametrize(
    ("properties", "header", "expected"),
    [
        ({"priority": 0}, (True, 0, 60_000), (True, 0, 60_000)),
        ({"priority": None}, (True, -1, 60_000), (True, 4, 60_000)),
        ({"delivery_mode": 1}, (False, 7, 60_000), (False, 7, 60_000)),
        ({"delivery_mode": None}, (False, 7, 60_000), (False, 7, 60_000)),
        ({"expiration": "5"}, (True, 7, 5), (True, 7, 5)),
        ({"expiration": None}, (True, 7, -1), (True, 7, -1)),
    ],
)
def test_fields_of_the_header_are_edited(
    properties: dict[str, object], header: tuple[bool, int, int], expected: tuple[bool, int, int]
) -> None:
    content = header_section(True, 7, 60_000, True, 3) + WHOLE[View10(WHOLE).layout.header_end :]
    after = edit(message(content), properties=properties)
    durable, priority, ttl = header
    start = header_section(durable, priority, ttl, True, 3)
    assert after.content == start + content[View10(content).layout.header_end :]
    assert (after.persistent, after.priority, after.expiration) == expected


def test_a_payload_is_one_data_section_and_has_no_footer() -> None:
    kept = message()
    after = edit(kept, payload="new")
    assert after.content == WHOLE.removesuffix(BODY + FOOT) + described(0x75, b"\xa0\x03new")
    assert (after.size, after.address, after.persistent) == (8, kept.address, True)


def test_a_large_body_stays_or_goes() -> None:
    front = content10(ANNOTATIONS, body=b"", message_id="m")
    kept = message(front)
    kept.body = Body([])
    piece_of(kept.body, BODY, len(BODY))
    after = edit(kept, properties={"headers": {"k": True}})
    assert (after.body, after.size) == (kept.body, kept.size)
    assert after.content == front + described(0x74, encode({"k": True}))
    after = edit(kept, payload="new")
    assert (after.body, after.size) == (None, 8)
    assert after.content == front + described(0x75, b"\xa0\x03new")


def test_all_other_parts_of_a_message_stay() -> None:
    kept = message()
    kept.died, kept.marks = True, 4
    after = edit(kept, payload="new")
    assert (after.died, after.marks, after.expiration) == (True, 4, 60_000)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"headers": {"list": [1]}}, "header 'list'"),
        ({"headers": {"table": {"a": 1}}}, "header 'table'"),
        ({"headers": {"x-death": []}}, "header 'x-death'"),
        ({"headers": {"x-routing-key": "k"}}, "header 'x-routing-key'"),
        ({"headers": {"x-message-id": "m"}}, "header 'x-message-id'"),
        ({"content_type": "\u00e9"}, "property content_type"),
        ({"expiration": "4294967296"}, "property expiration"),
    ],
)
def test_values_without_an_amqp_10_form_are_refused(properties: dict[str, object], why: str) -> None:
    with pytest.raises(ApiError, match=f"a message cannot be edited: {why} has a value that a message"):
        edited(properties=properties)


@pytest.mark.parametrize(
    "content", [b"\0garbage", content10(body=b"") + described(0x74, b"\xc1\x05\x02\xa1\x01k\x40\x40")]
)
def test_a_malformed_message_is_not_edited(content: bytes) -> None:
    with pytest.raises(ApiError, match="a message cannot be edited: "):
        edited(content, payload="new")


def died(content: bytes, *queues: str) -> Message:
    """A dead letter that has died in these queues."""
    letter = message(content)
    for queue in queues:
        found = write_letter(letter, STORE, Notice(queue, "rejected", 5000, True))
        letter = Message(Address("dlx", queue), found.content, letter.size, True, 7)
        letter.died = True
    return letter


def test_a_redriven_dead_letter_has_its_original_properties() -> None:
    letter = died(WHOLE, "first", "second", "first")
    found = restore_dead_letter(letter, STORE)
    assert found is not None
    assert found.queue == "first"
    alive = found.message
    assert (alive.address.exchange, alive.address.routing_key, alive.died) == ("x", "k", False)
    before, after = sections(WHOLE), sections(alive.content or b"")
    assert after[1:] == before[1:]
    assert after[0] == (0x70, [True, 7, None, False, 0])


def test_only_dead_letters_are_revived() -> None:
    assert restore_dead_letter(message(), STORE) is None
    liar = message(content10({"x-first-death-queue": "q"}))
    liar.died = True
    assert restore_dead_letter(liar, STORE) is None
