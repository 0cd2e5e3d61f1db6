"""Messages staged for a reader of a queue: their return, and records in the log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.broker import Broker
from broker.core.errors import LimitReached, NotFound, StoreFailed
from broker.core.operators.stage import READERS_MAX, Stage
from broker.core.queues.queue import Queue
from broker.core.vhosts.definitions import restore_message
from tests.support.core.topology import (
    RecordingStore,
    add_queue,
    consume,
    definitions_of,
    new_broker,
    publish,
    pull,
)


def filled(count: int, persistent: bool = True) -> tuple[Broker, Queue, RecordingStore]:
    """A broker with a durable queue of that many messages."""
    store = RecordingStore()
    broker = new_broker(store)
    vhost = broker.declare_vhost("/")
    queue = add_queue(vhost, "q", durable=True)
    for _ in range(count):
        publish(vhost, "", "q", persistent=persistent)
    return broker, queue, store


def advance(broker: Broker, stage: Stage, acknowledged: int, rows: int) -> None:
    """Make a step durable, so that acknowledged messages leave."""
    for _ in range(rows):
        if stage.take_one() < 0:
            break
    broker.staging.append(stage, stage.step(acknowledged, 0))
    stage.note_durable()
    while stage.settle_some():
        pass


def sequences(stage: Stage) -> list[tuple[int, int]]:
    """Return the offsets of the readable rows, and the log's sequences of their messages."""
    found = []
    for offset in range(int(stage.oldest), int(stage.next)):
        entry = stage.entry(offset)
        assert entry is not None
        found.append((offset, int(entry.message.sequence)))
    return found


def restarted(changes: list[dict[str, object]], store: RecordingStore) -> Broker:
    """The broker that a log with these changes brings back, with all that was not settled."""
    broker = new_broker(RecordingStore())
    for change in changes:
        broker.apply(change)
    settled = {message.sequence for message, _ in store.settled}
    queue = broker.vhosts["/"].topology.queues["q"]
    for message, _ in store.enqueued:
        if message.sequence not in settled:
            restore_message(queue, message, False)
    broker.resume()
    return broker


STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=12)


@given(STEPS, st.integers(0, 2))
def test_a_stage_comes_back_with_its_offsets(steps: list[tuple[int, int, bool]], retain: int) -> None:
    broker, queue, store = filled(30)
    stage = broker.staging.attach(queue, "r", 7, retain)
    firsts = [0]
    for acknowledged, rows, describes in steps:
        if describes:
            store.changes = definitions_of(broker)
        advance(broker, stage, min(int(stage.first) + acknowledged, int(stage.next)), rows)
        firsts += [int(stage.first)] if stage.first > firsts[-1] else []
        assert stage.oldest == stage.kept == firsts[max(0, len(firsts) - 1 - retain)]
        assert queue.unacked == stage.next - stage.oldest
    again = restarted(store.changes, store)
    back = again.staging.existing(again.vhosts["/"].topology.queues["q"], "r")
    assert back.describe() | {"runs": []} == stage.describe() | {"runs": []}
    assert sequences(back) == sequences(stage)
    assert back.queue.ready == queue.ready
    assert back.lost == []
    unfinished = new_broker(RecordingStore())
    for change in store.changes:
        unfinished.apply(change)
    twice = restarted(definitions_of(unfinished), store)  # a log begins like this after a restart
    back = twice.staging.existing(twice.vhosts["/"].topology.queues["q"], "r")
    assert back.describe() | {"runs": []} == stage.describe() | {"runs": []}
    assert sequences(back) == sequences(stage)


def test_an_acknowledged_batch_leaves_after_a_restart_at_the_latest() -> None:
    broker, queue, store = filled(10)
    stage = broker.staging.attach(queue, "r", 1)
    advance(broker, stage, 0, 6)
    broker.staging.append(stage, stage.step(4, 0))
    assert store.settled == []
    again = restarted(store.changes, store)
    back = again.staging.existing(again.vhosts["/"].topology.queues["q"], "r")
    assert sequences(back) == [(4, 5), (5, 6)]
    assert (back.queue.ready, back.queue.unacked) == (4, 2)
    settled = again.store
    assert isinstance(settled, RecordingStore)
    assert [message.sequence for message, _ in settled.settled] == [1, 2, 3, 4]


