"""Members of a partitioned queue in other brokers: restarts, and the consumption of messages there."""

import json

import pytest

from broker.core.errors import LimitReached, PreconditionFailed
from broker.core.partitions.history import MAPPINGS_MAX
from broker.core.partitions.partitioned import LOOK_MS
from broker.core.remotes.consumption import GRACE_MS, Consumption, ConsumptionWatcher, PositionSource
from broker.core.remotes.remote import remote_of
from tests.support.core.hand_clock import HandClock
from tests.support.core.partitioned_vhost import FRONT, PartitionedBench
from tests.support.core.topology import RecordingStore, new_broker

SECRET = "s3cret"
FAR = f"amqp://u:{SECRET}@other/%2F/far"
BACKING = "front@other:5672/%2F/far"


class Positions(PositionSource):
    """A link that has staged messages up to `next`."""

    def __init__(self, following: int) -> None:
        self.following = following
        self.looks = 0

    def next_position(self) -> int:
        return self.following

    def note_demand(self) -> None:
        self.looks += 1


class Watched(ConsumptionWatcher):
    """Keeps the numbers that were consumed."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def on_consumed(self, number: int) -> None:
        self.numbers.append(number)


class Sent:
    """The consumption of a queue that has sent `before` messages before the start, and `after` since."""

    def __init__(self, before: int = 0, after: int = 10) -> None:
        self.clock = HandClock()
        self.consumption = Consumption(self.clock.schedule, False)
        self.watched = Watched()
        self.consumption.watcher = self.watched
        self.link = Positions(before)
        self.consumption.begin(self.link)
        self.link.following = before + after

    @property
    def consumed(self) -> int:
        return int(self.consumption.consumed)


def test_a_delivery_shows_that_the_messages_before_have_been_consumed() -> None:
    sent = Sent()
    consumption = sent.consumption
    assert (sent.consumed, consumption.sent) == (1, 11)
    consumption.note_delivered(3)
    assert sent.consumed == 4
    consumption.note_delivered(4)
    consumption.note_delivered(5)
    consumption.note_consumed(4)
    assert sent.consumed == 4
    consumption.note_consumed(3)
    assert sent.consumed == 6
    consumption.note_consumed(5)
    assert sent.consumed == 7
    consumption.note_empty(10)
    assert sent.consumed == consumption.sent == 11
    assert sent.watched.numbers == [1, 4, 6, 7, 11]


def test_messages_from_before_the_start_have_lower_numbers_and_are_certain_later() -> None:
    sent = Sent(before=5)
    sent.consumption.note_empty(5)
    assert sent.consumed == 0
    sent.clock.advance(GRACE_MS)
    sent.consumption.note_delivered(2)
    sent.consumption.note_consumed(2)
    assert sent.consumed == 0
    sent.consumption.note_empty(5)
    assert sent.consumed == 1
    sent.consumption.note_delivered(7)
    assert sent.consumed == 3


def test_a_lost_delivery_is_awaited_until_it_comes_again_or_for_a_time() -> None:
    sent = Sent()
    consumption = sent.consumption
    for position in (0, 1):
        consumption.note_delivered(position)
    consumption.note_broken()
    consumption.note_delivered(2)
    consumption.note_consumed(2)
    consumption.note_empty(10)
    assert sent.consumed == 1
    for position in (0, 1):
        consumption.note_delivered(position)
        consumption.note_consumed(position)
    assert sent.consumed == 4
    consumption.note_delivered(3)
    consumption.note_broken()
    sent.clock.advance(GRACE_MS)
    consumption.note_empty(10)
    assert sent.consumed == 11


def test_a_requeued_message_that_never_comes_again_is_given_up() -> None:
    sent = Sent()
    consumption = sent.consumption
    consumption.note_delivered(0)
    consumption.note_requeued(0)
    consumption.note_delivered(1)
    consumption.note_consumed(1)
    sent.clock.advance(GRACE_MS)
    consumption.look()
    assert sent.consumed == 1
    consumption.note_delivered(2)
    assert sent.consumed == 3


def test_a_wait_makes_the_link_look() -> None:
    sent = Sent()
    sent.consumption.note_awaited(True)
    assert sent.link.looks == 1
    sent.consumption.note_awaited(False)
    assert sent.link.looks == 1


def test_after_a_restart_moved_keys_wait_for_messages_that_only_the_other_broker_has() -> None:
    bench = PartitionedBench("a", {"to": FAR, "weight": 5}, durable=True)
    moved, stays = bench.key_for(BACKING), bench.key_for("a")
    bench.publish(moved)
    bench.change("a", "b")
    assert len(bench.partitions.history) == 1
    restarted = bench.restart()
    assert restarted.partitions.leaving_names == [BACKING]
    assert len(restarted.partitions.history) == 1
    restarted.publish(stays)
    restarted.publish(moved)
    queues = [restarted.queue(name) for name in "ab"]
    assert sum(queue.ready for queue in queues) == 1
    assert sum(queue.held for queue in queues) == 1
    remote = remote_of(restarted.queue(BACKING))
    assert remote is not None
    assert (remote.front, remote.address) == (FRONT, FAR)
    assert remote.consumption is not None
    remote.consumption.begin(Positions(1))
    restarted.clock.advance(GRACE_MS)
    remote.consumption.note_empty(1)
    restarted.clock.advance(LOOK_MS)
    assert sum(queue.ready for queue in queues) == 2
    assert BACKING not in restarted.vhost.topology.queues
    assert len(restarted.partitions.history) == 0
    deleted = [change["name"] for change in restarted.store.changes if change["kind"] == "queue.delete"]
    assert deleted == [BACKING]


def test_a_queue_without_its_partitioned_queue_is_deleted_after_recovery() -> None:
    bench = PartitionedBench("a", FAR, durable=True)
    changes = [change for change in bench.store.changes if change.get("name") != FRONT]
    warned: list[str] = []
    broker = new_broker(RecordingStore(), HandClock(), warned.append)
    for change in changes:
        broker.apply(json.loads(json.dumps(change)))
    broker.open_partitions()
    assert BACKING in broker.vhosts["/"].topology.queues
    broker.resume()
    assert BACKING not in broker.vhosts["/"].topology.queues
    assert any(f"queue '{BACKING}' in vhost '/' is deleted" in text for text in warned)


def test_the_queues_for_members_elsewhere_count_against_the_limit() -> None:
    bench = PartitionedBench("a", durable=True)
    bench.vhost.queues_max = len(bench.vhost.topology.queues)
    with pytest.raises(LimitReached, match="members of queue 'front' in vhost '/' in other brokers"):
        bench.change("a", FAR)
    bench.vhost.queues_max += 1
    bench.change("a", FAR)
    bench.change({"to": FAR, "weight": 2})


def test_mappings_without_messages_elsewhere_are_not_kept() -> None:
    bench = PartitionedBench("a", FAR, durable=True)
    bench.publish(bench.key_for(BACKING))
    for weight in range(2, 5):
        bench.change("a", {"to": FAR, "weight": weight})
    assert len(bench.partitions.history) == 3
    bench.change("b")
    for weight in range(1, 5):
        bench.change({"to": "b", "weight": weight})
    assert len(bench.partitions.history) == 4


def test_too_many_unfinished_changes_are_refused() -> None:
    bench = PartitionedBench("a", FAR, durable=True)
    bench.publish(bench.key_for(BACKING))
    for weight in range(MAPPINGS_MAX):
        bench.change("a", {"to": FAR, "weight": weight + 2})
    with pytest.raises(
        PreconditionFailed, match=f"changed its members {MAPPINGS_MAX} times .* wait in {BACKING}"
    ):
        bench.change("a")


def test_a_deleted_virtual_host_deletes_the_members_elsewhere_too() -> None:
    bench = PartitionedBench("a", FAR, durable=True)
    bench.publish(bench.key_for(BACKING))
    remote = remote_of(bench.queue(BACKING))
    assert remote is not None
    bench.store.append_definition({"kind": "vhost.delete", "name": "/"})
    bench.vhost.dispose().do_due_work()
    bench.clock.advance(LOOK_MS)
    assert remote.is_ended


def test_no_text_has_the_log_in() -> None:
    bench = PartitionedBench("a", FAR, durable=True)
    with pytest.raises(PreconditionFailed) as refused:
        bench.change("a", {"to": FAR, "weight": 0})
    assert SECRET not in refused.value.text
    with pytest.raises(PreconditionFailed) as refused:
        bench.change("a", k=FAR)
    assert SECRET not in refused.value.text
    with pytest.raises(PreconditionFailed) as refused:
        bench.change([FAR])
    assert SECRET not in refused.value.text
