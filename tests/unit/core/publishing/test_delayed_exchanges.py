"""Exchanges that delay messages: dates, the log, limits, and the end of the delay."""

import pytest

from broker.adapters.formats.amqp091 import View091
from broker.core.errors import PreconditionFailed
from broker.core.message import Address, Message
from broker.core.message_view import MessageView
from broker.core.publishing.delay import UNREADABLE_WAIT_MS, UNSYNCED_MAX
from broker.core.publishing.publisher import ROUTED
from broker.core.queues.attach import get_one
from broker.core.queues.returns import release_entries
from broker.core.routing.kinds import DELAY_MAX, delay_of
from broker.core.schedule import RETRY_MS
from broker.store.restore import Recovered
from protocol.amqp091.properties import Properties
from tests.support.core.delayed_exchange import DelayBench, bind_new_queue, entries, headers_of
from tests.support.core.purge import purge
from tests.support.core.topology import (
    RecordingStore,
    add_exchange,
    consume,
    content_of,
    definitions_of,
    publish,
)

# --- declaring


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x-delayed-type": 5}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x-delayed-type": "nope"}, "unknown exchange type 'nope'"),
        (
            {"x-delayed-type": "x-delayed-message"},
            "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
        ),
        (
            {"x-delayed-type": "x-recent-history"},
            "Invalid argument, 'x-recent-history' can't be used for 'x-delayed-type'",
        ),
    ],
)
def test_how_to_route_must_be_said(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(PreconditionFailed) as refusal:
        DelayBench().vhost.declarations.declare_exchange(
            "y", "x-delayed-message", True, False, False, arguments
        )
    assert refusal.value.text == text


def test_a_redeclaration_must_route_in_the_same_way() -> None:
    bench = DelayBench()
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-delayed-type' for exchange 'x'"):
        add_exchange(bench.vhost, "x", "x-delayed-message", **{"x-delayed-type": "topic"})
    add_exchange(bench.vhost, "x", "x-delayed-message", **{"x-delayed-type": "direct"})


def test_bindings_are_checked_by_the_exchange_that_routes() -> None:
    bench = DelayBench("headers")
    with pytest.raises(PreconditionFailed):
        bind_new_queue(bench.vhost, "q", arguments={"x-match": "some"})


# --- for how long


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        (1, 1),
        (DELAY_MAX, DELAY_MAX),
        (DELAY_MAX + 1, 0),
        (0, 0),
        (-5, 0),
        ("250", 250),
        ("+250", 250),
        ("-250", 0),
        ("250 ms", 0),
        ("", 0),
        ("9" * 5000, 0),
        ("२५०", 0),
        (1.9, 1),
        (float("nan"), 0),
        (float("inf"), 0),
        (True, 0),
        (None, 0),
        (b"250", 0),
        ([250], 0),
    ],
)
def test_valid_values_of_the_delay_header(value: object, delay: int) -> None:
    class View(MessageView):
        def headers(self) -> dict[str, object]:
            return {"x-delay": value}

    assert delay_of(View()) == delay


def test_a_message_without_a_valid_delay_header_is_routed_at_once() -> None:
    bench = DelayBench()
    queue = bind_new_queue(bench.vhost, "q")
    assert publish(bench.vhost, "x", "k") is ROUTED
    assert bench.publish(-100) is ROUTED
    assert bench.publish(DELAY_MAX + 1) is ROUTED
    assert queue.ready == 3
    assert [headers_of(entry.message).get("x-delay") for entry in entries(queue)] == [
        None,
        -100,
        DELAY_MAX + 1,
    ]


# --- the outcome


def test_a_delayed_message_is_routed_by_the_bindings_at_its_release() -> None:
    bench = DelayBench()
    gone = bind_new_queue(bench.vhost, "gone")
    assert bench.publish(1000) is ROUTED, "it is not unroutable"
    assert bench.publish("500") is ROUTED
    bench.vhost.declarations.unbind_queue("gone", "x", "k", {})
    queue = bind_new_queue(bench.vhost, "q")
    bench.clock.advance(499)
    assert (queue.ready, bench.delayed) == (0, 2)
    bench.clock.advance(1)
    assert (queue.ready, bench.delayed) == (1, 1)
    bench.clock.advance(500)
    assert (queue.ready, gone.ready, bench.delayed) == (2, 0, 0)
    assert [headers_of(entry.message)["x-delay"] for entry in entries(queue)] == [-500, -1000]
    assert bench.counters.published == 2


