"""Writes tests/golden/log-v1: a log of format version 1, which every later version must read.

Not run by the tests, and not to be run again: the committed files are the reference.
"""

from pathlib import Path

from broker.core.message import Address
from broker.store.disk import Disk, RealDisk
from tests.support.store.hand_log import content_of, logged_queue, new_message, open_log, publish

FOLDER = Path(__file__).parent / "log-v1"


def main() -> None:
    """Two segments with records of every kind but "removed"."""
    disk: Disk = RealDisk()
    orders, audit = logged_queue(3), logged_queue(9)
    topology: list[dict[str, object]] = [{"kind": "queue", "name": "orders", "vhost": "/", "number": 3}]
    log, _ = open_log(
        str(FOLDER), disk, definitions=topology.copy, segment_bytes=700, first_segment_bytes=700
    )
    change: dict[str, object] = {"kind": "queue", "name": "prüfung", "vhost": "/", "number": 9}
    topology.append(change)
    log.append_definition(change)
    first = publish(log, [orders], content_of(1, 64))
    log.commit()
    second = new_message(content_of(2, 64), Address("", "bestellungen-äöü"), 5)
    log.append_message(second, [orders, audit])
    log.append_settle(first, orders)
    log.commit()
    publish(log, [audit], content_of(3, 200))
    log.commit()
    log.append_settle(second, orders)
    log.commit()
    publish(log, [orders, audit], content_of(4, 300))
    log.commit()
    binding: dict[str, object] = {"kind": "binding", "arguments": {"x-match": "all"}}
    topology.append(binding)
    log.append_definition(binding)
    fifth = publish(log, [orders], b"")
    log.commit()
    log.append_delivered(second, audit)
    log.append_delivered(fifth, orders)
    log.close()
    for name in ("lock", "reserve", "spare"):
        (FOLDER / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
