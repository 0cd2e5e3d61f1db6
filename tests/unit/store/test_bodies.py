"""Large bodies in the log: pieces, the record that names them, and pieces without a record."""

import errno
import gc
from pathlib import Path

import pytest

from broker.core.message import Body, Message, copy_of, piece_of
from broker.core.queues.queue import Queue
from broker.store.disk import RealDisk
from broker.store.errors import LogDamaged
from broker.store.log import Log
from broker.store.repair.check import check, repair
from broker.store.segment import segment_name
from tests.support.store.bad_disk import log_on_bad_disk, reopened_log
from tests.support.store.hand_log import (
    RecordingSink,
    RecordingWaiter,
    content_of,
    logged_queue,
    new_message,
    open_log,
    publish,
)

DISK = RealDisk()
PIECES = 5
PIECE_BYTES = 700


def upload(log: Log, mark: int, between: Queue | None = None) -> Body:
    """The pieces of a body, each in a batch of its own, or with short-lived messages between them."""
    body = log.new_body()
    for number in range(PIECES):
        log.append_piece(piece_of(body, content_of(mark + number, PIECE_BYTES), PIECE_BYTES))
        for _ in range(4 if between is not None else 0):
            assert between is not None
            log.append_settle(publish(log, [between], content_of(number, 900)), between)
        log.commit()
    return body


def publish_large(log: Log, queues: list[Queue], mark: int, between: Queue | None = None) -> Message:
    """A message with a large body, committed."""
    message = new_message(b"header of %d" % mark)
    message.body = upload(log, mark, between)
    log.append_message(message, queues)
    log.commit()
    return message


def body_of(log: Log, message: Message) -> list[bytes]:
    """The pieces' content, from memory or disk."""
    assert message.body is not None
    return [log.load(piece) if piece.content is None else piece.content for piece in message.body.pieces]


def expected(mark: int) -> list[bytes]:
    """Return the pieces that `upload` appended."""
    return [content_of(mark + number, PIECE_BYTES) for number in range(PIECES)]


def recovered(folder: Path) -> tuple[Log, list[Message]]:
    """Return a new log and the messages that it recovers."""
    sink = RecordingSink()
    log, _ = open_log(str(folder), DISK, sink, segment_bytes=4096, first_segment_bytes=4096)
    return log, [message for message, _, _ in sink.messages]


def small_segments(folder: Path, memory_budget: int = 1 << 40) -> Log:
    """Return a log whose segments have room for few pieces."""
    return open_log(
        str(folder), DISK, segment_bytes=4096, first_segment_bytes=4096, memory_budget=memory_budget
    )[0]


def test_a_large_body_is_read_back_piece_by_piece(tmp_path: Path) -> None:
    queue = logged_queue(1)
    log = small_segments(tmp_path)
    small = publish(log, [queue], b"small")
    large = publish_large(log, [queue], 100)
    log.release()
    log, messages = recovered(tmp_path)
    assert [m.sequence for m in messages] == [small.sequence, large.sequence]
    assert messages[0].body is None
    assert log.load(messages[1]) == b"header of 100"
    assert body_of(log, messages[1]) == expected(100)
    log.release()


def test_pieces_that_no_message_names_are_dropped_at_the_next_start(tmp_path: Path) -> None:
    log = small_segments(tmp_path)
    body = upload(log, 100)
    log.release()
    before = log.bytes_on_disk
    log, messages = recovered(tmp_path)
    assert messages == []
    log.commit()
    assert log.bytes_on_disk < before / 4, "their segments are gone"
    assert body.pieces
    log.release()


def test_an_upload_that_is_given_up_frees_its_space_without_another_publish(tmp_path: Path) -> None:
    log = small_segments(tmp_path)
    log.wants_commit = log.commit
    body = upload(log, 100)
    assert log.bytes_on_disk > PIECES * PIECE_BYTES
    assert log.content_bytes == PIECES * PIECE_BYTES
    del body
    log.tick()
    log.commit()
    log.commit()
    assert log.bytes_on_disk < 2 * 4096
    assert log.content_bytes == 0
    log.release()


def test_a_body_lives_as_long_as_anybody_refers_to_it(tmp_path: Path) -> None:
    queue = logged_queue(1)
    log = small_segments(tmp_path, memory_budget=0)
    message = publish_large(log, [queue], 100)
    sending = message.body
    assert sending is not None
    assert all(piece.content is None for piece in sending.pieces), "memory has let go of them"
    log.append_settle(message, queue)
    del message
    for number in range(40):  # space is given back meanwhile
        other = publish(log, [queue], content_of(number, 500))
        log.append_settle(other, queue)
        log.commit()
    assert [log.load(piece) for piece in sending.pieces] == expected(100)
    last = [piece.segment for piece in sending.pieces]
    del sending
    for number in range(40):
        other = publish(log, [queue], content_of(number, 500))
        log.append_settle(other, queue)
        log.commit()
    assert all(log.segments.get(number) is None for number in last)
    log.release()


def test_a_copy_shares_the_body_and_outlives_the_original(tmp_path: Path) -> None:
    work, dead = logged_queue(1), logged_queue(2)
    log = small_segments(tmp_path, memory_budget=0)
    message = publish_large(log, [work], 100)
    letter = copy_of(message, b"header of a letter")
    log.append_death(letter, [dead], message, work)
    log.commit()
    size = log.bytes_on_disk
    del message
    for number in range(60):
        other = publish(log, [work], content_of(number, 500))
        log.append_settle(other, work)
        log.commit()
    assert log.bytes_on_disk < size + 4 * 4096
    assert body_of(log, letter) == expected(100)
    log.release()
    log, messages = recovered(tmp_path)
    assert [m.sequence for m in messages] == [letter.sequence]
    assert body_of(log, messages[0]) == expected(100)
    log.release()


