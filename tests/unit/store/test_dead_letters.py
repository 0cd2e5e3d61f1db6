"""Dead letters in the log: dates, expirations and marks, and exactly a single place for each message."""

import gc
from pathlib import Path

import pytest

from broker.core.message import NEVER, Message, piece_of
from broker.core.queues.queue import Queue
from broker.store.disk import RealDisk
from broker.store.log import Log
from broker.store.repair.check import check
from tests.support.store.bad_disk import FOLDER, BadDisk, fill_disk, log_on_bad_disk, make_durable, places
from tests.support.store.hand_log import (
    DeferredWork,
    RecordingSink,
    content_of,
    logged_queue,
    new_message,
    open_log,
    publish,
)

DISK = RealDisk()


def test_a_dated_message_is_recovered_with_its_date_also_after_a_copy(tmp_path: Path) -> None:
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
    sink = RecordingSink()
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


A, B, C, D = (logged_queue(number) for number in (1, 2, 3, 4))


def letter_of(message: Message) -> Message:
    letter = new_message(b"dead " + (message.content or b""), date=1)
    letter.died = True
    return letter


def standing_in(*queues: Queue) -> tuple[BadDisk, Log, DeferredWork, Message, Message]:
    """A message on the disk, and a letter of it that stands in for it in these queues: the disk is full."""
    disk, log, deferred = log_on_bad_disk()
    message = publish(log, [A], b"one")
    make_durable(log, deferred)
    letter = letter_of(message)
    log.append_death(letter, list(queues), message, A)
    fill_disk(disk, log)
    return disk, log, deferred, message, letter


@pytest.mark.parametrize("synced", [False, True])
def test_a_dead_lettered_message_is_in_exactly_one_queue_after_a_crash(synced: bool) -> None:
    disk, log, deferred = log_on_bad_disk()
    message = publish(log, [A], b"one")
    make_durable(log, deferred)
    letter = letter_of(message)
    log.append_death(letter, [B, C], message, A)
    assert message.references == 1, "it lives until the letter is durable"
    if synced:
        make_durable(log, deferred)
        assert message.references == 0
        assert places(disk) == [(b"dead one", [2, 3])]
    else:
        assert places(disk) == [(b"one", [1])]


def test_a_message_that_other_queues_hold_stays_with_them() -> None:
    disk, log, deferred = log_on_bad_disk()
    message = publish(log, [A, B], b"one")
    make_durable(log, deferred)
    log.append_death(letter_of(message), [C], message, A)
    make_durable(log, deferred)
    assert places(disk) == [(b"one", [2]), (b"dead one", [3])]


def test_a_settled_message_that_is_copied_meanwhile_is_not_restored() -> None:
    """The batch on its way says that it has died; a copy behind it would say that it has not."""
    disk = BadDisk()
    deferred = DeferredWork()
    log, _ = open_log(FOLDER, disk, deferred=deferred, segment_bytes=4096, first_segment_bytes=4096)
    message = publish(log, [A, B], b"one")
    others = []
    for number in range(10):  # little of each segment is to be live, and nothing of one
        others.append(publish(log, [A], content_of(number, 3000)))
        if number > 5:
            publish(log, [D], content_of(number, 200))
        make_durable(log, deferred)
    body = log.new_body()
    log.append_piece(piece_of(body, b"frames", 6))
    make_durable(log, deferred)
    for other in others:
        log.append_settle(other, A)
    log.append_death(letter_of(message), [C], message, A)
    log.commit()
    del body
    gc.collect()
    log.tick()
    make_durable(log, deferred)
    make_durable(log, deferred)
    assert [place for place in places(disk) if place[1] != [4]] == [(b"one", [2]), (b"dead one", [3])]


def test_death_in_the_batch_of_the_publish() -> None:
    disk, log, deferred = log_on_bad_disk()
    message = publish(log, [A], b"one")
    letter = letter_of(message)
    log.append_death(letter, [B], message, A)
    log.append_death(letter_of(letter), [C], letter, B)
    make_durable(log, deferred)
    assert places(disk) == [(b"dead dead one", [3])]


def test_a_batch_that_does_not_fit_leaves_the_message_where_it_was() -> None:
    disk, log, deferred = log_on_bad_disk()
    message = publish(log, [A], b"one")
    make_durable(log, deferred)
    letter = letter_of(message)
    log.append_death(letter, [B], message, A)
    fill_disk(disk, log)
    assert letter.content == b"dead one", "it goes on in memory"
    make_durable(log, deferred)
    assert places(disk) == [(b"one", [1])]


def test_a_substitute_settles_the_original_message() -> None:
    disk, log, deferred, message, letter = standing_in(B, C)
    log.append_settle(letter, B)
    make_durable(log, deferred)
    assert (message.references, letter.references) == (1, 1)
    log.forget(letter, C)  # C is deleted
    make_durable(log, deferred)
    assert message.references == 0
    assert places(disk) == []


@pytest.mark.parametrize("settled", [True, False])
def test_a_transaction_that_settles_the_last_substitute_settles_the_message(settled: bool) -> None:
    disk, log, deferred, message, letter = standing_in(B, C)
    if settled:
        log.append_settle(letter, C)
    log.append_transacted_settle(letter, B)
    make_durable(log, deferred)
    assert message.references == 1, "the queue has not settled it yet"
    assert places(disk) == ([] if settled else [(b"one", [1])])


