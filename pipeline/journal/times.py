"""Where in a journal a time is."""

from __future__ import annotations

from bisect import bisect_left

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.journal.events import file_batches
from pipeline.journal.journals import GoneError, Journal
from pipeline.journal.raw import header_of
from protocol.journal.catalogue import File


def at_time(journal: Journal, node: str, time: int, end: int, size: int) -> int:
    """The seq of the first event of `node` from a time on, in microseconds since 1970; `end`: there is none.

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
        except GoneError:  # sealed just now, or let go; whoever reads what is behind it, finds that out
            continue
    return end


def _begun(journal: Journal, file: File) -> int:
    """When a file began, or at most a moment later."""
    if file.earliest is not None:
        return file.earliest
    try:
        header = header_of(journal, file)
    except GoneError:
        return 0
    return 1 << 62 if header is None else header.created
