"""kill -9 among transactions that are journaled: each life of the broker adds up; where it died is a gap."""

from pathlib import Path

import pytest

from broker.journal.reader import JournalReader
from broker.journal.recorder import FLUSH_COUNT
from broker.journal.verification import Verification
from tests.interop.kill_work import SMALL, rounds
from tests.interop.test_kill_transactions import Worker091

FULL = {"AMQPD_JOURNAL": "full", "AMQPD_JOURNAL_FILE_BYTES": "64KiB"}


def kill_and_verify(folder: Path, kills: int, settings: dict[str, str]) -> None:
    """Work, kill, and read the journal of all lives."""
    rounds(folder, kills, FULL | settings, Worker091)
    reading = JournalReader(folder / "data" / "journal")
    rows = list(reading.rows())
    found = Verification()
    found.take(rows)
    assert found.findings == []
    assert reading.damages == []
    assert found.gaps == kills
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    came = {row.msg_uid for row in rows if row.op == "enqueue"}
    listed = [row for row in rows if row.op == "recover" and row.msg_uid is not None]
    assert len(listed) > 100
    untold = {row.msg_uid for row in listed} - came  # their events were about to be written
    assert len(untold) < kills * FLUSH_COUNT


@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_kill_a_broker_with_a_journal(tmp_path: Path, settings: dict[str, str]) -> None:
    kill_and_verify(tmp_path, 2, settings)


@pytest.mark.nightly
def test_thirty_kills_of_a_broker_with_a_journal(tmp_path: Path) -> None:
    kill_and_verify(tmp_path, 30, SMALL)
