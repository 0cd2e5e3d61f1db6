"""Recovery and check of log files that were cut, changed or lost."""

import os
from pathlib import Path

import pytest

from broker.store.errors import LogDamaged, LogLocked, LogVersionUnknown
from broker.store.format import FORMAT_VERSION, HEADER_BYTES, checksum
from broker.store.repair.check import check, repair
from broker.store.segment import segment_name
from tests.support.store.hand_log import RecordingSink, content_of, files_of, logged_queue, open_log, publish
from tests.support.store.small_log import AFTER_BATCH, DISK, FIRST, batch_ends, recovered, small_log


def test_a_log_cut_at_any_byte_is_read_up_to_the_last_whole_batch(tmp_path: Path) -> None:
    data = small_log(tmp_path).rstrip(b"\0")
    ends = batch_ends(tmp_path)
    data = data.ljust(ends[-1], b"\0")
    assert len(ends) == 5
    for length in range(len(data) + 1):
        whole = sum(end <= length for end in ends) - 1
        sink, torn, offset, lost = recovered(tmp_path, data[:length])
        assert sink.held() == AFTER_BATCH[whole], length
        assert len(sink.changes) == (1 if whole >= 3 else 0)
        if length == ends[whole]:
            assert torn == ""
        else:
            assert (torn, offset, lost) == (str(tmp_path / FIRST), ends[whole], length - ends[whole])


def test_a_flipped_bit_before_a_valid_batch_is_damage_and_names_the_place(tmp_path: Path) -> None:
    data = small_log(tmp_path)
    ends = batch_ends(tmp_path)
    for position in range(ends[-2]):
        changed = bytearray(data)
        changed[position] ^= 1 << (position % 8)
        with pytest.raises(LogDamaged) as caught:
            recovered(tmp_path, bytes(changed))
        assert caught.value.path == str(tmp_path / FIRST)
        assert caught.value.offset == max(end for end in ends if end <= position)
        assert (tmp_path / FIRST).read_bytes() == changed, "a damaged log is not touched"


def test_a_flipped_bit_in_the_last_batch_is_a_torn_tail(tmp_path: Path) -> None:
    data = small_log(tmp_path)
    ends = batch_ends(tmp_path)
    for position in range(ends[-2], ends[-1]):
        changed = bytearray(data)
        changed[position] ^= 0x10
        sink, torn, offset, _ = recovered(tmp_path, bytes(changed))
        assert sink.held() == AFTER_BATCH[3]
        assert (torn, offset) == (str(tmp_path / FIRST), ends[-2])


def test_a_body_that_is_a_copy_of_the_log_does_not_pass_for_a_batch(tmp_path: Path) -> None:
    data = small_log(tmp_path)
    end = batch_ends(tmp_path)[-1]
    queue = logged_queue(7)
    other = tmp_path / "other"
    log, _ = open_log(str(other), DISK)
    publish(log, [queue], data[:end])
    log.commit()
    log.release()
    whole = (other / FIRST).read_bytes()
    torn_at = batch_ends(other)[-2]
    (other / FIRST).write_bytes(whole[: batch_ends(other)[-1] - 1])
    log, report = open_log(str(other), DISK)
    log.release()
    assert report.torn_offset == torn_at
    # nor does a copy of its own beginning, though that has the right identity
    for path in other.iterdir():
        path.unlink()
    (other / FIRST).write_bytes(data[: end - 1] + data[:end])
    log, report = open_log(str(other), DISK)
    log.release()
    assert report.torn_offset == batch_ends(other)[-1]


def many_segments(folder: Path) -> None:
    """Twenty messages over several segments; odd ones settled, in later segments."""
    queue = logged_queue(7)
    change: dict[str, object] = {"kind": "queue", "name": "seven", "vhost": "/", "number": 7}
    topology: list[dict[str, object]] = []
    log, _ = open_log(
        str(folder), DISK, definitions=topology.copy, segment_bytes=1000, first_segment_bytes=1000
    )
    topology.append(change)
    log.append_definition(change)
    messages = []
    for number in range(1, 21):
        messages.append(publish(log, [queue], content_of(number, 200)))
        if number % 2 and number > 2:
            log.append_settle(messages[number - 3], queue)
        log.commit()
    log.release()


EXPECTED = [n for n in range(1, 21) if n % 2 == 0 or n == 19]


def test_a_missing_or_short_segment_is_damage(tmp_path: Path) -> None:
    many_segments(tmp_path)
    sink = RecordingSink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    log.release()
    assert [message.sequence for message, _, _ in sink.messages] == EXPECTED
    third = tmp_path / segment_name(3)
    ends = batch_ends(tmp_path, third.name)
    whole = third.read_bytes()
    third.write_bytes(whole[: ends[-2]])  # cut between two batches: every batch that is left is valid
    with pytest.raises(LogDamaged) as caught:
        open_log(str(tmp_path), DISK)
    assert (caught.value.path, caught.value.offset) == (str(third), ends[-2])
    third.unlink()
    with pytest.raises(LogDamaged, match="missing"):
        open_log(str(tmp_path), DISK)


