"""A log of format version 2 keeps being readable."""

import shutil
from pathlib import Path

from broker.core.message import NEVER
from broker.store.disk import RealDisk
from tests.simulation.store_model import time_of
from tests.support.store.hand_log import RecordingSink, content_of, open_log

FOLDER = Path(__file__).parent / "log-v2"


def test_a_log_of_version_2_reads_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    sink = RecordingSink()
    log, report = open_log(str(folder), RealDisk(), sink)
    found = [
        (m.sequence, queues, redelivered, m.address.routing_key, m.priority, time_of(m), log.load(m))
        for m, queues, redelivered in sink.messages
    ]
    log.release()
    assert report.clean
    assert report.torn == ""
    assert found == [
        (2, [9], True, "später", 5, (1_700_000_000_123, 86_400_000, False), content_of(2, 300)),
        (2, [3], False, "später", 5, (1_700_000_000_123, 86_400_000, False), content_of(2, 300)),
        (3, [9], False, "error.disk", 0, (0, NEVER, False), content_of(3, 200)),
        (4, [3], False, "error.disk", 0, ((1 << 63) - 1, NEVER, True), b""),
    ]
    assert sink.counts == {(2, 9): 2, (2, 3): 1 << 40}
    assert [change["number"] for change in sink.changes] == [3, 9]
