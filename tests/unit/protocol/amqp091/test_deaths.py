"""x-death and related headers, byte by byte, and headers that stay."""

import pytest

from broker.adapters.formats.either import write_letter
from broker.core.message import Address, Message
from broker.core.ports import MessageStore
from broker.core.queues.death import DeadLetter, Notice
from protocol.amqp091.deaths import Death, add_death, decode_deaths, encode_deaths
from protocol.amqp091.properties import EXPIRATION, MESSAGE_ID, Properties
from tests.support.amqp091.frames import body_frames, header_bytes


def field(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + value


def long_string(text: bytes) -> bytes:
    return b"S" + len(text).to_bytes(4, "big") + text


def content(table: bytes | None, expiration: bytes | None = None, message_id: bytes = b"id") -> bytes:
    """Content with these raw headers."""
    flags = 1 << 7
    values = b""
    if table is not None:
        flags |= 1 << 13
        values += len(table).to_bytes(4, "big") + table
    if expiration is not None:
        flags |= 1 << 8
        values += bytes([len(expiration)]) + expiration
    values += bytes([len(message_id)]) + message_id
    raw = flags.to_bytes(2, "big") + values
    return header_bytes(4, raw, 1) + b"".join(body_frames(b"body", 1, 4096))


def die(message: Message, queue: str = "q", reason: str = "expired", keeps_keys: bool = True) -> DeadLetter:
    return write_letter(message, MessageStore(), Notice(queue, reason, 1_700_000_000_999, keeps_keys))


def message(raw: bytes, key: str = "k", exchange: str = "x") -> Message:
    return Message(Address(exchange, key), raw, 4, True, 0)


def raw_fields(letter: DeadLetter) -> dict[bytes, bytes]:
    return dict(Properties(letter.content).fields())


def test_a_death_is_written_with_the_types_and_in_the_order_of_rabbitmq() -> None:
    death = Death("q", "expired", 1_700_000_000, "x", ["k", "cc"], "60", 3)
    table = (
        field(b"original-expiration", long_string(b"60"))
        + field(b"count", b"l" + (3).to_bytes(8, "big"))
        + field(b"reason", long_string(b"expired"))
        + field(b"queue", long_string(b"q"))
        + field(b"time", b"T" + (1_700_000_000).to_bytes(8, "big"))
        + field(b"exchange", long_string(b"x"))
        + field(
            b"routing-keys",
            b"A" + (6 + 7).to_bytes(4, "big") + long_string(b"k") + long_string(b"cc"),
        )
    )
    assert death.encode() == b"F" + len(table).to_bytes(4, "big") + table
    assert decode_deaths(encode_deaths([death])) == [death]


def test_a_history_keeps_the_first_time_and_moves_to_the_front() -> None:
    history: list[Death] = []
    for time, queue, reason in (
        (1, "a", "expired"),
        (2, "b", "maxlen"),
        (3, "a", "rejected"),
        (4, "a", "expired"),
    ):
        history = add_death(history, Death(queue, reason, time, "x", ["k"]))
    assert [(death.queue, death.reason, death.time, death.count) for death in history] == [
        ("a", "expired", 1, 2),
        ("a", "rejected", 3, 1),
        ("b", "maxlen", 2, 1),
    ]


@pytest.mark.parametrize("value", [b"S\0\0\0\1x", b"A\0\0\0\1V", b"A\0\0\0\5F\0\0\0\0"])
def test_an_invalid_history_is_ignored(value: bytes) -> None:
    with pytest.raises(ValueError, match="x-death"):
        decode_deaths(value)


def test_existing_headers_keep_their_bytes() -> None:
    mine = field(b"odd", b"u\1\2") + field(b"twice", b"t\1") + field(b"twice", b"t\0")
    letter = die(message(content(mine, b"60")))
    properties = Properties(letter.content)
    assert properties.fields()[:3] == [(b"odd", b"u\1\2"), (b"twice", b"t\1"), (b"twice", b"t\0")]
    assert properties.text(MESSAGE_ID) == "id"
    assert properties.octets(EXPIRATION) is None
    assert letter.content.endswith(b"body\xce")
    history = decode_deaths(raw_fields(letter)[b"x-death"])
    assert history == [Death("q", "expired", 1_700_000_000, "x", ["k"], "60")]


def test_a_message_without_headers_gets_some() -> None:
    letter = die(message(content(None)))
    assert set(raw_fields(letter)) == {
        b"x-death",
        *(
            f"x-{which}-death-{what}".encode()
            for which in ("first", "last")
            for what in ("reason", "queue", "exchange")
        ),
    }


def test_deaths_claimed_by_a_publisher_are_ignored() -> None:
    lie = Death("q", "expired", 1, "x", ["k"], count=9)
    headers = field(b"x-death", encode_deaths([lie])) + field(b"x-first-death-queue", long_string(b"lie"))
    letter = die(message(content(headers)))
    fields = raw_fields(letter)
    assert [death.count for death in decode_deaths(fields[b"x-death"])] == [1]
    assert fields[b"x-first-death-queue"] == long_string(b"q")
    assert len(Properties(letter.content).fields()) == 7
    again = message(letter.content)
    again.died = True
    fields = raw_fields(die(again, "other"))
    assert [death.queue for death in decode_deaths(fields[b"x-death"])] == ["other", "q"]
    assert fields[b"x-first-death-queue"] == long_string(b"q")
    assert fields[b"x-last-death-queue"] == long_string(b"other")


def test_malformed_headers_do_not_prevent_dead_lettering() -> None:
    letter = die(message(content(b"\x03bad?")))
    assert b"x-death" in raw_fields(letter)
    nested = field(b"n", b"F" + (3).to_bytes(4, "big") + b"\1a?")
    letter = die(message(content(nested)))
    assert raw_fields(letter)[b"n"] == b"F\0\0\0\3\1a?"
    assert letter.view.headers() == {}


def test_a_dead_letter_cycle_ends_unless_a_message_was_rejected() -> None:
    letter = die(message(content(None)), "a")
    assert letter.ends_cycle("a")
    assert not letter.ends_cycle("b")
    again = message(letter.content)
    again.died = True
    refused = die(again, "b", "rejected")
    assert not refused.ends_cycle("a")
    assert not refused.ends_cycle("b")