def test_messages_of_one_date_keep_their_order() -> None:
    bench = DelayBench()
    queue = bind_new_queue(bench.vhost, "q")
    for number in range(1000):
        bench.publish(50, headers={"number": number})
    bench.clock.advance(50)
    bench.clock.advance(1)
    assert [headers_of(entry.message)["number"] for entry in entries(queue)] == list(range(1000))


@pytest.mark.parametrize(
    ("kind", "binding", "arguments"),
    [
        ("direct", "a.b", {}),
        ("topic", "a.*", {}),
        ("fanout", "anything", {}),
        ("headers", "", {"x-match": "all", "color": "red"}),
        ("x-consistent-hash", "1", {}),
        ("x-random", "", {}),
    ],
)
def test_every_type_routes_late_and_at_once(kind: str, binding: str, arguments: dict[str, object]) -> None:
    bench = DelayBench(kind)
    queue = bind_new_queue(bench.vhost, "q", key=binding, arguments=arguments)
    for delay in (0, 10):
        assert bench.publish(delay, "a.b", headers={"color": "red"}) is ROUTED
    assert queue.ready == 1
    bench.clock.advance(10)
    assert queue.ready == 2
    bench.vhost.declarations.unbind_queue("q", "x", binding, arguments)
    bench.publish(10, "a.b", headers={"color": "red"})
    bench.clock.advance(10)
    assert queue.ready == 2


def test_a_delayed_message_without_a_match_goes_to_the_alternate_exchange_or_nowhere() -> None:
    bench = DelayBench()
    bench.publish(10)
    bench.clock.advance(10)
    assert bench.counters.unroutable == 1
    add_exchange(bench.vhost, "ae", "fanout")
    add_exchange(
        bench.vhost,
        "y",
        "x-delayed-message",
        **{"x-delayed-type": "direct", "alternate-exchange": "ae"},
    )
    rest = bind_new_queue(bench.vhost, "rest", "ae")
    bench.publish(10, exchange="y")
    assert rest.ready == 0, "a held message is matched"
    bench.clock.advance(10)
    assert rest.ready == 1


def test_on_its_way_from_exchange_to_exchange_a_message_is_held_once() -> None:
    bench = DelayBench("fanout")
    add_exchange(bench.vhost, "first", "fanout")
    add_exchange(bench.vhost, "y", "x-delayed-message", **{"x-delayed-type": "fanout"})
    bench.vhost.declarations.bind_exchange("x", "first", "", {})
    bench.vhost.declarations.bind_exchange("y", "x", "", {})
    at_once = bind_new_queue(bench.vhost, "at once", "first")
    late = bind_new_queue(bench.vhost, "late", "y")
    assert bench.publish(100, exchange="first") is ROUTED
    assert (at_once.ready, late.ready) == (1, 0)
    bench.clock.advance(100)
    assert (at_once.ready, late.ready) == (1, 1)
    assert headers_of(entries(at_once)[0].message)["x-delay"] == 100
    assert entries(late)[0].message.address.exchange == "first"


def test_cc_and_bcc_keys_of_a_delayed_message_are_routed_at_its_release() -> None:
    bench = DelayBench()
    queues = [bind_new_queue(bench.vhost, key, key=key) for key in ("k", "copy", "blind")]
    content = content_of(headers={"x-delay": 5, "CC": ["copy"], "BCC": ["blind"]})
    route = bench.vhost.publisher.route("x", "k")
    message = Message(route.address, content, 0, False, 0)
    view = View091(Properties(content))
    assert route.exchange.delays_message(view)
    assert bench.vhost.publisher.publish_by_message(route, message, ["k", "copy", "blind"], view) is ROUTED
    bench.clock.advance(5)
    assert [queue.ready for queue in queues] == [1, 1, 1]
    assert headers_of(entries(queues[0])[0].message) == {"x-delay": -5, "CC": ["copy"]}


def test_a_delayed_message_keeps_its_properties() -> None:
    bench = DelayBench()
    queue = bind_new_queue(bench.vhost, "q")
    bench.publish(5, headers={"a": 1}, content_type="text/plain", priority=7, message_id="m")
    bench.clock.advance(5)
    expected = content_of(
        headers={"x-delay": -5, "a": 1}, content_type="text/plain", priority=7, message_id="m"
    )
    [entry] = entries(queue)
    assert entry.message.content is not None
    found = View091(Properties(entry.message.content))
    wanted = View091(Properties(expected))
    for name in ("content_type", "priority", "message_id"):
        assert found.property(name) == wanted.property(name)
    assert found.headers() == wanted.headers()


