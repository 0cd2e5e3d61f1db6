"""A log of format version 5 keeps being readable."""

import shutil
from pathlib import Path

from broker.store.disk import RealDisk
from broker.store.repair.check import check
from tests.support.store.hand_log import RecordingSink, content_of, open_log

FOLDER = Path(__file__).parent / "log-v5"


def test_a_log_of_version_5_reads_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    sink = RecordingSink()
    log, report = open_log(str(folder), RealDisk(), sink)
    found = [(queues, log.load(message)) for message, queues, _ in sink.messages]
    log.release()
    assert report.clean
    assert report.messages == 4
    assert found == [([3, 9], content_of(1, 200))] + [([3], content_of(n, 200)) for n in (2, 3, 4)]
    assert sink.counts == {(1, 3): 2, (1, 9): 0, (2, 3): 3, (3, 3): 4, (4, 3): 5}
    assert sink.annotations == {
        (1, 3): b"second, " + bytes(range(256)),
        (1, 9): b"\xc1\x01\x00",
        (2, 3): content_of(2, 0),
        (3, 3): content_of(3, 20),
        (4, 3): content_of(4, 40),
    }


def test_check_finds_it_healthy(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    report = check(str(folder), RealDisk())
    assert report.healthy
    assert (report.messages, report.by_queue) == (4, {3: 4, 9: 1})
