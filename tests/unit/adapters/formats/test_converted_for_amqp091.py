"""Messages of AMQP 1.0 that clients of AMQP 0-9-1 consume, get, have again, and are answered with."""

import pytest
from pamqp.commands import Basic, Channel, Connection, Queue

from broker.adapters.formats.either import (
    KEPT_BYTES_MAX,
    KEPT_EACH_MAX,
    Conversions,
    content_for091,
    write_letter,
)
from broker.core.message import Address, Message
from broker.core.queues.death import Notice
from protocol.amqp091 import properties as basic
from protocol.amqp091.content import body
from protocol.amqp091.deaths import decode_deaths
from protocol.amqp091.fields import Reader
from protocol.amqp091.properties import Properties
from protocol.amqp10.types import Symbol
from protocol.conversion.to091 import content091
from tests.support.adapters.connection_without_socket import CAPABILITIES, BrokerBench, Client091
from tests.support.adapters.queued_messages10 import data, put
from tests.support.amqp10.contents import BODY, content10
from tests.support.core.hand_clock import HandClock

ANNOTATED: dict[str, object] = {"x-own": "a"}


def headers(content: bytes) -> dict[str, object]:
    return Properties(content).headers()


def consumer(bench: BrokerBench, **arguments: object) -> Client091:
    client = bench.open()
    client.send(Queue.Declare(queue="q", arguments=arguments), 1)  # type: ignore[arg-type]
    client.send(Basic.Consume(queue="q", consumer_tag="c"), 1)
    client.frames()
    return client


def test_a_consumer_is_given_a_content(bench: BrokerBench) -> None:
    client = consumer(bench)
    put(bench, content10(ANNOTATED, {"kind": 1}, True, 7, message_id="m", content_type=Symbol("text/x")))
    client.publish("q", b"other")
    bench.turns.run()
    [(first, content), (second, other)] = client.contents()
    assert isinstance(first, Basic.Deliver)
    assert (first.delivery_tag, first.redelivered, first.routing_key) == (1, False, "q")
    properties = Properties(content)
    assert body(content) == b"body"
    assert properties.headers() == {"kind": 1, "x-own": "a"}
    assert [properties.number(place) for place in (basic.DELIVERY_MODE, basic.PRIORITY)] == [2, 7]
    assert [properties.text(place) for place in (basic.MESSAGE_ID, basic.CONTENT_TYPE)] == ["m", "text/x"]
    assert isinstance(second, Basic.Deliver)
    assert body(other) == b"other"


def test_a_body_is_split_for_a_client_with_small_frames(bench: BrokerBench) -> None:
    client = consumer(bench)
    payload = bytes(range(256)) * 2000
    put(bench, content10(body=data(payload)))
    bench.turns.run()
    [(_, content)] = client.contents()
    assert body(content) == payload


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_get_is_answered_with_a_content(bench: BrokerBench, on_disk: bool) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q", durable=True), 1)
    bench.store.complete()
    put(bench, content10(ANNOTATED))
    if on_disk:
        bench.store.drop_contents()
    client.send(Basic.Get(queue="q"), 1)
    [(got, content)] = client.contents()
    assert isinstance(got, Basic.GetOk)
    assert (body(content), headers(content)) == (b"body", {"x-own": "a"})


