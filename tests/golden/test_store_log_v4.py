"""A log of format version 4 keeps being readable."""

import shutil
from pathlib import Path

from broker.core.message import NEVER, REMEMBERED
from broker.store.disk import RealDisk
from broker.store.repair.check import check
from tests.simulation.store_model import time_of
from tests.support.store.hand_log import RecordingSink, content_of, open_log

FOLDER = Path(__file__).parent / "log-v4"
DATE = 1_700_000_000_123


def test_a_log_of_version_4_reads_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    sink = RecordingSink()
    log, report = open_log(str(folder), RealDisk(), sink)
    found = [(queues, m.address.routing_key, time_of(m), log.load(m)) for m, queues, _ in sink.messages]
    log.release()
    assert report.clean
    assert report.messages == 4
    assert found == [
        ([3, 9], "error.disk", (DATE, NEVER, 0), content_of(1, 200)),
        ([3, 9], "id-ä", (DATE, NEVER, REMEMBERED), b""),
        ([9], "sensor 7", (DATE, (1 << 63) - 1, REMEMBERED), b""),
        ([3], "error.disk", (DATE, NEVER, 4), content_of(2, 200)),
        ([3], "error.disk", (DATE, NEVER, 8), content_of(3, 200)),
        ([3], "error.disk", (DATE, NEVER, 1 | 4 | 8), content_of(4, 200)),
    ]


def test_check_counts_messages_and_not_remembered_identities(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    report = check(str(folder), RealDisk())
    assert report.healthy
    assert (report.messages, report.by_queue) == (4, {3: 4, 9: 1})
