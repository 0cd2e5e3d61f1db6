"""A log of format version 1 keeps being readable."""

import shutil
from pathlib import Path

from broker.store.disk import RealDisk
from broker.store.repair.check import check
from tests.support.store.hand_log import RecordingSink, content_of, logged_queue, new_message, open_log

FOLDER = Path(__file__).parent / "log-v1"


def test_a_log_of_version_1_reads_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    sink = RecordingSink()
    log, report = open_log(str(folder), RealDisk(), sink)
    found = [
        (
            message.sequence,
            queues,
            redelivered,
            message.address.exchange,
            message.address.routing_key,
            message.priority,
            message.size,
            log.load(message),
        )
        for message, queues, redelivered in sink.messages
    ]
    log.release()
    assert report.clean
    assert report.torn == ""
    assert found == [
        (2, [9], True, "", "bestellungen-äöü", 5, 64, content_of(2, 64)),
        (3, [9], False, "logs", "error.disk", 0, 200, content_of(3, 200)),
        (4, [3, 9], False, "logs", "error.disk", 0, 300, content_of(4, 300)),
        (5, [3], True, "logs", "error.disk", 0, 0, b""),
    ]
    assert sink.changes == [
        {"kind": "queue", "name": "orders", "vhost": "/", "number": 3},
        {"kind": "queue", "name": "prüfung", "vhost": "/", "number": 9},
        {"kind": "binding", "arguments": {"x-match": "all"}},
    ]


def test_a_log_of_version_1_continues_in_the_present_version(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    sink = RecordingSink()
    log, _ = open_log(str(folder), RealDisk(), sink)
    old = sink.messages[0][0]
    new = new_message(b"new", date=77)
    log.append_message(new, [logged_queue(3)])
    log.append_count(old, logged_queue(9), 4)
    log.commit()
    log.release()
    sink = RecordingSink()
    log, _ = open_log(str(folder), RealDisk(), sink)
    log.release()
    assert [(m.sequence, m.date) for m, _, _ in sink.messages] == [(2, 0), (3, 0), (4, 0), (5, 0), (6, 77)]
    assert sink.counts == {(2, 9): 4}
    assert check(str(folder), RealDisk()).healthy
