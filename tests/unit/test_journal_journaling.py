"""A journal as the daemon looks after it."""

from __future__ import annotations

from pathlib import Path

from broker.adapters.views import view_of
from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.journal.journaling import Journaling
from broker.journal.writer import JournalWriter
from tests.clock import HandClock
from tests.journals import NODE, Scribe, read
from tests.topology import RecordingStore


def journaling(folder: Path, level: str) -> Journaling:
    """That of a broker which has just been made."""
    broker = Broker(RecordingStore(), Counters(), lambda: "", HandClock().schedule)
    writer = JournalWriter(folder, NODE, lambda: 1, 1 << 20, 60, 0)
    return Journaling(
        broker,
        writer,
        level,
        lambda: 1,
        view_of,
        soon=lambda _: None,
        later=lambda _, __: None,
        off_loop=lambda _, __: None,
        mandatory=False,
        synced=False,
    )


def test_that_nothing_is_journaled_is_said_when_the_disk_lets_it(tmp_path: Path) -> None:
    writer = journaling(tmp_path, "full").writer
    Scribe(writer.encoder).life_of(1)
    writer.close()
    live, aside = tmp_path / "live", tmp_path / "aside"
    off = journaling(tmp_path, "off")
    live.rename(aside)
    live.write_text("in the way")
    off.start()
    off.tick()
    live.unlink()
    aside.rename(live)
    for _ in range(2):
        off.tick()
    (path,) = (path for path in live.iterdir() if not path.name.endswith(f"{1:020d}.ajl"))
    assert [row.op for row in read(path.read_bytes())] == ["gap", "level", "end"]
