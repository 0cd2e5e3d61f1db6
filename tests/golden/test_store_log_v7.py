"""A log of format version 7 keeps being readable."""

import shutil
from pathlib import Path

from broker.core.queues.death import marked_reason, plain_count, was_held
from broker.core.queues.hooks import REASONS
from broker.store.disk import RealDisk
from broker.store.repair.check import check
from tests.support.store.hand_log import RecordingSink, content_of, open_log

FOLDER = Path(__file__).parent / "log-v7"


def test_a_log_of_version_7_reads_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    sink = RecordingSink()
    log, report = open_log(str(folder), RealDisk(), sink)
    found = [(queues, log.load(message)) for message, queues, _ in sink.messages]
    log.release()
    assert report.clean
    assert found == [([3, 9], content_of(1, 200))] + [([3], content_of(n, 200)) for n in range(2, 7)]
    waiting = {place: count for place, count in sink.counts.items() if marked_reason(count) >= 0}
    assert {
        place: (REASONS[marked_reason(count)], plain_count(count)) for place, count in waiting.items()
    } == {
        (1, 3): ("rejected", 3),
        (2, 3): ("expired", 2),
        (3, 3): ("maxlen", 3),
        (4, 3): ("delivery_limit", 4),
        (5, 3): ("expired", 5),
    }
    assert [place for place, count in waiting.items() if was_held(count)] == [(5, 3)]
    plain = {place: count for place, count in sink.counts.items() if place not in waiting}
    assert plain == {(1, 9): 7, (6, 3): 6}
    assert sink.annotations[6, 3] == b"added"


def test_check_finds_it_healthy(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    report = check(str(folder), RealDisk())
    assert report.healthy
    assert (report.messages, report.by_queue) == (6, {3: 6, 9: 1})
