"""Exchanges that keep the last messages, and the replay to a new binding."""

import json

import pytest

from broker.adapters.formats.either import view_of
from broker.core.broker import Broker
from broker.core.errors import PreconditionFailed, StoreFailed
from broker.core.message import BY_CLOCK, DELAYED, TELLS_ARRIVAL, Message
from broker.core.publishing.delay import count_delayed, delays_of
from broker.core.publishing.publisher import ROUTED, UNROUTED
from broker.core.queues.duplicates import memory_of
from broker.core.routing.history import History
from broker.core.vhosts.definitions import restore_message
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import (
    RecordingStore,
    add_exchange,
    add_queue,
    content_of,
    definitions_of,
    new_broker,
    new_vhost,
    publish,
)


def history_vhost(
    store: RecordingStore | None = None, durable: bool = False, **arguments: object
) -> VirtualHost:
    """A virtual host with a recent-history exchange `x`."""
    vhost = new_vhost(store)
    add_exchange(vhost, "x", "x-recent-history", durable=durable, **arguments)
    return vhost


def send(vhost: VirtualHost, *names: str, **more: object) -> None:
    """Publish messages with these ids to `x`."""
    for name in names:
        publish(vhost, "x", "k", message_id=name, **more)  # type: ignore[arg-type]


def message_ids(vhost: VirtualHost, name: str) -> list[object]:
    """The ids of the messages in a queue."""
    entries = vhost.topology.queues[name].entries
    return [view_of(entry.message, vhost.store).property("message_id") for entry in entries]


def bound(vhost: VirtualHost, name: str, durable: bool = False) -> list[object]:
    """Bind a new queue to `x`; the ids of the messages that it has then."""
    add_queue(vhost, name, durable)
    vhost.declarations.bind_queue(name, "x", "k", {})
    return message_ids(vhost, name)


def test_a_new_queue_gets_the_last_messages_in_order_and_then_what_comes() -> None:
    vhost = history_vhost(x_recent_history_length=3)
    assert bound(vhost, "first") == []
    send(vhost, *"abcde")
    assert bound(vhost, "second") == ["c", "d", "e"]
    send(vhost, "f")
    assert message_ids(vhost, "second") == ["c", "d", "e", "f"]
    assert message_ids(vhost, "first") == list("abcdef")
    assert bound(vhost, "third") == ["d", "e", "f"]


def test_twenty_are_kept_unless_the_exchange_says_otherwise() -> None:
    vhost = history_vhost()
    send(vhost, *map(str, range(25)))
    assert bound(vhost, "q") == list(map(str, range(5, 25)))


def test_an_existing_binding_gets_no_history_again() -> None:
    vhost = history_vhost()
    send(vhost, "a")
    assert bound(vhost, "q") == ["a"]
    assert bound(vhost, "q") == ["a"]
    vhost.declarations.bind_queue("q", "x", "another", {})
    assert message_ids(vhost, "q") == ["a", "a"]


def test_a_message_may_ask_not_to_be_kept() -> None:
    vhost = history_vhost()
    send(vhost, "a")
    send(vhost, "b", headers={"x-recent-history-no-store": True})
    send(vhost, "c", headers={"x-recent-history-no-store": 1})
    assert bound(vhost, "q") == ["a", "c"]


def test_kept_messages_are_not_routed() -> None:
    vhost = history_vhost(alternate_exchange="amq.fanout")
    assert publish(vhost, "x", message_id="a") is UNROUTED
    assert vhost.counters.unroutable == 1
    add_queue(vhost, "other")
    vhost.declarations.bind_queue("other", "amq.fanout", "", {})
    assert publish(vhost, "x", message_id="b") is ROUTED
    assert bound(vhost, "q") == ["a", "b"]


def test_the_history_goes_through_a_bound_exchange() -> None:
    vhost = history_vhost()
    send(vhost, "a", "b")
    add_queue(vhost, "q")
    add_exchange(vhost, "y", "x-recent-history", x_recent_history_length=1)
    vhost.declarations.bind_queue("q", "y", "", {})
    vhost.declarations.bind_exchange("y", "x", "", {})
    assert message_ids(vhost, "q") == ["a", "b"]
    add_queue(vhost, "late")
    vhost.declarations.bind_queue("late", "y", "", {})
    assert message_ids(vhost, "late") == ["b"]
    vhost.declarations.bind_exchange("amq.direct", "x", "", {})
    send(vhost, "c")
    assert message_ids(vhost, "q") == ["a", "b", "c"]


@pytest.mark.parametrize("length", [0, -1, "20", True, 1.0, None, 100_001])
def test_an_invalid_history_length_is_refused(length: object) -> None:
    vhost = new_vhost()
    with pytest.raises(PreconditionFailed) as refusal:
        add_exchange(vhost, "x", "x-recent-history", x_recent_history_length=length)
    assert refusal.value.text.startswith("Invalid argument '")
    assert "'x-recent-history-length' of exchange 'x' must be a positive integer" in refusal.value.text
    assert "x" not in vhost.topology.exchanges


