"""The date, the expiration and the mark of a dead-lettered message, as the log keeps them."""

from pathlib import Path

from broker.core.message import NEVER
from broker.store.disk import RealDisk
from broker.store.repair.check import check
from tests.storing import Sink, content_of, logged_queue, new_message, open_log

DISK = RealDisk()


def test_what_a_dated_message_has_comes_back_also_after_it_was_copied(tmp_path: Path) -> None:
    queue = logged_queue(1)
    log, _ = open_log(str(tmp_path), DISK, segment_bytes=4096, first_segment_bytes=4096)
    kept = []
    for number in range(1, 200):
        message = new_message(
            content_of(number, 300), date=(1_700_000_000_000 + number) if number % 40 else 0
        )
        if message.date != 0:
            message.expiration = number if number % 60 else 0
            message.died = number % 3 == 0
        log.append_message(message, [queue])
        if number % 20 == 0:
            kept.append(message)
        else:
            log.append_settle(message, queue)
        log.commit()
    assert all(message.segment > 1 for message in kept), "copied: its own segment was left long ago"
    log.release()
    assert check(str(tmp_path), DISK).messages == len(kept)
    sink = Sink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    found = {message.sequence: message for message, _, _ in sink.messages}
    assert list(found) == list(range(20, 200, 20))
    for number, message in found.items():
        had = (message.date, message.expiration, message.died)
        if number % 40 == 0:
            assert had == (0, NEVER, False)
        else:
            assert had == (1_700_000_000_000 + number, number if number % 60 else 0, number % 3 == 0)
    assert all(log.load(message) == content_of(message.sequence, 300) for message, _, _ in sink.messages)
    log.release()


def test_a_message_without_a_date_pays_nothing_for_it(tmp_path: Path) -> None:
    log, _ = open_log(str(tmp_path), DISK)
    sizes = []
    for date in (0, 1):
        before = log.unsynced_bytes
        log.append_message(new_message(b"x", date=date), [logged_queue(1)])
        sizes.append(log.unsynced_bytes - before)
    assert sizes[1] - sizes[0] == 17
    log.release()
