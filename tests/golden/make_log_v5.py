"""Writes tests/golden/log-v5: a log of format version 5, which every later version must read.

Not run by the tests, and not to be run again: the committed files are the reference.
"""

from pathlib import Path

from broker.store.disk import Disk, RealDisk
from tests.support.store.hand_log import content_of, logged_queue, new_message, open_log

FOLDER = Path(__file__).parent / "log-v5"


def main() -> None:
    """Write three segments; beside version 4: counts with consumers' annotations."""
    disk: Disk = RealDisk()
    orders, other = logged_queue(3), logged_queue(9)
    topology: list[dict[str, object]] = [{"kind": "queue", "name": "orders", "vhost": "/", "number": 3}]
    log, _ = open_log(
        str(FOLDER), disk, definitions=topology.copy, segment_bytes=700, first_segment_bytes=700
    )
    both = new_message(content_of(1, 200))
    log.append_message(both, [orders, other])
    log.append_count(both, orders, 1)
    log.append_count(both, orders, 1, b"first")
    log.append_count(both, orders, 2, b"second, " + bytes(range(256)))
    log.append_count(both, other, 0, b"\xc1\x01\x00")
    log.commit()
    for number in (2, 3, 4):
        message = new_message(content_of(number, 200))
        log.append_message(message, [orders])
        log.append_count(message, orders, number)
        log.append_count(message, orders, number + 1, content_of(number, 20 * (number - 2)))
        log.commit()
    log.close()
    for name in ("lock", "reserve", "spare"):
        (FOLDER / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
