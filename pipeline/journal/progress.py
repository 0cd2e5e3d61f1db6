"""How a streaming query goes on: from the seqs that are committed to those of the next batch."""

from __future__ import annotations

import logging
from typing import Final

from pipeline.connector.offsets import shares
from pipeline.connector.streams import DataLossError
from pipeline.journal.journals import journal_of
from pipeline.journal.options import JournalOptions
from pipeline.journal.planning import Seqs, Slice, ends, firsts, resolved, tasks
from pipeline.polling import Poll

LOG: Final = logging.getLogger("amqpd.pipeline")


class Progress:
    """Plans the batches of a stream; one is in the process that plans. Raises PipelineError everywhere."""

    def __init__(self, options: JournalOptions) -> None:
        self._options = options
        self._journal = journal_of(options)
        self._initial: Seqs | None = None
        self._end: Seqs | None = None  # with the trigger AvailableNow
        self._seen: Seqs | None = None
        self._poll = Poll(options.poll)

    def initial(self) -> Seqs:
        """Where the first batch begins; the same as long as this process lives."""
        if self._initial is None:
            self._initial = resolved(self._options.starting, self._journal, self._options.fetch_bytes)
        return self._initial

    def fix_end(self) -> None:
        """Nothing that comes from now on is to be read."""
        self._end = ends(self._journal, self._options.fetch_bytes)

    def end_seen(self) -> Seqs | None:
        """Where journals ended when that was last looked at."""
        return self._seen

    def next_batch(self, start: Seqs, rows: int | None) -> Seqs:
        """Where the next batch ends; `start` itself if there is nothing for it."""
        if not self._poll.is_due():
            return start
        tails = ends(self._journal, self._options.fetch_bytes) if self._end is None else self._end
        self._seen = dict(tails)
        new = tails.keys() - start.keys()
        if new:
            first = firsts(self._journal)
            start = start | {node: first.get(node, tails[node]) for node in new}
        for node, seq in start.items():
            if seq > tails.get(node, seq):
                self._step_back(node, seq, tails[node])
        backlogs = {node: max(tails.get(node, seq) - seq, 0) for node, seq in start.items()}
        given = backlogs if rows is None else shares(backlogs, rows)
        end = {node: min(seq, tails.get(node, seq)) + given[node] for node, seq in start.items()}
        if end == start:
            self._poll.found_nothing()
        return end

    def slices(self, start: Seqs, end: Seqs) -> list[Slice]:
        """What tasks read of a batch, which may have been planned in an earlier life."""
        return tasks(self._journal, start, end, self._options.fail_on_loss, self._options.fetch_bytes)

    def _step_back(self, node: str, seq: int, behind: int) -> None:
        what = (
            f"the journal of node '{node}' ends before event {behind}, and events up to {seq - 1} were read"
        )
        if self._options.fail_on_loss:
            raise DataLossError(f"{what}: it is another one; failOnDataLoss=false goes on with what comes")
        LOG.warning("%s", what)
