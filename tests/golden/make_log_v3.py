"""Writes tests/golden/log-v3: a log of format version 3, which every later version must read.

Not run by the tests, and not to be run again: the committed files are the reference.
"""

from pathlib import Path

from broker.core.message import copy_of, piece_of
from broker.store.disk import Disk, RealDisk
from tests.support.store.hand_log import content_of, logged_queue, new_message, open_log, publish

FOLDER = Path(__file__).parent / "log-v3"


def main() -> None:
    """Write two segments; beside version 2: large bodies, of two messages and of none."""
    disk: Disk = RealDisk()
    orders, dead = logged_queue(3), logged_queue(9)
    topology: list[dict[str, object]] = [{"kind": "queue", "name": "orders", "vhost": "/", "number": 3}]
    log, _ = open_log(
        str(FOLDER), disk, definitions=topology.copy, segment_bytes=700, first_segment_bytes=700
    )
    small = publish(log, [orders], content_of(1, 64))
    body, given_up = log.new_body(), log.new_body()
    for number in (10, 11, 12):
        log.append_piece(piece_of(body, content_of(number, 200), 190))
        log.append_piece(piece_of(given_up, content_of(number + 10, 50), 40))
        log.commit()
    large = new_message(b"a header", priority=4)
    large.body = body
    log.append_message(large, [orders])
    log.commit()
    letter = copy_of(large, b"another header")
    letter.date = 1_700_000_000_123
    letter.died = True
    log.append_message(letter, [dead])
    log.append_settle(small, orders)
    log.commit()
    log.close()
    for name in ("lock", "reserve", "spare"):
        (FOLDER / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
