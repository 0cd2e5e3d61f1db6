"""Dead letters of AMQP 1.0: the annotations, and unchanged other sections."""

from typing import Any

import pytest

from broker.adapters.formats.amqp10 import View10
from broker.adapters.formats.either import write_letter
from broker.core.message import Address, Message
from broker.core.ports import MessageStore
from broker.core.queues.attach import detach
from broker.core.queues.death import DeadLetter, Notice, Past
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10.constructors import NONE
from protocol.amqp10.deaths import Death, decode_deaths, encode_deaths
from protocol.amqp10.decoding import decode, decode_typed
from protocol.amqp10.headers import header_section
from protocol.amqp10.types import Array, Map, Symbol, Timestamp, Uint, Ulong
from tests.support.amqp10.contents import BODY, bare10, content10, history_in
from tests.support.amqp10.reference_codec import described
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import consume, content_of, new_vhost, pull

DATE = 1_700_000_000_999
FOOTER = described(0x78, b"\xc1\x01\x00")
BARE: dict[str, Any] = {
    "application": {"kind": "a", "x-death": "mine", "x-first-death-queue": "lie"},
    "message_id": "m",
    "body": BODY + BODY + FOOTER,
}
WHICH = ("reason", "queue", "exchange")


def message(content: bytes, key: str = "k", exchange: str = "x") -> Message:
    return Message(Address(exchange, key), content, 4, True, 0)


def die(
    message: Message,
    queue: str = "q",
    reason: str = "expired",
    keeps_keys: bool = True,
    past: Past | None = None,
) -> DeadLetter:
    return write_letter(message, MessageStore(), Notice(queue, reason, DATE, keeps_keys, past))


def again(letter: DeadLetter) -> Message:
    new = message(letter.content)
    new.died = True
    return new


def deaths(letter: DeadLetter) -> list[Death]:
    return history_in(letter.content)


def death_headers(letter: DeadLetter, which: str) -> list[object]:
    return [View10(letter.content).headers().get(f"x-{which}-death-{what}") for what in WHICH]


def test_a_death_has_the_types_of_rabbitmq() -> None:
    death = Death("q", "delivery_limit", 5, 6, "x", ["k", "cc" * 200], 60, 3)
    value, _ = decode_typed(encode_deaths([death]))
    fields: list[tuple[object, object]] = [
        ("queue", "q"),
        ("reason", Symbol("delivery_limit")),
        ("count", Ulong(3)),
        ("first-time", Timestamp(5)),
        ("last-time", Timestamp(6)),
        ("exchange", "x"),
        ("routing-keys", Array(0xB1, ["k", "cc" * 200])),
        ("ttl", Uint(60)),
    ]
    assert value == Array(0xD1, [Map(fields)])
    found = value.items[0].pairs  # type: ignore[attr-defined]
    assert [type(key) for key, _ in found] == [Symbol] * len(fields)
    assert [type(item) for _, item in found] == [type(item) for _, item in fields]
    assert decode_deaths(decode(encode_deaths([death]))[0]) == [death]
    death.ttl = -1
    assert decode_deaths(decode(encode_deaths([death]))[0]) == [death]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queue", 5),
        ("reason", None),
        ("exchange", b"x"),
        ("count", "1"),
        ("count", Ulong(0)),
        ("count", Ulong(2**64 - 1)),
        ("first-time", "now"),
        ("last-time", None),
        ("first-time", Ulong(5)),
        ("routing-keys", "k"),
    ],
)
def test_invalid_deaths_are_left_out(field: str, value: object) -> None:
    good = Death("q", "expired", 5, 6, "x", ["k"])
    pairs = [(key, value if key == field else item) for key, item in good.value().pairs]
    array, _ = decode(encode_deaths([good]))
    assert isinstance(array, Array)
    assert decode_deaths(Array(0xD1, [dict(pairs), 5, *array.items])) == [good]
    assert decode_deaths("none") == []


@pytest.mark.parametrize("annotations", [None, {}, {"x-o": ["o"], "x-opt-jms-dest": 1}])
def test_a_letter_tells_of_a_death_and_leaves_the_bare_message(annotations: dict[str, object] | None) -> None:
    new = message(content10(annotations, durable=True, priority=7, ttl=60, **BARE))
    letter = die(new)

    assert letter.content.endswith(bare10(**BARE))
    after = View10(letter.content)
    assert letter.content == letter.content[: after.layout.bare] + bare10(**BARE)
    names = ("delivery_mode", "priority", "expiration", "message_id")
    assert [after.property(name) for name in names] == [2, 7, None, "m"]
    assert deaths(letter) == [Death("q", "expired", DATE, DATE, "x", ["k"], 60)]
    assert death_headers(letter, "first") == death_headers(letter, "last") == ["expired", "q", "x"]
    for name, value in (annotations or {}).items():
        assert after.headers()[name] == value
    assert letter.deaths == [("q", "expired")]
    assert letter.view.headers() == after.headers()
    assert letter.ends_cycle("q")


def test_a_second_death_for_the_same_reason_is_counted() -> None:
    first = die(message(content10(ttl=60, **BARE)), "a")
    second = write_letter(again(first), MessageStore(), Notice("a", "expired", DATE + 5, True))
    assert deaths(second) == [Death("a", "expired", DATE, DATE + 5, "x", ["k"], 60, 2)]
    third = die(again(second), "b", "rejected")
    assert [(death.queue, death.reason, death.count) for death in deaths(third)] == [
        ("b", "rejected", 1),
        ("a", "expired", 2),
    ]
    assert third.deaths == [("b", "rejected"), ("a", "expired")]
    assert death_headers(third, "first") == ["expired", "a", "x"]
    assert death_headers(third, "last") == ["rejected", "b", "x"]
    assert third.content.endswith(bare10(**BARE))
    assert not third.ends_cycle("a"), "somebody has refused it since"