def test_delayed_messages_of_a_durable_exchange_are_logged() -> None:
    bench = DelayBench(durable=True)
    bind_new_queue(bench.vhost, "q", durable=True)
    exchange = bench.vhost.topology.exchanges["x"]
    assert exchange.kept is not None
    assert exchange.kept.number == bench.store.changes[1]["number"]
    bench.publish(100, persistent=True)
    bench.publish(100)
    [(held, holders)] = bench.store.enqueued
    assert (held.date, holders) == (bench.clock.date() + 100, [""])
    assert held.sequence != 0, "its publisher waits for this"
    bench.clock.advance(100)
    assert [queues for _, queues in bench.store.enqueued] == [[""], ["q"]]
    assert bench.store.settled == [(held, "")]
    assert bench.vhost.topology.queues["q"].ready == 2


def test_delayed_messages_of_a_transient_exchange_are_not_logged() -> None:
    bench = DelayBench()
    bench.publish(100, persistent=True)
    assert bench.store.enqueued == []


def test_a_persistent_message_waits_for_the_log() -> None:
    bench = DelayBench(durable=True)
    queue = bind_new_queue(bench.vhost, "q", durable=True)
    bench.publish(100, persistent=True)
    bench.store.failure = "the disk is full"
    bench.clock.advance(100)
    assert (queue.ready, bench.delayed) == (0, 1)
    bench.store.failure = ""
    bench.clock.advance(RETRY_MS)
    assert (queue.ready, bench.delayed) == (1, 0)


def test_no_message_is_released_while_too_many_bytes_are_unsynced() -> None:
    class SlowStore(RecordingStore):
        waiting = 0

        @property
        def unsynced_bytes(self) -> int:
            return self.waiting

    bench = DelayBench()
    queue = bind_new_queue(bench.vhost, "q")
    slow = SlowStore()
    bench.vhost.store = slow
    slow.waiting = UNSYNCED_MAX + 1
    bench.publish(100)
    bench.clock.advance(200)
    assert queue.ready == 0
    slow.waiting = 0
    bench.clock.advance(10)
    assert queue.ready == 1


def test_a_message_that_the_disk_does_not_give_back_does_not_hold_up_the_others() -> None:
    class Rotten(RecordingStore):
        broken = True

        def load(self, message: Message) -> bytes:
            if self.broken:
                raise OSError("the disk does not give it back")
            return content_of(headers={"x-delay": 10})

    bench = DelayBench()
    queue = bind_new_queue(bench.vhost, "q")
    bench.vhost.store = store = Rotten()
    bench.publish(10)
    bench.publish(11)
    delays = bench.vhost.topology.exchanges["x"].delays  # type: ignore[attr-defined]
    first = next(iter(delays._timetable))
    first.content = None
    bench.clock.advance(11)
    assert (queue.ready, bench.delayed) == (1, 1)
    store.broken = False
    bench.clock.advance(UNREADABLE_WAIT_MS)
    assert (queue.ready, bench.delayed) == (2, 0)


def test_delayed_messages_of_a_deleted_exchange_are_dropped() -> None:
    bench = DelayBench(durable=True)
    bench.publish(100, persistent=True)
    [(held, _)] = bench.store.enqueued
    bench.vhost.declarations.delete_exchange("x", False)
    assert bench.store.forgotten == [held]
    bench.clock.advance(1000)
    assert bench.counters.unroutable == 0


def test_recovered_delayed_messages_keep_their_date_and_overdue_ones_go_at_once() -> None:
    bench = DelayBench(durable=True)
    bind_new_queue(bench.vhost, "q", durable=True)
    again = DelayBench()
    for change in definitions_of(bench.broker):
        again.broker.apply(change)
    exchange = again.vhost.topology.exchanges["x"]
    assert exchange.kept is not None
    sink = Recovered(again.broker)
    for number, wait in enumerate((50, -100_000, 100), 1):
        content = content_of(headers={"x-delay": 1, "number": number})
        message = Message(Address("x", "k"), content, 0, True, 0)
        message.date = again.clock.date() + wait
        message.sequence = number
        assert sink.message(message, [int(exchange.kept.number)], True, {}) == 1
    queue = again.vhost.topology.queues["q"]
    again.broker.resume()
    again.clock.advance(0)
    assert [headers_of(entry.message)["number"] for entry in entries(queue)] == [2]
    again.clock.advance(100)
    assert [headers_of(entry.message)["number"] for entry in entries(queue)] == [2, 1, 3]
    assert [message.sequence for message, _ in again.store.settled] == [2, 1, 3]


