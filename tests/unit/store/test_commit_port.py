"""The commit as a port: the log keeps its promises on a storage that has no files."""

import itertools
import os
from typing import Any

import pytest

from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.errors import StoreFailed
from broker.core.message import Message, piece_of
from broker.core.message_view import bare_view
from broker.core.queues.attach import attach
from broker.core.queues.consumer import QueueConsumer
from broker.store.definition_text import Describe
from broker.store.log import Log
from broker.store.recovery.sink import RecoveryReport, RecoverySink
from broker.store.restore import Recovered, close
from protocol.streams.chunk import Chunk
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import KeepingTarget
from tests.support.store.hand_log import (
    RecordingSink,
    RecordingWaiter,
    content_of,
    logged_queue,
    new_message,
    publish,
)
from tests.support.store.memory_storage import Kept, MemoryStorage
from tests.support.store.streams import StreamSink, add, rows


def log_on(
    storage: MemoryStorage, sink: RecoverySink | None = None, describe: Describe = list
) -> tuple[Log, RecoveryReport]:
    log = Log(storage, describe)
    if isinstance(sink, RecordingSink):
        sink.log = log
    return log, log.recover(sink or RecordingSink())


def recovered(kept: Kept) -> tuple[Log, RecordingSink]:
    """A log of the next run, and what it has found."""
    sink = RecordingSink()
    log, _ = log_on(MemoryStorage(kept), sink)
    return log, sink


class Life:
    """A run of a broker."""

    def __init__(self, kept: Kept) -> None:
        names = itertools.count(1)
        self.log = Log(MemoryStorage(kept), lambda: self.broker.describe())
        self.broker = Broker(self.log, Counters(), lambda: str(next(names)), HandClock().schedule, bare_view)
        self.report = self.log.recover(Recovered(self.broker))
        self.vhost = self.broker.declare_vhost("/")

    def publish(self, queue: str, content: bytes) -> None:
        route = self.vhost.publisher.route("", queue)
        self.vhost.publisher.publish(route, Message(route.address, content, len(content), True, 0))
        self.log.commit()

    def take(self, name: str, count: int) -> list[Any]:
        target = KeepingTarget()
        queue = self.vhost.topology.queues[name]
        consumer = QueueConsumer(target, queue)
        attach(queue, consumer)
        for _ in range(count):
            assert queue.deliver_single_message(consumer)
        return target.taken

    def contents(self, name: str) -> list[tuple[bytes, bool]]:
        return [
            (entry.message.content or self.log.load(entry.message), bool(entry.redelivered))
            for entry in self.vhost.topology.queues[name].entries
        ]


@pytest.mark.parametrize("clean", [True, False])
def test_a_broker_has_its_queues_and_messages_again(clean: bool) -> None:
    kept = Kept()
    life = Life(kept)
    life.vhost.declarations.declare_queue("q", True, None, False, {})
    for content in (b"settled", b"seen", b"ready"):
        life.publish("q", content)
    taken = life.take("q", 2)
    life.vhost.topology.queues["q"].settle(taken[0])
    life.log.commit()
    if clean:
        taken[1].redelivered = True
        close(life.broker, life.log)
    else:
        life.log.release()

    again = Life(kept)

    assert again.report.clean == clean
    assert again.report.messages == 2
    assert again.contents("q") == [(b"seen", True), (b"ready", not clean)]


def test_a_batch_is_committed_after_the_earlier_batch() -> None:
    storage = MemoryStorage(Kept(), at_once=False)
    log, _ = log_on(storage)
    queue = logged_queue(1)
    waiters = [RecordingWaiter(), RecordingWaiter()]
    for number, waiter in enumerate(waiters):
        publish(log, [queue], content_of(number, 100))
        log.wait(waiter)
        log.commit()
    first = log.in_flight

    assert storage.submitted == [first]
    assert [waiter.durable for waiter in waiters] == [[], []]

    storage.answer()

    assert storage.submitted == [first, first + 1]
    assert [waiter.durable for waiter in waiters] == [[first], []]

    storage.answer()

    assert waiters[1].durable == [first + 1]
    assert log.unsynced_bytes == 0


