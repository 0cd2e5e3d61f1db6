"""Events of a range of seqs, or from a time on, from the files that have them now."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.connector.streams import DataLossError
from pipeline.errors import PipelineError
from pipeline.journal.journals import FileDeletedError, Journal
from pipeline.journal.raw import blocks, find_ends, raw_file, read_file_header
from pipeline.journal.schema import EVENTS
from protocol.journal.catalogue import File
from protocol.journal.columns import batch_of
from protocol.journal.decoder import Block

ROWS: Final = 16_384  # rows of a batch for Spark
LOG: Final = logging.getLogger("amqpd.pipeline")


class EventReader:
    """Reads the events of `node` from the seq `start` up to `end`, exclusively.

    A deleted event is a loss: an error, or with `fail_on_loss` false a warning. A hole is an event that no
    file has, or whose bytes are damaged, while the journal continues behind it. Holes are logged and skipped,
    as nothing fills them later. A journal that ends before the range is an error in any case.
    """

    def __init__(
        self,
        journal: Journal,
        node: str,
        start: int,
        end: int,
        fail_on_loss: bool,
        size: int,
        without: Iterable[str] = (),
    ) -> None:
        """`size`: bytes to read at once. `without`: names of files to treat as deleted."""
        self._journal = journal
        self._node = node
        self._at = start
        self._end = end
        self._fail_on_loss = fail_on_loss
        self._size = size
        self._gone: set[str] = set(without)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the events, with EVENTS. Raises DataLossError, ServerError, PipelineError."""
        files = self._journal.files(self._node, self._at, self._end)
        while self._at < self._end:
            file = find_file(files, self._at, self._gone)
            if file is None:
                self._pass_over(files)
                continue
            try:
                yield from self._of_file(file)
            except FileDeletedError:  # sealed meanwhile, or deleted
                self._gone.add(file.name)
                files = self._journal.files(self._node, self._at, self._end)

    def _of_file(self, file: File) -> Iterator[pa.RecordBatch]:
        end = self._end if file.last is None else min(self._end, file.last + 1)
        for batch in file_batches(self._journal, file, self._at, end, self._size):
            seqs = batch.column("seq")
            behind = seqs[-1].as_py() + 1
            missing = behind - self._at - len(seqs)
            self._at = behind
            if missing:
                self._tell_hole(missing, file)
            yield batch
        if self._at < end:
            self._require_written(end)
            self._tell_hole(end - self._at, file)
            self._at = end

    def _pass_over(self, files: Sequence[File]) -> None:
        """Skip events that no file has, up to the next present one."""
        at = self._at
        extent = self._journal.extents().get(self._node)
        following = min((file.first for file in files if file.first > at), default=self._end)
        gone = [file for file in files if file.name in self._gone and file.first <= at <= (file.last or at)]
        if extent is None:
            self._lose(self._end, f"node '{self._node}' has no journal in {self._journal.where} any more")
        elif at < extent.first:
            first = min(extent.first, self._end)
            self._lose(first, f"the journal of node '{self._node}' begins with {extent.first} now")
        elif gone:
            last = gone[0].last
            behind = self._end if last is None else min(last + 1, self._end)
            self._lose(behind, f"file '{gone[0].name}' does not exist any more")
        else:
            self._require_written(following)
            self._tell_hole(following - at, None)
            self._at = following

    def _require_written(self, end: int) -> None:
        """Raise DataLossError if the journal ends before `end`, so that missing events are no hole."""
        behind = find_ends(self._journal, self._size).get(self._node, 0)
        if behind < end:
            raise DataLossError(
                f"the journal of node '{self._node}' ends before event {behind}, and events {self._at} to "
                f"{end - 1} were to be read"
            )

    def _lose(self, behind: int, why: str) -> None:
        what = f"events {self._at} to {behind - 1} are lost: {why}"
        if self._fail_on_loss:
            raise DataLossError(f"{what}; failOnDataLoss=false continues without them")
        LOG.warning("%s", what)
        self._at = behind

    def _tell_hole(self, count: int, file: File | None) -> None:
        where = "" if file is None else f" in '{file.name}'"
        LOG.warning("the journal of node '%s' has a hole of %d events%s", self._node, count, where)


