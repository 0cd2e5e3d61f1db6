"""Raw files, from where they have been read before, and where journals end."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from pipeline.errors import PipelineError
from pipeline.journal.journals import GoneError, Journal
from protocol.journal.catalogue import File
from protocol.journal.decoder import Block, Decoder, FileHeader, JournalDamagedError, read_header

HEADER_BYTES: Final = 4096  # more than one has
KNOWN_MAX: Final = 64

_known: OrderedDict[tuple[str, str], RawFile] = OrderedDict()  # Spark uses workers again
SEQ_MAX: Final = (1 << 62) - 1

Seqs = dict[str, int]
"""For each node the seq of an event."""


class RawFile:
    """A raw file as far as it is known: its names, and where in its bytes some seqs are.

    `behind`: the seq behind the last one that was seen.
    """

    def __init__(self, header: bytes, first: int) -> None:
        self.decoder = Decoder(header)
        size = self.decoder.header.size
        self._seqs = [first]
        self._places = [size]

    @property
    def behind(self) -> int:
        """The last seq that has been noted: all before it have been seen."""
        return self._seqs[-1]

    def note(self, seq: int, place: int) -> None:
        """Note that the bytes behind `place` have the seqs from `seq` on."""
        if seq > self._seqs[-1]:
            self._seqs.append(seq)
            self._places.append(place)

    def place(self, seq: int) -> int:
        """Where to read on for a seq."""
        return self._places[max(bisect_right(self._seqs, seq) - 1, 0)]


def raw_file(journal: Journal, file: File) -> RawFile | None:
    """Return the known part of a file; None: the file has no header yet.

    Raises GoneError; PipelineError: the file is none of a journal.
    """
    data = journal.read(file, 0, HEADER_BYTES)
    try:
        header = read_header(data)
    except JournalDamagedError as error:
        if file.state == "open" and not data:
            return None
        raise PipelineError(f"'{file.name}' in {journal.where} is no journal: {error}") from error
    key = (journal.where, file.name)
    found = _known.pop(key, None)
    if found is None or found.decoder.header != header:  # a file of this name may be another one
        found = RawFile(data[: header.size], header.first)
    _known[key] = found
    if len(_known) > KNOWN_MAX:
        _known.popitem(last=False)
    return found


def header_of(journal: Journal, file: File) -> FileHeader | None:
    """Return the header of a file, if it has one. Raises what `raw_file` raises."""
    found = raw_file(journal, file)
    return None if found is None else found.decoder.header


def blocks(journal: Journal, file: File, known: RawFile, start: int, end: int, size: int) -> Iterator[Block]:
    """The blocks with events from the seq `start` up to `end`, exclusively; `size`: bytes to read in one go.

    What is damaged is passed over. Raises GoneError, PipelineError.
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
        wanted = size if decoder.end > at else 2 * wanted  # else a block is larger than what was read
        at = decoder.end


def next_of(journal: Journal, file: File, size: int) -> int:
    """The seq behind the last event of a file that is whole. Raises GoneError, PipelineError."""
    known = raw_file(journal, file)
    if known is None:
        return file.first
    for _ in blocks(journal, file, known, known.behind, 1 << 62, size):
        pass
    return known.behind


def ends(journal: Journal, size: int) -> Seqs:
    """The seq behind each node's last event that is written. Raises PipelineError.

    `size`: bytes that are read in one go, where only the bytes of the last file tell.
    """
    found: Seqs = {}
    for node, extent in journal.extents().items():
        found[node] = extent.next if extent.next is not None else _scanned(journal, node, size)
    return found


def _scanned(journal: Journal, node: str, size: int) -> int:
    while True:
        last = [file for file in journal.files(node, SEQ_MAX) if file.last is None]
        extent = journal.extents()[node]
        if not last and extent.next is not None:
            return extent.next  # it has been sealed and let go just now
        try:
            if last:
                return next_of(journal, last[-1], size)
        except GoneError:
            continue
