"""Writes tests/golden/log-v6: a log of format version 6, which every later version must read.

Not run by the tests, and not to be run again: the committed files are the reference.
"""

from pathlib import Path

from broker.core.message import Address, Message
from broker.store.disk import Disk, RealDisk
from broker.store.streams.stream import Stream
from tests.support.amqp091.field_bytes import long_string
from tests.support.amqp10.contents import content10
from tests.support.conversion.contents import content, short_string
from tests.support.store.hand_log import content_of, logged_queue, new_message, open_log

FOLDER = Path(__file__).parent / "log-v6"
DATE = 1_700_000_000_000
BOTH, TRIMMED, DELETED, EMPTY = 3, 4, 5, 6
QUEUE = 7
SECTIONS_ROW = content10({"x-opt-n": 1}, {"a": 1}, durable=True, subject="of AMQP 1.0")


def basic_row(number: int) -> bytes:
    """A message of AMQP 0-9-1 with a content type and a header that consumers may choose by."""
    header = short_string(b"x-stream-filter-value") + b"S" + long_string(b"group %d" % (number % 3))
    return content({0: short_string(b"text/plain")}, header, content_of(number, 40 * number))


def append(stream: Stream, made: bytes, number: int, filter_value: bytes = b"") -> None:
    """Append a row a second later than the row before."""
    message = Message(Address("logs", f"key.{number}"), made, len(made), True, 0)
    stream.append(message, DATE + 1000 * number, filter_value)


def main() -> None:
    """Write four streams, a trimmed, a deleted and an empty one among them; and a queue."""
    disk: Disk = RealDisk()
    topology: list[dict[str, object]] = [
        {"kind": "queue", "name": f"q{number}", "vhost": "/", "number": number}
        for number in (BOTH, TRIMMED, EMPTY, QUEUE)
    ]
    log, _ = open_log(
        str(FOLDER), disk, definitions=topology.copy, segment_bytes=700, first_segment_bytes=700
    )
    log.streams.chunk_bytes = 500
    log.streams.segment_bytes = 1500
    both, trimmed, deleted, empty = [log.streams.open(n) for n in (BOTH, TRIMMED, DELETED, EMPTY)]
    for number in range(1, 10):  # a single batch, of several chunks
        append(both, basic_row(number), number, b"group %d" % (number % 3))
    for number in range(1, 13):
        append(trimmed, basic_row(number), number)
        append(deleted, basic_row(number), number)
        if number % 4 == 0:
            log.commit()
    buried = new_message(SECTIONS_ROW)
    kept = new_message(content_of(1, 100))
    for message in (buried, kept):
        log.append_message(message, [logged_queue(QUEUE)])
    log.commit()
    append(both, SECTIONS_ROW, 20)
    append(both, basic_row(10), 10)  # the row has the time of the row before
    log.append_burial(buried, logged_queue(QUEUE))
    log.commit()
    trimmed.apply_retention(3000, 0)
    log.append_definition({"kind": "queue.delete", "vhost": "/", "name": "q5", "number": DELETED})
    deleted.drop()
    log.commit()
    append(both, SECTIONS_ROW, 21)
    log.close()
    assert empty.next == 0
    for name in ("lock", "reserve", "spare"):
        (FOLDER / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