def test_deaths_claimed_by_a_publisher_are_ignored() -> None:
    lie = Death("q", "expired", 1, 1, "x", ["k"], count=9)
    raw, _ = decode_typed(encode_deaths([lie]))
    lies: dict[str, object] = {"x-opt-deaths": raw, "x-expired-by": "me", "x-expired-while": "asleep"}
    lies |= {f"x-{which}-death-{what}": "lie" for which in ("first", "last") for what in WHICH}
    letter = die(message(content10(lies, **BARE)))
    assert [death.count for death in deaths(letter)] == [1]
    assert death_headers(letter, "first") == death_headers(letter, "last") == ["expired", "q", "x"]
    assert "x-expired-by" not in letter.view.headers()
    assert "x-expired-while" not in letter.view.headers()


def test_the_expiration_that_counted_is_told() -> None:
    new = message(content10(ttl=60))
    new.expiration = 50
    assert deaths(die(new))[0].ttl == 50
    assert deaths(die(message(content10())))[0].ttl == -1


def test_the_rest_of_the_header_stays() -> None:
    content = header_section(True, 3, 60, True, 2) + bare10(**BARE)
    letter = die(message(content))
    assert letter.content.startswith(header_section(True, 3, NONE, True, 2) + b"\0\x53\x72")
    assert View10(die(message(content10(**BARE))).content).priority() == NONE


def test_cc_keys_are_recorded_in_the_death_and_removed_if_void() -> None:
    new = message(content10({"x-cc": ["c1", "c2"], "x-o": 1}))
    kept = die(new)
    assert (kept.copies, kept.view.headers()["x-cc"]) == (["c1", "c2"], ["c1", "c2"])
    void = die(new, keeps_keys=False)
    assert (void.copies, "x-cc" in void.view.headers(), void.view.headers()["x-o"]) == ([], False, 1)
    assert deaths(kept)[0].routing_keys == deaths(void)[0].routing_keys == ["k", "c1", "c2"]


def test_a_dead_letter_has_its_delivery_counts_and_expiry() -> None:
    past = Past()
    past.deliveries, past.returns = 5, 3
    past.expired_by, past.expired_while = "queue", "held"
    headers = die(message(content10({"x-acquired-count": "old"}, **BARE)), past=past).view.headers()
    expected = {
        "x-acquired-count": 5,
        "x-delivery-count": 3,
        "x-expired-by": "queue",
        "x-expired-while": "held",
    }
    assert {name: headers[name] for name in expected} == expected


@pytest.mark.parametrize(
    "annotations",
    [
        described(0x72, b"\xc1\x03\x02\xa3\x05"),
        described(0x72, b"\xc1\x06\x02\xa1\x01a\x41\x41"),
    ],
)
def test_malformed_annotations_do_not_prevent_dead_lettering(annotations: bytes) -> None:
    letter = die(message(content10(body=b"") + annotations + bare10(**BARE)))
    assert [death.queue for death in deaths(letter)] == ["q"]
    assert letter.content.endswith(bare10(**BARE))


def test_a_damaged_message_becomes_a_letter_too() -> None:
    letter = die(message(b"\0garbage"))
    assert letter.content.endswith(b"\0garbage")
    assert View10(letter.content).property("delivery_mode") == 2, "as the message was kept"
    assert [death.queue for death in deaths(letter)] == ["q"]


class Ward:
    """A queue whose dead letters go to another queue, and from there back to the first."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.vhost: VirtualHost = new_vhost(clock=self.clock)
        for name, to, ttl in (("a", "b", None), ("b", "a", 50)):
            arguments: dict[str, object] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": to}
            if ttl is not None:
                arguments["x-message-ttl"] = ttl
            self.vhost.declarations.declare_queue(name, False, None, False, arguments)

    def publish(self, content: bytes, expiration: int) -> None:
        route = self.vhost.publisher.route("", "a")
        new = Message(route.address, content, 4, False, 0)
        new.expiration = expiration
        self.vhost.publisher.publish_carefully(route, new)

    def contents(self, name: str) -> list[bytes]:
        return [entry.message.content or b"" for entry in self.vhost.topology.queues[name].entries]


def test_expired_messages_of_both_protocols_go_the_same_way() -> None:
    ward = Ward()
    ward.publish(content10(ttl=20, **BARE), 20)
    ward.publish(content_of(message_id="m", expiration="20"), 20)
    ward.clock.advance(20)
    assert ward.contents("a") == []
    new, old = ward.contents("b")
    assert new.endswith(bare10(**BARE))
    view = View10(new)
    assert [death.queue for death in history_in(new)] == ["a"]
    assert (view.lookup("x-expired-by"), view.property("expiration")) == ("message", None)
    assert old[0] != 0


def test_a_message_that_is_refused_again_and_again_is_counted_and_stays_the_same() -> None:
    ward = Ward()
    ward.publish(content10(durable=True, **BARE), -1)
    for count in (1, 2, 3):
        queue = ward.vhost.topology.queues["a"]
        taker, consumer = consume(queue)
        assert pull(consumer) == 1
        detach(queue, consumer, [])
        queue.discard(taker.taken[0])
        ward.clock.advance(50)
        [content] = ward.contents("a")
        history = history_in(content)
        shown = [(death.queue, death.reason, death.count) for death in history]
        assert shown == [("b", "expired", count), ("a", "rejected", count)]
        assert [death.last_time - death.first_time for death in history] == [50 * (count - 1)] * 2
        assert content.endswith(bare10(**BARE))
