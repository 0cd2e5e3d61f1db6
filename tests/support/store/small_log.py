"""A small log of a single segment, to be cut and changed."""

from pathlib import Path

from broker.store.disk import RealDisk
from broker.store.format import HEADER_BYTES
from broker.store.segment import segment_name
from tests.support.store.hand_log import RecordingSink, content_of, logged_queue, open_log, publish

DISK = RealDisk()
FIRST = segment_name(1)


def batch_ends(folder: Path, name: str = FIRST) -> list[int]:
    """Return the ends of the batches of a segment file."""
    data = (folder / name).read_bytes()
    ends = [0]
    while data[ends[-1] : ends[-1] + 4] == b"AMQL":
        length = int.from_bytes(data[ends[-1] + 36 : ends[-1] + 40], "big")
        ends.append(ends[-1] + HEADER_BYTES + length)
    return ends


def small_log(folder: Path) -> bytes:
    """A log of four batches: checkpoint; messages 1, 2; definition and settle of 1; message 3."""
    queue = logged_queue(7)
    log, _ = open_log(str(folder), DISK)
    first = publish(log, [queue], content_of(1, 20))
    publish(log, [queue], content_of(2, 20))
    log.commit()
    log.append_definition({"kind": "queue", "name": "seven", "vhost": "/", "number": 7})
    log.append_settle(first, queue)
    log.commit()
    publish(log, [queue], content_of(3, 20))
    log.commit()
    log.release()
    return (folder / FIRST).read_bytes()


AFTER_BATCH = [[], [], [(1, [7]), (2, [7])], [(2, [7])], [(2, [7]), (3, [7])]]


def recovered(folder: Path, data: bytes) -> tuple[RecordingSink, str, int, int]:
    """Recover from these bytes as the only segment."""
    for path in folder.iterdir():
        path.unlink()
    (folder / FIRST).write_bytes(data)
    sink = RecordingSink()
    log, report = open_log(str(folder), DISK, sink)
    for message, _, _ in sink.messages:
        assert log.load(message) == content_of(message.sequence, 20)
    log.release()
    return sink, report.torn, report.torn_offset, report.torn_bytes