def test_persistent_messages_of_a_durable_exchange_are_appended_once_and_settled_when_they_go() -> None:
    store = RecordingStore()
    vhost = history_vhost(store, durable=True, x_recent_history_length=2)
    add_queue(vhost, "d", durable=True)
    vhost.declarations.bind_queue("d", "x", "", {})
    send(vhost, "a", persistent=True)
    send(vhost, "b")
    send(vhost, "c", persistent=True)
    assert [queues for _, queues in store.enqueued] == [["d", ""], ["d", ""]]
    assert [(message.sequence, queue) for message, queue in store.settled] == [(1, "")]
    bound(vhost, "late", durable=True)
    assert store.enqueued[2:] == [(store.enqueued[2][0], ["late"])]
    assert store.enqueued[2][0] is not store.enqueued[1][0], "a copy, which the log has not seen"
    assert vhost.topology.queues["late"].ready == 2
    vhost.declarations.delete_exchange("x", if_unused=False)
    assert [message.sequence for message in store.forgotten] == [2]
    assert store.kinds()[-1] == "exchange.delete"


def test_the_history_of_a_transient_exchange_is_not_logged() -> None:
    store = RecordingStore()
    vhost = history_vhost(store)
    send(vhost, "a", persistent=True)
    assert store.enqueued == []


def restarted(changes: list[dict[str, object]]) -> Broker:
    broker = new_broker()
    for change in changes:
        broker.apply(json.loads(json.dumps(change)))
    return broker


def test_the_log_finds_the_history_again() -> None:
    store = RecordingStore()
    vhost = history_vhost(store, durable=True, x_recent_history_length=2)
    add_queue(vhost, "d", durable=True)
    history = vhost.topology.exchanges["x"].history
    assert history is not None
    assert (history.queue.number, vhost.topology.queues["d"].number) == (1, 2)
    broker = restarted(store.changes)
    again = broker.queue_numbered(1)
    assert again is not None
    send(vhost, "a", "b", "c", persistent=True)
    for message, _ in store.enqueued:  # as after a crash before the settlement of the first
        restore_message(again, message, False)
    assert bound(broker.vhost("/"), "q") == ["b", "c"]
    twice = restarted([*store.changes, *definitions_of(broker), *definitions_of(broker)])
    assert definitions_of(twice) == definitions_of(broker)
    vhost.declarations.delete_exchange("x", if_unused=False)
    gone = restarted(store.changes)
    assert gone.queue_numbered(1) is None
    assert gone.next_number == 3


def test_the_number_of_a_deleted_history_is_not_given_again() -> None:
    store = RecordingStore()
    vhost = history_vhost(store, durable=True)
    vhost.declarations.delete_exchange("x", if_unused=False)
    broker = restarted(store.changes[-1:])
    assert broker.next_number == 2


def test_without_a_log_nothing_is_bound_to_a_history() -> None:
    store = RecordingStore()
    vhost = history_vhost(store)
    send(vhost, "a", persistent=True)
    add_queue(vhost, "d", durable=True)
    store.failure = "sync failed"
    with pytest.raises(StoreFailed):
        vhost.declarations.bind_queue("d", "x", "", {})
    assert vhost.topology.exchanges["x"].outgoing == {}


def test_a_deleted_virtual_host_takes_the_histories_along() -> None:
    store = RecordingStore()
    broker = new_broker(store)
    vhost = broker.declare_vhost("v")
    add_exchange(vhost, "x", "x-recent-history", durable=True)
    send(vhost, "a", persistent=True)
    broker.delete_vhost("v")
    assert len(store.forgotten) == 1
    assert broker.queue_numbered(1) is None


CONTENT = "x" * 1000  # the content of a message, by its type


