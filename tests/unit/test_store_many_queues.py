"""A message in more queues than a record's two octets can count."""

from pathlib import Path

import pytest

from broker.core.queues.queue import Queue
from broker.store.disk import RealDisk
from broker.store.log import Log
from broker.store.repair.check import check
from tests.storing import Sink, content_of, logged_queue, new_message, open_log, publish

DISK = RealDisk()


@pytest.fixture(name="queues", scope="module")
def many_queues() -> list[Queue]:
    """More than fit."""
    return [logged_queue(number) for number in range(1, 65_538)]


def opened(folder: Path, sink: Sink | None = None) -> Log:
    """A log with segments of a few such records."""
    return open_log(str(folder), DISK, sink, segment_bytes=1 << 20, first_segment_bytes=1 << 20)[0]


@pytest.mark.parametrize("count", [65_534, 65_535, 65_536, 65_537])
def test_a_message_may_be_in_any_number_of_queues(tmp_path: Path, queues: list[Queue], count: int) -> None:
    log = opened(tmp_path)
    plain = publish(log, queues[:count], b"plain")
    dated = new_message(b"dated", date=1_700_000_000_000)
    log.append_message(dated, queues[:count])
    log.append_settle(dated, queues[count - 1])
    log.commit()
    log.release()
    assert check(str(tmp_path), DISK).healthy
    sink = Sink()
    log = opened(tmp_path, sink)
    numbers = [queue.number for queue in queues[:count]]
    assert sink.held() == [(plain.sequence, numbers), (dated.sequence, numbers[:-1])]
    assert [log.load(message) for message, _, _ in sink.messages] == [b"plain", b"dated"]
    log.release()


def test_it_is_copied_forward_with_the_queues_that_hold_it(tmp_path: Path, queues: list[Queue]) -> None:
    log = opened(tmp_path)
    kept = publish(log, queues, b"kept")
    log.append_settle(kept, queues[0])
    log.commit()
    home = log.segments.get(kept.segment)
    for number in range(8):
        passing = publish(log, [queues[0]], content_of(number, 600_000))
        log.commit()
        log.append_settle(passing, queues[0])
        if log.filling.segment is not home:
            log.space.victim = home
    log.commit()
    assert home is not None
    assert kept.segment > home.number
    log.release()
    sink = Sink()
    log = opened(tmp_path, sink)
    assert sink.held() == [(kept.sequence, [queue.number for queue in queues[1:]])]
    log.release()