def test_a_missing_or_blank_newest_segment_is_noticed(tmp_path: Path) -> None:
    many_segments(tmp_path)
    names = sorted(path.name for path in tmp_path.glob("*.log"))
    newest = tmp_path / names[-1]
    lost = "0 messages, 0 definitions, and what only missing files held"
    for spoiled in (newest.unlink, lambda: newest.write_bytes(b"")):
        spoiled()
        with pytest.raises(LogDamaged) as caught:
            open_log(str(tmp_path), DISK)
        assert caught.value.path == str(newest)
        report = check(str(tmp_path), DISK)
        assert not report.healthy
        assert f"missing: {newest} from offset 0 on" in report.lines()
        assert f"a repair would lose: {lost}" in report.lines()
    assert f"lost: {lost}" in repair(str(tmp_path), DISK).lines()
    assert check(str(tmp_path), DISK).healthy
    log, _ = open_log(str(tmp_path), DISK)
    log.release()


def test_all_missing_segments_behind_the_last_one_are_named(tmp_path: Path) -> None:
    many_segments(tmp_path)
    *_, left, first, newest = sorted(tmp_path.glob("*.log"))
    first.unlink()
    newest.unlink()
    message_text = f"missing: {newest} from offset 0 on, and others from {first.name} on, if there were any"
    assert message_text in check(str(tmp_path), DISK).lines()
    assert left.exists()


def test_a_file_that_only_looks_like_a_segment_is_named_and_left_alone(tmp_path: Path) -> None:
    many_segments(tmp_path)
    stranger = tmp_path / f"{10**20}.log"
    stranger.touch()
    report = check(str(tmp_path), DISK)
    assert report.healthy
    assert f"no file of this log, left alone: {stranger}" in report.lines()
    log, _ = open_log(str(tmp_path), DISK)
    log.release()
    assert stranger.exists()


@pytest.mark.parametrize("number", [5_000, 1_000_000, 9_999_999_999])
def test_a_stray_file_is_found_and_kept_aside(tmp_path: Path, number: int) -> None:
    many_segments(tmp_path)
    stray = tmp_path / segment_name(number)
    stray.write_bytes(b"something else" * 10)
    with pytest.raises(LogDamaged, match="no file of this log") as caught:
        open_log(str(tmp_path), DISK)
    assert caught.value.path == str(stray)
    report = check(str(tmp_path), DISK)
    assert not report.healthy
    assert f"no file of this log: {stray}, 140 bytes" in report.lines()
    assert stray.exists()
    before = report.messages
    assert repair(str(tmp_path), DISK).repaired
    assert not stray.exists()
    assert (tmp_path / (stray.name + ".damaged")).read_bytes() == b"something else" * 10
    after = check(str(tmp_path), DISK)
    assert (after.healthy, after.messages) == (True, before)
    sink = RecordingSink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert [message.sequence for message, _, _ in sink.messages] == EXPECTED
    assert max(files_of(log).numbers()) < 1000, "numbers go on where they were"
    log.release()


def test_check_and_repair_report_the_loss(tmp_path: Path) -> None:
    many_segments(tmp_path)
    assert check(str(tmp_path), DISK).healthy
    third = next(path for path in tmp_path.iterdir() if b"<8><8>" in path.read_bytes())
    data = bytearray(third.read_bytes())
    position = data.index(b"<8><8>")
    data[position] ^= 1
    third.write_bytes(data)
    ends = batch_ends(tmp_path, third.name)
    start = max(end for end in ends if end <= position)
    report = check(str(tmp_path), DISK)
    assert not report.healthy
    [damage] = report.damages
    assert (damage.path, damage.offset) == (str(third), start)
    assert start + damage.length == min(end for end in ends if end > position)
    before = sorted(os.listdir(tmp_path))
    lost = [n for n in EXPECTED if n not in held_by(tmp_path)]
    assert lost == [8]
    assert report.loss.messages == 1
    assert report.loss.by_queue == {7: 1}
    assert any("a repair would lose: 1 messages" in line for line in report.lines())
    assert any("queue 'seven' in vhost '/': 1" in line for line in report.lines())
    assert sorted(os.listdir(tmp_path)) == before, "check changes nothing"

    repaired = repair(str(tmp_path), DISK)
    assert repaired.repaired
    assert any("lost: 1 messages" in line for line in repaired.lines())
    assert (tmp_path / (third.name + ".damaged")).read_bytes() == data
    assert not third.exists()
    sink = RecordingSink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    assert [message.sequence for message, _, _ in sink.messages] == [n for n in EXPECTED if n not in lost]
    for message, _, redelivered in sink.messages:
        assert redelivered
        assert (message.content or log.load(message)) == content_of(message.sequence, 200)
    assert [change["number"] for change in sink.changes if change["kind"] == "queue"] == [7]
    log.release()
    assert check(str(tmp_path), DISK).healthy