class OnDisk(RecordingStore):
    """Has the contents that memory has not."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: dict[int, bytes] = {}
        self.loaded = 0

    def drop_contents(self) -> None:
        for message, _ in self.enqueued:
            if message.content is not None:
                self.contents[message.sequence] = message.content
                message.length = len(message.content)
                message.content = None

    def load(self, message: object) -> bytes:
        self.loaded += 1
        return self.contents[message.sequence]  # type: ignore[attr-defined]


def dated_history(store: RecordingStore, clock: HandClock | None = None) -> VirtualHost:
    """A virtual host with a durable history that has messages from 1 to 9."""
    vhost = new_vhost(store, clock)
    add_exchange(vhost, "x", "x-recent-history", durable=True)
    vhost.declarations.declare_queue("dating", True, None, False, {"x-message-ttl": 5})
    vhost.declarations.bind_queue("dating", "x", "", {})
    for number in range(1, 10):
        publish(vhost, "x", "k", persistent=True, message_id=str(number), headers={"h": CONTENT})
    return vhost


def replayed(vhost: VirtualHost, **arguments: object) -> list[object]:
    """Bind a new durable queue; the ids of the messages that it has then."""
    held = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    queue = vhost.declarations.declare_queue("q", True, None, False, held)
    vhost.declarations.bind_queue("q", "x", "k", {})
    return [view_of(entry.message, vhost.store).property("message_id") for entry in queue.entries]


@pytest.mark.parametrize(
    ("room", "expected"), [(0, "9"), (1500, "9"), (3500, "789"), (9999, "123456789")], ids=str
)
@pytest.mark.parametrize("on_disk", [False, True])
def test_no_more_than_so_many_bytes_are_copied_in_one_step(room: int, expected: str, on_disk: bool) -> None:
    store = OnDisk()
    vhost = dated_history(store)
    history = vhost.topology.exchanges["x"].history
    assert isinstance(history, History)
    history.replay_bytes = room
    if on_disk:
        store.drop_contents()
    assert replayed(vhost) == list(expected)
    assert store.loaded == (len(expected) if on_disk else 0)


def test_the_time_to_live_of_a_message_starts_again_in_a_new_queue() -> None:
    store = OnDisk()
    clock = HandClock()
    vhost = dated_history(store, clock)
    clock.advance(60_000)
    replayed(vhost, message_ttl=1000)
    dates = {entry.message.date for entry in vhost.topology.queues["q"].entries}
    assert dates == {clock.date()}, "after a restart it has the rest of a second left"
    clock.advance(999)
    assert vhost.topology.queues["q"].ready == 9


@pytest.mark.parametrize("length", [9, 1])
def test_delayed_messages_wait_for_their_date_in_queues_bound_later(length: int) -> None:
    store = OnDisk()
    clock = HandClock()
    vhost = new_vhost(store, clock)
    add_exchange(vhost, "x", "x-recent-history", durable=True)
    for number, delay in enumerate((0, 50, 100)):
        route = vhost.publisher.route("x", "k")
        content = content_of(message_id=str(number), headers={"x-delay": delay})
        message = Message(route.address, content, 0, True, 0)
        if delay:
            message.date = clock.date() + delay
            message.marks = DELAYED | TELLS_ARRIVAL
        vhost.publisher.publish_by_message(route, message, ["k"], vhost.views(message, store))
    clock.advance(60)
    full = length == 1
    assert replayed(vhost, max_length=length, overflow="reject-publish") == (["0"] if full else ["0", "1"])
    queue = vhost.topology.queues["q"]
    assert count_delayed(queue) == 1, "when it is due there may be room"
    clock.advance(39)
    assert queue.ready == (1 if full else 2)
    clock.advance(1)
    ids = [view_of(entry.message, vhost.store).property("message_id") for entry in queue.entries]
    assert ids == (["0"] if full else ["0", "1", "2"])
    assert vhost.counters.unroutable == 3, "to bind is not to publish"


def test_a_delayed_message_that_one_queue_moves_keeps_its_date_elsewhere() -> None:
    vhost = new_vhost(RecordingStore(), clock := HandClock())
    add_exchange(vhost, "x", "x-recent-history")
    for name in ("moved", "other"):
        vhost.declarations.declare_queue(name, False, None, False, {})
        vhost.declarations.bind_queue(name, "x", "", {})
    route = vhost.publisher.route("x", "")
    message = Message(route.address, content_of(headers={"x-delay": 60_000}), 0, False, 0)
    date = message.date = clock.date() + 60_000
    message.marks = DELAYED | BY_CLOCK
    vhost.publisher.publish_by_message(route, message, [""], vhost.views(message, vhost.store))
    delays = delays_of(vhost.topology.queues["moved"], vhost)
    (place,) = [held for heap in delays.places() for held in heap]
    moved = delays.move(place, date - 59_000)
    assert moved is not None
    assert moved.date == date - 59_000
    vhost.declarations.declare_queue("late", False, None, False, {})
    vhost.declarations.bind_queue("late", "x", "", {})
    for name in ("other", "late"):
        (message,) = delays_of(vhost.topology.queues[name], vhost)
        assert (message.date, message.marks) == (date, DELAYED | BY_CLOCK), name


def test_a_number_that_cannot_be_does_not_keep_a_queue_that_asks_from_being_bound() -> None:
    vhost = new_vhost(RecordingStore())
    add_exchange(vhost, "x", "x-recent-history", durable=True)
    for headers in ({"x-producer": "p"}, {"x-producer": "p", "x-sequence": 1}, {"x-sequence": -1}):
        publish(vhost, "x", "k", persistent=True, message_id=str(headers), headers=dict(headers))
    assert len(replayed(vhost, dedup_producers=9)) == 3
    memory = memory_of(vhost.topology.queues["q"])
    assert memory is not None
    assert memory.knows_sequence("p", 1)