def find_file(files: Sequence[File], seq: int, gone: set[str]) -> File | None:
    """Return the file that has an event, sealed rather than raw; None: no present file has the event."""
    matches = [
        file
        for file in files
        if file.name not in gone and file.first <= seq and (file.last is None or seq <= file.last)
    ]
    return max(matches, key=lambda file: (file.first, file.state == "sealed"), default=None)


def file_batches(journal: Journal, file: File, start: int, end: int, size: int) -> Iterator[pa.RecordBatch]:
    """Yield a file's events from seq `start` up to `end`, exclusively. Raises GoneError, PipelineError."""
    batches = (
        _sealed(journal, file, start, end)
        if file.state == "sealed"
        else _raw(journal, file, start, end, size)
    )
    for batch in batches:
        part = _between(batch, start, end)
        if part.num_rows:
            yield _as_events(part)


def _sealed(journal: Journal, file: File, start: int, end: int) -> Iterator[pa.RecordBatch]:
    with journal.opened(file) as opened:
        try:
            parquet = pq.ParquetFile(opened)
            place = parquet.schema_arrow.get_field_index("seq")
            groups = [
                number
                for number in range(parquet.num_row_groups)
                if _overlaps(parquet.metadata.row_group(number).column(place).statistics, start, end)
            ]
            yield from parquet.iter_batches(batch_size=ROWS, row_groups=groups)
        except pa.ArrowInvalid as error:
            raise PipelineError(f"'{file.name}' in {journal.where} is damaged: {error}") from error


def _overlaps(seqs: Any, start: int, end: int) -> bool:
    return seqs is None or not seqs.has_min_max or (seqs.min < end and seqs.max >= start)


def _raw(journal: Journal, file: File, start: int, end: int, size: int) -> Iterator[pa.RecordBatch]:
    known = raw_file(journal, file)
    if known is None:
        return
    waiting: list[Block] = []
    rows = 0
    for block in blocks(journal, file, known, start, end, size):
        waiting.append(block)
        rows += len(block)
        if rows >= ROWS:
            yield batch_of(known.decoder, waiting)
            waiting, rows = [], 0
    if waiting:
        yield batch_of(known.decoder, waiting)


def _between(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """Return the rows of a range; their seqs grow."""
    seqs = batch.column("seq")
    if batch.num_rows == 0 or (seqs[0].as_py() >= start and seqs[-1].as_py() < end):
        return batch
    return batch.filter(pc.and_(pc.greater_equal(seqs, start), pc.less(seqs, end)))


def _as_events(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the columns of EVENTS; columns that a file lacks are null."""
    there = set(batch.schema.names)
    schema = _schema()
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in there
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@cache
def _schema() -> pa.Schema:
    return to_arrow_schema(EVENTS, timezone="UTC")


def find_seq_at(journal: Journal, node: str, time: int, end: int, size: int) -> int:
    """Return the seq of the first event of `node` from a time on, in µs since 1970; `end`: no such event.

    Raises PipelineError.
    """
    files = list({file.first: file for file in reversed(journal.files(node, 0))}.values())[::-1]
    after = bisect_left(files, time, key=lambda file: _begun(journal, file))
    for file in files[max(after - 1, 0) :]:
        try:
            for batch in file_batches(journal, file, file.first, end, size):
                late = pc.greater_equal(batch.column("ts").cast(pa.int64()), time)
                at = pc.index(late, True).as_py()
                if at >= 0:
                    return int(batch.column("seq")[at].as_py())
        except FileDeletedError:  # sealed or deleted just now; the reader finds that out
            continue
    return end


def _begun(journal: Journal, file: File) -> int:
    """Return the time of a file's begin, or at most a moment later."""
    if file.earliest is not None:
        return file.earliest
    try:
        header = read_file_header(journal, file)
    except FileDeletedError:
        return 0
    return 1 << 62 if header is None else header.created
