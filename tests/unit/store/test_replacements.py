"""Messages that replace others: after a crash either message exists, and never neither."""

import errno

import pytest

from broker.core.message import Message
from broker.store.file_commit import INLINE_WRITE_MAX
from broker.store.substitutes import SUBSTITUTE
from tests.support.store.bad_disk import fill_disk, log_on_bad_disk, make_durable, places
from tests.support.store.hand_log import ADDRESS, logged_queue, new_message, publish

A, B, C = (logged_queue(number) for number in (1, 2, 3))


@pytest.mark.parametrize("synced", [False, True])
def test_the_old_or_the_new_message_survives_a_crash(synced: bool) -> None:
    disk, log, deferred = log_on_bad_disk()
    old = publish(log, [A], b"old")
    make_durable(log, deferred)
    log.append_replacement(publish(log, [A], b"new"), old, A)
    if synced:
        make_durable(log, deferred)
        assert old.references == 0
    assert places(disk) == [(b"new" if synced else b"old", [1])]


def test_the_last_of_many_replacements_in_one_batch_is_recovered() -> None:
    disk, log, deferred = log_on_bad_disk()
    last = publish(log, [A], b"0")
    for number in range(1, 10):
        following = publish(log, [A], b"%d" % number)
        log.append_replacement(following, last, A)
        last = following
    make_durable(log, deferred)
    assert places(disk) == [(b"9", [1])]


def test_the_replacement_may_be_durable_before() -> None:
    disk, log, deferred = log_on_bad_disk()
    old, new = publish(log, [A], b"old"), publish(log, [A], b"new")
    make_durable(log, deferred)
    log.append_replacement(new, old, A)
    assert old.references == 0
    make_durable(log, deferred)
    assert places(disk) == [(b"new", [1])]


def test_the_replacement_may_be_transient() -> None:
    disk, log, deferred = log_on_bad_disk()
    old = publish(log, [A], b"old")
    make_durable(log, deferred)
    log.append_replacement(Message(ADDRESS, b"transient", 9, False, 0), old, A)
    make_durable(log, deferred)
    assert places(disk) == []


def test_a_replacement_in_a_failed_batch_leaves_the_old_message() -> None:
    disk, log, deferred = log_on_bad_disk()
    old = publish(log, [A], b"old")
    make_durable(log, deferred)
    log.append_replacement(publish(log, [A], b"new"), old, A)
    fill_disk(disk, log)
    make_durable(log, deferred)
    assert places(disk) == [(b"old", [1])]


@pytest.mark.parametrize("fits", [True, False])
def test_the_replacement_may_be_in_the_current_batch(fits: bool) -> None:
    disk, log, deferred = log_on_bad_disk()
    old = publish(log, [A], b"old")
    make_durable(log, deferred)
    new = publish(log, [A], b"new")
    large = publish(log, [B], b"x" * INLINE_WRITE_MAX)  # so that others go on while it is written
    if not fits:
        disk.write_errors = [errno.ENOSPC]
    log.commit()
    assert log.in_flight
    log.append_replacement(new, old, A)
    make_durable(log, deferred)
    assert (new.sequence > 0) is fits
    assert old.references == (0 if fits else 1)
    log.append_settle(large, B)
    make_durable(log, deferred)
    assert places(disk) == [(b"new" if fits else b"old", [1])]


@pytest.mark.parametrize("settled", [True, False])
def test_the_replacement_may_be_written_to_a_nearly_full_disk(settled: bool) -> None:
    disk, log, deferred = log_on_bad_disk()
    old = publish(log, [A], b"old")
    make_durable(log, deferred)
    new = publish(log, [A], b"new")
    log.commit()
    log.append_replacement(new, old, A)
    disk.write_errors = [errno.ENOSPC]
    disk.capacity = disk.used()
    deferred.step()  # and the next batch is written
    assert log.full
    assert old.references == 0
    if settled:
        log.append_settle(new, A)
    make_durable(log, deferred)
    assert places(disk) == ([] if settled else [(b"new", [1])])


def test_the_replaced_message_may_not_have_reached_the_disk() -> None:
    disk, log, deferred = log_on_bad_disk()
    old, older = publish(log, [A], b"old"), publish(log, [A], b"older")
    make_durable(log, deferred)
    new = publish(log, [A], b"new")
    fill_disk(disk, log)
    make_durable(log, deferred)
    assert new.sequence == 0
    for replaced in (older, old):
        log.append_replacement(new, replaced, A)
    make_durable(log, deferred)
    assert (old.references, older.references) == (1, 1)
    log.append_settle(new, A)
    assert (old.references, older.references) == (0, 0)
    make_durable(log, deferred)
    assert places(disk) == []


def test_the_old_message_survives_a_crash_while_the_disk_is_full() -> None:
    disk, log, deferred = log_on_bad_disk()
    old = publish(log, [A], b"old")
    make_durable(log, deferred)
    new = publish(log, [A], b"new")
    fill_disk(disk, log)
    log.append_replacement(new, old, A)
    make_durable(log, deferred)
    assert places(disk) == [(b"old", [1])]


