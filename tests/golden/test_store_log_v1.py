"""A log of format version 1 keeps being readable."""

import shutil
from pathlib import Path

from broker.store.disk import RealDisk
from tests.storing import Sink, content_of, open_log

FOLDER = Path(__file__).parent / "log-v1"


def test_a_log_of_version_1_reads_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(FOLDER, folder)
    sink = Sink()
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
    log.let_go()
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
