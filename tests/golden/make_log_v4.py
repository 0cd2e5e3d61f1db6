"""Writes tests/golden/log-v4: a log of format version 4, which every later version must read.

Not run by the tests, and not to be run again: the committed files are the reference.
"""

from pathlib import Path

from broker.core.message import REMEMBERED, TELLS_ARRIVAL, TELLS_CONSUMED, Address, Message
from broker.store.disk import Disk, RealDisk
from tests.support.store.hand_log import content_of, logged_queue, new_message, open_log

FOLDER = Path(__file__).parent / "log-v4"
DATE = 1_700_000_000_123


def remembered(key: str, sequence: int = -1) -> Message:
    """A record of duplicate detection: a message's id, or with a sequence its producer."""
    mark = Message(Address("", key), b"", 0, True, 0)
    mark.date = DATE
    mark.expiration = sequence
    mark.marks = REMEMBERED
    return mark


def main() -> None:
    """Write two segments; beside version 3: deduplication records, and messages that request receipts."""
    disk: Disk = RealDisk()
    orders, other = logged_queue(3), logged_queue(9)
    topology: list[dict[str, object]] = [{"kind": "queue", "name": "orders", "vhost": "/", "number": 3}]
    log, _ = open_log(
        str(FOLDER), disk, definitions=topology.copy, segment_bytes=700, first_segment_bytes=700
    )
    log.append_message(new_message(content_of(1, 200), date=DATE), [orders, other])
    forgotten = remembered("gone")
    log.append_message(forgotten, [orders])
    log.append_message(remembered("id-ä"), [orders, other])
    log.commit()
    log.append_settle(forgotten, orders)
    log.append_message(remembered("sensor 7", (1 << 63) - 1), [other])
    for number, marks in ((2, TELLS_ARRIVAL), (3, TELLS_CONSUMED), (4, TELLS_ARRIVAL | TELLS_CONSUMED)):
        message = new_message(content_of(number, 200), date=DATE)
        message.marks = marks
        message.died = number == 4
        log.append_message(message, [orders])
        log.commit()
    log.close()
    for name in ("lock", "reserve", "spare"):
        (FOLDER / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