# --- beside limits


def test_a_message_that_a_full_queue_refuses_is_held_for_longer() -> None:
    """The publisher already has a confirm, so that the broker cannot refuse the message any more."""
    bench = DelayBench(durable=True)
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    full = bind_new_queue(bench.vhost, "full", durable=True, limits=limits)
    other = bind_new_queue(bench.vhost, "other", durable=True)
    for number in range(3):
        bench.publish(10 + number, persistent=True, headers={"number": number})
    bench.clock.advance(20)
    assert (full.ready, other.ready, bench.delayed) == (1, 1, 2)
    bench.clock.advance(RETRY_MS)
    assert bench.delayed == 2
    purge(full)
    bench.clock.advance(RETRY_MS)
    assert (full.ready, other.ready, bench.delayed) == (1, 2, 1)
    assert len(bench.store.settled) == 3, "two were released, one was purged"


def test_a_full_queue_that_passes_on_what_it_refuses_does_so() -> None:
    bench = DelayBench(durable=True)
    dead = bind_new_queue(bench.vhost, "dead", "amq.fanout", durable=True)
    limits = {
        "x-max-length": 0,
        "x-overflow": "reject-publish-dlx",
        "x-dead-letter-exchange": "amq.fanout",
    }
    full = bind_new_queue(bench.vhost, "full", durable=True, limits=limits)
    bench.publish(10, persistent=True)
    bench.clock.advance(10)
    assert (full.ready, dead.ready, bench.delayed) == (0, 1, 0)
    [held, letter] = [message for message, _ in bench.store.enqueued]
    assert bench.store.settled == [(held, "")]
    assert letter.died


def test_an_expiration_counts_from_the_end_of_the_delay() -> None:
    bench = DelayBench(durable=True)
    queue = bind_new_queue(bench.vhost, "q", durable=True)
    route = bench.vhost.publisher.route("x", "k")
    content = content_of(headers={"x-delay": 1000})
    message = Message(route.address, content, 0, True, 0)
    message.expiration = 50
    bench.vhost.publisher.publish_by_message(route, message, ["k"], View091(Properties(content)))
    bench.clock.advance(1000)
    assert queue.ready == 1
    bench.clock.advance(49)
    assert queue.ready == 1
    bench.clock.advance(2)
    assert queue.ready == 0


def test_a_dead_letter_is_held_once() -> None:
    """As with the plugin, a message that was delayed before is not delayed again."""
    bench = DelayBench(durable=True)
    retry = bind_new_queue(bench.vhost, "retry", durable=True, limits={"x-dead-letter-exchange": "x"})
    add_exchange(bench.vhost, "in", "fanout")
    bench.vhost.declarations.bind_queue("retry", "in", "", {})
    bench.publish(100, exchange="in", persistent=True)
    consumer = consume(retry)[1]
    for held in (1, 0):
        entry = get_one(retry, consumer)
        assert entry is not None
        retry.discard(entry)
        assert (bench.delayed, retry.ready) == (held, 1 - held)
        bench.clock.advance(100)
        assert (bench.delayed, retry.ready) == (0, 1)
    [entry] = entries(retry)
    assert headers_of(entry.message)["x-delay"] == -100
    assert entry.message.died


def test_a_delayed_message_beyond_its_delivery_limit_is_dead_lettered() -> None:
    bench = DelayBench()
    dead = bind_new_queue(bench.vhost, "dead", "amq.fanout")
    limits = {"x-delivery-limit": 0, "x-dead-letter-exchange": "amq.fanout"}
    queue = bind_new_queue(bench.vhost, "q", limits=limits)
    bench.publish(0)
    consumer = consume(queue)[1]
    entry = get_one(queue, consumer)
    assert entry is not None
    release_entries(queue, [entry], consumer)
    [letter] = entries(dead)
    assert headers_of(letter.message)["x-first-death-reason"] == "delivery_limit"