def test_a_get_that_waits_is_answered_with_a_content(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q", arguments={"x-get-wait": 1000}), 1)
    client.send(Basic.Get(queue="q"), 1)
    put(bench, content10(ANNOTATED))
    bench.turns.run()
    [(got, content)] = client.contents()
    assert isinstance(got, Basic.GetOk)
    assert body(content) == b"body"


def test_redeliveries_have_their_count(bench: BrokerBench) -> None:
    client = consumer(bench, **{"x-delivery-limit": 5})
    put(bench, content10(ANNOTATED, ttl=None))
    for count in range(3):
        bench.turns.run()
        [(deliver, content)] = client.contents()
        assert isinstance(deliver, Basic.Deliver)
        assert deliver.redelivered == (count > 0)
        counts = {"x-acquired-count": count, "x-delivery-count": count} if count else {}
        assert headers(content) == ANNOTATED | counts
        assert body(content) == b"body"
        client.send(Basic.Nack(deliver.delivery_tag or 0), 1)


def test_a_recovered_message_is_converted_again(bench: BrokerBench) -> None:
    client = consumer(bench)
    put(bench, content10(ANNOTATED))
    bench.turns.run()
    [(_, before)] = client.contents()
    client.send(Basic.Recover(True), 1)
    bench.turns.run()
    [(deliver, content)] = client.contents()
    assert isinstance(deliver, Basic.Deliver)
    assert deliver.redelivered
    assert content == before


def test_an_expiration_is_what_is_left_of_it(bench: BrokerBench) -> None:
    client = bench.open()
    client.send(Queue.Declare(queue="q"), 1)
    for expiration in (60_000, 5_000_000):
        put(bench, content10(ttl=60_000), expiration=expiration)
    bench.clock.advance(1500)
    client.frames()
    for left in ("58500", "4998500"):
        client.send(Basic.Get(queue="q"), 1)
        [(_, content)] = client.contents()
        assert Properties(content).text(basic.EXPIRATION) == left
    message = Message(Address("", "q"), content10(ttl=60_000), 4, True, 0)
    message.expiration = 50
    for date, expiration_text in ((0, "50"), (1, "0")):
        message.date = date
        content = content_for091(bench.server.conversions, message, message.content or b"")
        assert Properties(content).text(basic.EXPIRATION) == expiration_text


def test_a_dead_letter_tells_of_its_death_in_the_headers_of_amqp_091(bench: BrokerBench) -> None:
    arguments: dict[str, object] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client = consumer(bench, **arguments)
    client.send(Queue.Declare(queue="dead"), 1)
    put(bench, content10(ttl=60_000, application={"kind": "a"}), expiration=60_000)
    bench.turns.run()
    client.send(Basic.Reject(1, False), 1)
    client.contents()
    client.send(Basic.Get(queue="dead"), 1)
    [(_, content)] = client.contents()
    properties = Properties(content)
    fields = dict(properties.fields())
    [death] = decode_deaths(fields.pop(b"x-death"))
    assert (death.queue, death.reason, death.count, death.exchange) == ("q", "rejected", 1, "")
    assert (death.routing_keys, death.original_expiration) == (["q"], "60000")
    assert {name: Reader(value).value() for name, value in fields.items()} == {b"kind": "a"} | {
        f"x-{which}-death-{what}".encode(): value
        for which in ("first", "last")
        for what, value in (("queue", "q"), ("reason", "rejected"), ("exchange", ""))
    }
    assert properties.octets(basic.EXPIRATION) is None


def small_frames(bench: BrokerBench) -> Client091:
    client = bench.connect()
    client.send(Connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", "\0guest\0guest"))
    client.send(Connection.TuneOk(2047, 4096, 0))
    client.send(Connection.Open("/"))
    client.send(Channel.Open(), 1)
    client.send(Queue.Declare(queue="q"), 1)
    client.frames()
    return client


@pytest.mark.parametrize("way", ["consume", "get"])
def test_headers_that_are_too_long_for_a_client_end_its_channel(bench: BrokerBench, way: str) -> None:
    client = small_frames(bench)
    put(bench, content10({"x-long": "x" * 5000}))
    client.send(Basic.Consume(queue="q") if way == "consume" else Basic.Get(queue="q"), 1)
    bench.turns.run()
    bench.clock.advance(1)
    closed = client.frames()[-1]
    assert isinstance(closed, Channel.Close)
    assert (closed.reply_code, "content header of" in closed.reply_text) == (406, True)
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    assert queue.ready == 1


def test_a_client_without_room_is_not_told_of_the_oldest_deaths(bench: BrokerBench) -> None:
    client = small_frames(bench)
    letter = Message(Address("", "q"), content10(ANNOTATED), len(BODY), True, 0)
    for number in range(100):
        written = write_letter(letter, bench.store, Notice(f"queue-{number}", "rejected", 5000, True))
        letter = Message(letter.address, written.content, len(BODY), True, 0)
        letter.died = True
    route = bench.broker.vhosts["/"].publisher.route("", "q")
    bench.broker.vhosts["/"].publisher.publish_carefully(route, letter)
    client.send(Basic.Get(queue="q"), 1)
    [(_, content)] = client.contents()
    fields = dict(Properties(content).fields())
    shown = [death.queue for death in decode_deaths(fields[b"x-death"])]
    assert shown == [f"queue-{99 - number}" for number in range(len(shown))]
    assert 10 < len(shown) < 100
    assert fields[b"x-own"] == b"S\0\0\0\1a"
    assert body(content) == b"body"


@pytest.mark.parametrize("flow", [True, False])
def test_a_direct_reply_is_a_content(bench: BrokerBench, flow: bool) -> None:
    client = bench.open()
    client.send(Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True), 1)
    client.send(Channel.Flow(flow), 1)
    client.frames()
    [(replies, name)] = [(replies, name) for (_, name), replies in bench.server.replies.items()]
    reply = Message(Address("", name[1:].decode()), content10(ANNOTATED), len(BODY), False, 0)
    replies.deliver(reply, bench.broker.counters)
    client.send(Channel.Flow(True), 1)
    bench.turns.run()
    [(deliver, content)] = client.contents()
    assert isinstance(deliver, Basic.Deliver)
    assert (body(content), headers(content)) == (b"body", {"x-own": "a"})


def test_a_direct_reply_with_headers_that_are_too_long_is_dropped(bench: BrokerBench) -> None:
    client = small_frames(bench)
    client.send(Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True), 1)
    client.frames()
    [replies] = bench.server.replies.values()
    reply = Message(Address("", "r"), content10({"x-long": "x" * 5000}), len(BODY), False, 0)
    replies.deliver(reply, bench.broker.counters)
    bench.turns.run()
    assert client.frames() == []
    assert bench.broker.counters.replies_dropped == 1


def test_a_message_for_many_is_converted_once() -> None:
    conversions = Conversions(HandClock().schedule)
    content = content10(ANNOTATED)
    first = conversions.content(content)
    assert first == content091(content)
    assert conversions.content(bytes(bytearray(content))) is first


def test_conversions_take_a_bounded_amount_of_memory() -> None:
    conversions = Conversions(HandClock().schedule)
    kept: dict[bytes, bytes] = conversions._kept
    for number in range(5000):
        payload = b"%04d" % number + bytes(1000)
        content = content10(body=data(payload))
        assert body(conversions.content(content)) == payload
        assert sum(len(key) + len(value) for key, value in kept.items()) <= KEPT_BYTES_MAX
        assert content in kept
    large = content10(body=data(bytes(KEPT_EACH_MAX)))
    assert body(conversions.content(large)) == bytes(KEPT_EACH_MAX)
    assert large not in kept