def test_an_undone_batch_loses_its_publishes_and_keeps_its_settles() -> None:
    kept = Kept()
    storage = MemoryStorage(kept, at_once=False)
    log, _ = log_on(storage)
    queue = logged_queue(1)
    old = publish(log, [queue], b"old")
    log.commit()
    storage.answer()
    waiter = RecordingWaiter()
    lost = publish(log, [queue], b"lost")
    log.append_settle(old, queue)
    log.wait(waiter)
    log.commit()

    storage.run_out()

    assert waiter.failed == [log.failure] == ["no room"]
    assert (log.full, log.stopped, lost.sequence) == (True, False, 0)

    storage.answer_all()  # the settles, in the reserve
    storage.listener.on_room()

    assert log.failure == ""
    kept_now = publish(log, [queue], b"kept")
    log.commit()
    storage.answer_all()
    assert recovered(kept)[1].held() == [(kept_now.sequence, [1])]


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_batch_without_an_answer_stops_the_log_and_is_kept_or_not(is_kept: bool) -> None:
    kept = Kept()
    storage = MemoryStorage(kept, at_once=False)
    log, _ = log_on(storage)
    waiter = RecordingWaiter()
    publish(log, [logged_queue(1)], b"perhaps")
    log.wait(waiter)
    log.commit()

    storage.lose(is_kept)

    assert log.stopped
    assert waiter.failed == [log.failure] == ["nobody answers"]
    log.commit()
    assert storage.batch is None
    with pytest.raises(StoreFailed, match="nobody answers"):
        log.close()
    assert [queues for _, queues in recovered(kept)[1].held()] == [[1]] * is_kept


def test_a_deposed_log_confirms_nothing_any_more() -> None:
    kept = Kept()
    former = MemoryStorage(kept, at_once=False)
    log, _ = log_on(former)
    queue = logged_queue(1)
    confirmed = publish(log, [queue], b"confirmed")
    log.commit()
    former.answer()
    waiter = RecordingWaiter()
    publish(log, [queue], b"in flight")
    log.wait(waiter)
    log.commit()

    newer, sink = recovered(kept)

    assert log.stopped
    assert (waiter.durable, waiter.failed) == ([], [log.failure])
    assert log.failure == "another process has taken over the log: a newer owner"
    assert sink.held() == [(confirmed.sequence, [1])]
    with pytest.raises(StoreFailed, match="has taken over"):
        log.close()
    assert kept.owner is newer.storage


def test_rows_of_a_stream_become_durable_with_their_batch() -> None:
    kept = Kept()
    definitions: list[dict[str, object]] = [{"kind": "queue", "name": "s", "vhost": "/", "number": 7}]
    storage = MemoryStorage(kept, at_once=False)
    sink = StreamSink(7)
    log, _ = log_on(storage, sink, lambda: [definitions])
    (stream,) = sink.streams
    add(stream, b"first", b"second")
    log.commit()

    assert rows(stream) == []

    storage.answer()
    add(stream, b"lost")
    log.commit()
    storage.run_out()
    storage.answer_all()
    storage.listener.on_room()
    add(stream, b"third", time=9)
    log.commit()
    storage.answer_all()

    expected = [(0, b"first"), (1, b"second"), (2, b"third")]
    assert rows(stream) == expected
    log.release()
    sink = StreamSink(7)
    log, _ = log_on(MemoryStorage(kept), sink, lambda: [definitions])
    (stream,) = sink.streams
    assert rows(stream) == expected
    assert stream.since(5) == 0
    extent = stream.extent(2, 3)
    assert extent is not None
    assert Chunk(os.pread(extent.fd, extent.size, extent.position)).header.first == 2
    os.close(extent.fd)
    stream.apply_retention(1, 0)
    log.commit()
    assert (stream.first, len(kept.chunks[7])) == (2, 1)
    stream.drop()
    log.commit()
    log.commit()
    log.close()
    assert 7 not in kept.chunks


def test_a_large_body_is_read_back_piece_by_piece() -> None:
    kept = Kept()
    log, _ = log_on(MemoryStorage(kept))
    message = new_message(b"header")
    message.body = log.new_body()
    for number in range(3):
        log.append_piece(piece_of(message.body, content_of(number, 700), 700))
        log.commit()
    log.append_message(message, [logged_queue(1)])
    log.commit()
    log.release()

    log, sink = recovered(kept)

    (again, queues, _) = sink.messages[0]
    assert (log.load(again), queues) == (b"header", [1])
    assert again.body is not None
    assert [log.load(piece) for piece in again.body.pieces] == [content_of(n, 700) for n in range(3)]


def test_space_is_reclaimed_and_old_messages_are_copied_forward() -> None:
    kept = Kept()
    log, _ = log_on(MemoryStorage(kept))
    queue = logged_queue(1)
    messages = []
    for number in range(200):
        messages.append(publish(log, [queue], content_of(number, 700)))
        log.commit()
    newest = max(kept.segments)
    assert len(kept.segments) > 30
    for number, message in enumerate(messages):
        if number % 20:
            log.append_settle(message, queue)
            log.commit()

    left = messages[::20]
    assert len(kept.segments) < 12
    assert any(message.segment > newest for message in left), "copied forward"
    assert [log.load(message) for message in left] == [content_of(n, 700) for n in range(0, 200, 20)]
    log.release()

    again, sink = recovered(kept)

    assert sink.held() == [(message.sequence, [1]) for message in left]
    assert [again.load(message) for message, _, _ in sink.messages] == [
        content_of(n, 700) for n in range(0, 200, 20)
    ]