@pytest.mark.parametrize("batches", [1, 2])
def test_transactions_that_settle_all_substitutes_settle_the_message(batches: int) -> None:
    disk, log, deferred, message, letter = standing_in(B, C)
    log.append_transacted_settle(letter, B)
    if batches == 2:
        make_durable(log, deferred)
    log.append_transacted_settle(letter, C)
    make_durable(log, deferred)
    assert (message.references, letter.references) == (1, 2), "the queues have not settled it yet"
    assert places(disk) == []
    log.append_settle(letter, B)
    log.append_settle(letter, C)
    assert message.references == 0


@pytest.mark.parametrize("dies", [True, False])
def test_a_transaction_settles_the_message_before_other_queues_settle_the_rest(dies: bool) -> None:
    disk, log, deferred, message, letter = standing_in(B, C)
    log.append_transacted_settle(letter, B)
    other = letter_of(letter)
    if dies:
        log.append_death(other, [D], letter, C)
        log.append_transacted_settle(other, D)
    else:
        log.append_settle(letter, C)
    make_durable(log, deferred)
    assert message.references == 1, "the queues have not settled it yet"
    assert places(disk) == []
    log.append_settle(letter, B)
    if dies:
        log.append_settle(other, D)
    assert message.references == 0


@pytest.mark.parametrize("last", [True, False])
def test_a_message_settled_otherwise_meanwhile_counts_once(last: bool) -> None:
    disk, log, deferred, _, letter = standing_in(B, C, D)
    log.append_transacted_settle(letter, B)
    log.forget(letter, B)  # B is deleted
    log.append_transacted_settle(letter, C)
    if last:
        log.append_transacted_settle(letter, D)
    make_durable(log, deferred)
    assert places(disk) == ([] if last else [(b"one", [1])]), "D has it still"


def test_a_transaction_that_failed_settles_nothing_of_the_next_one() -> None:
    disk, log, deferred, _, letter = standing_in(B, C)
    log.append_transacted_settle(letter, B)
    log.substitutes.take_over([])
    log.append_transacted_settle(letter, C)
    make_durable(log, deferred)
    assert letter.references == 2
    assert places(disk) == [(b"one", [1])]


def test_dead_letters_of_substitutes_become_substitutes_while_the_disk_is_full() -> None:
    disk, log, deferred = log_on_bad_disk()
    message = publish(log, [A], b"one")
    make_durable(log, deferred)
    publish(log, [A], b"lost")
    fill_disk(disk, log)
    first, second = letter_of(message), new_message(b"dead dead one")
    log.append_death(first, [B, C], message, A)
    log.append_death(second, [D], first, B)
    log.append_settle(first, C)
    make_durable(log, deferred)
    assert message.references == 1
    log.append_delivered(second, D)
    log.append_count(second, D, 1)
    log.append_settle(second, D)
    make_durable(log, deferred)
    assert message.references == 0
    assert places(disk) == []


def test_a_row_of_deaths_in_batches_that_do_not_fit() -> None:
    disk, log, deferred = log_on_bad_disk()
    message = publish(log, [A], b"one")
    make_durable(log, deferred)
    first = letter_of(message)
    second = letter_of(first)
    log.append_death(first, [B], message, A)
    log.append_death(second, [C], first, B)
    fill_disk(disk, log)
    make_durable(log, deferred)
    assert message.references == 1
    assert first.sequence == 0, "nobody has it any more"
    log.append_settle(second, C)
    make_durable(log, deferred)
    assert message.references == 0
    assert places(disk) == []


def test_a_letter_that_was_settled_before_its_batch_failed() -> None:
    disk, log, deferred = log_on_bad_disk()
    message = publish(log, [A], b"one")
    make_durable(log, deferred)
    letter = letter_of(message)
    log.append_death(letter, [B], message, A)
    log.append_settle(letter, B)
    fill_disk(disk, log)
    make_durable(log, deferred)
    assert message.references == 0
    assert places(disk) == []


def test_no_substitute_is_made_for_a_message_that_was_never_durable() -> None:
    disk, log, deferred = log_on_bad_disk()
    message = publish(log, [A], b"one")
    letter = letter_of(message)
    log.append_death(letter, [B], message, A)
    fill_disk(disk, log)
    make_durable(log, deferred)
    assert (message.sequence, letter.sequence) == (0, 0)
    assert places(disk) == []


def test_after_a_full_disk_substitutes_stay_and_new_dead_letters_are_logged() -> None:
    disk, log, deferred = log_on_bad_disk()
    old, new = publish(log, [A], b"old"), publish(log, [A], b"new")
    make_durable(log, deferred)
    letter = letter_of(old)
    log.append_death(letter, [B], old, A)
    fill_disk(disk, log)
    disk.capacity = 1 << 40
    log.tick()
    deferred.run_all()
    assert not log.failure
    log.append_death(letter_of(new), [B], new, A)
    log.append_death(letter_of(letter), [C], letter, B)
    make_durable(log, deferred)
    assert places(disk) == [(b"old", [1]), (b"dead new", [2])]


def test_a_stopped_log_gives_the_message_back_after_a_restart() -> None:
    disk, log, deferred = log_on_bad_disk()
    message = publish(log, [A], content_of(1, 50))
    make_durable(log, deferred)
    log.group.stop("a test has stopped it")
    letter = letter_of(message)
    log.append_death(letter, [B], message, A)
    log.append_settle(letter, B)
    assert places(disk) == [(content_of(1, 50), [1])]
