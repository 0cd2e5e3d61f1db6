"""Raw files, with the known positions of their events, and the ends of journals."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from pipeline.errors import PipelineError
from pipeline.journal.journals import FileDeletedError, Journal
from protocol.journal.catalogue import File
from protocol.journal.decoder import Block, Decoder, FileHeader, JournalDamagedError, read_header

HEADER_BYTES: Final = 4096  # more than any header has
KNOWN_MAX: Final = 64

_known: OrderedDict[tuple[str, str], RawFile] = OrderedDict()  # kept between tasks, as Spark reuses workers
SEQ_MAX: Final = (1 << 62) - 1

Seqs = dict[str, int]
"""A seq for each node."""


class RawFile:
    """The known part of a raw file: its names, and the positions of some seqs in its bytes.

    `behind`: the seq behind the last known one.
    """

    def __init__(self, header: bytes, first: int) -> None:
        self.decoder = Decoder(header)
        size = self.decoder.header.size
        self._seqs = [first]
        self._places = [size]

    @property
    def behind(self) -> int:
        """The last noted seq: all before it are known."""
        return self._seqs[-1]

    def note(self, seq: int, place: int) -> None:
        """Note that the bytes behind `place` have the seqs from `seq` on."""
        if seq > self._seqs[-1]:
            self._seqs.append(seq)
            self._places.append(place)

    def place(self, seq: int) -> int:
        """Return the position to read a seq from."""
        return self._places[max(bisect_right(self._seqs, seq) - 1, 0)]


def raw_file(journal: Journal, file: File) -> RawFile | None:
    """Return the known part of a file; None: the file has no header yet.

    Raises GoneError; PipelineError: the file is no file of a journal.
    """
    data = journal.read(file, 0, HEADER_BYTES)
    try:
        header = read_header(data)
    except JournalDamagedError as error:
        if file.state == "open" and not data:
            return None
        raise PipelineError(f"'{file.name}' in {journal.where} is no journal: {error}") from error
    key = (journal.where, file.name)
    known = _known.pop(key, None)
    if known is None or known.decoder.header != header:  # another file of the same name
        known = RawFile(data[: header.size], header.first)
    _known[key] = known
    if len(_known) > KNOWN_MAX:
        _known.popitem(last=False)
    return known


def read_file_header(journal: Journal, file: File) -> FileHeader | None:
    """Return the header of a file, if it has one. Raises what `raw_file` raises."""
    raw = raw_file(journal, file)
    return None if raw is None else raw.decoder.header


def blocks(journal: Journal, file: File, known: RawFile, start: int, end: int, size: int) -> Iterator[Block]:
    """Yield the blocks with events from the seq `start` up to `end`, exclusively.

    `size`: bytes to read at once.

    Damaged parts are skipped. Raises GoneError, PipelineError.
    """
    decoder = known.decoder
    at = known.place(start)
    wanted = size
    while True:
        data = journal.read(file, at, wanted)
        decoder.replace_data(data, at)
        behind = 0
        for block in decoder.blocks():
            if block.first >= end:
                known.note(block.first, decoder.end - block.size)
                return
            behind = block.first + len(block)
            if behind > start:
                yield block
        if behind:
            known.note(behind, decoder.end)
        if len(data) < wanted:
            return
        wanted = size if decoder.end > at else 2 * wanted  # otherwise a block is larger than the bytes read
        at = decoder.end


def find_next_seq(journal: Journal, file: File, size: int) -> int:
    """Return the seq behind the last event of a complete file. Raises GoneError, PipelineError."""
    known = raw_file(journal, file)
    if known is None:
        return file.first
    for _ in blocks(journal, file, known, known.behind, 1 << 62, size):
        pass
    return known.behind


def find_ends(journal: Journal, size: int) -> Seqs:
    """Return the seq behind each node's last written event. Raises PipelineError.

    `size`: bytes to read at once, where only the bytes of the last file show its end.
    """
    ends: Seqs = {}
    for node, extent in journal.extents().items():
        ends[node] = extent.next if extent.next is not None else _scanned(journal, node, size)
    return ends


def _scanned(journal: Journal, node: str, size: int) -> int:
    while True:
        last = [file for file in journal.files(node, SEQ_MAX) if file.last is None]
        extent = journal.extents()[node]
        if not last and extent.next is not None:
            return extent.next  # the file was sealed and deleted just now
        try:
            if last:
                return find_next_seq(journal, last[-1], size)
        except FileDeletedError:
            continue
