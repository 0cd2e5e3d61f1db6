"""Missing, doubled and changed files of a journal are found in every place."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broker.journal import verification
from broker.journal.command import app
from broker.journal.seal import delete_sealed, seal
from broker.journal.verification import check_sealed_files, list_present_files
from protocol.journal.files import drop_line
from protocol.journal.inventory import CHANGED, DOUBLED, MISSING, Fault, Inventory
from tests.support.journal.handmade_journal import NODE, EventWriter, file_of, write_file

FILES = 3
HOUR = 3600.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A journal of three sealed files."""
    scribe = EventWriter()
    for _ in range(FILES):
        write_file(tmp_path, file_of(scribe, 2))
    list(seal(tmp_path))
    for path in delete_sealed(tmp_path, 1e12, 0):
        assert not path.exists()
    return tmp_path


def sealed(folder: Path) -> list[Path]:
    return sorted(folder.glob("parquet/*/*/*.parquet"))


def faults_in(folder: Path) -> list[tuple[str, str]]:
    return [(fault.what, Path(fault.file).name) for fault in check_sealed_files(folder).faults]


def verified(folder: Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["verify", str(folder)])
    return done.exit_code, done.output


def test_a_whole_journal_has_no_fault(folder: Path) -> None:
    assert faults_in(folder) == []
    assert verified(folder)[0] == 0
    assert check_sealed_files(folder).files == FILES


@pytest.mark.parametrize("which", range(FILES), ids=["first", "middle", "last"])
def test_a_file_that_is_missing(folder: Path, which: int) -> None:
    path = sealed(folder)[which]
    path.unlink()

    assert faults_in(folder) == [(MISSING, path.name)]
    status, output = verified(folder)
    assert status == 2
    assert output.count(f"{path}: it is listed in the manifest, but missing") == 1


@pytest.mark.parametrize("which", range(FILES), ids=["first", "middle", "last"])
@pytest.mark.parametrize("name", ["same", "copy.parquet"], ids=["in another folder", "by another name"])
def test_a_duplicate_sealed_file_is_a_fault(folder: Path, which: int, name: str) -> None:
    path = sealed(folder)[which]
    other = path.parent.parent / "hour=23"
    other.mkdir()
    copy = other / (path.name if name == "same" else name)
    shutil.copy(path, copy)

    assert faults_in(folder) == [(DOUBLED, copy.name)]
    status, output = verified(folder)
    assert (status, output.count(str(copy))) == (2, 1)


@pytest.mark.parametrize("which", range(FILES), ids=["first", "middle", "last"])
def test_a_file_with_another_digest(folder: Path, which: int) -> None:
    path = sealed(folder)[which]
    other = sealed(folder)[which - 1]
    shutil.copy(other, path)  # a whole file of Parquet, and not that one

    assert faults_in(folder) == [(CHANGED, path.name)]
    assert f"{path}: it has the SHA-256 " in verified(folder)[1]


def test_a_journal_without_its_beginning(tmp_path: Path) -> None:
    scribe = EventWriter()
    for _ in range(2):
        write_file(tmp_path, file_of(scribe, 2))
    (tmp_path / "live" / f"{NODE}-{1:020d}.ajl").unlink()

    assert [(fault.what, fault.first, fault.last) for fault in check_sealed_files(tmp_path).faults] == [
        (MISSING, 1, 6)
    ]
    assert verified(tmp_path)[0] == 2


def test_dropped_files_are_not_missing_and_files_being_sealed_are_not_stray(folder: Path) -> None:
    first, *_ = sealed(folder)
    day = first.relative_to(folder).parts[1]
    with (folder / "manifest.jsonl").open("a") as manifest:
        manifest.write(f'{{"dropped": "{day}", "rows": 18}}\n')
    shutil.rmtree(folder / "parquet")
    scribe = EventWriter()
    scribe.encoder.seq = 19
    write_file(folder, file_of(scribe, 1))
    assert faults_in(folder) == []
    manifest_before = (folder / "manifest.jsonl").read_text()
    list(seal(folder))
    (folder / "manifest.jsonl").write_text(manifest_before)

    assert len(sealed(folder)) == 1
    assert faults_in(folder) == []


def test_digests_are_compared_in_portions(folder: Path) -> None:
    for path in sealed(folder):
        path.write_bytes(b"x")
    found: list[Fault] = []
    start: int | None = 0
    turns = 0
    while start is not None:
        held = check_sealed_files(folder, start, bytes_max=1)
        found += held.faults
        start = held.next
        turns += 1
    assert (turns, [fault.what for fault in found]) == (FILES, [CHANGED] * FILES)


def test_a_manifest_that_is_missing(folder: Path) -> None:
    (folder / "manifest.jsonl").unlink()

    assert faults_in(folder) == [(MISSING, "manifest.jsonl")]
    assert verified(folder)[0] == 2
    shutil.rmtree(folder / "parquet")
    assert faults_in(folder) == []


def test_a_day_that_is_dropped_while_digests_are_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = sealed(folder)[0].relative_to(folder).parts[1]

    def drop(place: Path) -> Inventory:
        present_files = list_present_files(place)
        with (folder / "manifest.jsonl").open("a") as manifest:
            manifest.write(drop_line(day, 18))
        shutil.rmtree(folder / "parquet")
        return present_files

    monkeypatch.setattr(verification, "list_present_files", drop)
    held = check_sealed_files(folder, bytes_max=1)
    assert (held.faults, held.next) == ([], None)


def test_portions_continue_after_files_were_dropped(folder: Path) -> None:
    paths = sealed(folder)
    start = check_sealed_files(folder, bytes_max=1).next
    assert start == 1
    day = paths[0].relative_to(folder).parts[1]
    manifest = folder / "manifest.jsonl"
    first, *others = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join([first, drop_line(day, 6), *others]))
    paths[0].unlink()
    paths[1].write_bytes(b"x")
    assert [fault.what for fault in check_sealed_files(folder, start).faults] == [CHANGED]


@pytest.mark.parametrize("cut", [lambda line: line[:20], lambda line: "[1]", lambda line: '{"file": 1}'])
def test_malformed_manifest_lines_are_skipped(folder: Path, cut: Callable[[str], str]) -> None:
    lines = (folder / "manifest.jsonl").read_text().splitlines()
    there = [str(path.relative_to(folder)) for path in sealed(folder)]
    assert Inventory([cut(lines[0]), *lines], there, []).faults == []