def held_by(folder: Path) -> list[int]:
    """Return the messages that a repair would keep."""
    report = check(str(folder), DISK)
    assert not report.healthy
    data = {path.name: path.read_bytes() for path in folder.iterdir()}
    repair(str(folder), DISK)
    sink = RecordingSink()
    log, _ = open_log(str(folder), DISK, sink)
    log.release()
    for path in folder.iterdir():
        path.unlink()
    for name, content in data.items():
        (folder / name).write_bytes(content)
    return [message.sequence for message, _, _ in sink.messages]


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_repair_copes_with_every_single_damaged_byte_of_a_segment(tmp_path: Path, number: int) -> None:
    many_segments(tmp_path)
    path = tmp_path / segment_name(number)
    data = path.read_bytes()
    for position in range(0, batch_ends(tmp_path, path.name)[-1], 97):
        changed = bytearray(data)
        changed[position] ^= 0x40
        path.write_bytes(changed)
        report = check(str(tmp_path), DISK)
        assert not report.healthy
        kept = held_by(tmp_path)
        lost = [n for n in EXPECTED if n not in kept]
        back = [n for n in kept if n not in EXPECTED]
        assert len(lost) == report.loss.messages
        assert len(back) >= report.loss.settles
        assert len(lost) + len(back) <= 2, "one damaged batch costs what it held"


def test_the_first_batch_of_a_single_segment_may_be_damaged(tmp_path: Path) -> None:
    data = bytearray(small_log(tmp_path))
    end = batch_ends(tmp_path)[1]
    data[end - 1] ^= 1
    with pytest.raises(LogDamaged):
        recovered(tmp_path, bytes(data))
    report = check(str(tmp_path), DISK)
    assert [(damage.offset, damage.length) for damage in report.damages] == [(0, end)]
    assert repair(str(tmp_path), DISK).repaired
    sink = RecordingSink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    log.release()
    assert sink.held() == AFTER_BATCH[-1]


def test_repair_without_a_whole_segment(tmp_path: Path) -> None:
    many_segments(tmp_path)
    (tmp_path / segment_name(2)).unlink()
    report = repair(str(tmp_path), DISK)
    assert any("missing" in line for line in report.lines())
    sink = RecordingSink()
    log, _ = open_log(str(tmp_path), DISK, sink)
    log.release()
    assert len(sink.messages) >= len(EXPECTED) - 4


def test_a_healthy_log_is_not_repaired(tmp_path: Path) -> None:
    small_log(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "lock"}
    assert not repair(str(tmp_path), DISK).repaired
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "lock"} == before


def test_check_of_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check(str(tmp_path / "nowhere"), DISK)
    assert not (tmp_path / "nowhere").exists()


def test_a_log_in_use_is_refused(tmp_path: Path) -> None:
    log, _ = open_log(str(tmp_path), DISK)
    with pytest.raises(LogLocked, match=rf"in use by another process \(pid {os.getpid()}\)"):
        open_log(str(tmp_path), DISK)
    with pytest.raises(LogLocked):
        check(str(tmp_path), DISK)
    log.release()
    again, _ = open_log(str(tmp_path), DISK)
    again.release()


def test_a_later_format_version_is_refused_by_name(tmp_path: Path) -> None:
    data = small_log(tmp_path)
    end = batch_ends(tmp_path)[1]
    head = bytearray(data[:40])
    head[4:6] = (FORMAT_VERSION + 1).to_bytes(2, "big")
    crc = checksum(bytes(head), 1, 0, data[HEADER_BYTES:end])
    changed = bytes(head) + crc.to_bytes(4, "big") + data[HEADER_BYTES:]
    with pytest.raises(LogVersionUnknown, match=f"version {FORMAT_VERSION + 1}"):
        recovered(tmp_path, changed)


def test_an_invalid_record_is_damage(tmp_path: Path) -> None:
    data = small_log(tmp_path)
    ends = batch_ends(tmp_path)
    changed = bytearray(data[: ends[2]])
    changed[ends[1] + HEADER_BYTES] = 99
    crc = checksum(
        bytes(changed[ends[1] : ends[1] + 40]), 1, ends[1], bytes(changed[ends[1] + HEADER_BYTES :])
    )
    changed[ends[1] + 40 : ends[1] + HEADER_BYTES] = crc.to_bytes(4, "big")
    with pytest.raises(LogDamaged, match="record 1 of the batch is malformed"):
        recovered(tmp_path, bytes(changed))