def test_transient_messages_leave_holes_behind() -> None:
    broker, queue, store = filled(2)
    vhost = broker.vhosts["/"]
    publish(vhost, "", "q", persistent=False)
    publish(vhost, "", "q", persistent=True)
    stage = broker.staging.attach(queue, "r", 1)
    advance(broker, stage, 1, 4)
    advance(broker, stage, 1, 0)
    again = restarted(store.changes, store)
    back = again.staging.existing(again.vhosts["/"].topology.queues["q"], "r")
    assert back.lost == [2]
    assert (back.first, back.next, back.entry(2)) == (1, 4, None)
    assert [back.entry(offset) is not None for offset in (1, 3)] == [True, True]


@pytest.mark.parametrize("retain", [0, 1])
def test_a_step_that_failed_has_not_been(retain: int) -> None:
    broker, queue, _ = filled(10)
    stage = broker.staging.attach(queue, "r", 1, retain)
    advance(broker, stage, 0, 4)
    before = stage.describe()
    for _ in range(3):
        stage.take_one()
    stage.step(2, 0)
    stage.undo()
    assert stage.describe() == before
    assert (queue.ready, queue.unacked) == (6, 4)
    _, consumer = consume(queue)
    assert pull(consumer) == 6


def test_released_entries_are_consumed_in_order() -> None:
    broker, queue, store = filled(10)
    stage = broker.staging.attach(queue, "r", 1)
    advance(broker, stage, 0, 6)
    advance(broker, stage, 2, 1)
    taker, consumer = consume(queue)
    queue.set_notify_work_desired(consumer, False)
    broker.staging.release(stage)
    while stage.requeue_some():
        pass
    queue.set_notify_work_desired(consumer, True)
    assert pull(consumer) == 8
    assert [entry.message.sequence for entry in taker.taken] == list(range(3, 11))
    assert [entry.redelivered for entry in taker.taken] == [True] * 5 + [False] * 3
    assert [entry.delivery_count for entry in taker.taken] == [1] * 8
    with pytest.raises(NotFound, match="queue 'q' in vhost '/' has no reader 'r'"):
        broker.staging.existing(queue, "r")
    again = restarted(store.changes, store)
    assert again.staging.find_stage(again.vhosts["/"].topology.queues["q"], "r") is None


def test_a_purge_leaves_what_is_staged_and_a_deletion_takes_it_along() -> None:
    broker, queue, _ = filled(10)
    stage = broker.staging.attach(queue, "r", 1)
    advance(broker, stage, 0, 6)
    vhost = broker.vhosts["/"]
    vhost.declarations.purge_queue("q")
    assert (queue.ready, queue.unacked) == (0, 6)
    assert len(sequences(stage)) == 6
    vhost.declarations.delete_queue("q", False, False)
    assert stage.entry(0) is None
    assert [change for change in definitions_of(broker) if str(change["kind"]).startswith("stage")] == []
    add_queue(vhost, "q", durable=True)
    with pytest.raises(NotFound):
        broker.staging.existing(vhost.topology.queues["q"], "r")


def test_the_number_of_readers_of_a_queue_is_limited() -> None:
    broker, queue, _ = filled(0)
    for number in range(READERS_MAX):
        broker.staging.attach(queue, f"r{number}", 1)
    with pytest.raises(LimitReached, match=f"has {READERS_MAX} readers already"):
        broker.staging.attach(queue, "one more", 1)
    assert broker.staging.attach(queue, "r0", 1).epoch == 2


def test_attaching_a_reader_fails_after_a_store_failure() -> None:
    broker, queue, store = filled(0)
    store.failure = "no disk"
    with pytest.raises(StoreFailed):
        broker.staging.attach(queue, "r", 1)
