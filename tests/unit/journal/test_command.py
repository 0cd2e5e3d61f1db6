"""The commands `amqpd journal` on journals that were made by hand."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broker.journal import command
from broker.journal.command import app
from protocol.journal import records as r
from tests.support.journal.handmade_journal import EventWriter, write_file


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A message that is dead-lettered, its letter, and another message."""
    scribe = EventWriter()
    scribe.tell(r.DECLARE)
    scribe.tell(r.ENQUEUE, 1, 1, text=b"m1", size=4)
    scribe.tell(r.DEAD_LETTER, 1, 1, reason="expired")
    scribe.tell(r.ENQUEUE, 2, 1, other=1, text=b"m1", reason="dead_letter")
    scribe.life_of(3)
    scribe.tell(r.CHECKPOINT, size=1, reason="time")
    write_file(tmp_path, scribe.file())
    return tmp_path


def run(*arguments: object, status: int = 0) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == status, done.output
    return done.output


def test_cat(journal: Path) -> None:
    lines = run("cat", journal).splitlines()
    assert len(lines) == 8
    assert lines[1] == (
        "2026-11-24T03:47:59.000002Z          2 enqueue       q #1 qpos=1 exchange='' routing_key='q' "
        "message_id='m1' conn='1.2.3.4:5 -> 6' channel=1 user='guest' "
        "address='1.2.3.4:5' size=4"
    )


def test_cat_of_some(journal: Path) -> None:
    assert len(run("cat", journal, "--op", "ack", "--op", "deliver").splitlines()) == 2
    assert run("cat", journal, "--queue", "other") == ""
    assert run("cat", journal, "--since", 1) == ""
    assert len(run("cat", journal, "--node", "n-1").splitlines()) == 8
    (row,) = run("cat", journal, "--op", "ack", "--json").splitlines()
    assert json.loads(row)["consumer"] == "ctag"


def test_an_unknown_operation_is_refused(journal: Path) -> None:
    assert "no operation 'eat'" in run("cat", journal, "--op", "eat", status=2)


def test_verify(journal: Path) -> None:
    assert run("verify", journal) == "8 events, 1 queues, 1 balances, 0 gaps: 0 findings\n"


def test_verify_finds_damage(journal: Path) -> None:
    (path,) = (journal / "live").iterdir()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"?")
    document = json.loads(run("verify", journal, "--json", status=2))
    (finding,) = document["findings"]
    assert finding.endswith(f"to {len(data)}: it is no complete block")
    assert document["findings_total"] == 1


def test_a_file_that_is_being_written_is_not_damaged(journal: Path) -> None:
    (path,) = (journal / "live").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    path.rename(path.with_name(path.name + ".open"))
    assert run("verify", journal) == "0 events, 0 queues, 0 balances, 0 gaps: 0 findings\n"


@pytest.mark.parametrize("which", [("--message-id", "m1"), ("--msg-uid", "2")], ids=["id", "number"])
def test_show_follows_dead_letters_both_ways(journal: Path, which: tuple[str, str]) -> None:
    words = [line.split()[2:5] for line in run("show", journal, *which).splitlines()]
    assert words == [["enqueue", "q", "#1"], ["dead_letter", "q", "#1"], ["enqueue", "q", "#2"]]


def test_show_without_a_match_or_a_message_id_fails(journal: Path) -> None:
    assert "no message with message-id 'x'" in run("show", journal, "--message-id", "x", status=2)
    assert "no message is named" in run("show", journal, status=2)


def test_seal_and_status(journal: Path) -> None:
    assert "8 events" in run("seal", journal, "--retention", 0)
    document = json.loads(run("status", journal, "--json"))
    assert (document["raw_files"], document["sealed_only_files"], document["sealed_only_events"]) == (0, 1, 8)
    assert run("verify", journal).startswith("8 events")
    assert "sealed only events   8" in run("status", journal)


def test_a_sealed_file_that_is_missing(journal: Path) -> None:
    run("seal", journal, "--retention", 0)
    (path,) = journal.glob("parquet/*/*/*.parquet")
    path.unlink()
    missing = f"{path}: it is listed in the manifest, but missing\n"
    assert (
        run("verify", journal, status=2) == f"{missing}0 events, 0 queues, 0 balances, 0 gaps: 1 findings\n"
    )
    assert run("cat", journal, status=2) == missing
    assert run("show", journal, "--msg-uid", 1, status=2).endswith(missing)


def test_a_sealed_file_that_is_damaged(journal: Path) -> None:
    run("seal", journal, "--retention", 0)
    (path,) = journal.glob("parquet/*/*/*.parquet")
    path.write_bytes(path.read_bytes()[:-4])
    for words in (("verify",), ("cat",), ("show", "--msg-uid", 1)):
        assert f"{path}: it cannot be read: " in run(words[0], journal, *words[1:], status=2)


def test_sealing_takes_pyarrow(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert "pip install 'amqpd[journal]'" in run("seal", journal, status=1)


@pytest.mark.parametrize("what", ["cat", "verify", "status", "seal"])
def test_no_journal(tmp_path: Path, what: str) -> None:
    text = run(what, tmp_path / "absent", status=1)
    assert text == f"amqpd journal: no journal in {tmp_path / 'absent'}\n"