def test_the_old_message_is_settled_with_its_replacement() -> None:
    disk, log, deferred = log_on_bad_disk()
    old, other = publish(log, [A], b"old"), publish(log, [B], b"other")
    make_durable(log, deferred)
    new = publish(log, [A, B], b"new")
    log.append_replacement(new, old, A)
    log.append_replacement(new, other, B)
    fill_disk(disk, log)
    make_durable(log, deferred)
    log.append_settle(new, A)
    assert (old.references, other.references) == (0, 1), "one queue still has it in memory only"
    log.append_settle(new, B)
    make_durable(log, deferred)
    assert places(disk) == []


def test_settling_the_new_message_in_another_queue_keeps_the_old_message() -> None:
    disk, log, deferred = log_on_bad_disk()
    old, other = publish(log, [A], b"old"), publish(log, [B], b"other")
    make_durable(log, deferred)
    new = publish(log, [A, B, C], b"new")
    fill_disk(disk, log)
    log.append_replacement(new, old, A)
    log.append_replacement(new, other, B)
    log.append_settle(new, C)
    log.append_settle(new, B)
    make_durable(log, deferred)
    assert (old.references, other.references) == (1, 0)
    assert places(disk) == [(b"old", [1])]


def test_a_queue_may_have_released_the_message_before_the_batch_fails() -> None:
    disk, log, deferred = log_on_bad_disk()
    old, other = publish(log, [A], b"old"), publish(log, [B], b"other")
    make_durable(log, deferred)
    new = publish(log, [A, B], b"new")
    log.append_replacement(new, old, A)
    log.append_replacement(new, other, B)
    log.append_settle(new, A)
    fill_disk(disk, log)
    make_durable(log, deferred)
    assert (old.references, other.references) == (0, 1)
    assert places(disk) == [(b"other", [2])]


def test_in_a_transaction_too() -> None:
    disk, log, deferred = log_on_bad_disk()
    old, other = publish(log, [A], b"old"), publish(log, [B], b"other")
    make_durable(log, deferred)
    new = publish(log, [A, B], b"new")
    fill_disk(disk, log)
    log.append_replacement(new, old, A)
    log.append_replacement(new, other, B)
    log.append_transacted_settle(new, A)
    make_durable(log, deferred)
    assert places(disk) == [(b"other", [2])]


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_replacement_may_be_replaced_when_there_is_room_again(synced: bool, fails: bool) -> None:
    disk, log, deferred = log_on_bad_disk()
    old = publish(log, [A], b"old")
    make_durable(log, deferred)
    new = publish(log, [A, B], b"new")
    log.append_replacement(new, old, A)
    fill_disk(disk, log)
    disk.capacity = 1 << 40
    log.tick()
    deferred.run_all()
    assert not log.failure
    newer = publish(log, [A], b"newer")
    log.append_replacement(newer, new, A)
    if fails:
        fill_disk(disk, log)
    if synced:
        make_durable(log, deferred)
    kept = fails or not synced
    assert old.references == (1 if kept else 0)
    assert places(disk) == ([(b"old", [1])] if kept else [(b"newer", [1])])


def test_a_replacement_in_a_single_queue_does_not_affect_the_other_queue() -> None:
    disk, log, deferred = log_on_bad_disk()
    old = publish(log, [A], b"old")
    make_durable(log, deferred)
    new = publish(log, [A, B], b"new")
    log.append_replacement(new, old, A)
    fill_disk(disk, log)
    disk.capacity = 1 << 40
    log.tick()
    deferred.run_all()
    log.append_replacement(publish(log, [B], b"newer"), new, B)
    log.append_settle(new, A)
    make_durable(log, deferred)
    assert (new.sequence, old.references) == (0, 0)
    assert sum(segment.live for segment in log.segments.all()) == 1
    assert places(disk) == [(b"newer", [2])]


def test_a_replacement_may_be_replaced_while_the_disk_is_full() -> None:
    disk, log, deferred = log_on_bad_disk()
    old = publish(log, [A], b"old")
    make_durable(log, deferred)
    new, newer = publish(log, [A], b"new"), publish(log, [A], b"newer")
    fill_disk(disk, log)
    log.append_replacement(new, old, A)
    log.append_replacement(newer, new, A)
    make_durable(log, deferred)
    assert (new.sequence, old.references) == (0, 1)
    log.append_settle(newer, A)
    make_durable(log, deferred)
    assert places(disk) == []


@pytest.mark.parametrize("full", [False, True])
def test_a_dead_letter_of_what_has_replaced_it_is_a_substitute_only_from_its_queue(full: bool) -> None:
    disk, log, deferred = log_on_bad_disk()
    old = publish(log, [A], b"old")
    make_durable(log, deferred)
    new = publish(log, [A, B], b"new")
    fill_disk(disk, log)
    log.append_replacement(new, old, A)
    if not full:
        disk.capacity = 1 << 40
        log.tick()
        deferred.run_all()
    of_a, of_b = new_message(b"dead in A"), new_message(b"dead in B")
    log.append_death(of_b, [C], new, B)
    log.append_death(of_a, [C], new, A)
    make_durable(log, deferred)
    assert (of_a.sequence, new.sequence, old.references) == (SUBSTITUTE, 0, 1)
    log.append_settle(of_a, C)
    make_durable(log, deferred)
    assert places(disk) == ([] if full else [(b"dead in B", [3])])
