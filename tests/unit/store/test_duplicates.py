"""Records of deduplication in the log."""

from pathlib import Path

from broker.core.message import REMEMBERED, Address
from broker.store.disk import RealDisk
from broker.store.repair.check import repair
from broker.store.segment import segment_name
from tests.support.store.hand_log import content_of, logged_queue, new_message, open_log, publish


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
