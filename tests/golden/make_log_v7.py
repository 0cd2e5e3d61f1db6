"""Writes tests/golden/log-v7: a log of format version 7, which every later version must read.

Not run by the tests, and not to be run again: the committed files are the reference.
"""

from pathlib import Path

from broker.core.message import Message
from broker.core.queues.death import Death, Past, marked_count
from broker.core.queues.hooks import EXHAUSTED, EXPIRED, MAXLEN, REJECTED
from broker.core.queues.limits import Limits
from broker.core.queues.queue import Queue
from broker.store.disk import Disk, RealDisk
from broker.store.log import Log
from tests.support.core.topology import new_broker
from tests.support.store.hand_log import content_of, logged_queue, new_message, open_log

FOLDER = Path(__file__).parent / "log-v7"


def wait(log: Log, message: Message, queue: Queue, reason: int, count: int, while_held: bool = False) -> None:
    """Append that a message waits to be dead-lettered."""
    death = Death(queue, Limits(queue, new_broker().declare_vhost("/")), message, reason, message, queue)
    death.count = count
    death.past = Past()
    death.past.expired_while = "held" if while_held else ""
    log.append_count(message, queue, marked_count(death), death.past.annotations)


def main() -> None:
    """Write three segments; beside version 6: messages that wait to be dead-lettered."""
    disk: Disk = RealDisk()
    orders, other = logged_queue(3), logged_queue(9)
    topology: list[dict[str, object]] = [{"kind": "queue", "name": "orders", "vhost": "/", "number": 3}]
    log, _ = open_log(
        str(FOLDER), disk, definitions=topology.copy, segment_bytes=700, first_segment_bytes=700
    )
    both = new_message(content_of(1, 200))
    log.append_message(both, [orders, other])
    log.append_count(both, other, 7)
    wait(log, both, orders, REJECTED, 3)
    log.commit()
    for number, reason in ((2, EXPIRED), (3, MAXLEN), (4, EXHAUSTED), (5, EXPIRED), (6, REJECTED)):
        message = new_message(content_of(number, 200))
        log.append_message(message, [orders])
        log.append_count(message, orders, number)
        wait(log, message, orders, reason, number, number == 5)
        if number == 6:  # the transaction of this message has failed
            log.append_count(message, orders, number, b"added")
        log.commit()
    log.close()
    for name in ("lock", "reserve", "spare"):
        (FOLDER / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
