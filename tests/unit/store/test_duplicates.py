"""Records of deduplication in the log."""

import random
from pathlib import Path

import pytest

from broker.core.message import REMEMBERED, Address, Message
from broker.core.queues.duplicates import memory_of, new_mark
from broker.core.queues.source import PUBLISHED, Source
from broker.store.disk import RealDisk
from broker.store.repair.check import repair
from broker.store.segment import segment_name
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import SimDisk
from tests.support.core.duplicate_vhost import OriginView
from tests.support.store.hand_log import (
    RecordingSink,
    content_of,
    logged_queue,
    new_message,
    open_log,
    publish,
)


def test_a_damaged_record_is_no_lost_message(tmp_path: Path) -> None:
    queue = logged_queue(7)
    log, _ = open_log(str(tmp_path), RealDisk())
    publish(log, [queue], content_of(1, 20))
    log.commit()
    mark = new_message(b"", Address("", "an-id"), date=1)
    mark.marks = REMEMBERED
    log.append_message(mark, [queue])
    log.commit()
    publish(log, [queue], content_of(3, 20))
    log.commit()
    log.release()
    path = tmp_path / segment_name(1)
    path.write_bytes(path.read_bytes().replace(b"an-id", b"an-ix"))
    report = repair(str(tmp_path), RealDisk())
    assert (report.messages, report.loss.messages, report.loss.memories) == (2, 0, 1)
    assert "messages whose duplicates queues may take for new: at most 1" in report.lines()


def marks(sink: RecordingSink) -> list[tuple[str, int]]:
    """The producers and sequences of the marks that recovery has found."""
    return [
        (message.address.routing_key, message.expiration)
        for message, _, _ in sink.messages
        if message.marks & REMEMBERED
    ]


def test_a_mark_of_the_batch_being_filled_can_be_raised(tmp_path: Path) -> None:
    queues = [logged_queue(7)]
    log, _ = open_log(str(tmp_path), RealDisk())
    log.append_message(first := new_mark("p", 1, True, 1), queues)
    publish(log, queues, content_of(1, 20))
    log.append_message(other := new_mark("other", 5, True, 1), queues)
    assert log.raise_mark(first, 2**40 + 3)
    log.commit()
    assert not log.raise_mark(first, 2**50)
    assert not log.raise_mark(other, 6)
    publish(log, queues, content_of(2, 20))
    log.append_message(later := new_mark("p", 2**50, True, 1), queues)
    assert log.raise_mark(later, 2**50 + 1)
    log.commit()
    log.release()
    log, _ = open_log(str(tmp_path), RealDisk(), sink := RecordingSink())
    log.release()
    assert marks(sink) == [("p", 2**40 + 3), ("other", 5), ("p", 2**50 + 1)]
    assert len(sink.messages) == 5


def test_a_mark_of_several_queues_is_not_raised(tmp_path: Path) -> None:
    log, _ = open_log(str(tmp_path), RealDisk())
    log.append_message(mark := new_mark("p", 1, True, 1), [logged_queue(7), logged_queue(8)])
    assert not log.raise_mark(mark, 2)
    log.append_settle(mark, logged_queue(7))
    assert not log.raise_mark(mark, 2), "its record still has both queues"
    log.commit()
    log.release()
    log, _ = open_log(str(tmp_path), RealDisk(), sink := RecordingSink())
    log.release()
    assert marks(sink) == [("p", 1)]


def numbered(number: int) -> str:
    """A message of an origin; the first one names no message before."""
    return f"/@o/{number}>{number - 1}" if number > 1 else "/@o/1"


@pytest.mark.parametrize("names_origins", [True, False])
def test_the_messages_of_a_producer_in_a_batch_have_a_single_mark(names_origins: bool) -> None:
    disk = SimDisk(random.Random(1))
    life = Life(disk)
    life.vhost.views = lambda message, store: OriginView(message)
    life.declare("q", dedup_producers=3)
    life.commit()
    source = Source(PUBLISHED)
    source.names_origins = names_origins
    before = life.log.next_sequence
    for number in range(1, 11):
        said = numbered(number) if names_origins else f"/p/{number}"
        route = life.vhost.publisher.route("", "q")
        life.vhost.publisher.publish(route, Message(route.address, said.encode(), 9, True, 0), source)
    assert life.log.next_sequence == before + 11
    life.commit()
    disk.kill()
    memory = memory_of(Life(disk).vhost.topology.queues["q"])
    assert memory is not None
    producer = "@o" if names_origins else "p"
    assert memory.knows_sequence(producer, 10)
    assert not memory.knows_sequence(producer, 11)
