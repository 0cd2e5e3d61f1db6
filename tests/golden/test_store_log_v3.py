"""A log of format version 3 keeps being readable."""

import shutil
from pathlib import Path

from broker.core.message import NEVER
from broker.store.disk import RealDisk
from tests.simulation.store_model import time_of
from tests.support.store.hand_log import RecordingSink, content_of, open_log

FOLDER = Path(__file__).parent / "log-v3"


def test_a_log_of_version_3_reads_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    sink = RecordingSink()
    log, report = open_log(str(folder), RealDisk(), sink)
    found = [
        (queues, m.priority, time_of(m), log.load(m), [] if m.body is None else m.body.pieces)
        for m, queues, _ in sink.messages
    ]
    assert report.clean
    pieces = found[0][4]
    assert [log.load(piece) for piece in pieces] == [content_of(number, 200) for number in (10, 11, 12)]
    assert [piece.size for piece in pieces] == [190] * 3
    log.release()
    assert found == [
        ([3], 4, (0, NEVER, False), b"a header", pieces),
        ([9], 4, (1_700_000_000_123, NEVER, True), b"another header", pieces),
    ]
