"""Writes tests/golden/log-v2: a log of format version 2, which every later version must read.

Not run by the tests, and not to be run again: the committed files are the reference.
"""

from pathlib import Path

from broker.core.message import Address
from broker.store.disk import Disk, RealDisk
from tests.support.store.hand_log import content_of, logged_queue, new_message, open_log, publish

FOLDER = Path(__file__).parent / "log-v2"


def main() -> None:
    """Write two segments; beside version 1: messages with a date, and counts."""
    disk: Disk = RealDisk()
    orders, audit = logged_queue(3), logged_queue(9)
    topology: list[dict[str, object]] = [{"kind": "queue", "name": "orders", "vhost": "/", "number": 3}]
    log, _ = open_log(
        str(FOLDER), disk, definitions=topology.copy, segment_bytes=700, first_segment_bytes=700
    )
    change: dict[str, object] = {"kind": "queue", "name": "audit", "vhost": "/", "number": 9}
    topology.append(change)
    log.append_definition(change)
    first = publish(log, [orders], content_of(1, 64))
    dated = new_message(content_of(2, 300), Address("", "später"), 5, date=1_700_000_000_123)
    dated.expiration = 86_400_000
    log.append_message(dated, [orders, audit])
    log.append_count(first, orders, 1)
    log.append_count(dated, audit, 1)
    log.append_count(dated, orders, 1)
    log.commit()
    log.append_settle(first, orders)
    log.append_count(dated, audit, 2)
    publish(log, [audit], content_of(3, 200))
    log.commit()
    died = new_message(b"", date=(1 << 63) - 1)
    died.died = True
    log.append_message(died, [orders])
    log.append_count(dated, orders, 1 << 40)
    log.commit()
    log.append_delivered(dated, audit)
    log.close()
    for name in ("lock", "reserve", "spare"):
        (FOLDER / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