def test_original_and_copy_share_the_body_after_a_restart(tmp_path: Path) -> None:
    queue = logged_queue(1)
    log = small_segments(tmp_path)
    message = publish_large(log, [queue], 100)
    log.append_message(copy_of(message, b"another header"), [queue])
    log.commit()
    log.release()
    log, messages = recovered(tmp_path)
    first, second = messages
    assert first.body is second.body is not None
    log.append_settle(first, queue)
    del first
    messages.clear()
    log.commit()
    assert body_of(log, second) == expected(100)
    log.release()


def test_pieces_are_copied_forward_and_named_by_copies(tmp_path: Path) -> None:
    """Pieces, and the message that names them, move apart and in any order."""
    queue = logged_queue(1)
    log = small_segments(tmp_path, memory_budget=0)
    kept = [publish_large(log, [queue], 1000 * n, queue) for n in range(1, 4)]
    bodies = [message.body for message in kept]
    first_homes = [piece.segment for body in bodies if body is not None for piece in body.pieces]
    for number in range(300):
        other = publish(log, [queue], content_of(number, 900))
        if number % 40:
            log.append_settle(other, queue)
        log.commit()
    homes = [piece.segment for body in bodies if body is not None for piece in body.pieces]
    assert homes != first_homes, "some have moved"
    for mark, message in zip(range(1000, 4000, 1000), kept, strict=True):
        assert body_of(log, message) == expected(mark)
    log.release()
    log, messages = recovered(tmp_path)
    large = [message for message in messages if message.body is not None]
    assert [message.sequence for message in large] == [message.sequence for message in kept]
    for mark, message in zip(range(1000, 4000, 1000), large, strict=True):
        assert body_of(log, message) == expected(mark)
    log.release()


def test_large_bodies_of_a_deleted_queue_are_dropped_at_the_start(tmp_path: Path) -> None:
    queue = logged_queue(1)
    log = small_segments(tmp_path)
    publish_large(log, [queue], 100)
    log.release()
    sink = RecordingSink()
    sink.gone = {1}
    log, _ = open_log(str(tmp_path), DISK, sink, segment_bytes=4096, first_segment_bytes=4096)
    sink.messages.clear()
    gc.collect()
    log.wants_commit = log.commit
    log.tick()
    log.commit()
    log.commit()
    assert log.bytes_on_disk < 2 * 4096
    log.release()


def test_a_lost_piece_is_damage_and_a_repair_counts_the_message(tmp_path: Path) -> None:
    queue = logged_queue(7)
    log = small_segments(tmp_path)
    large = publish_large(log, [queue], 100)
    assert large.body is not None
    other = publish_large(log, [queue], 200)
    kept = publish(log, [queue], b"small")
    log.commit()
    victim = large.body.pieces[2]
    path = tmp_path / segment_name(victim.segment)
    offset = victim.offset + 5
    log.release()
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogDamaged):
        open_log(str(tmp_path), DISK)
    report = check(str(tmp_path), DISK)
    assert not report.healthy
    assert (report.loss.messages, report.loss.by_queue, report.loss.unknown) == (1, {7: 1}, 0)
    repair(str(tmp_path), DISK)
    log, messages = recovered(tmp_path)
    assert [message.sequence for message in messages] == [other.sequence, kept.sequence]
    assert body_of(log, messages[0]) == expected(200)
    log.release()


def test_pieces_whose_batch_did_not_fit_are_appended_again_with_their_message() -> None:
    disk, log, deferred = log_on_bad_disk()
    queue = logged_queue(1)
    body = log.new_body()
    log.append_piece(piece_of(body, content_of(1, 100), 100))
    log.commit()
    deferred.run_all()
    log.append_piece(piece_of(body, content_of(2, 100), 100))
    disk.write_errors = [errno.ENOSPC]
    disk.capacity = disk.used()
    log.commit()
    deferred.run_all()
    assert log.full
    log.append_piece(piece_of(body, content_of(3, 100), 100))  # refused: it stays in memory
    assert [piece.sequence > 0 for piece in body.pieces] == [True, False, False]
    disk.capacity = 1 << 40
    log.tick()
    deferred.run_all()
    assert not log.failure
    message = new_message(b"header")
    message.body = body
    waiter = RecordingWaiter()
    log.append_message(message, [queue])
    log.wait(waiter)
    log.commit()
    deferred.run_all()
    assert waiter.durable
    disk.crash()
    log, messages = reopened_log(disk)
    (found,) = messages
    assert body_of(log, found) == [content_of(number, 100) for number in (1, 2, 3)]
    log.release()


def test_pieces_that_the_log_never_had_are_no_orphans(tmp_path: Path) -> None:
    """Only the publisher drops such pieces; a stopped log drops nothing at the end of a batch."""
    log = small_segments(tmp_path)
    body = log.new_body()
    piece_of(body, b"frames", 6)
    del body
    gc.collect()
    assert log.orphans == []
    log.close()


def test_a_log_that_has_stopped_gives_back_memory(tmp_path: Path) -> None:
    log = small_segments(tmp_path)
    before = log.content_bytes
    body = upload(log, 1)
    assert log.content_bytes > before
    log.group.stop("the disk is broken")
    del body
    gc.collect()
    log.tick()
    assert (log.orphans, log.content_bytes) == ([], before)
    log.release()
