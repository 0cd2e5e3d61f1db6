"""Writes tests/golden/journal-v1: journal files of format version 1, which every later version must read.

Not run by the tests, and not to be run again: the committed files are the reference. One of the two raw files
was sealed, and the folder has its Parquet file and the manifest.
"""

from pathlib import Path

from broker.journal.seal import seal
from protocol.journal import records as r
from tests.support.journal.handmade_journal import EventWriter, write_file

FOLDER = Path(__file__).parent / "journal-v1"
OPS_OF_V1 = 22
REASONS_OF_V1 = 26


def main() -> None:
    """Write both files."""
    scribe = EventWriter()
    encoder = scribe.encoder
    header = encoder.header(scribe.time)
    for op in range(1, OPS_OF_V1 + 1):
        other = 0 if op == r.GAP else 3
        scribe.tell(op, op, op, other=other, size=9, text="mé".encode(), reason=r.REASONS[op % REASONS_OF_V1])
        scribe.tell(op, size=op, flags=op & 7)
    write_file(FOLDER, header + encoder.take())
    list(seal(FOLDER))
    (FOLDER / ".sealing").unlink()
    encoder.end_file()
    header = encoder.header(scribe.time)
    scribe.tell(r.DECLARE, reason="full")
    scribe.life_of(100)
    scribe.tell(r.GAP, text=b"the broker ended without a clean stop")
    write_file(FOLDER, header + encoder.take())


if __name__ == "__main__":
    main()
