"""What a new binding gets of a history: how much of it, and for how long."""

import pytest

from broker.adapters.formats.either import view_of
from broker.core.message import BY_CLOCK, DELAYED, TELLS_ARRIVAL, Message
from broker.core.publishing.delay import count_delayed, delays_of
from broker.core.queues.duplicates import memory_of
from broker.core.routing.history import History
from broker.core.vhosts.vhost import VirtualHost
from tests.clock import HandClock
from tests.topology import RecordingStore, add_exchange, content_of, new_vhost, publish

CONTENT = "x" * 1000  # of a message, by its type


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


def house(store: RecordingStore, clock: HandClock | None = None) -> VirtualHost:
    """A virtual host with a durable history that has messages from 1 to 9."""
    vhost = new_vhost(store, clock)
    add_exchange(vhost, "x", "x-recent-history", durable=True)
    vhost.declarations.declare_queue("dating", True, None, False, {"x-message-ttl": 5})
    vhost.declarations.bind_queue("dating", "x", "", {})
    for number in range(1, 10):
        publish(vhost, "x", "k", persistent=True, message_id=str(number), headers={"h": CONTENT})
    return vhost


def bound(vhost: VirtualHost, **arguments: object) -> list[object]:
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
    vhost = house(store)
    history = vhost.topology.exchanges["x"].history
    assert isinstance(history, History)
    history.replay_bytes = room
    if on_disk:
        store.drop_contents()
    assert bound(vhost) == list(expected)
    assert store.loaded == (len(expected) if on_disk else 0)


def test_the_time_of_a_message_begins_anew_where_it_goes() -> None:
    store = OnDisk()
    clock = HandClock()
    vhost = house(store, clock)
    clock.advance(60_000)
    bound(vhost, message_ttl=1000)
    dates = {entry.message.date for entry in vhost.topology.queues["q"].entries}
    assert dates == {clock.date()}, "after a restart it has the rest of a second left"
    clock.advance(999)
    assert vhost.topology.queues["q"].ready == 9


@pytest.mark.parametrize("length", [9, 1])
def test_what_is_delayed_waits_for_its_date_in_queues_that_are_bound_later(length: int) -> None:
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
    assert bound(vhost, max_length=length, overflow="reject-publish") == (["0"] if full else ["0", "1"])
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
    assert len(bound(vhost, dedup_producers=9)) == 3
    memory = memory_of(vhost.topology.queues["q"])
    assert memory is not None
    assert memory.knows_sequence("p", 1)
